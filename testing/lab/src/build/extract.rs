//! Extracts packages as trees of files, without configuring them.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use crate::apt::packages::Package;
use crate::build::Site;
use crate::command::Tool;
use crate::error::Error;

/// The time-out for one package; the kernel's source takes longest.
const LIMIT: Duration = Duration::from_secs(120);

/// The top-level directories that Debian has merged into `/usr`, but whose old names packages still
/// use.
const MERGED: [&str; 4] = ["bin", "lib", "lib64", "sbin"];

/// Directories that are not needed.
const LEFT_OUT: [&str; 8] = [
    "./lib/systemd/system",
    "./usr/share/bug",
    "./usr/share/doc",
    "./usr/share/info",
    "./usr/share/lintian",
    "./usr/share/locale",
    "./usr/share/man",
    "./usr/share/zoneinfo",
];

/// Creates the links from `/bin` to `/usr/bin` and so on.
pub(super) fn skeleton(to: &Path) -> Result<(), Error> {
    for name in MERGED {
        let folder = to.join("usr").join(name);
        fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
        let link = to.join(name);
        symlink(format!("usr/{name}"), &link).map_err(Error::file(&link))?;
    }
    Ok(())
}

/// Extracts packages into a tree.
pub(super) fn packages<'a>(
    site: &Site<'_>,
    packages: impl IntoIterator<Item = &'a Package>,
    to: &Path,
) -> Result<(), Error> {
    for package in packages {
        let files = files(site, package)?;
        Tool::new("tar")
            .args(["--extract", "--keep-directory-symlink", "--directory"])
            .arg(to)
            .args(LEFT_OUT.map(|path| format!("--exclude={path}")))
            .input(files)
            .limit(LIMIT)
            .run(site.stop)?;
    }
    Ok(())
}

/// Returns the files of a package as a tar archive.
pub(super) fn files(site: &Site<'_>, package: &Package) -> Result<File, Error> {
    let scratch = tempfile::tempfile().map_err(Error::system("a temporary file"))?;
    let share = || scratch.try_clone().map_err(Error::system("a file handle"));
    Tool::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(site.apt.file(package))
        .output(share()?)
        .limit(LIMIT)
        .run(site.stop)?;
    rewound(scratch)
}

/// Returns the file, positioned at its beginning.
pub(super) fn rewound(mut file: File) -> Result<File, Error> {
    use std::io::{Seek, SeekFrom};
    file.seek(SeekFrom::Start(0))
        .map_err(Error::system("a temporary file"))?;
    Ok(file)
}
