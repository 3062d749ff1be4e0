//! Tests that a listing is encoded as it is read: the server needs no memory for entries besides
//! that of the reply.
//!
//! This is the only test of its program, because it measures what the whole process allocates.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use nfs_binding::fs::memory::MemoryFs;
use nfs_binding::fs::{Caller, FileSystem, HowToCreate};
use nfs_binding::proto::{
    MountArgs, MountPath, Procedure, ReaddirplusArgs, SetAttributes, Xdr, mnt, nfs,
};
use nfs_binding::server::{Export, ExportOptions, HandleKey, NfsServer};
use onc_rpc::{AuthSys, CallHeader, Credential, Cursor, Decoder, Encoder, Message, Verifier};
use peak_alloc::PeakAlloc;
use rdma::Pool;
use rpc_transport::{Request, Service, ServiceOutcome};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// The number of files in the directory: more than are listed.
const FILES: usize = 1000;
/// The maximum length of the listing, bytes.
const LISTING: u32 = 64 << 10;
/// The memory of the call and of the results before the entries, bytes.
const AROUND: usize = 4 << 10;

fn request<P: Procedure>(args: &P::Args, pool: &Pool) -> Request {
    let header = CallHeader {
        xid: 1,
        prog: P::PROGRAM,
        vers: P::VERSION,
        proc: P::NUMBER,
        cred: Credential::Sys(AuthSys::default()),
        verf: Verifier::default(),
    };
    let mut out = Encoder::new();
    args.encode(&mut out);
    let peer = "192.0.2.1:1000".parse().unwrap();
    Request::new(peer, header, pool.clone(), out.finish(), Cursor::default())
}

fn call<P: Procedure>(server: &mut NfsServer, request: Request) -> Message {
    let ServiceOutcome::Done(reply) = server.call(request) else {
        panic!("{}: memory does not block", P::NAME);
    };
    reply.unwrap()
}

fn decode<P: Procedure>(reply: &Message) -> P::Results {
    let mut input = Decoder::new(reply);
    let results = P::Results::decode(&mut input).unwrap();
    input.finish().unwrap();
    results
}

#[test]
fn a_listing_takes_the_memory_of_its_reply() {
    let fs = MemoryFs::new(64 << 20).unwrap();
    for number in 0..FILES {
        let name = format!("entry-{number:06}");
        let how = HowToCreate::Guarded(SetAttributes::default());
        let made = fs.create(&Caller::root(), &fs.root(), name.as_bytes(), &how);
        made.result.unwrap();
    }
    let export = Export {
        path: "/m".to_owned(),
        backend: Arc::new(fs),
        options: ExportOptions::for_server(false),
    };
    let mut server = NfsServer::new(vec![export], HandleKey::from_bytes([7; 16])).unwrap();
    let pool = Pool::new(1 << 20);
    let args = MountArgs {
        path: MountPath::from(&b"/m"[..]),
    };
    let mounted = call::<mnt::Mount>(&mut server, request::<mnt::Mount>(&args, &pool));
    let dir = decode::<mnt::Mount>(&mounted).unwrap().handle;
    let args = ReaddirplusArgs {
        dir,
        cookie: 0,
        verifier: [0; 8],
        dir_count: LISTING,
        max_count: LISTING,
    };
    let listing = request::<nfs::Readdirplus>(&args, &pool);

    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let reply = call::<nfs::Readdirplus>(&mut server, listing);
    let most = MEMORY.peak_usage() - before;

    let ok = decode::<nfs::Readdirplus>(&reply).unwrap();
    assert!(!ok.eof && ok.entries.len() > 300, "{}", ok.entries.len());
    assert!(most <= LISTING as usize + AROUND, "{most} bytes");
}
