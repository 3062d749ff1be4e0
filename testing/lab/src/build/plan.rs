//! The build steps, in order, with their keys.

use std::path::Path;

use crate::apt::packages::Package;
use crate::build::pins::Pins;
use crate::build::{modules, siw};
use crate::cache::{self, Cache};
use crate::error::Error;

/// A part of the guest or of its emulator. Its results are in a directory of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// QEMU, with its libraries and firmware.
    Qemu,
    /// The soft-iWARP driver, which Debian's kernel leaves out.
    Siw,
    /// The kernel and the needed modules, not compressed.
    Kernel,
    /// Debian packages, as a tree of files.
    Root,
    /// The root file system, as an image.
    Image,
    /// The initramfs, which mounts the root file system.
    Initramfs,
}

impl Part {
    /// All parts, in build order.
    pub const ALL: [Self; 6] = [
        Self::Qemu,
        Self::Siw,
        Self::Kernel,
        Self::Root,
        Self::Image,
        Self::Initramfs,
    ];

    /// Returns the name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::Siw => "siw",
            Self::Kernel => "kernel",
            Self::Root => "root",
            Self::Image => "image",
            Self::Initramfs => "initramfs",
        }
    }

    /// Returns the version of the build recipe. It must be incremented when a change of the recipe
    /// changes the result.
    fn recipe(self) -> u32 {
        match self {
            // With a link for `which`.
            Self::Root => 2,
            _ => 1,
        }
    }
}

/// The scripts that are part of the guest. All others are in the shared directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scripts {
    /// The first process of the root file system.
    pub init: String,
    /// The first process of the initramfs.
    pub initramfs: String,
}

impl Scripts {
    /// Reads the scripts.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn read(folder: &Path) -> Result<Self, Error> {
        Ok(Self {
            init: cache::read(&folder.join("init.sh"))?,
            initramfs: cache::read(&folder.join("initramfs.sh"))?,
        })
    }
}

/// The keys of all parts.
#[derive(Debug)]
pub struct Plan {
    keys: [String; Part::ALL.len()],
}

impl Plan {
    /// Computes the keys from these packages and scripts.
    #[must_use]
    pub fn new(pins: &Pins, scripts: &Scripts) -> Self {
        let mut plan = Self {
            keys: Default::default(),
        };
        for part in Part::ALL {
            let made_from = match part {
                Part::Qemu => list(&pins.qemu),
                Part::Siw => list(&pins.kernel) + &siw::patches_as_text(),
                Part::Kernel => {
                    let names = modules::MODULES.join("\n") + &modules::EARLY.join("\n");
                    plan.key(Part::Siw).to_owned() + &names
                }
                Part::Root => list(&pins.guest),
                Part::Image => {
                    [plan.key(Part::Kernel), plan.key(Part::Root), &scripts.init].concat()
                }
                Part::Initramfs => {
                    let script = &scripts.initramfs;
                    [plan.key(Part::Kernel), plan.key(Part::Root), script].concat()
                }
            };
            let key = format!("{} {}\n{made_from}\n", part.name(), part.recipe());
            plan.keys[part as usize] = key;
        }
        plan
    }

    /// Returns the key of a part.
    #[must_use]
    pub fn key(&self, part: Part) -> &str {
        &self.keys[part as usize]
    }

    /// Returns the parts that must be built, in order.
    #[must_use]
    pub fn stale(&self, cache: &Cache) -> Vec<Part> {
        let is_stale = |part: &Part| !cache.is_current(part.name(), self.key(*part));
        Part::ALL.into_iter().filter(is_stale).collect()
    }
}

fn list(packages: &[Package]) -> String {
    let line = |package: &Package| format!("{} {}\n", package.exact(), package.sha256);
    packages.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, version: &str) -> Package {
        Package {
            name: name.to_owned(),
            version: version.to_owned(),
            file: format!("{name}_{version}_all.deb"),
            size: 1,
            sha256: "00".repeat(32),
        }
    }

    fn pins() -> Pins {
        Pins {
            release: "6.12.1+deb12-amd64".to_owned(),
            qemu: vec![package("qemu-system-x86", "10")],
            kernel: vec![package("linux-source-6.12", "6.12.1")],
            guest: vec![package("nfs-common", "2.6")],
            guest_names: vec!["nfs-common".to_owned()],
        }
    }

    fn scripts() -> Scripts {
        Scripts {
            init: "init".to_owned(),
            initramfs: "early".to_owned(),
        }
    }

    /// Fills a cache as if everything had been built from the packages above.
    fn built(cache: &Cache) {
        let plan = Plan::new(&pins(), &scripts());
        for part in plan.stale(cache) {
            cache
                .build(part.name(), plan.key(part), |_| Ok(()))
                .unwrap();
        }
    }

    #[test]
    fn only_what_depends_on_a_change_is_built_again() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path()).unwrap();
        assert_eq!(Plan::new(&pins(), &scripts()).stale(&cache), Part::ALL);
        built(&cache);
        let stale = |change: fn(&mut Pins, &mut Scripts)| {
            let (mut pins, mut scripts) = (pins(), scripts());
            change(&mut pins, &mut scripts);
            Plan::new(&pins, &scripts).stale(&cache)
        };
        assert_eq!(stale(|_, _| ()), []);
        assert_eq!(
            stale(|pins, _| pins.qemu[0].version.push('1')),
            [Part::Qemu]
        );
        assert_eq!(stale(|_, scripts| scripts.init.push(' ')), [Part::Image]);
        assert_eq!(
            stale(|_, scripts| scripts.initramfs.push(' ')),
            [Part::Initramfs]
        );
        assert_eq!(
            stale(|pins, _| pins.guest.push(package("strace", "6"))),
            [Part::Root, Part::Image, Part::Initramfs]
        );
        assert_eq!(
            stale(|pins, _| pins.kernel[0].sha256.replace_range(0..1, "f")),
            [Part::Siw, Part::Kernel, Part::Image, Part::Initramfs]
        );
    }
}
