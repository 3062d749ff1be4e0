//! The exports of the simulated server, as its administrator changes them.

use std::cell::RefCell;
use std::sync::Arc;

use nfs_binding::fs::FileSystem;
use nfs_binding::server::{Export, ExportOptions, HandleKey};

use crate::plan::ExportChange;
use crate::trees::Trees;

/// The path of the export that never changes.
pub(crate) const EXPORT: &str = "/sim";
/// The paths of the exports of the directory trees. The administrator changes the first one.
pub(crate) const ADMINISTERED: [&str; 2] = ["/data", "/other"];

/// The exports of the server that runs, or of the one that is started next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    /// The tree of each of [`ADMINISTERED`].
    pub(crate) trees: [Option<usize>; 2],
    /// Whether the first one is read-only.
    pub(crate) read_only: bool,
    /// The number of the handle key.
    pub(crate) key: u8,
    /// The number of changes so far.
    pub(crate) changes: u64,
}

impl Default for Served {
    fn default() -> Self {
        Self {
            trees: [Some(0), Some(1)],
            read_only: false,
            key: 0,
            changes: 0,
        }
    }
}

impl Served {
    /// Makes a change.
    pub(crate) fn change(&mut self, change: ExportChange) {
        self.changes += 1;
        match change {
            ExportChange::Repoint(tree) => self.trees[0] = Some(tree),
            ExportChange::Swap => self.trees.swap(0, 1),
            ExportChange::Remove => self.trees[0] = None,
            ExportChange::ReadOnly => self.read_only = !self.read_only,
            ExportChange::Key => self.key = self.key.wrapping_add(1),
        }
    }

    /// Returns whether an export refuses changes.
    pub(crate) fn is_read_only(&self, export: usize) -> bool {
        export == 0 && self.read_only
    }
}

/// The file systems of the server's host, and what is exported of them.
pub(crate) struct Exports {
    pub(crate) disk: Arc<dyn FileSystem>,
    /// The directory trees, if the run has an administrator.
    pub(crate) trees: Option<Arc<Trees>>,
    pub(crate) served: RefCell<Served>,
}

impl Exports {
    /// Exports only this file system.
    pub(crate) fn only(disk: Arc<dyn FileSystem>) -> Self {
        Self {
            disk,
            trees: None,
            served: RefCell::default(),
        }
    }

    /// Returns the key of a server that starts now. It stays the same unless the administrator replaces
    /// it, so that handles survive a restart.
    pub(crate) fn key(&self) -> HandleKey {
        HandleKey::from_bytes([0x5a_u8.wrapping_add(self.served.borrow().key); 16])
    }

    /// Returns the exports of a server that starts now.
    pub(crate) fn list(&self) -> Vec<Export> {
        let options = ExportOptions::for_server(false);
        let mut list = vec![Export {
            path: EXPORT.to_owned(),
            backend: Arc::clone(&self.disk),
            options: options.clone(),
        }];
        let served = self.served.borrow();
        let Some(trees) = &self.trees else {
            return list;
        };
        for (at, path) in ADMINISTERED.into_iter().enumerate() {
            let Some(tree) = served.trees[at] else {
                continue;
            };
            let read_only = served.is_read_only(at);
            list.push(Export {
                path: path.to_owned(),
                backend: trees.export(tree, read_only),
                options: ExportOptions {
                    read_only,
                    ..options.clone()
                },
            });
        }
        list
    }
}
