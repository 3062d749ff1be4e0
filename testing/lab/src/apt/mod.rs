//! Debian packages without changes to the machine's own: a private apt with an empty package
//! database, the machine's archives and bookworm-backports. The archives' addresses and keys come
//! from the machine's configuration ([`sources`]). The resolved packages are stored ([`packages`]).

pub mod packages;
pub mod sources;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cache::{self, Cache};
use crate::command::Tool;
use crate::error::Error;
use crate::log::Log;
use crate::stop::Stop;
use packages::Package;

/// The time-out of fetching package lists.
const UPDATE: Duration = Duration::from_secs(300);
/// The time-out of fetching packages.
const DOWNLOAD: Duration = Duration::from_secs(1200);
/// The directory of the machine's apt configuration.
const MACHINES: &str = "/etc/apt";

/// The private apt.
#[derive(Debug)]
pub struct Apt {
    folder: PathBuf,
    archives: PathBuf,
    stop: Stop,
}

impl Apt {
    /// Sets up the private apt in the cache directory.
    ///
    /// # Errors
    /// [`Error::NoArchive`], or an error of writing files.
    pub fn new(cache: &Cache, stop: &Stop) -> Result<Self, Error> {
        let apt = Self {
            folder: cache.path("apt"),
            archives: cache.path("packages"),
            stop: stop.clone(),
        };
        for folder in ["lists/partial", "cache/archives/partial", "sources"] {
            let folder = apt.folder.join(folder);
            fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
        }
        fs::create_dir_all(&apt.archives).map_err(Error::file(&apt.archives))?;
        let machine = sources::read(Path::new(MACHINES))?;
        let ours = sources::with_backports(&machine).ok_or(Error::NoArchive)?;
        cache::write(&apt.folder.join("sources/lab.sources"), &ours)?;
        cache::write(&apt.folder.join("status"), "")?;
        cache::write(&apt.folder.join("apt.conf"), &configuration(&apt.folder))?;
        Ok(apt)
    }

    /// Fetches the package lists if there are none yet, or if `again` is set.
    ///
    /// # Errors
    /// Those of `apt-get update`.
    pub fn update(&self, again: bool, log: &Log) -> Result<(), Error> {
        let fetched = self.folder.join("fetched");
        // Package lists of other archives are useless.
        let sources = cache::read(&self.folder.join("sources/lab.sources"))?;
        if !again && fs::read_to_string(&fetched).is_ok_and(|of| of == sources) {
            return Ok(());
        }
        log.say("apt: fetching package lists");
        self.get(&["-o", "APT::Update::Error-Mode=any", "update"], UPDATE)?;
        cache::write(&fetched, &sources)
    }

    /// Resolves packages with all their dependencies. `release` is the suite to prefer over Debian
    /// 12's own.
    ///
    /// # Errors
    /// Those of `apt-get`; [`Error::Apt`] if its output cannot be parsed.
    pub fn closure(&self, names: &[&str], release: Option<&str>) -> Result<Vec<Package>, Error> {
        let mut args = vec!["--print-uris", "--no-install-recommends", "-y"];
        if let Some(release) = release {
            args.extend(["-t", release]);
        }
        args.push("install");
        args.extend(names);
        packages::parse(&self.get(&args, UPDATE)?)
    }

    /// Resolves packages without dependencies; `name` or `name=version`.
    ///
    /// # Errors
    /// The errors of [`Apt::closure`].
    pub fn exactly(&self, names: &[String]) -> Result<Vec<Package>, Error> {
        let mut args = vec!["--print-uris", "download"];
        args.extend(names.iter().map(String::as_str));
        packages::parse(&self.get(&args, UPDATE)?)
    }

    /// Returns the fields of a package's newest version.
    ///
    /// # Errors
    /// Those of `apt-cache`.
    pub fn show(&self, name: &str) -> Result<String, Error> {
        self.tool("apt-cache")
            .args(["--no-all-versions", "show", name])
            .run(&self.stop)
    }

    /// Fetches missing packages, and checks them against the hashes of the package lists.
    ///
    /// # Errors
    /// Those of `apt-get`; [`Error::Command`] if a file has another hash.
    pub fn download(&self, packages: &[Package], log: &Log) -> Result<(), Error> {
        let missing: Vec<_> = packages
            .iter()
            .filter(|package| !self.file(package).exists())
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let bytes: u64 = missing.iter().map(|package| package.size).sum();
        log.say(format!(
            "apt: fetching {} packages, {} MB",
            missing.len(),
            bytes >> 20
        ));
        let partial = self.archives.join("partial");
        cache::remove(&partial)?;
        fs::create_dir_all(&partial).map_err(Error::file(&partial))?;
        self.tool("apt-get")
            .args(["-qq", "download"])
            .args(missing.iter().map(|package| package.exact()))
            .folder(&partial)
            .limit(DOWNLOAD)
            .run(&self.stop)?;
        cache::write(&partial.join("sums"), &packages::checksums(&missing))?;
        Tool::new("sha256sum")
            .args(["--check", "--strict", "--quiet", "sums"])
            .folder(&partial)
            .run(&self.stop)?;
        for package in missing {
            let to = self.file(package);
            fs::rename(partial.join(&package.file), &to).map_err(Error::file(&to))?;
        }
        cache::remove(&partial)
    }

    /// Removes packages that are no longer used.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn prune<'a>(&self, used: impl Iterator<Item = &'a Package>) -> Result<(), Error> {
        let used: BTreeSet<_> = used.map(|package| self.file(package)).collect();
        for entry in fs::read_dir(&self.archives).map_err(Error::file(&self.archives))? {
            let path = entry.map_err(Error::file(&self.archives))?.path();
            if path.is_file() && !used.contains(&path) {
                fs::remove_file(&path).map_err(Error::file(&path))?;
            }
        }
        Ok(())
    }

    /// Returns the path of a fetched package.
    #[must_use]
    pub fn file(&self, package: &Package) -> PathBuf {
        self.archives.join(&package.file)
    }

    fn get(&self, args: &[&str], limit: Duration) -> Result<String, Error> {
        self.tool("apt-get")
            .arg("-qq")
            .args(args)
            .limit(limit)
            .run(&self.stop)
    }

    fn tool(&self, name: &str) -> Tool {
        Tool::new(name).env("APT_CONFIG", self.folder.join("apt.conf"))
    }
}

/// Returns the private configuration. It is read after the machine's own, so proxies and similar
/// settings of that apply.
fn configuration(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        r#"Dir::State "{folder}";
Dir::State::Lists "{folder}/lists";
Dir::State::Status "{folder}/status";
Dir::Cache "{folder}/cache";
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "{folder}/sources";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
APT::Architecture "amd64";
APT::Architectures "amd64";
Acquire::ForceHash "SHA256";
APT::Sandbox::User "root";
Debug::NoLocking "1";
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_that_are_in_use_stay() {
        let folder = tempfile::tempdir().unwrap();
        let apt = Apt {
            folder: folder.path().to_path_buf(),
            archives: folder.path().to_path_buf(),
            stop: Stop::new(),
        };
        let package = |version: &str| Package {
            name: "kmod".to_owned(),
            version: version.to_owned(),
            file: format!("kmod_{version}_amd64.deb"),
            size: 1,
            sha256: "00".repeat(32),
        };
        for version in ["29", "30"] {
            cache::write(&apt.file(&package(version)), "").unwrap();
        }
        apt.prune([package("30")].iter()).unwrap();
        assert!(apt.file(&package("30")).exists() && !apt.file(&package("29")).exists());
    }

    #[test]
    fn everything_private_is_in_the_folder() {
        let text = configuration(Path::new("/c/apt"));
        for key in ["Dir::State", "Dir::State::Status", "Dir::Cache"] {
            let line = text
                .lines()
                .find(|line| line.split_once(' ').is_some_and(|(name, _)| name == key));
            assert!(line.is_some_and(|line| line.contains("\"/c/apt")), "{key}");
        }
    }
}
