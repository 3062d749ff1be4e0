//! Builds the soft-iWARP driver out of tree: Debian's kernel has everything that it needs, but not
//! the driver itself.
//!
//! Its settings are constants in the source. Four of them become module parameters, so that a lane
//! can enable CRC or select another MPA revision without another build
//! (`/sys/module/siw/parameters`).

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::build::{Site, extract};
use crate::cache;
use crate::command::Tool;
use crate::error::Error;

/// The time-out of compiling, or of reading the kernel's source.
const LIMIT: Duration = Duration::from_secs(600);
/// The directory of the driver in the kernel's source.
const DRIVER: &str = "drivers/infiniband/sw/siw";

/// One line of the driver's source, and its replacement.
struct Patch {
    file: &'static str,
    line: &'static str,
    becomes: &'static str,
}

const PATCHES: [Patch; 8] = [
    Patch {
        file: "siw_main.c",
        line: "const bool mpa_crc_required;",
        becomes: "bool mpa_crc_required;\nmodule_param(mpa_crc_required, bool, 0644);",
    },
    Patch {
        file: "siw_main.c",
        line: "const bool mpa_crc_strict;",
        becomes: "bool mpa_crc_strict;\nmodule_param(mpa_crc_strict, bool, 0644);",
    },
    Patch {
        file: "siw_main.c",
        line: "u_char mpa_version = MPA_REVISION_2;",
        becomes: "u_char mpa_version = MPA_REVISION_2;\nmodule_param(mpa_version, byte, 0644);",
    },
    Patch {
        file: "siw_main.c",
        line: "const bool peer_to_peer;",
        becomes: "bool peer_to_peer;\nmodule_param(peer_to_peer, bool, 0644);",
    },
    Patch {
        file: "siw.h",
        line: "extern const bool mpa_crc_required;",
        becomes: "extern bool mpa_crc_required;",
    },
    Patch {
        file: "siw.h",
        line: "extern const bool mpa_crc_strict;",
        becomes: "extern bool mpa_crc_strict;",
    },
    Patch {
        file: "siw.h",
        line: "extern u_char mpa_version;",
        becomes: "extern u_char mpa_version;",
    },
    Patch {
        file: "siw.h",
        line: "extern const bool peer_to_peer;",
        becomes: "extern bool peer_to_peer;",
    },
];

/// Returns all patches as text, for the step's key.
pub(super) fn patches_as_text() -> String {
    let text = |patch: &Patch| format!("{}: {} -> {}\n", patch.file, patch.line, patch.becomes);
    PATCHES.iter().map(text).collect()
}

/// Compiles `siw.ko` into `to`.
pub(super) fn build(site: &Site<'_>, to: &Path) -> Result<(), Error> {
    site.apt.download(&site.pins.kernel, site.log)?;
    let headers = to.join("headers");
    fs::create_dir_all(&headers).map_err(Error::file(&headers))?;
    let tools = ["linux-headers-", "linux-kbuild-"];
    for prefix in tools {
        extract::packages(site, site.pins.kernel_packages(prefix), &headers)?;
    }
    let driver = to.join("siw");
    source(site, to)?;
    for file in ["siw_main.c", "siw.h"] {
        let path = driver.join(file);
        cache::write(&path, &patched(&cache::read(&path)?, file)?)?;
    }
    let tree = headers.join(format!("usr/src/linux-headers-{}", site.pins.release));
    // Debian's headers include each other by the paths at which they are installed.
    let makefile = tree.join("Makefile");
    let here = format!("{}/usr/src/", headers.display());
    let text = cache::read(&makefile)?.replace("/usr/src/", &here);
    cache::write(&makefile, &text)?;
    // Without this file, no type information is generated, which would need pahole.
    let _ = fs::remove_file(tree.join("vmlinux"));
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    Tool::new("make")
        .arg(format!("--jobs={jobs}"))
        .arg("--silent")
        .arg("-C")
        .arg(&tree)
        .arg(format!("M={}", driver.display()))
        .args(["CONFIG_RDMA_SIW=m", "modules"])
        .limit(LIMIT)
        .run(site.stop)?;
    let (made, kept) = (driver.join("siw.ko"), to.join("siw.ko"));
    fs::rename(&made, &kept).map_err(Error::file(&made))?;
    cache::remove(&headers)?;
    cache::remove(&driver)
}

/// Extracts the driver from the kernel's source, which is an archive in an archive.
fn source(site: &Site<'_>, to: &Path) -> Result<(), Error> {
    let name = "linux-source-";
    let package = site.pins.kernel_packages(name).next();
    let package = package.ok_or_else(|| Error::Apt(format!("there is no {name}")))?;
    let inner = to.join("source.tar.xz");
    Tool::new("tar")
        .args(["--extract", "--to-stdout"])
        .arg(format!("./usr/src/{}.tar.xz", package.name))
        .input(extract::files(site, package)?)
        .output(fs::File::create(&inner).map_err(Error::file(&inner))?)
        .limit(LIMIT)
        .run(site.stop)?;
    Tool::new("tar")
        .args(["--extract", "--xz", "--strip-components=4", "--file"])
        .arg(&inner)
        .arg("--directory")
        .arg(to)
        .arg(format!("{}/{DRIVER}", package.name))
        .limit(LIMIT)
        .run(site.stop)?;
    fs::remove_file(&inner).map_err(Error::file(&inner))
}

/// Applies the patches to a file. Fails if it does not contain the expected lines.
fn patched(text: &str, file: &str) -> Result<String, Error> {
    let mut lines: Vec<&str> = text.lines().collect();
    for patch in PATCHES.iter().filter(|patch| patch.file == file) {
        let line = lines.iter_mut().find(|line| **line == patch.line);
        *line.ok_or(Error::Patch {
            file: patch.file,
            line: patch.line,
        })? = patch.becomes;
    }
    Ok(lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN: &str = "/* a */\nconst bool mpa_crc_required;\nconst bool mpa_crc_strict;\n\
                        u_char mpa_version = MPA_REVISION_2;\nconst bool peer_to_peer;\nint b;\n";

    #[test]
    fn constants_become_parameters() {
        let text = patched(MAIN, "siw_main.c").unwrap();
        assert!(text.starts_with("/* a */\nbool mpa_crc_required;\nmodule_param(mpa_crc_required"));
        assert!(text.ends_with("int b;\n"));
        assert!(!text.contains("const"));
    }

    #[test]
    fn another_source_is_refused() {
        let other = MAIN.replace("const bool peer_to_peer;", "static bool peer_to_peer;");
        let refused = patched(&other, "siw_main.c");
        assert!(matches!(refused, Err(Error::Patch { line, .. }) if line.contains("peer_to_peer")));
    }

    #[test]
    fn declarations_follow_definitions() {
        // Each variable that becomes non-constant does so in both files.
        let of = |file| PATCHES.iter().filter(move |patch| patch.file == file);
        assert_eq!(of("siw_main.c").count(), of("siw.h").count());
    }
}
