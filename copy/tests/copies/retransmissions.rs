//! Tests of retransmitted calls, sent byte by byte: the answers of the reply cache, and the effect
//! of a restart.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use bytes::Bytes;
use nfs_binding::proto::{
    CreateArgs, CreateHow, Data, DirOp, DirOpArgs, FileHandle, MkdirArgs, MountArgs, MountPath,
    Name, NfsResult, Procedure, SetAttributes, Stable, Status, WriteArgs, Xdr, mnt, nfs,
};
use onc_rpc::{AuthSys, CallHeader, Credential, Decoder, Encoder, Message, ReplyHeader, Verifier};

use rpc_transport::ServerOptions;

use crate::fixture::Served;

/// A client that chooses its XIDs, on a connection of its own.
struct Script(TcpStream);

impl Script {
    fn start(served: &Served) -> Self {
        Self(TcpStream::connect(served.tcp()).unwrap())
    }

    fn call<P: Procedure>(&mut self, xid: u32, args: &P::Args) -> P::Results {
        let header = CallHeader {
            xid,
            prog: P::PROGRAM,
            vers: P::VERSION,
            proc: P::NUMBER,
            cred: Credential::Sys(AuthSys {
                uid: rustix::process::geteuid().as_raw(),
                gid: rustix::process::getegid().as_raw(),
                ..AuthSys::default()
            }),
            verf: Verifier::default(),
        };
        let mut out = Encoder::new();
        args.encode(&mut out);
        let mut call = out.finish();
        call.prepend(header.encode());
        let call = call.gather(|_| true).concat();
        let mark = onc_rpc::record::header(call.len() as u64).unwrap();
        self.0.write_all(&[&mark[..], &call].concat()).unwrap();
        let mut mark = [0; 4];
        self.0.read_exact(&mut mark).unwrap();
        // The last fragment, which is also the first.
        let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        self.0.read_exact(&mut reply).unwrap();
        let reply = Message::from_payload(Bytes::from(reply));
        let mut input = Decoder::new(&reply);
        let header = ReplyHeader::decode(&mut input).unwrap();
        assert_eq!(header.xid, xid);
        let results = P::Results::decode(&mut input).unwrap();
        input.finish().unwrap();
        results
    }

    fn root(&mut self) -> FileHandle {
        let path = MountPath::from(&b"/data"[..]);
        let mounted = self.call::<mnt::Mount>(99, &MountArgs { path });
        mounted.unwrap().handle
    }

    fn mkdir(&mut self, xid: u32, dir: FileHandle, name: &str) -> Status {
        let attributes = SetAttributes {
            mode: Some(0o755),
            ..SetAttributes::default()
        };
        let place = at(dir, name);
        status(self.call::<nfs::Mkdir>(xid, &MkdirArgs { place, attributes }))
    }

    fn create(&mut self, xid: u32, dir: FileHandle, name: &str) -> FileHandle {
        let args = CreateArgs {
            place: at(dir, name),
            how: CreateHow::Guarded(SetAttributes::default()),
        };
        let made = self.call::<nfs::Create>(xid, &args);
        made.unwrap().object.unwrap()
    }

    fn write(&mut self, xid: u32, file: FileHandle, data: &[u8]) {
        let args = WriteArgs {
            file,
            offset: 0,
            count: data.len() as u32,
            stable: Stable::Unstable,
            data: Data(data.to_vec().into()),
        };
        self.call::<nfs::Write>(xid, &args).unwrap();
    }

    fn rmdir(&mut self, xid: u32, dir: FileHandle, name: &str) -> Status {
        let what = at(dir, name);
        status(self.call::<nfs::Rmdir>(xid, &DirOpArgs { what }))
    }
}

fn at(dir: FileHandle, name: &str) -> DirOp {
    let name = Name::from(name.as_bytes());
    DirOp { dir, name }
}

fn status<T, F>(results: NfsResult<T, F>) -> Status {
    results.map_or_else(|failed| failed.status, |_| Status::OK)
}

#[test]
fn a_call_that_comes_again_over_another_connection_is_not_executed_again() {
    let served = Served::start();
    let mut script = Script::start(&served);
    let root = script.root();
    assert_eq!(script.mkdir(1, root, "new"), Status::OK);
    drop(script);
    // The call comes from another port, because RDMA clients cannot choose theirs.
    let mut script = Script::start(&served);
    assert_eq!(script.mkdir(1, root, "new"), Status::OK);
    assert_eq!(script.mkdir(2, root, "new"), Status::EXIST);
}

/// Regression test: failing calls, of which anybody can make any number, evicted the replies to
/// those that had changed something.
#[test]
fn failing_calls_do_not_evict_the_replies_of_successful_ones() {
    let served = Served::with(ServerOptions {
        reply_cache_entries: 512,
        ..ServerOptions::default()
    });
    let mut script = Script::start(&served);
    let root = script.root();
    assert_eq!(script.mkdir(1, root, "made"), Status::OK);
    for xid in 2..2002 {
        assert_eq!(script.rmdir(xid, root, "absent"), Status::NOENT);
    }
    let mut script = Script::start(&served);
    assert_eq!(script.mkdir(1, root, "made"), Status::OK);
    // A failure is remembered as well: the name may have been given since.
    assert_eq!(script.mkdir(2002, root, "absent"), Status::OK);
    assert_eq!(script.rmdir(2001, root, "absent"), Status::NOENT);
    assert!(served.path().join("absent").is_dir());
}

/// Regression test: the second WRITE was answered as if it were the first, and its data was never
/// written.
#[test]
fn a_write_with_the_xid_of_another_is_executed_if_their_data_differ() {
    let served = Served::start();
    let mut script = Script::start(&served);
    let root = script.root();
    let file = script.create(1, root, "file");
    let content = || fs::read(served.path().join("file")).unwrap();
    let mut data = vec![1; 8 << 10];
    for range in [300..1000, 4000..4256, 8191..8192] {
        script.write(9, file, &data);
        assert!(content() == data);
        data[range.clone()].fill(2);
        script.write(9, file, &data);
        assert!(content() == data, "{range:?}");
    }
}

#[test]
fn a_write_that_comes_again_does_not_overwrite_a_newer_one() {
    let served = Served::start();
    let mut script = Script::start(&served);
    let root = script.root();
    let file = script.create(1, root, "file");
    for len in [100, 8 << 10, 100_000] {
        let [old, new] = [vec![1; len], vec![2; len]];
        script.write(len as u32, file, &old);
        script.write(len as u32 + 1, file, &new);
        Script::start(&served).write(len as u32, file, &old);
        assert!(fs::read(served.path().join("file")).unwrap() == new);
    }
}

/// A call that looks like a retransmission is answered as one (docs/reply-cache.md). This is why
/// clients have to start with random XIDs.
#[test]
fn a_script_that_begins_with_the_same_xid_again_gets_the_old_reply() {
    let served = Served::start();
    let root = Script::start(&served).root();
    for (xid, made) in [(1, true), (1, false), (7, true)] {
        let mut script = Script::start(&served);
        assert_eq!(script.mkdir(xid, root, "new"), Status::OK);
        assert_eq!(served.path().join("new").is_dir(), made, "XID {xid}");
        if made {
            assert_eq!(script.rmdir(xid + 1, root, "new"), Status::OK);
        }
    }
}

/// The cache is lost with the server. As with knfsd, the second reply then shows the effect of the
/// first execution.
#[test]
fn after_a_restart_what_comes_again_is_executed_again() {
    let mut served = Served::start();
    let mut script = Script::start(&served);
    let root = script.root();
    assert_eq!(script.mkdir(1, root, "made"), Status::OK);
    fs::create_dir(served.path().join("removed")).unwrap();
    assert_eq!(script.rmdir(2, root, "removed"), Status::OK);
    drop(script);
    served.restart();
    let mut script = Script::start(&served);
    assert_eq!(script.mkdir(1, root, "made"), Status::EXIST);
    assert_eq!(script.rmdir(2, root, "removed"), Status::NOENT);
    assert!(served.path().join("made").is_dir());
}
