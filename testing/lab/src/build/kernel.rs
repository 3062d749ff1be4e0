//! Builds the tree of the kernel and the modules that lanes use, with all their dependencies. The
//! modules are not compressed, because unpacking is slow in emulation.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::build::modules::{EARLY, MODULES};
use crate::build::{Part, Site, extract};
use crate::cache;
use crate::command::Tool;
use crate::error::Error;

/// Fills `to` with `vmlinuz`, and with trees `modules` and `early` that contain
/// `lib/modules/RELEASE`.
pub(super) fn build(site: &Site<'_>, to: &Path) -> Result<(), Error> {
    site.apt.download(&site.pins.kernel, site.log)?;
    let release = &site.pins.release;
    let tree = to.join("tree");
    fs::create_dir_all(&tree).map_err(Error::file(&tree))?;
    extract::skeleton(&tree)?;
    extract::packages(site, site.pins.kernel_packages("linux-image-"), &tree)?;
    let image = to.join("vmlinuz");
    fs::rename(tree.join(format!("boot/vmlinuz-{release}")), &image)
        .map_err(Error::file(&image))?;

    let all = tree.join("lib/modules").join(release);
    let siw = site.cache.step(Part::Siw.name()).join("siw.ko");
    copy(&siw, &all.join("extra/siw.ko"))?;
    depmod(site, &tree)?;
    let index = Index {
        files: dependencies(&cache::read(&all.join("modules.dep"))?),
        builtin: names(&cache::read(&all.join("modules.builtin"))?),
    };
    select(site, &index, &MODULES, &all, &to.join("modules"))?;
    select(site, &index, &EARLY, &all, &to.join("early"))?;
    cache::remove(&tree)
}

/// Copies modules and their dependencies into a separate tree.
fn select(
    site: &Site<'_>,
    index: &Index,
    wanted: &[&str],
    from: &Path,
    tree: &Path,
) -> Result<(), Error> {
    let to = tree.join("lib/modules").join(&site.pins.release);
    for file in index.closure(wanted)? {
        let source = from.join(&file);
        let unpacked = to.join(file.strip_suffix(".xz").unwrap_or(&file));
        if !file.ends_with(".xz") {
            copy(&source, &unpacked)?;
            continue;
        }
        cache::write(&unpacked, "")?;
        Tool::new("xz")
            .args(["--decompress", "--stdout"])
            .arg(&source)
            .output(File::create(&unpacked).map_err(Error::file(&unpacked))?)
            .run(site.stop)?;
    }
    for list in [
        "modules.builtin",
        "modules.builtin.modinfo",
        "modules.order",
    ] {
        copy(&from.join(list), &to.join(list))?;
    }
    depmod(site, tree)
}

fn depmod(site: &Site<'_>, tree: &Path) -> Result<(), Error> {
    Tool::new("depmod")
        .arg("--basedir")
        .arg(tree)
        .arg(&site.pins.release)
        .run(site.stop)?;
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(Error::file(folder))?;
    }
    fs::copy(from, to).map_err(Error::file(from))?;
    Ok(())
}

/// The output of depmod.
struct Index {
    /// For each module, its file and the files of all its dependencies.
    files: BTreeMap<String, Vec<String>>,
    /// The modules that are built into the kernel.
    builtin: BTreeSet<String>,
}

impl Index {
    /// Returns the files of modules with all their dependencies.
    fn closure(&self, wanted: &[&str]) -> Result<BTreeSet<String>, Error> {
        let mut files = BTreeSet::new();
        for name in wanted {
            match self.files.get(*name) {
                Some(of) => files.extend(of.iter().cloned()),
                None if self.builtin.contains(*name) => {}
                None => return Err(Error::NoModule((*name).to_owned())),
            }
        }
        Ok(files)
    }
}

/// Parses modules.dep: `a.ko.xz: b.ko.xz c.ko.xz`, where the list includes indirect dependencies.
fn dependencies(text: &str) -> BTreeMap<String, Vec<String>> {
    let line = |line: &str| {
        let (file, needs) = line.split_once(':')?;
        let needs = needs.split_whitespace();
        let files = [file].into_iter().chain(needs).map(str::to_owned);
        Some((name(file), files.collect()))
    };
    text.lines().filter_map(line).collect()
}

fn names(text: &str) -> BTreeSet<String> {
    text.lines().map(name).collect()
}

/// Returns a module's name: that of its file, with dashes replaced by underscores as in the kernel.
fn name(file: &str) -> String {
    let file = PathBuf::from(file);
    let name = file
        .file_name()
        .map(|name| name.to_string_lossy().replace('-', "_"));
    let name = name.unwrap_or_default();
    name.split('.').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> Index {
        Index {
            files: dependencies(
                "kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko.xz: kernel/ib-core.ko.xz kernel/a.ko\n\
                 kernel/ib-core.ko.xz:\n\
                 kernel/a.ko:\n\
                 extra/siw.ko: kernel/ib-core.ko.xz\n",
            ),
            builtin: names("kernel/net/packet/af_packet.ko\n"),
        }
    }

    #[test]
    fn a_module_comes_with_what_it_depends_on() {
        let files = index().closure(&["siw", "ib_core", "af_packet"]).unwrap();
        let files: Vec<_> = files.iter().map(String::as_str).collect();
        assert_eq!(files, ["extra/siw.ko", "kernel/ib-core.ko.xz"]);
        assert_eq!(index().closure(&["rdma_rxe"]).unwrap().len(), 3);
    }

    #[test]
    fn a_missing_module_is_an_error() {
        let missing = index().closure(&["siw", "no_such"]);
        assert!(matches!(missing, Err(Error::NoModule(name)) if name == "no_such"));
    }
}
