//! The packages that the guest is made of, by version and hash, kept until they are refreshed: the
//! archive moves, a guest that was built does not.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::apt::packages::{self, Package};
use crate::apt::{Apt, sources};
use crate::cache::{self, Cache};
use crate::error::Error;

/// Where they are kept in the cache folder.
const FILE: &str = "pins.json";
/// What a kernel package's name starts with.
const IMAGE: &str = "linux-image-";
/// The kernel of the guest, from Debian 12 itself: a package that names the newest build of it.
const KERNEL: &str = "linux-image-6.12-amd64";
/// Its source.
const SOURCE: &str = "linux-source-6.12";
/// Runs the guest. Debian 12's own QEMU 7.2 panics multi-threaded guests, its backports do not.
const QEMU: [&str; 1] = ["qemu-system-x86"];

/// What is installed in the guest, with all it depends on.
const GUEST: [&str; 35] = [
    // A system to run scripts on.
    "base-files",
    "bash",
    "busybox-static",
    "coreutils",
    "dash",
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
    // What file systems know of users.
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
    // Linux's NFS.
    "nfs-common",
    "nfs-kernel-server",
    "rpcbind",
];

/// All packages in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pins {
    /// The kernel's release, as `uname -r` prints it.
    pub release: String,
    /// QEMU and its libraries.
    pub qemu: Vec<Package>,
    /// The kernel, its headers and its source.
    pub kernel: Vec<Package>,
    /// What is in the guest's root.
    pub guest: Vec<Package>,
}

impl Pins {
    /// The newest that apt knows of.
    ///
    /// # Errors
    /// Those of apt.
    pub fn resolve(apt: &Apt) -> Result<Self, Error> {
        let shown = apt.show(KERNEL)?;
        let release = release(packages::field(&shown, "Depends")?)?;
        // The source is that of the image to the letter, or the driver may not fit.
        let version = packages::field(&shown, "Version")?;
        let kernel = kernel_packages(&release, version)?;
        Ok(Self {
            qemu: apt.closure(&QEMU, Some(sources::BACKPORTS))?,
            kernel: apt.exactly(&kernel)?,
            guest: apt.closure(&GUEST, None)?,
            release,
        })
    }

    /// Those of the last build; `None` when there was none, or another lab's.
    #[must_use]
    pub fn read(cache: &Cache) -> Option<Self> {
        serde_json::from_slice(&fs::read(cache.path(FILE)).ok()?).ok()
    }

    /// Keeps them.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn write(&self, cache: &Cache) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| Error::Apt(format!("packages cannot be written: {error}")))?;
        cache::write(&cache.path(FILE), &text)
    }

    /// All packages.
    pub fn all(&self) -> impl Iterator<Item = &Package> {
        [&self.qemu, &self.kernel, &self.guest]
            .into_iter()
            .flatten()
    }

    /// The package of this name, wherever it is.
    #[must_use]
    pub fn package(&self, name: &str) -> Option<&Package> {
        self.all().find(|package| package.name == name)
    }

    /// The packages of the kernel whose name starts with this.
    pub fn kernel_packages(&self, prefix: &str) -> impl Iterator<Item = &Package> {
        let prefix = prefix.to_owned();
        self.kernel
            .iter()
            .filter(move |package| package.name.starts_with(&prefix))
    }
}

/// The release of the kernel that the package depends on.
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
        };
        pins.write(&cache).unwrap();
        assert_eq!(Pins::read(&cache).as_ref(), Some(&pins));
        assert_eq!(pins.kernel_packages("linux-source").count(), 1);
        assert!(pins.package("linux-source-6.12").is_some());
        cache::write(&cache.path(FILE), "{}").unwrap();
        assert_eq!(Pins::read(&cache), None);
    }
}
