//! Tests that copy unusual trees to a server and back, also while servers fail.

mod authority;
mod collisions;
mod faults;
mod room;
pub(super) mod tree;
mod trees;

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nfs_binding::client::{AttachOptions, DisplayPath, Mount};
use nfs_binding::fs::directory::DirectoryOptions;
use nfs_binding::fs::{DirectoryFs, FileSystem, MemoryFs};
use nfs_binding::server::{Export, ExportOptions, HandleKey, NfsServer};
use rpc_transport::Runtime;
use rustix::fs::{CWD, Mode, mknodat};

use super::{CopyOptions, Report, get, put, put_stream, remove};
use crate::in_process::InProcess;
use tree::{
    Scratch, is_root, make_odd_tree, make_writable, pattern, same_trees, set_mtime, snapshot,
};

/// A server in this process, a mounted export of it, and a local working directory.
struct Fixture {
    runtime: Runtime,
    server: InProcess,
    mount: Mount<InProcess>,
    /// The local directory.
    work: Scratch,
    /// The exported directory, unless the export is in memory.
    exported: Option<Scratch>,
    options: CopyOptions,
}

/// READs of at most `bytes`.
fn rsize(bytes: u32) -> AttachOptions {
    AttachOptions {
        rsize: Some(bytes),
        ..AttachOptions::default()
    }
}

/// WRITEs of at most `bytes`.
fn wsize(bytes: u32) -> AttachOptions {
    AttachOptions {
        wsize: Some(bytes),
        ..AttachOptions::default()
    }
}

/// READs and WRITEs of at most `bytes`.
fn longest(bytes: u32) -> AttachOptions {
    AttachOptions {
        rsize: Some(bytes),
        ..wsize(bytes)
    }
}

impl Fixture {
    fn new(backend: Arc<dyn FileSystem>, attach: AttachOptions) -> Self {
        let export = Export {
            path: "/data".into(),
            backend,
            options: ExportOptions::for_server(false),
        };
        let key = HandleKey::from_bytes([7; 16]);
        let server = InProcess::new(Box::new(NfsServer::new(vec![export], key).unwrap()));
        let runtime = Runtime::new().unwrap();
        let attached = Mount::attach(server.clone(), &server, b"/data", &attach);
        let (mount, _) = runtime.block_on(attached).unwrap();
        Self {
            runtime,
            server,
            mount,
            work: Scratch::new(),
            exported: None,
            options: CopyOptions {
                set_id: true,
                devices: true,
                ..CopyOptions::default()
            },
        }
    }

    fn memory(attach: AttachOptions) -> Self {
        Self::new(Arc::new(MemoryFs::new(256 << 20).unwrap()), attach)
    }

    fn directory(attach: AttachOptions) -> Self {
        let exported = Scratch::new();
        let options = DirectoryOptions {
            sync: false,
            ..DirectoryOptions::default()
        };
        let backend = DirectoryFs::open(exported.path(), options).unwrap();
        Self {
            exported: Some(exported),
            ..Self::new(Arc::new(backend), attach)
        }
    }

    /// Returns a path in the local directory.
    fn local(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    /// Returns a path in the exported directory.
    fn exported(&self, name: &str) -> PathBuf {
        self.exported.as_ref().unwrap().path().join(name)
    }

    fn put(&self, local: &str, remote: &str) -> Report {
        let local = self.local(local);
        let pool = &self.server.pool;
        let progress = &mut |_: &_| {};
        let remote = remote.as_bytes();
        let put = put(&self.mount, pool, &local, remote, &self.options, progress);
        self.runtime.block_on(put)
    }

    fn put_stream(&self, chunks: Vec<std::io::Result<Vec<u8>>>, remote: &str) -> Report {
        let (pool, progress) = (&self.server.pool, &mut |_: &_| {});
        let put = put_stream(
            &self.mount,
            pool,
            futures_util::stream::iter(chunks),
            0o644,
            remote.as_bytes(),
            &self.options,
            progress,
        );
        self.runtime.block_on(put)
    }

    fn get(&self, remote: &str, local: &str) -> Report {
        let local = self.local(local);
        let progress = &mut |_: &_| {};
        let get = get(
            &self.mount,
            remote.as_bytes(),
            &local,
            &self.options,
            progress,
        );
        self.runtime.block_on(get)
    }

    /// Makes a copied tree writable, as `chmod -R u+w` does, so that an ordinary user can remove
    /// it.
    fn let_be_removed(&self, name: &str) {
        if !is_root("removing files from a directory that nobody may write to") {
            make_writable(&self.exported(name));
        }
    }

    fn remove(&self, remote: &str) -> Report {
        let progress = &mut |_: &_| {};
        let remove = remove(&self.mount, remote.as_bytes(), &self.options, progress);
        self.runtime.block_on(remove)
    }
}

/// Fails the test if the copy had errors, and shows them.
#[track_caller]
fn complete(report: &Report) {
    assert!(report.is_complete(), "{:#?}", texts(report));
}

fn texts(report: &Report) -> Vec<String> {
    report.problems.iter().map(ToString::to_string).collect()
}
