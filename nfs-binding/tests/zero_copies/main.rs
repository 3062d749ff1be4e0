//! Tests that bulk data is never copied in user space: from the client's memory to its device, from
//! the receive buffer at the server to `pwrite`, from `pread` to the Send, and from the client's
//! receive buffer to the caller. All in one run, over the iwarp device, with files of a directory.
//!
//! Two things are counted: the copies that the layers report, and bytes that a layer passes on in
//! other memory than it received them in.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod watched;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use bytes::Bytes;
use iwarp::{Iwarp, Options};
use nfs_binding::client::{AttachOptions, Mount, Nfs3};
use nfs_binding::fs::directory::DirectoryOptions;
use nfs_binding::fs::{DirectIoBytes, DirectoryFs, FileSystem};
use nfs_binding::proto::{FileHandle, ReadArgs, SetAttributes, Stable, WriteArgs};
use nfs_binding::server::{Export, ExportOptions, HandleKey, NfsServer};
use onc_rpc::{AuthSys, Credential};
use rdma::{Counters, Pool};
use rpc_transport::rdma::{
    Choice, RdmaClient, RdmaClientOptions, RdmaServer, RdmaServerOptions, Version,
};
use rpc_transport::{Client, ClientOptions, ClientTransport, Runtime, Server, ServerOptions, Stop};
use rpcrdma_protocols::RoundTripFeatures;
use tempfile::TempDir;
use watched::{Files, Places, WatchedDevice, WatchedFs, Wire};

const POOL: usize = 256 << 20;
/// The maximum number of bytes of headers and surrounding data that may be copied per message. What
/// precedes placed data, 1,024 bytes, is copied twice: out of TCP's stream, and out of the receive, which is
/// posted again with its buffer.
const AROUND: u64 = 2100;

/// The MSS of the connections, bytes. TCP's own grows with its window, when it likes, and the message that is
/// under way then is copied, because its segments are not where the receiver expected them.
const MSS: u16 = 16_384;

fn device(wire: &Wire) -> Box<WatchedDevice<Iwarp>> {
    let options = Options {
        mss_limit: Some(MSS),
        ..Options::default()
    };
    Box::new(WatchedDevice {
        device: Iwarp::new(options, Pool::new(POOL)).unwrap(),
        wire: wire.clone(),
    })
}

/// A server with a directory, on a thread of its own. It returns its counters when it is stopped.
struct Served {
    directory: TempDir,
    address: SocketAddr,
    wire: Wire,
    files: Files,
    stop: Stop,
    thread: JoinHandle<(Counters, Option<DirectIoBytes>)>,
}

fn serve(features: RoundTripFeatures, direct_io: bool) -> Served {
    let directory = tempfile::tempdir().unwrap();
    let (stop, path) = (Stop::new(), directory.path().to_path_buf());
    let (wire, files) = (Wire::default(), Files::default());
    let (ready, address) = mpsc::channel();
    let (stopped, on_wire, on_disk) = (stop.clone(), wire.clone(), files.clone());
    let thread = std::thread::spawn(move || {
        let fs = DirectoryFs::open(
            path,
            DirectoryOptions {
                sync: false,
                direct_io,
                ..DirectoryOptions::default()
            },
        )
        .unwrap();
        let backend = Arc::new(WatchedFs { fs, files: on_disk });
        let export = Export {
            path: "/data".into(),
            backend: Arc::clone(&backend) as Arc<dyn FileSystem>,
            options: ExportOptions::for_server(false),
        };
        let service = NfsServer::new(vec![export], HandleKey::from_bytes([3; 16])).unwrap();
        let mut server = Server::new(Box::new(service), ServerOptions::default()).unwrap();
        let mut options = RdmaServerOptions::new(rpcrdma_protocols::base());
        options.common.protocols = rpcrdma_protocols::standard(&features);
        let mut port = RdmaServer::new(device(&on_wire), options);
        ready
            .send(port.listen(([127, 0, 0, 1], 0).into()).unwrap())
            .unwrap();
        let port = Rc::new(RefCell::new(port));
        server
            .add_transport(Rc::clone(&port) as Rc<RefCell<_>>)
            .unwrap();
        server.run(&stopped).unwrap();
        let counters = port.borrow().counters();
        (counters, backend.direct_io())
    });
    Served {
        directory,
        address: address.recv().unwrap(),
        wire,
        files,
        stop,
        thread,
    }
}

struct NfsClient {
    runtime: Runtime,
    port: Rc<RefCell<RdmaClient>>,
    wire: Wire,
    nfs: Nfs3<Client>,
    file: FileHandle,
}

fn connect(served: &Served, features: RoundTripFeatures) -> NfsClient {
    let (runtime, wire) = (Runtime::new().unwrap(), Wire::default());
    let mut options = RdmaClientOptions {
        version: Choice::Only(Version::TWO),
        ..RdmaClientOptions::new(rpcrdma_protocols::base())
    };
    options.common.protocols = rpcrdma_protocols::standard(&features);
    let port = Rc::new(RefCell::new(RdmaClient::new(device(&wire), options)));
    let any = Rc::clone(&port) as Rc<RefCell<dyn ClientTransport>>;
    let client_options = ClientOptions {
        credential: Credential::Sys(AuthSys {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            ..AuthSys::default()
        }),
        ..ClientOptions::default()
    };
    let (client, file) = runtime.block_on(async {
        let connecting = Client::connect(&runtime, served.address, any, client_options);
        let client = connecting.await.unwrap();
        let options = AttachOptions::default();
        let attaching = Mount::attach(client.clone(), client.clone(), b"/data", &options);
        let (mount, _) = attaching.await.unwrap();
        let attributes = SetAttributes {
            mode: Some(0o644),
            ..SetAttributes::default()
        };
        let creating = mount.create(mount.root(), b"file", attributes, &b"file"[..]);
        (client, creating.await.unwrap().handle)
    });
    NfsClient {
        runtime,
        port,
        wire,
        nfs: Nfs3::new(client),
        file,
    }
}

impl NfsClient {
    fn write(&self, data: &Bytes) {
        let args = WriteArgs {
            file: self.file,
            offset: 0,
            count: data.len() as u32,
            stable: Stable::Unstable,
            data: data.clone().into(),
        };
        let written = self.runtime.block_on(self.nfs.write(&args)).unwrap();
        assert_eq!(written.unwrap().count as usize, data.len());
    }

    /// Returns the memory that the data is in, and the data.
    fn read(&self, len: usize) -> (Places, Vec<u8>) {
        let args = ReadArgs {
            file: self.file,
            offset: 0,
            count: len as u32,
        };
        let read = self.runtime.block_on(self.nfs.read(&args)).unwrap();
        let data = read.unwrap().data.0;
        let places = Places::default();
        data.pieces().iter().for_each(|piece| places.note(piece));
        (places, data.to_bytes().to_vec())
    }
}

fn data(len: usize) -> Bytes {
    (0..len).map(|n| (n ^ n >> 8 ^ n >> 16) as u8).collect()
}

/// Returns the number of bytes that each step passed on in other memory than it received them in,
/// after a round trip of `data`.
fn moved(served: &Served, client: &NfsClient, data: &Bytes) -> [(&'static str, usize); 4] {
    for places in [
        &served.wire.received,
        &served.wire.sent,
        &served.files.written,
        &served.files.read,
        &client.wire.received,
        &client.wire.sent,
    ] {
        places.clear();
    }
    client.write(data);
    let path = served.directory.path().join("file");
    assert_eq!(std::fs::read(path).unwrap()[..data.len()], data[..]);
    let own = Places::default();
    own.note(data);
    // The buffer is contiguous, wherever the Sends split it.
    let unsent = own.len() - overlap(&client.wire.sent, &own);
    let written = served.files.written.outside(&served.wire.received);
    assert_eq!(served.files.written.len(), data.len());
    let (got, bytes) = client.read(data.len());
    assert_eq!(bytes, data[..]);
    assert_eq!(served.files.read.len(), data.len());
    let unread = data.len() - overlap(&served.wire.sent, &served.files.read);
    assert_eq!(got.len(), data.len());
    [
        ("client's memory to its Sends", unsent),
        ("server's receives to pwrite", written),
        ("pread to the server's Sends", unread),
        (
            "client's receives to the caller",
            got.outside(&client.wire.received),
        ),
    ]
}

/// Returns the number of bytes of `some` that are also in `others`.
fn overlap(some: &Places, others: &Places) -> usize {
    some.len() - some.outside(others)
}

#[test]
fn rtr_bulk_data_is_where_it_was_received_and_read_from_end_to_end() {
    for (features, sizes) in [
        ("ddp", &[8192, 65_536][..]),
        ("ddp+cont", &[8192, 65_536, 1 << 20]),
    ] {
        let features: RoundTripFeatures = features.parse().unwrap();
        let served = serve(features, false);
        let client = connect(&served, features);
        for &size in sizes {
            let data = data(size);
            // The first call does additional work.
            client.write(&data);
            for _ in 0..3 {
                for (step, bytes) in moved(&served, &client, &data) {
                    assert_eq!(bytes, 0, "{features}, {size} bytes, {step}");
                }
            }
        }
        let ours = client.port.borrow().counters();
        drop(client);
        served.stop.stop();
        let (theirs, _) = served.thread.join().unwrap();
        let explicit = theirs.rdma_reads + theirs.rdma_writes + ours.registrations;
        assert_eq!(explicit, 0, "{features}: nothing but Sends");
        let copied = ours.copied_bytes + theirs.copied_bytes;
        let messages = ours.sends + theirs.sends;
        let bulk: usize = sizes.iter().map(|size| 7 * size).sum();
        assert!(
            copied <= AROUND * messages,
            "{features}: {copied} bytes copied in {messages} messages, with {bulk} of bulk data"
        );
    }
}

/// With direct I/O, the kernel's copy between the page cache and the memory of messages is gone as well:
/// data that was placed by Sends is written by the device from its receives, and data that is sent was read
/// by the device into its place.
#[test]
fn placed_data_is_written_and_read_without_the_page_cache() {
    let features: RoundTripFeatures = "ddp+cont".parse().unwrap();
    let served = serve(features, true);
    let mut open = std::fs::File::options();
    let flags = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    let probe = served.directory.path().join("probe");
    if open
        .write(true)
        .create(true)
        .custom_flags(flags)
        .open(probe)
        .is_err()
    {
        eprintln!("left out, for temporary files have no direct I/O: placed_data_is_written_...");
        return;
    }
    let client = connect(&served, features);
    let mut total = 0;
    for size in [8192, 65_536, 1 << 20] {
        let data = data(size);
        for _ in 0..3 {
            total += size as u64;
            for (step, bytes) in moved(&served, &client, &data) {
                assert_eq!(bytes, 0, "{size} bytes, {step}");
            }
        }
    }
    drop(client);
    served.stop.stop();
    let (_, direct) = served.thread.join().unwrap();
    let expected = DirectIoBytes {
        written_in_place: total,
        read_direct: total,
        ..DirectIoBytes::default()
    };
    assert_eq!(direct, Some(expected));
}
