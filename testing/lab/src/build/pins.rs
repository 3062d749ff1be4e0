//! The packages of the guest with their versions and hashes. They stay the same until they are
//! refreshed, even if the archive changes.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::apt::packages::{self, Package};
use crate::apt::{Apt, sources};
use crate::cache::{self, Cache};
use crate::error::Error;

/// The file name in the cache directory.
const FILE: &str = "pins.json";
/// The prefix of a kernel package's name.
const IMAGE: &str = "linux-image-";
/// The kernel of the guest, from Debian 12: a package that depends on the newest build.
const KERNEL: &str = "linux-image-6.12-amd64";
/// The kernel's source.
const SOURCE: &str = "linux-source-6.12";
/// QEMU, which runs the guest. Debian 12's own QEMU 7.2 panics multi-threaded guests; that of its
/// backports does not.
const QEMU: [&str; 1] = ["qemu-system-x86"];

/// The packages of the guest, without dependencies.
const GUEST: [&str; 44] = [
    // A system to run scripts on.
    "base-files",
    "bash",
    "busybox-static",
    "coreutils",
    "dash",
    // `which`, that pjdfstest runs.
    "debianutils",
    "diffutils",
    "e2fsprogs",
    "findutils",
    "grep",
    "hostname",
    "kmod",
    "libc-bin",
    "mawk",
    "mount",
    "netbase",
    "procps",
    "sed",
    "util-linux",
    // Users and quotas in file systems.
    "acl",
    "quota",
    // Networks.
    "ethtool",
    "iproute2",
    "iputils-ping",
    "strace",
    "tcpdump",
    // Verbs.
    "ibverbs-providers",
    "ibverbs-utils",
    "libibverbs1",
    "librdmacm1",
    "perftest",
    "rdma-core",
    "rdmacm-utils",
    // Programs to run on mounts.
    "fio",
    "gcc",
    "git",
    "libc6-dev",
    "make",
    "sqlite3",
    // A key distribution center.
    "krb5-admin-server",
    "krb5-kdc",
    // Linux's NFS.
    "nfs-common",
    "nfs-kernel-server",
    "rpcbind",
];

fn guest_names() -> Vec<String> {
    GUEST.map(str::to_owned).to_vec()
}

/// All packages in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pins {
    /// The kernel's release, as printed by `uname -r`.
    pub release: String,
    /// QEMU and its libraries.
    pub qemu: Vec<Package>,
    /// The kernel, its headers and its source.
    pub kernel: Vec<Package>,
    /// The packages in the guest's root file system.
    pub guest: Vec<Package>,
    /// The names from which the packages of the guest were resolved. Empty in files of older labs.
    #[serde(default)]
    pub guest_names: Vec<String>,
}

impl Pins {
    /// Resolves the newest versions that apt knows.
    ///
    /// # Errors
    /// Those of apt.
    pub fn resolve(apt: &Apt) -> Result<Self, Error> {
        let shown = apt.show(KERNEL)?;
        let release = release(packages::field(&shown, "Depends")?)?;
        // The source must have exactly the version of the image, or the driver may not fit.
        let version = packages::field(&shown, "Version")?;
        let kernel = kernel_packages(&release, version)?;
        Ok(Self {
            qemu: apt.closure(&QEMU, Some(sources::BACKPORTS))?,
            kernel: apt.exactly(&kernel)?,
            guest: apt.closure(&GUEST, None)?,
            guest_names: guest_names(),
            release,
        })
    }

    /// Reads the packages of the last build. Returns `None` if there was no build, if the file cannot be
    /// read, or if it was resolved for other packages of the guest.
    #[must_use]
    pub fn read(cache: &Cache) -> Option<Self> {
        let pins: Self = serde_json::from_slice(&fs::read(cache.path(FILE)).ok()?).ok()?;
        (pins.guest_names == guest_names()).then_some(pins)
    }

    /// Stores the packages.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn write(&self, cache: &Cache) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| Error::Apt(format!("packages cannot be written: {error}")))?;
        cache::write(&cache.path(FILE), &text)
    }

    /// Returns all packages.
    pub fn all(&self) -> impl Iterator<Item = &Package> {
        [&self.qemu, &self.kernel, &self.guest]
            .into_iter()
            .flatten()
    }

    /// Returns the package with this name.
    #[must_use]
    pub fn package(&self, name: &str) -> Option<&Package> {
        self.all().find(|package| package.name == name)
    }

    /// Returns the kernel packages whose names start with `prefix`.
    pub fn kernel_packages(&self, prefix: &str) -> impl Iterator<Item = &Package> {
        let prefix = prefix.to_owned();
        self.kernel
            .iter()
            .filter(move |package| package.name.starts_with(&prefix))
    }
}

/// Returns the release of the kernel that the package depends on.
fn release(depends: &str) -> Result<String, Error> {
    depends
        .split([',', ' '])
        .find_map(|word| word.strip_prefix(IMAGE))
        .map(str::to_owned)
        .ok_or_else(|| Error::Apt(format!("{KERNEL} depends on no kernel: {depends}")))
}

fn kernel_packages(release: &str, version: &str) -> Result<Vec<String>, Error> {
    let base = release
        .strip_suffix("-amd64")
        .ok_or_else(|| Error::Apt(format!("{release} is no kernel for amd64")))?;
    Ok(vec![
        format!("{IMAGE}{release}"),
        format!("linux-headers-{release}"),
        format!("linux-headers-{base}-common"),
        format!("linux-kbuild-{base}"),
        format!("{SOURCE}={version}"),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_what_its_package_depends_on() {
        let depends = "linux-image-6.12.117+deb12-amd64 (= 6.12.117-1~deb12u1), x";
        let release = release(depends).unwrap();
        assert_eq!(release, "6.12.117+deb12-amd64");
        let names = kernel_packages(&release, "6.12.117-1").unwrap();
        assert!(names.contains(&"linux-headers-6.12.117+deb12-common".to_owned()));
        assert!(names.contains(&"linux-source-6.12=6.12.117-1".to_owned()));
        assert!(super::release("libc6").is_err());
        assert!(kernel_packages("6.12.1-arm64", "1").is_err());
    }

    #[test]
    fn pins_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path()).unwrap();
        assert_eq!(Pins::read(&cache), None);
        let pins = Pins {
            release: "6.12.1+deb12-amd64".to_owned(),
            qemu: Vec::new(),
            kernel: vec![Package {
                name: "linux-source-6.12".to_owned(),
                version: "6.12.1-1".to_owned(),
                file: "linux-source-6.12_6.12.1-1_all.deb".to_owned(),
                size: 1,
                sha256: "00".repeat(32),
            }],
            guest: Vec::new(),
            guest_names: guest_names(),
        };
        pins.write(&cache).unwrap();
        assert_eq!(Pins::read(&cache).as_ref(), Some(&pins));
        let other = Pins {
            guest_names: vec!["bash".to_owned()],
            ..pins.clone()
        };
        other.write(&cache).unwrap();
        assert_eq!(Pins::read(&cache), None, "for other packages");
        assert_eq!(pins.kernel_packages("linux-source").count(), 1);
        assert!(pins.package("linux-source-6.12").is_some());
        cache::write(&cache.path(FILE), "{}").unwrap();
        assert_eq!(Pins::read(&cache), None);
    }
}
