//! Tests of the rights of calls that the loop of a server executes in one batch, each as its caller.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use linux_file_handle::file_ids;
use onc_rpc::ReplyHeader;
use rdma::{Carrier, Clock, Poller, Time};
use rpc_transport::{
    CallError, ConnectionId, PollSource, ReplyRoom, Server, ServerOptions, ServerTransport,
    ServerTransportEvent,
};
use rustix::thread::{CapabilitySets, capabilities};

use super::*;
use crate::fs::tests::privileged;
use crate::proto::{ReadArgs, ReadResult};

/// The credentials of a thread, as far as servers change them.
fn credentials() -> ((u32, u32), Vec<rustix::process::Gid>, CapabilitySets) {
    let groups = rustix::process::getgroups().unwrap();
    (file_ids(), groups, capabilities(None).unwrap())
}

/// A transport that must be used with the credentials of the server.
struct Checked {
    credentials: ((u32, u32), Vec<rustix::process::Gid>, CapabilitySets),
    events: VecDeque<ServerTransportEvent>,
    replies: Vec<(u64, Message)>,
}

impl PollSource for Checked {
    fn attach(&mut self, _: Poller) -> io::Result<()> {
        Ok(())
    }

    fn ready(&mut self, _: usize, _: bool) {}

    fn poll(&mut self, _: Time) -> bool {
        !self.events.is_empty()
    }

    fn arm(&mut self) -> bool {
        self.events.is_empty()
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }

    fn set_busy_poll(&mut self, _: bool) {}
}

impl ServerTransport for Checked {
    fn reply(&mut self, _: ConnectionId, token: u64, message: Option<Message>, _: Time) {
        assert_eq!(credentials(), self.credentials);
        self.replies.push((token, message.unwrap()));
    }

    fn call(
        &mut self,
        _: ConnectionId,
        _: u32,
        _: Message,
        _: &ReplyRoom,
        _: Time,
    ) -> Result<(), CallError> {
        Err(CallError::Closed)
    }

    fn cancel_call(&mut self, _: ConnectionId, _: u32) {}

    fn close(&mut self, _: ConnectionId) {}

    fn finish(&mut self, _: ConnectionId, _: Time) -> bool {
        true
    }

    fn pool(&self, _: ConnectionId) -> Pool {
        Pool::new(1 << 20)
    }

    fn carrier(&self, _: ConnectionId) -> Carrier {
        Carrier::Device
    }

    fn is_rdma(&self) -> bool {
        true
    }

    fn next_event(&mut self) -> Option<ServerTransportEvent> {
        assert_eq!(credentials(), self.credentials);
        self.events.pop_front()
    }
}

/// Who executed a READ, and its data.
type Outcome = (bool, Result<Vec<u8>, Status>);

fn on_the_loop(data: &str) -> Outcome {
    (true, Ok(data.into()))
}

const REFUSED: Outcome = (false, Err(Status::ACCES));

/// A server of a directory with a file `f`, which user 1001 owns.
struct Served {
    server: Server,
    transport: Rc<RefCell<Checked>>,
    file: PathBuf,
    /// The file in the export "/m" and in "/squashed", where all are user 1002.
    handles: [FileHandle; 2],
    _host: tempfile::TempDir,
}

impl Served {
    fn in_directory(parent: &Path) -> Option<Self> {
        let host = tempfile::tempdir_in(parent).ok()?;
        let file = host.path().join("f");
        std::fs::set_permissions(host.path(), Permissions::from_mode(0o755)).unwrap();
        std::fs::write(&file, "data").unwrap();
        chown(&file, Some(1001), Some(1001)).unwrap();
        let open = || DirectoryFs::open(host.path(), DirectoryOptions::default()).unwrap();
        let fs = open();
        fs.nonblocking().unwrap().getattr(&fs.root())?;
        let others = "all_squash,anonuid=1002,anongid=1002";
        let mut rig = Fixture::new(vec![
            export("/m", Arc::new(fs), "root_squash,anonuid=7,anongid=7"),
            export("/squashed", Arc::new(open()), others),
        ]);
        let handles = ["/m", "/squashed"].map(|path| {
            let dir = rig.mount(path).unwrap();
            rig.call::<nfs::Lookup>(&what(dir, "f")).unwrap().object
        });
        let transport = Rc::new(RefCell::new(Checked {
            credentials: credentials(),
            events: VecDeque::new(),
            replies: Vec::new(),
        }));
        let (options, clock) = (ServerOptions::default(), Clock::simulated());
        let mut server = Server::simulated(Box::new(rig.server.clone()), options, clock);
        server.add_transport(Rc::clone(&transport) as _).unwrap();
        let (conn, peer) = (ConnectionId(1), rig.peer);
        let connected = ServerTransportEvent::Connected { conn, peer };
        transport.borrow_mut().events.push_back(connected);
        let mut served = Self {
            server,
            transport,
            file,
            handles,
            _host: host,
        };
        // Workers open the file, and make the first checks.
        served.set_mode(0o666);
        for handle in handles {
            served.read(&[(1001, handle), (1002, handle)]);
        }
        Some(served)
    }

    fn set_mode(&self, mode: u32) {
        std::fs::set_permissions(&self.file, Permissions::from_mode(mode)).unwrap();
    }

    /// Lets the loop receive READs of these users at once. Returns for each whether the loop executed it,
    /// and its result.
    fn read(&mut self, calls: &[(u32, FileHandle)]) -> Vec<Outcome> {
        for (xid, (uid, file)) in (0..).zip(calls) {
            let mut args = Encoder::new();
            ReadArgs {
                file: *file,
                offset: 0,
                count: 100,
            }
            .encode(&mut args);
            let header = CallHeader {
                xid,
                prog: NFS_PROGRAM,
                vers: NFS_VERSION,
                proc: nfs::Read::NUMBER,
                cred: user(*uid),
                verf: Verifier::default(),
            };
            let mut message = args.finish();
            message.prepend(header.encode());
            let call = ServerTransportEvent::Call {
                conn: ConnectionId(1),
                token: xid.into(),
                message,
            };
            self.transport.borrow_mut().events.push_back(call);
        }
        while self.server.step() {}
        let at_once = self.transport.borrow().replies.len();
        while self.server.run_job() {}
        while self.server.step() {}
        let replies = std::mem::take(&mut self.transport.borrow_mut().replies);
        let mut results: Vec<_> = replies
            .iter()
            .enumerate()
            .map(|(nth, (token, reply))| {
                let mut input = Decoder::new(reply);
                ReplyHeader::decode(&mut input).unwrap();
                let result = ReadResult::decode(&mut input).unwrap();
                let data = result.map(|ok| ok.data.0.to_bytes().to_vec());
                (
                    *token,
                    (nth < at_once, data.map_err(|failed| failed.status)),
                )
            })
            .collect();
        results.sort_by_key(|(token, _)| *token);
        results.into_iter().map(|(_, outcome)| outcome).collect()
    }
}

/// Serves directories in memory and on the disk, if root runs the test.
fn all() -> impl Iterator<Item = Served> {
    let parents = [PathBuf::from("/dev/shm"), std::env::temp_dir()];
    let parents = parents.into_iter().take(if privileged() { 2 } else { 0 });
    parents.filter_map(|parent| Served::in_directory(&parent))
}

#[test]
fn each_call_of_a_batch_has_the_rights_of_its_caller() {
    for mut served in all() {
        served.set_mode(0o600);
        let file = served.handles[0];
        let data = on_the_loop("data");
        for _ in 0..2 {
            assert_eq!(
                served.read(&[1001, 1002, 1001, 0].map(|uid| (uid, file))),
                [data.clone(), REFUSED, data.clone(), REFUSED]
            );
            // The last caller of the batch before was another one.
            assert_eq!(served.read(&[(1002, file)]), [REFUSED]);
        }
        assert_eq!(served.read(&[(1001, file); 3]), vec![data; 3]);
    }
}

/// The two have one identity, of the same file, and may differ in whose rights its callers have.
#[test]
fn exports_of_one_file_in_a_batch_are_kept_apart() {
    for mut served in all() {
        served.set_mode(0o600);
        let [own, squashed] = served.handles.map(|file| (1001, file));
        let data = on_the_loop("data");
        assert_eq!(
            served.read(&[own, squashed, own, own, squashed]),
            [data.clone(), REFUSED, data.clone(), data, REFUSED]
        );
    }
}

/// What holds for a batch does not hold for the next one.
#[test]
fn a_permission_that_is_withdrawn_between_two_batches_is_gone() {
    for mut served in all() {
        let calls = [(1002, served.handles[0]); 2];
        for _ in 0..2 {
            served.set_mode(0o604);
            assert_eq!(served.read(&calls), vec![on_the_loop("data"); 2]);
            served.set_mode(0o600);
            assert_eq!(served.read(&calls), [REFUSED; 2]);
        }
    }
}
