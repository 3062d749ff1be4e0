//! The versions of what the guest is made of and runs on.

use crate::build::pins::Pins;

/// Packages worth naming; the kernel is named by its release.
const NAMED: [&str; 4] = [
    "qemu-system-x86",
    "linux-source-6.12",
    "rdma-core",
    "nfs-kernel-server",
];

/// Name and version, in order of interest.
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

/// For people: one line each.
#[must_use]
pub fn text(pins: &Pins) -> String {
    let line = |(name, version): (String, String)| format!("{name:<18} {version}\n");
    of(pins).into_iter().map(line).collect()
}
