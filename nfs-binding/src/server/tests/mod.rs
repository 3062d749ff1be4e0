//! Tests that call the service like a transport, with messages and without a network.

use std::net::SocketAddr;
use std::sync::Arc;

use onc_rpc::{AuthSys, CallHeader, Credential, Cursor, Decoder, Encoder, Verifier};
use rdma::Pool;
use rpc_transport::{ErrorReply, Request, Service, ServiceOutcome, ServiceReply};

use super::*;
use crate::fs::directory::DirectoryOptions;
use crate::fs::{DirectoryFs, FileSystem, MemoryFs};
use crate::proto::{
    Attributes, DirOp, DirOpArgs, FileHandle, HandleArgs, MountArgs, MountPath, Name, NfsResult,
    SetAttributes, Status,
};

mod batches;
mod directory;
mod exports;
mod file;
mod make;
mod mount;
mod nonblocking;
mod replaced;
mod rpc;
mod shares;

/// A server and a client that calls it.
struct Fixture {
    server: NfsServer,
    peer: SocketAddr,
    credential: Credential,
    pool: Pool,
    /// Whether the file systems block, so that workers must answer.
    blocks: bool,
    _host: Option<tempfile::TempDir>,
}

fn user(uid: u32) -> Credential {
    Credential::Sys(AuthSys {
        uid,
        gid: uid,
        ..AuthSys::default()
    })
}

fn export(path: &str, backend: Arc<dyn FileSystem>, options: &str) -> Export {
    Export {
        path: path.to_owned(),
        backend,
        options: ExportOptions::for_server(false).with(options).unwrap(),
    }
}

fn key() -> HandleKey {
    HandleKey::from_bytes(*b"a key of 16 byte")
}

fn memory() -> Arc<dyn FileSystem> {
    Arc::new(MemoryFs::new(64 << 20).unwrap())
}

impl Fixture {
    fn new(exports: Vec<Export>) -> Self {
        let blocks = exports.iter().any(|export| export.backend.blocks());
        Self {
            server: NfsServer::new(exports, key()).unwrap(),
            peer: "192.0.2.1:1000".parse().unwrap(),
            credential: user(0),
            pool: Pool::new(16 << 20),
            blocks,
            _host: None,
        }
    }

    /// Creates a server with a memory file system as "/m".
    fn memory() -> Self {
        Self::new(vec![export("/m", memory(), "")])
    }

    /// Creates a server with a directory of the host as "/m".
    fn directory() -> Self {
        let host = tempfile::tempdir().unwrap();
        let fs = DirectoryFs::open(
            host.path(),
            DirectoryOptions {
                sync: false,
                most_open: fs::tests::MOST_OPEN,
                ..DirectoryOptions::default()
            },
        )
        .unwrap();
        Self {
            _host: Some(host),
            ..Self::new(vec![export("/m", Arc::new(fs), "")])
        }
    }

    fn request(&self, prog: u32, proc: u32, args: Message) -> Request {
        Request::new(
            self.peer,
            CallHeader {
                xid: 0,
                prog,
                vers: 3,
                proc,
                cred: self.credential.clone(),
                verf: Verifier::default(),
            },
            self.pool.clone(),
            args,
            Cursor::default(),
        )
    }

    fn raw(&mut self, prog: u32, proc: u32, args: Message) -> ServiceReply {
        let request = self.request(prog, proc, args);
        match self.server.call(request) {
            ServiceOutcome::Done(reply) => reply,
            outcome => {
                assert!(self.blocks, "nothing to wait for");
                std::thread::spawn(|| outcome.complete()).join().unwrap()
            }
        }
    }

    /// Calls a procedure and decodes the complete results.
    fn try_call<P: Procedure>(&mut self, args: &P::Args) -> Result<P::Results, ErrorReply> {
        let mut out = Encoder::new();
        args.encode(&mut out);
        let reply = self.raw(P::PROGRAM, P::NUMBER, out.finish())?;
        let mut input = Decoder::new(&reply);
        let results = P::Results::decode(&mut input).unwrap();
        input.finish().unwrap();
        Ok(results)
    }

    /// Returns whether a worker executes the call.
    fn is_later<P: Procedure>(&mut self, args: &P::Args) -> bool {
        let mut out = Encoder::new();
        args.encode(&mut out);
        let request = self.request(P::PROGRAM, P::NUMBER, out.finish());
        !matches!(self.server.call(request), ServiceOutcome::Done(_))
    }

    fn call<P: Procedure>(&mut self, args: &P::Args) -> P::Results {
        self.try_call::<P>(args).unwrap()
    }

    fn mount(&mut self, path: &str) -> Result<FileHandle, Status> {
        let args = MountArgs {
            path: MountPath::from(path.as_bytes()),
        };
        let mounted = self.call::<mnt::Mount>(&args);
        mounted.map(|ok| ok.handle).map_err(|failed| failed.status)
    }

    fn root(&mut self) -> FileHandle {
        self.mount("/m").unwrap()
    }

    fn attributes(&mut self, object: FileHandle) -> Attributes {
        self.call::<nfs::Getattr>(&HandleArgs { object }).unwrap()
    }

    fn create(&mut self, dir: FileHandle, name: &str) -> FileHandle {
        let args = crate::proto::CreateArgs {
            place: at(dir, name),
            how: crate::proto::CreateHow::Guarded(mode(0o644)),
        };
        let made = self.call::<nfs::Create>(&args).unwrap();
        made.object.unwrap()
    }

    fn mkdir(&mut self, dir: FileHandle, name: &str) -> FileHandle {
        let args = crate::proto::MkdirArgs {
            place: at(dir, name),
            attributes: mode(0o755),
        };
        let made = self.call::<nfs::Mkdir>(&args).unwrap();
        made.object.unwrap()
    }
}

fn at(dir: FileHandle, name: &str) -> DirOp {
    DirOp {
        dir,
        name: Name::from(name.as_bytes()),
    }
}

fn what(dir: FileHandle, name: &str) -> DirOpArgs {
    DirOpArgs {
        what: at(dir, name),
    }
}

fn mode(mode: u32) -> SetAttributes {
    SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    }
}

fn status<T, F>(result: NfsResult<T, F>) -> Status {
    result.map_or_else(|failed| failed.status, |_| Status::OK)
}

/// Defines one test of each function for each file system.
macro_rules! on_both {
    ($($test:ident,)*) => {
        mod memory {
            $(#[test]
            fn $test() {
                super::$test(super::Fixture::memory());
            })*
        }

        mod directory {
            $(#[test]
            fn $test() {
                if !rustix::process::geteuid().is_root() {
                    eprintln!("not the superuser: not tried");
                    return;
                }
                super::$test(super::Fixture::directory());
            })*
        }
    };
}

use on_both;
