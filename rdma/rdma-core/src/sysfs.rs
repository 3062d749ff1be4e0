//! Properties of devices and interfaces from the kernel's sysfs files.

use std::fs;
use std::path::Path;

/// Returns the content of a one-line file of sysfs, or an empty text if it cannot be read.
pub(super) fn line(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

/// Returns the sorted names in a folder, or none if the folder does not exist.
pub(super) fn entries(path: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(path) else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}
