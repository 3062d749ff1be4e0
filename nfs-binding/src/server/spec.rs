//! Parsing of exports on a command line.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::{BadNetwork, Export, ExportOptions, HandleKey, Squash};
use crate::fs::DirectoryFs;
use crate::fs::directory::DirectoryOptions;
use crate::overrides::{Overridden, Overrides};

/// The names of options; `=` marks those with a value.
const OPTIONS: [&str; 21] = [
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
    "crossmnt",
    "nocrossmnt",
    "nohide",
    "hide",
    "fsid=",
    "inode_reuse",
    "no_inode_reuse",
    // This server always behaves like this.
    "no_subtree_check",
];

/// A directory to export: `DIR[:OPTION,...]` or `NAME=DIR[:OPTION,...]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportSpec {
    /// The path that clients mount, with or without a slash before it: NAME, or DIR as an absolute
    /// path. Symbolic links are part of it, unless DIR contains `..`.
    pub path: String,
    /// DIR.
    pub directory: PathBuf,
    /// The options.
    pub options: ExportOptions,
    /// The options that have no effect because another one contradicts them.
    pub overridden: Vec<Overridden>,
}

/// The reason why a description of an export is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The description has no directory before the options.
    #[error("{0:?} names no directory; write DIR[:OPTION,...] or NAME=DIR[:OPTION,...]")]
    NoDirectory(String),
    /// The description has no name before the `=`.
    #[error("{0:?} has an empty name before the \"=\"")]
    NoName(String),
    /// The option is unknown.
    #[error(
        "unknown export option {0:?}; there are ro, rw, root_squash, no_root_squash, all_squash, \
         secure, insecure, sync, async, anonuid=UID, anongid=GID, client=ADDRESS[/PREFIX], crossmnt, \
         nohide, fsid=NUMBER|UUID, inode_reuse"
    )]
    UnknownOption(String),
    /// The value is not the number of a user or group.
    #[error("export option {option}: {value:?} is not a number from 0 to 4294967294")]
    BadNumber {
        /// The option.
        option: &'static str,
        /// The value.
        value: String,
    },
    /// The value of `fsid` is invalid.
    #[error(
        "export option fsid: {0:?} is neither a number (fsid=7), nor root, nor a UUID \
         (fsid=01234567-89ab-cdef-0123-456789abcdef)"
    )]
    BadFsid(String),
    /// The value of `client` is invalid.
    #[error("export option client: {0}")]
    BadClient(#[from] BadNetwork),
    /// DIR is relative, and the working directory cannot be determined.
    #[error("{0:?} cannot be made an absolute path")]
    NoWorkingDirectory(String),
    /// DIR contains `..`, and what it leads to cannot be determined.
    #[error("{directory:?} contains \"..\" and cannot be resolved ({reason}); write NAME=DIR")]
    Unresolved {
        /// DIR.
        directory: String,
        /// The error of the host.
        reason: String,
    },
}

impl ExportSpec {
    /// Opens the directory for [`super::NfsServer::new`] with the same key. At most `most_open`
    /// objects in it are kept open. With `direct_io`, files are read and written without the page
    /// cache where possible ([`DirectoryOptions::direct_io`]).
    ///
    /// # Errors
    /// The errors of [`DirectoryFs::open`].
    pub fn open(
        self,
        key: &HandleKey,
        most_open: Option<usize>,
        direct_io: bool,
    ) -> io::Result<Export> {
        let options = DirectoryOptions {
            most_open,
            direct_io,
            ..self.options.directory(key)
        };
        Ok(Export {
            backend: Arc::new(DirectoryFs::open(&self.directory, options)?),
            path: self.path,
            options: self.options,
        })
    }

    /// Parses a description. DIR may contain colons and equals signs: options begin after the first
    /// colon that is followed by valid options only, or else after the first one that is followed by
    /// any valid option, or else after the last colon, unless a slash follows. A name contains neither
    /// slash nor colon.
    ///
    /// # Errors
    /// [`SpecError`] if the description is invalid. Whether DIR exists is not checked, unless it contains
    /// `..` and there is no NAME.
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
            None => mounted_as(directory)?,
        };
        Ok(Self {
            path,
            directory: PathBuf::from(directory),
            options: ExportOptions::parse(options)?,
            overridden: overridden(options),
        })
    }
}

/// Returns the path that clients mount for a directory without a name.
fn mounted_as(directory: &str) -> Result<String, SpecError> {
    let path = Path::new(directory);
    // Clients resolve `..` themselves, and would never ask for such a path. After a symbolic link, only
    // the host knows where it leads to.
    let absolute = if path.components().any(|part| part == Component::ParentDir) {
        path.canonicalize().map_err(|error| SpecError::Unresolved {
            directory: directory.to_owned(),
            reason: error.to_string(),
        })?
    } else {
        std::path::absolute(path)
            .map_err(|_| SpecError::NoWorkingDirectory(directory.to_owned()))?
    };
    let text = absolute.into_os_string().into_string();
    text.map_err(|_| SpecError::NoWorkingDirectory(directory.to_owned()))
}

/// Splits a description into the directory and its options.
fn split(text: &str) -> (&str, &str) {
    let is_option = |item: &str| {
        OPTIONS.iter().any(|option| match option.strip_suffix('=') {
            Some(_) => item.starts_with(option),
            None => item == *option,
        })
    };
    let splits = || {
        let colons = text.match_indices(':');
        colons.map(|(at, _)| (&text[..at], &text[at + 1..]))
    };
    // An option that is mistyped must not make the others part of the directory's name: clients that
    // they exclude would be let in if there were such a directory.
    let valid = splits().find(|(_, options)| options.split(',').all(is_option));
    let found = valid.or_else(|| splits().find(|(_, options)| options.split(',').any(is_option)));
    if let Some(found) = found {
        return found;
    }
    match text.rsplit_once(':') {
        Some((place, options)) if !options.contains('/') => (place, options),
        _ => (text, ""),
    }
}

/// Returns the options of a list, separated by commas, that have no effect because another one
/// contradicts them: a later one, or `all_squash` in any place in the case of `no_root_squash`.
#[must_use]
pub fn overridden(options: &str) -> Vec<Overridden> {
    let mut overrides = Overrides::default();
    let (mut root, mut all) = (None, None);
    for item in options.split(',') {
        match item.split_once('=') {
            Some(("anonuid", value)) => overrides.set("anonuid", value, item),
            Some(("anongid", value)) => overrides.set("anongid", value, item),
            Some(("fsid", value)) => overrides.set("fsid", value, item),
            // Each `client=` allows more clients.
            Some(_) => {}
            None => match item {
                "ro" | "rw" => overrides.set("rw", item, item),
                "sync" | "async" => overrides.set("sync", item, item),
                "secure" | "insecure" => overrides.set("secure", item, item),
                "crossmnt" | "nocrossmnt" => overrides.set("crossmnt", item, item),
                "nohide" | "hide" => overrides.set("nohide", item, item),
                "inode_reuse" | "no_inode_reuse" => overrides.set("inode_reuse", item, item),
                "root_squash" | "no_root_squash" => {
                    overrides.set("root", item, item);
                    root = Some(item);
                }
                "all_squash" | "no_all_squash" => {
                    overrides.set("all", item, item);
                    all = Some(item);
                }
                _ => {}
            },
        }
    }
    let mut found = overrides.into_found();
    // All users include root. `root_squash` says nothing else, so it is not reported.
    if let (Some(earlier @ "no_root_squash"), Some(later @ "all_squash")) = (root, all) {
        found.push(Overridden {
            earlier: earlier.to_owned(),
            later: later.to_owned(),
        });
    }
    found
}

fn number(option: &'static str, value: &str) -> Result<u32, SpecError> {
    // All ones means "no user" to the host.
    value
        .parse()
        .ok()
        .filter(|&number| number != u32::MAX)
        .ok_or_else(|| SpecError::BadNumber {
            option,
            value: value.to_owned(),
        })
}

/// Parses a file system number as in exports(5). The two halves of a UUID are combined by exclusive
/// or.
fn fsid(value: &str) -> Option<u64> {
    if value == "root" {
        return Some(0);
    }
    let digits: String = value.chars().filter(|&c| c != '-' && c != ':').collect();
    if digits.len() == 32 && digits.is_ascii() {
        let (high, low) = digits.split_at(16);
        let half = |digits| u64::from_str_radix(digits, 16).ok();
        return Some(half(high)? ^ half(low)?);
    }
    match value.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => value.parse().ok(),
    }
}

impl ExportOptions {
    /// Parses a list of options, separated by commas. Missing options are as in
    /// [`ExportOptions::default`].
    ///
    /// # Errors
    /// The errors of [`ExportOptions::with`].
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        Self::default().with(text)
    }

    /// Applies a list of options, separated by commas, to these options. If options contradict, the
    /// last one wins. Squashing root and squashing all users are independent settings, and the latter
    /// includes the former, as with knfsd.
    ///
    /// # Errors
    /// [`SpecError`] if an option is unknown or has an invalid value.
    pub fn with(self, text: &str) -> Result<Self, SpecError> {
        let before = self.squash;
        let (mut root, mut all) = (None, None);
        let mut options = self;
        for item in text.split(',').filter(|item| !item.is_empty()) {
            match item.split_once('=') {
                None => match item {
                    "ro" => options.read_only = true,
                    "rw" => options.read_only = false,
                    "root_squash" => root = Some(Squash::Root),
                    "no_root_squash" => root = Some(Squash::None),
                    "all_squash" => all = Some(true),
                    "no_all_squash" => all = Some(false),
                    "sync" => options.sync = true,
                    "async" => options.sync = false,
                    "secure" => options.secure = true,
                    "insecure" => options.secure = false,
                    "crossmnt" => options.crossmnt = true,
                    "nocrossmnt" => options.crossmnt = false,
                    "nohide" => options.nohide = true,
                    "hide" => options.nohide = false,
                    "inode_reuse" => options.inode_reuse = true,
                    "no_inode_reuse" => options.inode_reuse = false,
                    implied if OPTIONS.contains(&implied) => {}
                    _ => return Err(SpecError::UnknownOption(item.to_owned())),
                },
                Some(("anonuid", value)) => options.anonymous_uid = number("anonuid", value)?,
                Some(("anongid", value)) => options.anonymous_gid = number("anongid", value)?,
                Some(("fsid", value)) => {
                    let number = fsid(value);
                    options.fsid =
                        Some(number.ok_or_else(|| SpecError::BadFsid(value.to_owned()))?);
                }
                Some(("client", value)) => options.clients.push(value.parse()?),
                Some(_) => return Err(SpecError::UnknownOption(item.to_owned())),
            }
        }
        options.squash = match (all, root, before) {
            (Some(true), ..) | (None, _, Squash::All) => Squash::All,
            (_, Some(root), _) => root,
            // These options do not say what applies to root without `all_squash`.
            (Some(false), None, Squash::All) => Self::default().squash,
            (_, None, before) => before,
        };
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
        // Options after it tell such a directory from a mistyped list.
        let odd = parse("/srv/a:ro,b/c:rw");
        assert_eq!(odd.directory, Path::new("/srv/a:ro,b/c"));
    }

    /// `..` after a symbolic link leads to the parent of its target.
    #[test]
    fn directories_above_are_exported_as_what_they_are() {
        let host = tempfile::tempdir().unwrap();
        let host = host.path().canonicalize().unwrap();
        std::fs::create_dir_all(host.join("a/b")).unwrap();
        std::os::unix::fs::symlink("a/b", host.join("link")).unwrap();
        let at = |path: &str| format!("{}/{path}", host.display());
        for (directory, path) in [("a/b/../b", "a/b"), ("link/..", "a"), ("link", "link")] {
            assert_eq!(parse(&at(directory)).path, at(path), "{directory}");
        }
        let error = ExportSpec::parse(&at("none/../a")).unwrap_err().to_string();
        assert!(error.contains("write NAME=DIR"), "{error}");
        assert_eq!(parse(&format!("name={}", at("none/../a"))).path, "name");
    }

    #[test]
    fn what_can_be_opened_can_be_exported() {
        let host = tempfile::tempdir().unwrap();
        let text = format!("name={}:ro", host.path().display());
        let key = HandleKey::from_bytes([7; 16]);
        let export = parse(&text).open(&key, None, false).unwrap();
        assert_eq!(export.path, "name");
        assert!(export.options.read_only && export.backend.blocks());
        assert!(parse("/does/not/exist").open(&key, None, false).is_err());
    }

    #[test]
    fn later_options_win() {
        let options = parse("/d:ro,rw,root_squash,no_root_squash,secure,insecure").options;
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

    /// knfsd has a flag for root and one for all users, and asks the latter first.
    #[test]
    fn root_and_all_users_are_squashed_independently() {
        for (text, squash) in [
            ("all_squash,root_squash", Squash::All),
            ("all_squash,no_root_squash", Squash::All),
            ("root_squash,all_squash", Squash::All),
            ("no_root_squash,all_squash", Squash::All),
            ("no_all_squash,all_squash", Squash::All),
            ("root_squash,all_squash,no_all_squash", Squash::Root),
            ("all_squash,no_root_squash,no_all_squash", Squash::None),
            ("root_squash,no_all_squash", Squash::Root),
        ] {
            for is_root in [false, true] {
                let options = ExportOptions::for_server(is_root).with(text).unwrap();
                assert_eq!(options.squash, squash, "{text}");
            }
        }
        let all = ExportOptions::for_server(false).with("all_squash").unwrap();
        let then = |text| all.clone().with(text).unwrap().squash;
        assert_eq!(then("no_root_squash"), Squash::All);
        assert_eq!(then("no_all_squash,no_root_squash"), Squash::None);
        assert_eq!(then("no_all_squash"), ExportOptions::default().squash);
    }

    #[test]
    fn what_a_later_option_overrides_is_noted() {
        let noted = |text: &str| -> Vec<String> {
            let spec = parse(&format!("/d:{text}"));
            spec.overridden.iter().map(ToString::to_string).collect()
        };
        for (text, said) in [
            ("ro,rw", "option ro is overridden by rw"),
            ("sync,ro,async", "option sync is overridden by async"),
            ("fsid=1,fsid=2", "option fsid=1 is overridden by fsid=2"),
            (
                "anonuid=1,anonuid=2",
                "option anonuid=1 is overridden by anonuid=2",
            ),
            (
                "root_squash,no_root_squash",
                "option root_squash is overridden by no_root_squash",
            ),
            (
                "all_squash,no_root_squash",
                "option no_root_squash is overridden by all_squash",
            ),
            (
                "no_root_squash,all_squash",
                "option no_root_squash is overridden by all_squash",
            ),
            (
                "all_squash,no_all_squash",
                "option all_squash is overridden by no_all_squash",
            ),
        ] {
            assert_eq!(noted(text), [said], "{text}");
        }
        for silent in [
            "ro,ro",
            "root_squash,all_squash",
            "all_squash,root_squash",
            "root_squash,no_all_squash",
            "no_root_squash,no_all_squash",
            "client=10.0.0.1,client=10.0.0.2",
            "no_subtree_check,sync,secure",
        ] {
            assert_eq!(noted(silent), [""; 0], "{silent}");
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
            ("/d:ro,sec=krb5", "unknown export option \"sec=krb5\""),
            (
                "/d:client=10.0.0.0/8,readonly",
                "unknown export option \"readonly\"",
            ),
            (
                "/d:readonly,client=2001:db8::/32",
                "unknown export option \"readonly\"",
            ),
            (
                "/a:b:client=10.0.0.0/8,readonly",
                "unknown export option \"readonly\"",
            ),
            ("/d:fsid=seven", "fsid: \"seven\" is neither"),
            ("/d:fsid=", "fsid: \"\" is neither"),
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
    fn file_systems_have_numbers_as_in_exports_5() {
        let fsid = |text: &str| parse(&format!("/d:fsid={text}")).options.fsid;
        assert_eq!(fsid("7"), Some(7));
        assert_eq!(fsid("0x10"), Some(16));
        assert_eq!(fsid("root"), Some(0));
        let uuid = "00000000-0000-0001-0000-0000000000f0";
        assert_eq!(fsid(uuid), Some(0xf1));
        assert_eq!(fsid("00000000:00000001:00000000:000000f0"), fsid(uuid));
    }

    #[test]
    fn options_are_printed_as_they_are_written() {
        let text = "ro,root_squash,secure,async,anonuid=5,client=10.0.0.0/8";
        assert_eq!(ExportOptions::parse(text).unwrap().to_string(), text);
    }
}
