//! The versions of the guest's parts and of its emulator.

use crate::build::pins::Pins;

/// The packages that are listed; the kernel is listed by its release.
const NAMED: [&str; 4] = [
    "qemu-system-x86",
    "linux-source-6.12",
    "rdma-core",
    "nfs-kernel-server",
];

/// Returns names and versions, in order of interest.
#[must_use]
pub fn of(pins: &Pins) -> Vec<(String, String)> {
    let mut versions = vec![("kernel".to_owned(), pins.release.clone())];
    for name in NAMED {
        if let Some(package) = pins.package(name) {
            versions.push((name.to_owned(), package.version.clone()));
        }
    }
    versions
}

/// Formats the pinned versions for people, one line for each package.
#[must_use]
pub fn text(pins: &Pins) -> String {
    let line = |(name, version): (String, String)| format!("{name:<18} {version}\n");
    of(pins).into_iter().map(line).collect()
}
