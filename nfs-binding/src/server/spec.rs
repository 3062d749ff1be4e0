//! Exports as they are written on a command line.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{BadNetwork, Export, ExportOptions, Squash};
use crate::fs::DirectoryFs;
use crate::fs::directory::DirectoryOptions;

/// Names of options, with the `=` of those that have a value.
const OPTIONS: [&str; 14] = [
    "ro",
    "rw",
    "root_squash",
    "no_root_squash",
    "all_squash",
    "secure",
    "insecure",
    "sync",
    "async",
    "anonuid=",
    "anongid=",
    "client=",
    "no_all_squash",
    // This says what this server does anyway.
    "no_subtree_check",
];

/// A directory to be exported: `DIR[:OPTION,...]` or `NAME=DIR[:OPTION,...]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportSpec {
    /// What clients mount: NAME, or DIR as an absolute path.
    pub path: String,
    /// DIR.
    pub directory: PathBuf,
    /// How.
    pub options: ExportOptions,
}

/// What is wrong with an export's description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// Nothing before the options.
    #[error("{0:?} names no directory; write DIR[:OPTION,...] or NAME=DIR[:OPTION,...]")]
    NoDirectory(String),
    /// Nothing before the `=`.
    #[error("{0:?} has an empty name before the \"=\"")]
    NoName(String),
    /// No such option.
    #[error(
        "unknown export option {0:?}; there are ro, rw, root_squash, no_root_squash, all_squash, \
         secure, insecure, sync, async, anonuid=UID, anongid=GID, client=ADDRESS[/PREFIX]"
    )]
    UnknownOption(String),
    /// Not a number of a user or group.
    #[error("export option {option}: {value:?} is not a number from 0 to 4294967294")]
    BadNumber {
        /// The option.
        option: &'static str,
        /// Its value.
        value: String,
    },
    /// Not a client.
    #[error("export option client: {0}")]
    BadClient(#[from] BadNetwork),
    /// DIR is relative, and the working directory cannot be had.
    #[error("{0:?} cannot be made an absolute path")]
    NoWorkingDirectory(String),
}

impl ExportSpec {
    /// Opens the directory, for [`super::NfsServer::new`].
    ///
    /// # Errors
    /// As [`DirectoryFs::open`].
    pub fn open(self) -> io::Result<Export> {
        let options = DirectoryOptions {
            sync: self.options.sync,
            ..DirectoryOptions::default()
        };
        Ok(Export {
            backend: Arc::new(DirectoryFs::open(&self.directory, options)?),
            path: self.path,
            options: self.options,
        })
    }

    /// Parses a description. DIR may have colons and equals signs: options begin where all that
    /// follows is options, or else after the last colon unless a slash follows; a name has neither
    /// slash nor colon.
    ///
    /// # Errors
    /// What is wrong with it. Whether DIR exists is not looked at.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let (place, options) = split(text);
        let (name, directory) = match place.split_once('=') {
            Some((name, directory)) if !name.contains(['/', ':']) => (Some(name), directory),
            _ => (None, place),
        };
        if directory.is_empty() {
            return Err(SpecError::NoDirectory(text.to_owned()));
        }
        let path = match name {
            Some("") => return Err(SpecError::NoName(text.to_owned())),
            Some(name) => name.to_owned(),
            None => std::path::absolute(Path::new(directory))
                .ok()
                .and_then(|path| path.into_os_string().into_string().ok())
                .ok_or_else(|| SpecError::NoWorkingDirectory(directory.to_owned()))?,
        };
        Ok(Self {
            path,
            directory: PathBuf::from(directory),
            options: ExportOptions::parse(options)?,
        })
    }
}

/// A place and its options.
fn split(text: &str) -> (&str, &str) {
    let is_option = |item: &str| {
        OPTIONS.iter().any(|option| match option.strip_suffix('=') {
            Some(_) => item.starts_with(option),
            None => item == *option,
        })
    };
    for (at, _) in text.match_indices(':') {
        if text[at + 1..].split(',').all(is_option) {
            return (&text[..at], &text[at + 1..]);
        }
    }
    match text.rsplit_once(':') {
        Some((place, options)) if !options.contains('/') => (place, options),
        _ => (text, ""),
    }
}

fn number(option: &'static str, value: &str) -> Result<u32, SpecError> {
    // All ones stand for "no user" in the host's interfaces.
    value
        .parse()
        .ok()
        .filter(|&number| number != u32::MAX)
        .ok_or_else(|| SpecError::BadNumber {
            option,
            value: value.to_owned(),
        })
}

impl ExportOptions {
    /// Parses a list of options, separated by commas. What it does not say is as in
    /// [`ExportOptions::default`].
    ///
    /// # Errors
    /// As [`ExportOptions::with`].
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        Self::default().with(text)
    }

    /// The same options but for those in a list, which commas separate. Of contradictory ones the last
    /// counts.
    ///
    /// # Errors
    /// An option is unknown, or has a bad value.
    pub fn with(self, text: &str) -> Result<Self, SpecError> {
        let before = self.squash;
        let mut options = self;
        for item in text.split(',').filter(|item| !item.is_empty()) {
            match item.split_once('=') {
                None => match item {
                    "ro" => options.read_only = true,
                    "rw" => options.read_only = false,
                    "root_squash" => options.squash = Squash::Root,
                    "no_root_squash" => options.squash = Squash::None,
                    "all_squash" => options.squash = Squash::All,
                    "sync" => options.sync = true,
                    "async" => options.sync = false,
                    "secure" => options.secure = true,
                    "insecure" => options.secure = false,
                    "no_all_squash" if options.squash == Squash::All => options.squash = before,
                    implied if OPTIONS.contains(&implied) => {}
                    _ => return Err(SpecError::UnknownOption(item.to_owned())),
                },
                Some(("anonuid", value)) => options.anonymous_uid = number("anonuid", value)?,
                Some(("anongid", value)) => options.anonymous_gid = number("anongid", value)?,
                Some(("client", value)) => options.clients.push(value.parse()?),
                Some(_) => return Err(SpecError::UnknownOption(item.to_owned())),
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> ExportSpec {
        ExportSpec::parse(text).unwrap()
    }

    #[test]
    fn directories_names_and_options() {
        let plain = parse("/srv/data");
        assert_eq!(plain.path, "/srv/data");
        assert_eq!(plain.directory, Path::new("/srv/data"));
        assert_eq!(plain.options, ExportOptions::default());
        let named = parse("data=/srv/a=b:ro,root_squash,anonuid=5,anongid=6");
        assert_eq!(named.path, "data");
        assert_eq!(named.directory, Path::new("/srv/a=b"));
        let options = &named.options;
        assert!(options.read_only);
        assert_eq!(options.squash, Squash::Root);
        assert_eq!((options.anonymous_uid, options.anonymous_gid), (5, 6));
        let relative = parse("here:async");
        assert!(relative.path.starts_with('/') && relative.path.ends_with("/here"));
        assert!(!relative.options.sync);
    }

    #[test]
    fn clients_may_have_slashes_and_colons() {
        let spec = parse("/srv/a:b:client=10.0.0.0/8,rw,client=2001:db8::/32");
        assert_eq!(spec.directory, Path::new("/srv/a:b"));
        let clients: Vec<_> = spec
            .options
            .clients
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(clients, ["10.0.0.0/8", "2001:db8::/32"]);
        assert!(spec.options.allows("10.1.2.3".parse().unwrap()));
        assert!(!spec.options.allows("11.1.2.3".parse().unwrap()));
        assert_eq!(parse("/srv/a:b/c").directory, Path::new("/srv/a:b/c"));
    }

    #[test]
    fn what_can_be_opened_can_be_exported() {
        let host = tempfile::tempdir().unwrap();
        let text = format!("name={}:ro", host.path().display());
        let export = parse(&text).open().unwrap();
        assert_eq!(export.path, "name");
        assert!(export.options.read_only && export.backend.blocks());
        assert!(parse("/does/not/exist").open().is_err());
    }

    #[test]
    fn later_options_win() {
        let options = parse("/d:ro,rw,all_squash,no_root_squash,secure,insecure").options;
        assert!(!options.read_only && !options.secure);
        assert_eq!(options.squash, Squash::None);
        for is_root in [false, true] {
            let options = ExportOptions::for_server(is_root);
            let implied = options
                .clone()
                .with("no_subtree_check,all_squash,no_all_squash");
            assert_eq!(implied.unwrap(), options);
        }
    }

    #[test]
    fn a_server_that_runs_as_root_squashes_root_and_wants_reserved_ports() {
        let root = ExportOptions::for_server(true);
        assert_eq!((root.squash, root.secure), (Squash::Root, true));
        assert_eq!(root.to_string(), "rw,root_squash,secure,sync");
        let user = ExportOptions::for_server(false);
        assert_eq!((user.squash, user.secure), (Squash::None, false));
        assert_eq!(user.to_string(), "rw,no_root_squash,insecure,sync");
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(ExportOptions::default(), ExportOptions::for_server(is_root));
    }

    #[test]
    fn errors_say_what_is_wrong() {
        for (text, part) in [
            ("/d:readonly", "unknown export option \"readonly\""),
            ("/d:ro,fsid=0", "unknown export option \"fsid=0\""),
            ("/d:anonuid=nobody", "anonuid: \"nobody\" is not a number"),
            ("/d:anongid=4294967295", "is not a number"),
            ("/d:client=host.example", "host names are not looked up"),
            ("=/d", "empty name"),
            ("name=", "names no directory"),
            ("", "names no directory"),
            (":ro", "names no directory"),
        ] {
            let error = ExportSpec::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }

    #[test]
    fn options_are_printed_as_they_are_written() {
        let text = "ro,root_squash,secure,async,anonuid=5,client=10.0.0.0/8";
        assert_eq!(ExportOptions::parse(text).unwrap().to_string(), text);
    }
}
