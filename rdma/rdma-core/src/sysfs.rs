//! Properties of devices and interfaces from the kernel's sysfs files.

use std::fs;
use std::path::Path;

/// A one-line file of the kernel's, or nothing.
pub(super) fn line(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

/// Names in a folder, sorted; none when it is not there.
pub(super) fn entries(path: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(path) else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}
