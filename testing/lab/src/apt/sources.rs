//! The machine's archives, from both formats of apt's sources (sources.list(5)).

use std::fs;
use std::path::Path;

use crate::error::Error;

/// The Debian release of the guest.
const RELEASE: &str = "bookworm";
/// The suite with a newer QEMU.
pub const BACKPORTS: &str = "bookworm-backports";

/// An archive and the suites of it that are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The addresses, separated by blanks.
    pub uris: String,
    /// The suites, for example `bookworm bookworm-updates`.
    pub suites: Vec<String>,
    /// All other fields that describe access to it or trust in it, unchanged: `Signed-By: …` with
    /// its continuation lines.
    pub options: Vec<String>,
}

/// Reads all package archives of the machine's apt, from `folder`/sources.list and
/// `folder`/sources.list.d.
///
/// # Errors
/// [`Error::File`].
pub fn read(folder: &Path) -> Result<Vec<Source>, Error> {
    let mut files = vec![folder.join("sources.list")];
    let parts = folder.join("sources.list.d");
    if parts.exists() {
        for entry in fs::read_dir(&parts).map_err(Error::file(&parts))? {
            files.push(entry.map_err(Error::file(&parts))?.path());
        }
    }
    files.sort();
    let mut sources = Vec::new();
    for file in files.iter().filter(|file| file.exists()) {
        let parse = match file.extension().and_then(|name| name.to_str()) {
            Some("sources") => stanzas,
            Some("list") => one_liners,
            _ => continue,
        };
        sources.extend(parse(&fs::read_to_string(file).map_err(Error::file(file))?));
    }
    Ok(sources)
}

/// Returns the sources of the private apt: those of Debian 12, and its backports from the same
/// place. Returns `None` if there are none of Debian 12.
#[must_use]
pub fn with_backports(sources: &[Source]) -> Option<String> {
    let is_ours = |suite: &String| {
        let suite = suite.trim_end_matches('/');
        suite == RELEASE
            || suite
                .strip_prefix(RELEASE)
                .is_some_and(|rest| rest.starts_with('-'))
    };
    let mut ours: Vec<Source> = sources
        .iter()
        .cloned()
        .map(|mut source| {
            source.suites.retain(is_ours);
            source
        })
        .filter(|source| !source.suites.is_empty())
        .collect();
    if !ours
        .iter()
        .any(|source| source.suites.iter().any(|suite| suite == BACKPORTS))
    {
        let mut backports = ours
            .iter()
            .find(|source| source.suites.iter().any(|suite| suite == RELEASE))?
            .clone();
        backports.suites = vec![BACKPORTS.to_owned()];
        ours.push(backports);
    }
    let stanzas: Vec<_> = ours.iter().map(stanza).collect();
    Some(stanzas.join("\n"))
}

fn stanza(source: &Source) -> String {
    let mut text = format!(
        "Types: deb\nURIs: {}\nSuites: {}\nComponents: main\n",
        source.uris,
        source.suites.join(" ")
    );
    for option in &source.options {
        text.push_str(option);
        text.push('\n');
    }
    text
}

/// Parses the deb822 format: fields, with one stanza per archive.
fn stanzas(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    for stanza in lines.split(|line| line.trim().is_empty()) {
        let mut fields: Vec<(String, String)> = Vec::new();
        for line in stanza {
            match line.split_once(':') {
                Some((name, value)) if !line.starts_with([' ', '\t']) => {
                    fields.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
                }
                // A continuation line: another address, or a line of a key.
                _ => {
                    if let Some((_, value)) = fields.last_mut() {
                        value.push('\n');
                        value.push_str(line);
                    }
                }
            }
        }
        let words = |wanted: &str| -> Vec<String> {
            let found = fields.iter().find(|(name, _)| name == wanted);
            let words = found.iter().flat_map(|(_, value)| value.split_whitespace());
            words.map(str::to_owned).collect()
        };
        let is_off = words("enabled").first().is_some_and(|word| word == "no");
        let has = |name, wanted: &str| words(name).iter().any(|word| word == wanted);
        if is_off || !has("types", "deb") || !has("components", "main") {
            continue;
        }
        let ours = ["types", "uris", "suites", "components", "enabled"];
        sources.push(Source {
            uris: words("uris").join(" "),
            suites: words("suites"),
            options: fields
                .iter()
                .filter(|(name, _)| !ours.contains(&name.as_str()))
                .map(|(name, value)| format!("{name}: {value}"))
                .collect(),
        });
    }
    sources
}

/// Parses the older format: `deb [options] address suite components...`.
fn one_liners(text: &str) -> Vec<Source> {
    text.lines().filter_map(one_liner).collect()
}

fn one_liner(line: &str) -> Option<Source> {
    let line = line.split('#').next()?.trim();
    let rest = line.strip_prefix("deb")?;
    if !rest.starts_with([' ', '\t']) {
        return None;
    }
    let rest = rest.trim();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let mut words = rest.split_whitespace();
    let (uri, suite) = (words.next()?, words.next()?);
    if !words.any(|component| component == "main") {
        return None;
    }
    let options = options.split_whitespace().filter_map(|option| {
        let (name, value) = option.split_once('=')?;
        Some(format!("{name}: {}", value.replace(',', " ")))
    });
    Some(Source {
        uris: uri.to_owned(),
        suites: vec![suite.to_owned()],
        options: options.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEB822: &str = "\
Types: deb deb-src
# a comment
URIs: http://one.test/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQ==

Types: deb
URIs: http://two.test/x
Suites: nodistro
Components: main

Enabled: no
Types: deb
URIs: http://off.test
Suites: bookworm
Components: main
";

    #[test]
    fn stanzas_keep_keys_and_drop_what_is_off() {
        let sources = stanzas(DEB822);
        assert_eq!(sources.len(), 2);
        assert_eq!(sources[0].uris, "http://one.test/debian");
        assert_eq!(sources[0].suites, ["bookworm", "bookworm-updates"]);
        let key = "signed-by: \n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mQ==";
        assert_eq!(sources[0].options, [key]);
    }

    #[test]
    fn one_liners_with_options_and_without() {
        let sources = one_liners(
            "deb http://a.test/d bookworm main\n\
             # deb http://no.test/d bookworm main\n\
             deb-src http://no.test/d bookworm main\n\
             deb http://no.test/d bookworm contrib\n\
             deb [signed-by=/k.gpg arch=amd64,i386] http://b.test/s bookworm-security main # x\n",
        );
        assert_eq!(sources.len(), 2);
        assert_eq!(sources[0].suites, ["bookworm"]);
        assert!(sources[0].options.is_empty());
        assert_eq!(sources[1].uris, "http://b.test/s");
        assert_eq!(
            sources[1].options,
            ["signed-by: /k.gpg", "arch: amd64 i386"]
        );
    }

    #[test]
    fn backports_come_from_where_the_release_comes_from() {
        let mut sources = stanzas(DEB822);
        sources.extend(one_liners("deb http://b.test/s bookworm-security main"));
        let ours = with_backports(&sources).unwrap();
        assert!(!ours.contains("nodistro"));
        let again = stanzas(&ours);
        assert_eq!(again.len(), 3);
        assert_eq!(again[2].suites, [BACKPORTS]);
        assert_eq!(again[2].uris, again[0].uris);
        assert_eq!(again[2].options, again[0].options);
        // Backports that are already in the sources stay in their place.
        assert_eq!(stanzas(&with_backports(&again).unwrap()), again);
    }

    #[test]
    fn another_release_will_not_do() {
        let sources =
            one_liners("deb http://a.test/d trixie main\ndeb http://a.test/d bookwormx main");
        assert_eq!(with_backports(&sources), None);
    }
}
