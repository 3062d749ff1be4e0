//! For tests: a server in this process, whose every reply is checked against the estimate that
//! went with its call, and that can lose replies and restart.
#![allow(
    dead_code,
    reason = "each of the two crates that have it uses some of it"
)]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use nfs_binding::client::RpcClient;
use nfs_binding::proto::{
    CommitArgs, CommitResult, Data, FileHandle, NFS_PROGRAM, PathconfResult, Procedure,
    ReaddirplusResult, Stable, Status, WriteArgs, WriteResult, Xdr, nfs,
};
use onc_rpc::{
    AuthSys, BulkItem, CallHeader, Credential, Cursor, Decoder, Encoder, Message, Position,
    Verifier,
};
use rdma::Pool;
use rpc_transport::{Call, CallError, Reply, Request, Service, ServiceReply};

/// The fault to inject into a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No fault: the call is executed.
    None,
    /// The call is executed, the reply and the server's reply cache are lost, and the call is
    /// executed again.
    ReplyLost,
    /// The server restarts before it executes the call: uncommitted data is lost.
    Restart,
    /// The server answers with this status.
    Status(Status),
    /// The call ends without a reply.
    NoReply,
    /// There is no memory for the call, which is not sent.
    NoMemory,
    /// READDIRPLUS returns its entries without attributes, and without handles if so told.
    NoAttributes { handles: bool },
    /// The last entry of a reply to READDIRPLUS has this cookie, and the reply does not say that the listing
    /// has ended.
    LastCookie(u64),
    /// The call is executed, and the reply comes after ten seconds of [`RpcClient::sleep`].
    Slow,
    /// READDIRPLUS returns no attributes of the directory itself, neither beside the entries nor in that of `.`.
    NoDirectoryAttributes,
    /// PATHCONF says that names which differ only in case are the same.
    CaseInsensitive,
}

/// Chooses the fault for a call of the NFS program, from the procedure's number and the number of
/// its earlier calls.
type Plan = Box<dyn FnMut(u32, u64) -> Fault>;

/// A server in this process, and a client of it with these credentials: clones are of the same server.
#[derive(Clone)]
pub(crate) struct InProcess(Rc<State>, Credential);

/// The state that the clones of an [`InProcess`] share.
pub(crate) struct State {
    service: RefCell<Box<dyn Service>>,
    pub(crate) pool: Pool,
    plan: RefCell<Plan>,
    calls: RefCell<BTreeMap<(u32, u32), u64>>,
    /// Uncommitted WRITEs: file, offset, length.
    unstable: RefCell<Vec<(FileHandle, u64, usize)>>,
    /// Whether a WRITE never reaches stable storage, whatever it asks for.
    pub(crate) never_stable: Cell<bool>,
    /// The number of restarts, which changes the write verifier.
    restarts: Cell<u64>,
    /// The state of the generator that orders the ends of calls.
    random: Cell<u64>,
    /// The present and the maximum number of outstanding calls.
    under_way: Cell<(usize, usize)>,
}

impl InProcess {
    /// Calls are made as root's.
    pub(crate) fn new(service: Box<dyn Service>) -> Self {
        let state = Rc::new(State {
            service: RefCell::new(service),
            pool: Pool::new(256 << 20),
            plan: RefCell::new(Box::new(|_, _| Fault::None)),
            calls: RefCell::default(),
            unstable: RefCell::default(),
            never_stable: Cell::new(false),
            restarts: Cell::new(0),
            random: Cell::new(1),
            under_way: Cell::new((0, 0)),
        });
        Self(state, Credential::Sys(AuthSys::default()))
    }

    /// Returns a client of the same server with other credentials.
    pub(crate) fn with_credential(&self, credential: &AuthSys) -> Self {
        Self(Rc::clone(&self.0), Credential::Sys(credential.clone()))
    }

    pub(crate) fn plan(&self, plan: impl FnMut(u32, u64) -> Fault + 'static) {
        *self.plan.borrow_mut() = Box::new(plan);
    }

    /// Returns how often a procedure was called.
    pub(crate) fn calls<P: Procedure>(&self) -> u64 {
        let calls = self.calls.borrow();
        calls.get(&(P::PROGRAM, P::NUMBER)).copied().unwrap_or(0)
    }

    /// Returns the maximum number of calls that were outstanding at once.
    pub(crate) fn most_under_way(&self) -> usize {
        self.under_way.get().1
    }

    fn random(&self) -> u64 {
        // xorshift64
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        x
    }

    /// Yields a random number of times. As with a real transport, many calls are outstanding and
    /// end in any order.
    async fn pause(&self) {
        for _ in 0..self.random() % 4 {
            Yield(false).await;
        }
    }

    fn execute(&self, prog: u32, proc: u32, args: &Message) -> ServiceReply {
        let request = Request::new(
            SocketAddr::from((Ipv4Addr::LOCALHOST, 700)),
            CallHeader {
                xid: 0,
                prog,
                vers: 3,
                proc,
                cred: self.1.clone(),
                verf: Verifier::default(),
            },
            self.pool.clone(),
            args.clone(),
            Cursor::default(),
        );
        let outcome = self.service.borrow_mut().call(request);
        let reply = outcome.complete();
        match prog {
            NFS_PROGRAM => self.note_writes(proc, args, reply?),
            _ => reply,
        }
    }

    /// Records which data is not on stable storage, and gives each restart its own write verifier.
    fn note_writes(&self, proc: u32, args: &Message, reply: Message) -> ServiceReply {
        let flip = self.restarts.get().to_be_bytes();
        let turn = |verifier: &mut [u8; 8]| {
            for (byte, flip) in verifier.iter_mut().zip(flip) {
                *byte ^= flip;
            }
        };
        match proc {
            nfs::Write::NUMBER => {
                let WriteArgs { file, offset, .. } = decode(args);
                let mut result: WriteResult = decode(&reply);
                if let Ok(ok) = &mut result {
                    turn(&mut ok.verifier);
                    if self.never_stable.get() {
                        ok.committed = Stable::Unstable;
                    }
                    if ok.committed == Stable::Unstable {
                        let len = ok.count as usize;
                        self.unstable.borrow_mut().push((file, offset, len));
                    }
                }
                Ok(encode(&result))
            }
            nfs::Commit::NUMBER => {
                let CommitArgs { file, .. } = decode(args);
                let mut result: CommitResult = decode(&reply);
                if let Ok(ok) = &mut result {
                    turn(&mut ok.verifier);
                    self.unstable.borrow_mut().retain(|(f, ..)| *f != file);
                }
                Ok(encode(&result))
            }
            _ => Ok(reply),
        }
    }

    /// Overwrites uncommitted data with zeroes. A server that lost power could do worse.
    fn restart(&self) {
        self.restarts.set(self.restarts.get() + 1);
        for (file, offset, len) in self.unstable.take() {
            let args = WriteArgs {
                file,
                offset,
                count: len as u32,
                stable: Stable::FileSync,
                data: Data(vec![0; len].into()),
            };
            let reply = self.execute(NFS_PROGRAM, nfs::Write::NUMBER, &encode(&args));
            let reply = reply.expect("the server takes what it took before");
            decode::<WriteResult>(&reply).expect("a file that was written to can be written to");
        }
    }

    async fn make(&self, call: Call) -> Result<Reply, CallError> {
        self.pause().await;
        let count = {
            let mut calls = self.calls.borrow_mut();
            let count = calls.entry((call.prog, call.proc)).or_default();
            *count += 1;
            *count - 1
        };
        let fault = match call.prog {
            NFS_PROGRAM => (self.plan.borrow_mut())(call.proc, count),
            _ => Fault::None,
        };
        match fault {
            Fault::None
            | Fault::NoAttributes { .. }
            | Fault::LastCookie(_)
            | Fault::NoDirectoryAttributes
            | Fault::CaseInsensitive => {}
            Fault::Slow => self.sleep(Duration::from_secs(10)).await,
            Fault::ReplyLost => drop(self.execute(call.prog, call.proc, &call.args)),
            Fault::Restart => self.restart(),
            Fault::Status(status) => {
                let mut out = Encoder::new();
                out.u32(status.0);
                for _ in 0..absent_attributes(call.proc) {
                    out.bool(false);
                }
                return Ok(reply(out.finish()));
            }
            Fault::NoReply => {
                return Err(CallError::TimedOut {
                    server: "in process".into(),
                    after: Duration::from_secs(1),
                });
            }
            Fault::NoMemory => return Err(CallError::TooLarge("no memory".to_owned())),
        }
        let mut results = self
            .execute(call.prog, call.proc, &call.args)
            .map_err(CallError::Refused)?;
        if let Fault::NoAttributes { handles } = fault {
            let mut listing: ReaddirplusResult = decode(&results);
            for entry in listing.iter_mut().flat_map(|ok| &mut ok.entries) {
                entry.attributes = None;
                entry.handle = entry.handle.filter(|_| handles);
            }
            results = encode(&listing);
        }
        if let Fault::LastCookie(cookie) = fault {
            let mut listing: ReaddirplusResult = decode(&results);
            if let Ok(ok) = &mut listing {
                ok.eof = false;
                ok.entries.last_mut().expect("an entry").cookie = cookie;
            }
            results = encode(&listing);
        }
        if fault == Fault::NoDirectoryAttributes {
            let mut listing: ReaddirplusResult = decode(&results);
            if let Ok(ok) = &mut listing {
                ok.dir_attributes = None;
                for entry in &mut ok.entries {
                    if matches!(&entry.name.0[..], b"." | b"..") {
                        (entry.attributes, entry.handle) = (None, None);
                    }
                }
            }
            results = encode(&listing);
        }
        if fault == Fault::CaseInsensitive {
            let mut rules: PathconfResult = decode(&results);
            if let Ok(ok) = &mut rules {
                ok.case_insensitive = true;
            }
            results = encode(&rules);
        }
        let room = &call.reply;
        let payload = results.payload_len();
        assert!(payload <= room.payload.into(), "{call:?}: {payload} bytes");
        assert!(results.items().len() <= room.items.len(), "{call:?}");
        for (item, most) in results.items().iter().zip(&room.items) {
            assert!(item.data.len() <= *most as usize, "{call:?}");
        }
        self.pause().await;
        let reply = reply(self.transferred(results));
        Ok(reply.with_retransmitted(fault == Fault::ReplyLost))
    }

    /// Returns the results in one of the forms in which they can arrive: inline, or placed by RDMA
    /// Writes, which carry no position.
    fn transferred(&self, results: Message) -> Message {
        if self.random().is_multiple_of(2) {
            return Message::from_payload(results.gather(|_| true).concat().into());
        }
        let placed = results.items().iter().map(|item| BulkItem {
            position: Position::InOrder,
            data: item.data.clone(),
        });
        Message::new(results.payload().clone(), placed.collect::<Vec<_>>())
    }
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcess").finish_non_exhaustive()
    }
}

impl Deref for InProcess {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0
    }
}

impl RpcClient for InProcess {
    async fn call(&self, call: Call) -> Result<Reply, CallError> {
        let (now, most) = self.under_way.get();
        self.under_way.set((now + 1, most.max(now + 1)));
        let reply = self.make(call).await;
        let (now, most) = self.under_way.get();
        self.under_way.set((now - 1, most));
        reply
    }

    /// Yields more often for a longer time, so that a limit of seconds is not over before the calls that it
    /// is for.
    async fn sleep(&self, duration: Duration) {
        for _ in 0..=duration.as_millis() / 20 {
            Yield(false).await;
        }
    }
}

/// Returns the number of optional attributes, all absent, in the failure result of a procedure.
fn absent_attributes(proc: u32) -> u32 {
    match proc {
        nfs::Getattr::NUMBER => 0,
        nfs::Setattr::NUMBER
        | nfs::Write::NUMBER
        | nfs::Create::NUMBER
        | nfs::Mkdir::NUMBER
        | nfs::Symlink::NUMBER
        | nfs::Mknod::NUMBER
        | nfs::Remove::NUMBER
        | nfs::Rmdir::NUMBER
        | nfs::Commit::NUMBER => 2,
        nfs::Link::NUMBER => 3,
        nfs::Rename::NUMBER => 4,
        _ => 1,
    }
}

fn reply(message: Message) -> Reply {
    Reply::new(message, Cursor::default(), Duration::ZERO)
}

fn encode(value: &impl Xdr) -> Message {
    let mut out = Encoder::new();
    value.encode(&mut out);
    out.finish()
}

fn decode<T: Xdr>(message: &Message) -> T {
    T::decode(&mut Decoder::new(message)).expect("the results of the server in this process")
}

/// A future that is pending the first time it is polled.
struct Yield(bool);

impl Future for Yield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
