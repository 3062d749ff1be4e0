//! Packages that the build needs on the machine itself, and the only ones that are installed there.

use std::time::Duration;

use crate::command::Tool;
use crate::error::Error;
use crate::log::Log;
use crate::stop::Stop;

/// The compiler for the driver (the one that the kernel was compiled with, and a library of its
/// build tools), and tools for images and modules.
const NEEDED: [&str; 7] = [
    "cpio",
    "e2fsprogs",
    "gcc-12",
    "kmod",
    "libelf1",
    "make",
    "xz-utils",
];

/// The time-out of installing packages.
const LIMIT: Duration = Duration::from_secs(600);

/// Installs missing packages.
pub(super) fn install(stop: &Stop, log: &Log) -> Result<(), Error> {
    let missing: Vec<_> = NEEDED
        .into_iter()
        .filter(|name| !is_installed(name, stop))
        .collect();
    stop.check()?;
    if missing.is_empty() {
        return Ok(());
    }
    log.say(format!("apt: installing {}", missing.join(", ")));
    let apt = |args: &[&str]| Tool::new("apt-get").args(args).limit(LIMIT).run(stop);
    let install = || {
        let options = ["-qq", "-y", "--no-install-recommends", "install"];
        apt(&[&options, &missing[..]].concat())
    };
    // The package lists may be missing or out of date.
    if install().is_err() {
        apt(&["-qq", "update"])?;
        install()?;
    }
    Ok(())
}

fn is_installed(name: &str, stop: &Stop) -> bool {
    let query = ["-W", "-f=${db:Status-Status}", name];
    let status = Tool::new("dpkg-query").args(query).run(stop);
    status.is_ok_and(|status| status.trim() == "installed")
}
