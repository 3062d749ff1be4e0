//! Tests of caller identity: local users who claim to be others, against the built server.
//!
//! The clients here are threads that run as other users, which only root can start. Their sockets
//! belong to those users, and their AUTH_SYS credentials claim what the test says.
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes the helpers here for no tests"
)]

mod common;

use std::cell::RefCell;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use common::{
    BOTH, Proto, Running, Server, copy_program, export, is_iwarp, options, patience, rpcrdma,
};
use iwarp::{Iwarp, Options};
use nfs_binding::client::{Mount3, Nfs3};
use nfs_binding::proto::{
    CreateArgs, CreateHow, DirOp, FileHandle, HandleArgs, MountArgs, MountPath, NFS_PROGRAM,
    NFS_VERSION, Name, Procedure, SetAttributes, SetattrArgs, Status, Xdr, nfs,
};
use onc_rpc::{AuthSys, CallHeader, Credential, Encoder, Verifier};
use rdma::Pool;
use rpc_transport::rdma::{RdmaClient, RdmaClientOptions};
use rpc_transport::{Client, ClientOptions, ClientTransport, Runtime, TcpClient, TcpOptions};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// Local users that are neither in /etc/passwd nor in /etc/group.
const MALLORY: u32 = 12345;
const ANN: u32 = 12346;
/// The identity of squashed callers.
const NOBODY: u32 = 65534;
/// The mode of a set-user-ID program.
const SETUID: u32 = 0o4755;

/// Returns whether the test runs as root, which starting other users' clients and servers needs. A
/// message about skipped tests goes directly to stderr, because the test harness hides the output
/// of passing tests.
fn privileged() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        let thread = thread::current();
        let test = thread.name().unwrap_or("a test").to_owned();
        let text = format!("left out, for it needs root: {test}\n");
        std::io::stderr().write_all(text.as_bytes()).unwrap();
    }
    root
}

/// Returns the transports whose peers are in the system's table of sockets. Peers on verbs devices
/// count as another host's.
fn known() -> &'static [Proto] {
    if is_iwarp() { &BOTH } else { &[Proto::Tcp] }
}

/// Runs on a thread of its own under another user's identity. The rest of the process is unchanged.
fn as_user<T: Send>(uid: u32, run: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if uid != 0 {
                let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
                set_thread_groups(&[]).unwrap();
                set_thread_res_gid(group, group, group).unwrap();
                set_thread_res_uid(user, user, user).unwrap();
            }
            run()
        });
        thread.join().unwrap()
    })
}

fn claim(uid: u32) -> Credential {
    Credential::Sys(AuthSys {
        uid,
        gid: uid,
        ..AuthSys::default()
    })
}

/// A client that claims an identity.
struct Claimant {
    runtime: Runtime,
    nfs: Nfs3<Client>,
    mountd: Mount3<Client>,
}

impl Claimant {
    fn connect(server: &Server, proto: Proto, uid: u32) -> Self {
        let runtime = Runtime::new().unwrap();
        let pool = Pool::new(16 << 20);
        let (address, port): (_, Rc<RefCell<dyn ClientTransport>>) = match proto {
            Proto::Tcp => {
                let options = TcpOptions {
                    pool,
                    ..TcpOptions::default()
                };
                (server.tcp, Rc::new(RefCell::new(TcpClient::new(options))))
            }
            Proto::Rdma => {
                let device = Box::new(Iwarp::new(Options::default(), pool).unwrap());
                let client =
                    RdmaClient::new(device, RdmaClientOptions::new(rpcrdma_protocols::base()));
                (server.rdma, Rc::new(RefCell::new(client)))
            }
        };
        let options = ClientOptions {
            credential: claim(uid),
            ..ClientOptions::default()
        };
        let connecting = Client::connect(&runtime, address, port, options);
        let client = runtime.block_on(connecting).unwrap();
        Self {
            nfs: Nfs3::new(client.clone()),
            mountd: Mount3::new(client),
            runtime,
        }
    }

    fn mount(&self) -> Result<FileHandle, Status> {
        let path = MountPath::from(&b"/data"[..]);
        let mounted = self
            .runtime
            .block_on(self.mountd.mount(&MountArgs { path }));
        mounted
            .unwrap()
            .map(|ok| ok.handle)
            .map_err(|failed| failed.status)
    }

    fn create(&self, dir: FileHandle, name: &str) -> Result<FileHandle, Status> {
        let args = create_args(dir, name);
        let made = self.runtime.block_on(self.nfs.create(&args)).unwrap();
        made.map(|ok| ok.object.unwrap())
            .map_err(|failed| failed.status)
    }

    fn give_away(&self, object: FileHandle, uid: u32) -> Result<(), Status> {
        let args = SetattrArgs {
            object,
            attributes: SetAttributes {
                uid: Some(uid),
                ..SetAttributes::default()
            },
            guard: None,
        };
        let set = self.runtime.block_on(self.nfs.setattr(&args)).unwrap();
        set.map(drop).map_err(|failed| failed.status)
    }

    fn getattr(&self, object: FileHandle) -> Result<(), Status> {
        let args = HandleArgs { object };
        let got = self.runtime.block_on(self.nfs.getattr(&args)).unwrap();
        got.map(drop).map_err(|failed| failed.status)
    }
}

fn create_args(dir: FileHandle, name: &str) -> CreateArgs {
    CreateArgs {
        place: DirOp {
            dir,
            name: Name::from(name.as_bytes()),
        },
        how: CreateHow::Guarded(SetAttributes {
            mode: Some(SETUID),
            ..SetAttributes::default()
        }),
    }
}

/// A directory in which all users may create files, and one below it in which only root may.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let place = Self { dir };
        fs::create_dir(place.data()).unwrap();
        fs::set_permissions(place.data(), Permissions::from_mode(0o777)).unwrap();
        place
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn owner(&self, name: &str) -> u32 {
        fs::symlink_metadata(self.data().join(name)).unwrap().uid()
    }

    /// Returns the command, which every user can execute, to run as a user.
    fn command(&self, uid: u32) -> Command {
        let copy = self.dir.path().join("rpcrdma");
        if !copy.exists() {
            copy_program(&copy);
        }
        let mut command = Command::new(copy);
        command
            .uid(uid)
            .gid(uid)
            .current_dir("/")
            .env_remove("RUST_LOG");
        command
    }
}

/// Exports the directory as /data with the default options.
fn serve(place: &Place, more: &[&str]) -> Server {
    let export = export("data", &place.data(), "sync");
    let mut args = vec!["--export", &export];
    args.extend(more);
    Server::start(args)
}

/// Regression test: user 65534 created a set-user-ID program of root's.
#[test]
fn a_user_of_this_host_that_claims_to_be_root_plants_no_program_of_roots() {
    if !privileged() {
        return;
    }
    for user in [NOBODY, MALLORY] {
        for proto in known() {
            let place = Place::new();
            let server = serve(&place, &[]);
            as_user(user, || {
                let mallory = Claimant::connect(&server, *proto, 0);
                let root = mallory.mount().unwrap();
                if let Ok(shell) = mallory.create(root, "shell") {
                    assert!(mallory.give_away(shell, 0).is_err());
                }
                let ann = Claimant::connect(&server, *proto, ANN);
                let _ = ann.create(root, "anns");
            });
            for planted in fs::read_dir(place.data()).unwrap() {
                let owner = planted.unwrap().metadata().unwrap().uid();
                assert_eq!(owner, NOBODY, "{user} {proto:?}");
            }
            // In a directory in which only root may create files, claiming to be root does not
            // help.
            fs::set_permissions(place.data(), Permissions::from_mode(0o755)).unwrap();
            let refused = as_user(user, || {
                let mallory = Claimant::connect(&server, *proto, 0);
                mallory.create(mallory.mount().unwrap(), "other")
            });
            assert_eq!(refused, Err(Status::ACCES), "{user} {proto:?}");
        }
    }
}

#[test]
fn a_user_of_this_host_is_itself_and_root_of_this_host_is_root() {
    if !privileged() {
        return;
    }
    let place = Place::new();
    let server = serve(&place, &[]);
    let source = place.dir.path().join("source");
    fs::write(&source, "mine").unwrap();
    for proto in known() {
        for uid in [MALLORY, 0] {
            let name = format!("{}-{uid}", proto.name());
            let mut put = place.command(uid);
            put.arg("put").args(options(*proto, ""));
            put.arg(&source)
                .arg(server.url(*proto, &format!("/data/{name}")));
            Running::start(&mut put).finish().ok();
            assert_eq!(place.owner(&name), uid, "{proto:?}");
        }
        // The kernel's client acts for its users in this way.
        let name = format!("{}-for-ann", proto.name());
        let client = Claimant::connect(&server, *proto, ANN);
        client.create(client.mount().unwrap(), &name).unwrap();
        assert_eq!(place.owner(&name), ANN, "{proto:?}");
    }
}

#[test]
fn a_trusted_user_speaks_for_others_but_not_for_root() {
    if !privileged() {
        return;
    }
    let place = Place::new();
    let server = serve(
        &place,
        &["--trust-uid", "1", "--trust-uid", &MALLORY.to_string()],
    );
    for proto in known() {
        let made = |name: &str, uid| {
            let name = format!("{}-{name}", proto.name());
            as_user(MALLORY, || {
                let gateway = Claimant::connect(&server, *proto, uid);
                gateway.create(gateway.mount().unwrap(), &name).unwrap();
            });
            place.owner(&name)
        };
        assert_eq!(made("anns", ANN), ANN, "{proto:?}");
        assert_eq!(made("roots", 0), NOBODY, "{proto:?}");
    }
}

/// Returns the bytes of a CREATE call over TCP that claims to be root.
fn create_as_root(dir: FileHandle, name: &str) -> Vec<u8> {
    let header = CallHeader {
        xid: 7,
        prog: NFS_PROGRAM,
        vers: NFS_VERSION,
        proc: nfs::Create::NUMBER,
        cred: claim(0),
        verf: Verifier::default(),
    };
    let mut args = Encoder::new();
    create_args(dir, name).encode(&mut args);
    let mut message = args.finish();
    message.prepend(header.encode());
    let bytes: Vec<u8> = message.gather(|_| true).iter().flatten().copied().collect();
    let mut record = (1 << 31 | bytes.len() as u32).to_be_bytes().to_vec();
    record.extend(bytes);
    record
}

/// Sends a call over a connection of its own. Returns the status with which its results begin.
fn status_of(server: &Server, call: &[u8]) -> Status {
    let mut socket = TcpStream::connect(server.tcp).unwrap();
    socket.set_read_timeout(Some(patience())).unwrap();
    socket.write_all(call).unwrap();
    // Record mark, XID, REPLY, MSG_ACCEPTED, verifier (two words), SUCCESS, status.
    let mut reply = [0; 32];
    socket.read_exact(&mut reply).unwrap();
    Status(u32::from_be_bytes(*reply.last_chunk().unwrap()))
}

/// Regression test: 140,000 failing REMOVEs of one user evicted the replies of all others, whose
/// calls were then executed again when they were sent again.
#[test]
fn a_user_of_this_host_does_not_evict_roots_replies() {
    if !privileged() {
        return;
    }
    let place = Place::new();
    // The least memory, so that there is room for some thousand replies.
    let export = export("data", &place.data(), "async");
    let args = ["--export", &export, "--memory-limit", "24M"];
    let server = Server::start(args);
    let root = Claimant::connect(&server, Proto::Tcp, 0).mount().unwrap();
    let call = create_as_root(root, "roots");
    assert_eq!(status_of(&server, &call), Status::OK);
    as_user(MALLORY, || {
        let mallory = Claimant::connect(&server, Proto::Tcp, MALLORY);
        let own = mallory.create(root, "mallorys").unwrap();
        for _ in 0..6000 {
            assert_eq!(mallory.give_away(own, MALLORY), Ok(()));
            assert_eq!(mallory.create(root, "mallorys"), Err(Status::EXIST));
        }
    });
    assert_eq!(
        status_of(&server, &call),
        Status::OK,
        "it was executed again"
    );
}

/// How a client closes its connection after sending a call.
#[derive(Clone, Copy, Debug)]
enum Leaves {
    Closes,
    ClosesHalf,
}

/// Kernels before 6.16 show user 0 as the owner of a closed socket. The server is stopped
/// meanwhile, so that its lookup comes too late.
#[test]
fn a_user_of_this_host_does_not_become_root_by_closing_its_socket_after_sending() {
    if !privileged() {
        return;
    }
    let place = Place::new();
    let server = serve(&place, &[]);
    let root = Claimant::connect(&server, Proto::Tcp, 0).mount().unwrap();
    let pid = Pid::from_raw(server.pid().cast_signed()).unwrap();
    for leaves in [Leaves::Closes, Leaves::ClosesHalf] {
        let name = format!("{leaves:?}");
        kill_process(pid, Signal::STOP).unwrap();
        let socket = as_user(MALLORY, || {
            let mut socket = TcpStream::connect(server.tcp).unwrap();
            socket.write_all(&create_as_root(root, &name)).unwrap();
            match leaves {
                Leaves::Closes => None,
                Leaves::ClosesHalf => {
                    socket.shutdown(Shutdown::Write).unwrap();
                    Some(socket)
                }
            }
        });
        kill_process(pid, Signal::CONT).unwrap();
        if let Some(mut socket) = socket {
            let mut reply = Vec::new();
            socket.set_read_timeout(Some(patience())).unwrap();
            let _ = socket.read_to_end(&mut reply);
        }
        // A later call is answered later.
        let later = Claimant::connect(&server, Proto::Tcp, 0);
        later.getattr(root).unwrap();
        // The call is executed as nobody, or not at all.
        let owner = || Some(fs::symlink_metadata(place.data().join(&name)).ok()?.uid());
        let start = Instant::now();
        while owner() != Some(NOBODY) && start.elapsed() < Duration::from_secs(1) {
            thread::sleep(Duration::from_millis(5));
        }
        assert!([None, Some(NOBODY)].contains(&owner()), "{leaves:?}");
    }
}

#[test]
fn a_server_of_an_ordinary_user_serves_that_user_and_root_and_tells_others_what_to_do() {
    if !privileged() {
        return;
    }
    let place = Place::new();
    let home = place.dir.path().join("home");
    fs::create_dir(&home).unwrap();
    chown(&home, Some(ANN), Some(ANN)).unwrap();
    chown(place.data(), Some(ANN), Some(ANN)).unwrap();
    let serve = |more: &[&str]| {
        let export = export("data", &place.data(), "sync");
        let key = home.join("key").display().to_string();
        let mut args = vec!["--export", &export, "--handle-key", &key];
        args.extend(more);
        Server::start_command(place.command(ANN), 0, 0, args)
    };
    let server = serve(&[]);
    for proto in known() {
        let own = as_user(ANN, || {
            let ann = Claimant::connect(&server, *proto, ANN);
            let root = ann.mount().unwrap();
            ann.create(root, &format!("{}-mine", proto.name())).unwrap();
            root
        });
        assert_eq!(place.owner(&format!("{}-mine", proto.name())), ANN);
        Claimant::connect(&server, *proto, 0).getattr(own).unwrap();
        // Whatever identity it claims and whatever handle it has.
        for claimed in [MALLORY, ANN, 0] {
            as_user(MALLORY, || {
                let mallory = Claimant::connect(&server, *proto, claimed);
                assert_eq!(mallory.mount(), Err(Status::ACCES), "{proto:?}");
                assert_eq!(mallory.getattr(own), Err(Status::ACCES), "{proto:?}");
                let Claimant {
                    runtime,
                    nfs,
                    mountd,
                } = &mallory;
                runtime.block_on(nfs.null(&())).unwrap();
                assert_eq!(
                    runtime.block_on(mountd.export(&())).unwrap().exports.len(),
                    1
                );
            });
        }
        let mut ls = place.command(MALLORY);
        ls.arg("ls")
            .args(options(*proto, ""))
            .arg(server.url(*proto, "/data"));
        Running::start(&mut ls)
            .finish()
            .fails_with(&["permission denied"]);
    }
    drop(server);
    let trusting = serve(&["--trust-uid", &MALLORY.to_string()]);
    for proto in known() {
        as_user(MALLORY, || {
            Claimant::connect(&trusting, *proto, MALLORY).mount()
        })
        .unwrap();
    }
}

/// Follows docs/tour.md as an ordinary user.
#[test]
fn whoever_runs_a_server_can_use_it() {
    let dir = tempfile::tempdir().unwrap();
    let (source, data) = (dir.path().join("source"), dir.path().join("data"));
    fs::create_dir(&data).unwrap();
    fs::write(&source, "content").unwrap();
    let server = Server::start(["--export", &export("data", &data, "sync"), "--memory"]);
    let copy = |words: &[&Path], command: &str, proto| {
        let mut running = rpcrdma();
        running.arg(command).args(options(proto, "")).args(words);
        Running::start(&mut running).finish().ok();
    };
    for proto in known() {
        for export in ["/data", "/memory"] {
            let url = PathBuf::from(server.url(*proto, &format!("{export}/{}", proto.name())));
            let back = dir
                .path()
                .join(format!("{}{}", proto.name(), export.replace('/', "-")));
            copy(&[&source, &url], "put", *proto);
            copy(&[&url, &back], "get", *proto);
            assert_eq!(fs::read_to_string(back).unwrap(), "content");
        }
    }
}
