//! Case files and XDR files, as options name them.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::line::{Error, Line, lines};
use super::parse;
use crate::case::{Case, Ground};
use crate::dialect::Dialect;
use crate::vocabulary::Vocabulary;

/// The longest file, bytes, and the most files of a folder.
pub(super) const LONGEST: u64 = 256 << 10;
const MOST_FILES: usize = 1024;
/// The end of the names of case files in a folder.
const SUFFIX: &str = "case";

/// The names of all versions, with those of XDR files that are given.
#[derive(Clone, Debug)]
pub struct Vocabularies(Vec<(Dialect, Result<Arc<Vocabulary>, Error>)>);

impl Vocabularies {
    /// Reads the XDR files of each version, and adds `others`, each a name and a text. If a version cannot take one of
    /// them, [`Self::of`] returns the error.
    #[must_use]
    pub fn new(others: &[(String, String)]) -> Self {
        let all = Dialect::ALL.into_iter().map(|dialect| {
            let made = Self::made(dialect, others);
            (dialect, made.map(Arc::new))
        });
        Self(all.collect())
    }

    fn made(dialect: Dialect, others: &[(String, String)]) -> Result<Vocabulary, Error> {
        let wrong = |file: &str, error: crate::xdr::Error| Error {
            file: file.to_owned(),
            line: error.line,
            column: error.column,
            what: error.what,
            instead: format!(
                "a definition of the XDR language (RFC 4506, section 6.3); the files of {dialect} are known, and \
                 files that others need are given first"
            ),
        };
        let made = Vocabulary::new(dialect);
        let mut vocabulary = made.map_err(|(file, error)| wrong(&file, error))?;
        for (file, text) in others {
            vocabulary.add(text).map_err(|error| wrong(file, error))?;
        }
        Ok(vocabulary)
    }

    /// Reads XDR files, and adds them to those of the versions.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read(paths: &[PathBuf]) -> Result<Self, Error> {
        let texts = paths
            .iter()
            .map(|path| -> Result<_, Error> { Ok((shown(path), text(path)?)) });
        Ok(Self::new(&texts.collect::<Result<Vec<_>, Error>>()?))
    }

    /// Returns the names of a version.
    ///
    /// # Errors
    /// One of the files is none for this version.
    pub fn of(&self, dialect: Dialect) -> Result<Arc<Vocabulary>, Error> {
        let found = self.0.iter().find(|(it, _)| *it == dialect);
        match found {
            Some((_, made)) => made.clone(),
            // The constructor has made all.
            None => Self::made(dialect, &[]).map(Arc::new),
        }
    }
}

/// Makes cases of these files, and of all files of these folders whose names end in `.case`, on this ground.
/// `others` has the addresses of cases that are performed beside them.
///
/// # Errors
/// A file cannot be read, has an error, gives a case the address of another one, or a case in it needs one that there
/// is not.
pub fn load(
    paths: &[PathBuf],
    vocabularies: &Vocabularies,
    ground: &Ground,
    others: &[Case],
) -> Result<Vec<Case>, Error> {
    let mut owners: HashMap<String, String> = HashMap::new();
    for case in others {
        owners.insert(case.address(), "a built-in case".into());
    }
    let (mut all, mut needs) = (Vec::new(), Vec::new());
    for path in files(paths)? {
        let (name, text) = (shown(&path), text(&path)?);
        needs.extend(needed(&name, &text));
        for case in parse(&name, &text, vocabularies, ground)? {
            let address = case.address();
            if let Some(owner) = owners.insert(address.clone(), format!("a case of {name}")) {
                return Err(whole(
                    &path,
                    format!("{address} is also the address of {owner}"),
                    "another number".into(),
                ));
            }
            all.push(case);
        }
    }
    match needs.into_iter().find(|(it, _)| !owners.contains_key(it)) {
        None => Ok(all),
        Some((_, error)) => Err(error),
    }
}

/// Returns the addresses in lines `needs ADDRESS`, each with the error that there is if it is that of no case.
fn needed(file: &str, text: &str) -> Vec<(String, Error)> {
    let one = |line: Line<'_>| {
        let is_needs = line.text.split_whitespace().next() == Some("needs");
        let address = Some(line.address()).filter(|_| is_needs)?;
        let what = format!("{address} is the address of no case");
        let instead = "that of a case in these files, or give --built-in for the built-in ones";
        let wrong = line.wrong_at(address, what, instead);
        Some((address.to_owned(), wrong.of(file)))
    };
    lines(text).filter_map(one).collect()
}

/// Returns the files themselves, and those in folders, in the order of their names.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let mut all = Vec::new();
    for path in paths {
        if !path.is_dir() {
            all.push(path.clone());
            continue;
        }
        let unreadable = |error: std::io::Error| unreadable(path, &error);
        let mut found = Vec::new();
        for entry in std::fs::read_dir(path).map_err(unreadable)? {
            let inner = entry.map_err(unreadable)?.path();
            if inner.extension().is_none_or(|it| it != SUFFIX) {
                continue;
            }
            if found.len() >= MOST_FILES {
                let what = format!("it has more than {MOST_FILES} files NAME.{SUFFIX}");
                return Err(whole(path, what, "several folders with fewer".into()));
            }
            found.push(inner);
        }
        if found.is_empty() {
            let what = format!("no name of a file in it ends in .{SUFFIX}");
            return Err(whole(
                path,
                what,
                format!("cases into a file NAME.{SUFFIX}"),
            ));
        }
        found.sort();
        all.extend(found);
    }
    Ok(all)
}

fn text(path: &Path) -> Result<String, Error> {
    let mut text = String::new();
    let opened = File::open(path).map_err(|error| unreadable(path, &error))?;
    let read = opened.take(LONGEST + 1).read_to_string(&mut text);
    read.map_err(|error| unreadable(path, &error))?;
    match text.len() as u64 > LONGEST {
        false => Ok(text),
        true => {
            let what = format!("it has more than {LONGEST} bytes");
            Err(whole(path, what, "several shorter files".into()))
        }
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn whole(path: &Path, what: String, instead: String) -> Error {
    Error {
        file: shown(path),
        line: 0,
        column: 0,
        what,
        instead,
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    let what = format!("it cannot be read: {error}");
    whole(path, what, "the name of a readable text file".into())
}
