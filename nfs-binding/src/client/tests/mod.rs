//! Tests of the client against a server in this process.

mod hostile;
mod paths;

use std::fs;
use std::sync::Arc;

use onc_rpc::AcceptStatus;
use rpc_transport::{CallError, ErrorReply, Runtime};
use tempfile::TempDir;

use super::{AttachOptions, Mount, Mount3, NfsError, RpcClient};
use crate::fs::directory::DirectoryOptions;
use crate::fs::{DirectoryFs, MemoryFs};
use crate::in_process::{Fault, InProcess};
use crate::proto::{Access, SetAttributes, Stable, Status, nfs};
use crate::server::{Export, ExportOptions, HandleKey, NfsServer};

/// Serves directories of the host, each under the path given with it.
fn serve(exports: &[(&str, &TempDir)]) -> InProcess {
    let export = |&(path, directory): &(&str, &TempDir)| Export {
        path: path.into(),
        backend: Arc::new(
            DirectoryFs::open(
                directory.path(),
                DirectoryOptions {
                    sync: false,
                    most_open: crate::fs::tests::MOST_OPEN,
                    ..DirectoryOptions::default()
                },
            )
            .unwrap(),
        ),
        options: ExportOptions::for_server(false),
    };
    let exports = exports.iter().map(export).collect();
    let key = HandleKey::from_bytes([7; 16]);
    InProcess::new(Box::new(NfsServer::new(exports, key).unwrap()))
}

fn serve_memory() -> InProcess {
    let export = Export {
        path: "/mem".into(),
        backend: Arc::new(MemoryFs::new(16 << 20).unwrap()),
        options: ExportOptions::for_server(false),
    };
    let key = HandleKey::from_bytes([7; 16]);
    InProcess::new(Box::new(NfsServer::new(vec![export], key).unwrap()))
}

type Attached = Result<(Mount<InProcess>, Vec<u8>), NfsError>;

fn attach(server: &InProcess, path: &str, options: AttachOptions) -> Attached {
    let nfs = server.clone();
    run(Mount::attach(nfs, server, path.as_bytes(), &options))
}

fn run<F: Future>(future: F) -> F::Output {
    Runtime::new().unwrap().block_on(future)
}

/// The path that errors report.
const AT: &[u8] = b"at";

#[test]
fn the_longest_export_that_holds_the_path_is_taken() {
    let (outer, inner) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = serve(&[("/srv", &outer), ("/srv/data", &inner), ("name", &outer)]);
    for (path, export, rest) in [
        ("/srv/data/a/b", "/srv/data", "a/b"),
        ("/srv/database", "/srv", "database"),
        ("//srv//data/", "/srv/data", ""),
        ("/name/x", "name", "x"),
    ] {
        let (mount, below) = attach(&server, path, AttachOptions::default()).unwrap();
        assert_eq!(mount.export(), export.as_bytes(), "{path}");
        assert_eq!(below, rest.as_bytes(), "{path}");
    }
    let error = attach(&server, "/other", AttachOptions::default()).unwrap_err();
    let text = "the server does not export /other (it exports /srv, /srv/data, name)";
    assert_eq!(error.to_string(), text);
}

/// A server that keeps its list of exports to itself.
struct NoList(InProcess);

impl RpcClient for NoList {
    async fn call(&self, call: rpc_transport::Call) -> Result<rpc_transport::Reply, CallError> {
        if (call.prog, call.proc) == (100_005, 5) {
            let status = AcceptStatus::ProcUnavail;
            return Err(CallError::Refused(ErrorReply::Accepted(status)));
        }
        self.0.call(call).await
    }

    async fn sleep(&self, duration: std::time::Duration) {
        self.0.sleep(duration).await;
    }
}

#[test]
fn without_a_list_the_export_is_found_by_trying() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("file"), "x").unwrap();
    let server = serve(&[("/srv/data", &directory)]);
    let options = AttachOptions::default();
    for (path, rest) in [
        ("/srv/data/file", "file"),
        ("/srv/data/a/b", "a/b"),
        ("/srv/data", ""),
    ] {
        let mountd = NoList(server.clone());
        let attached = Mount::attach(server.clone(), mountd, path.as_bytes(), &options);
        let (mount, below) = run(attached).unwrap();
        assert_eq!(
            (mount.export(), &below[..]),
            (&b"/srv/data"[..], rest.as_bytes())
        );
    }
    let mountd = NoList(server.clone());
    let attached = Mount::attach(server.clone(), mountd, b"/srv", &options);
    let error = run(attached).unwrap_err().to_string();
    assert_eq!(
        error,
        "the server does not export /srv (and names no export that it has)"
    );
}

/// Servers mount what is below an export, too. That is no root of an export.
#[test]
fn without_a_list_what_lies_below_an_export_is_not_taken_for_one() {
    let (outer, inner) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir_all(outer.path().join("data")).unwrap();
    fs::create_dir_all(inner.path().join("sub/deep")).unwrap();
    fs::write(inner.path().join("sub/file"), "x").unwrap();
    let server = serve(&[("/srv", &outer), ("/srv/data", &inner), ("/a/b", &inner)]);
    for (path, export, rest) in [
        ("/srv/data/sub", "/srv/data", "sub"),
        ("/srv/data/sub/deep", "/srv/data", "sub/deep"),
        ("/srv/data/sub/file", "/srv/data", "sub/file"),
        ("/srv/data/sub/deep/new", "/srv/data", "sub/deep/new"),
        ("/a/b/sub/deep", "/a/b", "sub/deep"),
        // The outer export has a directory there as well, which is another one.
        ("/srv/data", "/srv/data", ""),
    ] {
        let mountd = NoList(server.clone());
        let options = AttachOptions::default();
        let attached = Mount::attach(server.clone(), mountd, path.as_bytes(), &options);
        let (mount, below) = run(attached).unwrap();
        let found = (mount.export(), &below[..]);
        assert_eq!(found, (export.as_bytes(), rest.as_bytes()), "{path}");
        // The server's list of mounts has what is in use, and nothing that was tried.
        let mountd = Mount3::new(server.clone());
        let mounted = run(mountd.dump(&())).unwrap().mounts;
        let mounted: Vec<&[u8]> = mounted.iter().map(|entry| &entry.path.0[..]).collect();
        assert_eq!(mounted, [export.as_bytes()], "{path}");
        run(mount.detach(server.clone())).unwrap();
    }
}

#[test]
fn lengths_are_what_both_sides_can_do() {
    let server = serve_memory();
    let usual = attach(&server, "/mem", AttachOptions::default())
        .unwrap()
        .0
        .limits();
    assert_eq!((usual.rsize, usual.wsize), (1 << 20, 1 << 20));
    let small_and_large = AttachOptions {
        rsize: Some(5000),
        wsize: Some(9_999_999),
        ..AttachOptions::default()
    };
    let less = attach(&server, "/mem", small_and_large).unwrap().0.limits();
    assert_eq!((less.rsize, less.wsize), (4096, 1 << 20));
    assert!(usual.list >= 4096 && usual.list <= 64 << 10);
}

#[test]
fn reads_and_writes_are_what_they_say() {
    let server = serve_memory();
    let (mount, _) = attach(&server, "/mem", AttachOptions::default()).unwrap();
    run(async {
        let root = mount.root();
        let file = mount
            .create(root, b"file", SetAttributes::default(), AT)
            .await?;
        let data = bytes::Bytes::from_static(b"0123456789");
        let ok = mount
            .write(file.handle, 5, data, Stable::FileSync, AT)
            .await?;
        assert_eq!((ok.count, ok.committed), (10, Stable::FileSync));
        let ok = mount.read(file.handle, 3, 4, AT).await?;
        assert_eq!(
            (&ok.data.0.to_bytes()[..], ok.eof),
            (&b"\0\x0001"[..], false)
        );
        let ok = mount.read(file.handle, 12, 100, AT).await?;
        assert_eq!((&ok.data.0.to_bytes()[..], ok.eof), (&b"789"[..], true));
        let ok = mount.read(file.handle, 100, 100, AT).await?;
        assert_eq!((&ok.data.0.to_bytes()[..], ok.eof), (&b""[..], true));
        let attributes = mount.getattr(file.handle, AT).await?;
        assert_eq!(attributes.size, 15);
        let wanted = Access::READ | Access::EXTEND;
        assert_eq!(mount.access(file.handle, wanted, AT).await?, wanted);
        assert!(mount.fsstat(root, AT).await?.total_bytes >= 16 << 20);
        assert_eq!(mount.pathconf(root, AT).await?.name_max, 255);
        let (to, odd) = ((root, &b"renamed"[..]), (root, &b"file"[..]));
        mount.rename(odd, to, AT).await?;
        assert_eq!(
            mount.lookup(root, b"renamed", AT).await?.handle,
            file.handle
        );
        Ok::<_, NfsError>(())
    })
    .unwrap();
}

#[test]
fn a_server_that_asks_for_patience_gets_it() {
    use crate::proto::Procedure;
    let server = serve_memory();
    let (mount, _) = attach(&server, "/mem", AttachOptions::default()).unwrap();
    server.plan(|proc, count| match proc {
        nfs::Getattr::NUMBER if count < 5 => Fault::Status(Status::JUKEBOX),
        _ => Fault::None,
    });
    run(mount.getattr(mount.root(), AT)).unwrap();
    assert_eq!(server.calls::<nfs::Getattr>(), 6);

    server.plan(|_, _| Fault::Status(Status::JUKEBOX));
    let error = run(mount.getattr(mount.root(), AT)).unwrap_err();
    assert_eq!(error.status(), Some(Status::JUKEBOX), "but not without end");
}

#[test]
fn errors_say_what_was_tried_where() {
    let server = serve_memory();
    let (mount, _) = attach(&server, "/mem", AttachOptions::default()).unwrap();
    let error = |name: &'static [u8]| {
        run(mount.lookup(mount.root(), name, name))
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        error(b"no\x1b[31m\xff"),
        "no such file or directory (NFS3ERR_NOENT): looking up no\\u{1b}[31m\\xff"
    );
    let long = [b'x'; 300];
    let attributes = SetAttributes::default;
    let error = run(mount.mkdir(mount.root(), &long, attributes(), b"long".as_slice()));
    let text = "file name too long (NFS3ERR_NAMETOOLONG): making directory long";
    assert_eq!(error.unwrap_err().to_string(), text);

    server.plan(|_, _| Fault::NoReply);
    let error = run(mount.getattr(mount.root(), AT)).unwrap_err();
    assert!(error.is_fatal());
    assert_eq!(
        error.to_string(),
        "no reply from in process in 1.0s: looking up at"
    );
}

#[test]
fn a_new_file_is_none_that_exists() {
    let server = serve_memory();
    let (mount, _) = attach(&server, "/mem", AttachOptions::default()).unwrap();
    let (root, new) = (mount.root(), SetAttributes::default);
    run(mount.create_new(root, b"file", new(), AT)).unwrap();
    run(mount.create(root, b"file", new(), AT)).unwrap();
    let again = run(mount.create_new(root, b"file", new(), AT)).unwrap_err();
    assert_eq!(again.status(), Some(Status::EXIST));
}

#[test]
fn a_read_only_mount_sends_no_changes() {
    let server = serve_memory();
    let read_only = AttachOptions {
        read_only: true,
        ..AttachOptions::default()
    };
    let (mount, _) = attach(&server, "/mem", read_only).unwrap();
    let error = run(mount.remove(mount.root(), b"x", AT)).unwrap_err();
    assert_eq!(error.to_string(), "mounted read-only (-o ro): removing at");
    assert_eq!(server.calls::<nfs::Remove>(), 0);
}
