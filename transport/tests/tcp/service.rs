//! The RPC program that the tests call, and functions to run its server.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use onc_rpc::{AcceptStatus, Credential, Encoder, Message};
use rpc_transport::{
    Call, CallError, Client, ClientOptions, ErrorReply, ProgramVersions, Reply, Request, Runtime,
    Server, ServerOptions, ServerStats, Service, ServiceOutcome, Stop, TcpClient, TcpOptions,
    TcpServer,
};

pub(crate) const PROG: u32 = 0x2000_0001;
pub(crate) const VERS: u32 = 2;
pub(crate) const NULL: u32 = 0;
/// Procedure: returns its argument, an opaque that is a bulk item in both directions.
pub(crate) const ECHO: u32 = 1;
/// Procedure: a worker answers after the given number of milliseconds.
pub(crate) const SLEEP: u32 = 2;
/// Procedure: adds one to a count and returns it after the given number of milliseconds. It is not
/// idempotent.
pub(crate) const COUNT: u32 = 3;
/// Procedure: a worker panics.
pub(crate) const PANIC: u32 = 4;
/// Procedure: the service panics in the server's thread.
pub(crate) const PANIC_AT_ONCE: u32 = 5;
/// Procedure: blocks the server's thread for the given number of milliseconds.
pub(crate) const STALL: u32 = 6;

const MAX: u32 = 8 << 20;

pub(crate) struct Echo {
    pub(crate) count: Arc<AtomicU32>,
}

impl Service for Echo {
    fn programs(&self) -> &[ProgramVersions] {
        &[ProgramVersions {
            prog: PROG,
            low: VERS,
            high: VERS,
        }]
    }

    fn call(&mut self, request: Request) -> ServiceOutcome {
        let mut args = request.args();
        let garbage = || ServiceOutcome::Done(Err(ErrorReply::Accepted(AcceptStatus::GarbageArgs)));
        match request.proc {
            NULL => ServiceOutcome::Done(Ok(Message::default())),
            ECHO => match args.bulk(MAX) {
                Ok(data) => {
                    let mut results = Encoder::new();
                    results.bulk(data);
                    ServiceOutcome::Done(Ok(results.finish()))
                }
                Err(_) => garbage(),
            },
            SLEEP | COUNT => {
                let Ok(millis) = args.u32() else {
                    return garbage();
                };
                let count = (request.proc == COUNT).then(|| Arc::clone(&self.count));
                ServiceOutcome::Later(Box::new(move || {
                    let mut results = Encoder::new();
                    if let Some(count) = count {
                        results.u32(count.fetch_add(1, Ordering::SeqCst) + 1);
                    }
                    std::thread::sleep(Duration::from_millis(u64::from(millis)));
                    Ok(results.finish())
                }))
            }
            STALL => {
                let millis = args.u32().unwrap_or(0);
                std::thread::sleep(Duration::from_millis(u64::from(millis)));
                ServiceOutcome::Done(Ok(Message::default()))
            }
            PANIC => ServiceOutcome::Later(Box::new(|| panic!("asked for by the test"))),
            PANIC_AT_ONCE => panic!("asked for by the test"),
            _ => ServiceOutcome::Done(Err(ErrorReply::Accepted(AcceptStatus::ProcUnavail))),
        }
    }

    fn remember_reply(&self, _prog: u32, _vers: u32, proc: u32) -> bool {
        proc == COUNT
    }
}

/// A server on its own thread, which ends when this is dropped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<ServerStats>>,
}

impl Running {
    pub(crate) fn start() -> Self {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::with(
            local,
            Arc::default(),
            TcpOptions::default(),
            ServerOptions::default(),
        )
    }

    pub(crate) fn with(
        address: SocketAddr,
        count: Arc<AtomicU32>,
        tcp: TcpOptions,
        options: ServerOptions,
    ) -> Self {
        Self::of(TcpServer::bind(address, tcp).unwrap(), count, options)
    }

    pub(crate) fn listening(listener: std::net::TcpListener, tcp: TcpOptions) -> Self {
        let port = TcpServer::listening(listener, tcp).unwrap();
        Self::of(port, Arc::default(), ServerOptions::default())
    }

    fn of(port: TcpServer, count: Arc<AtomicU32>, options: ServerOptions) -> Self {
        let address = port.local_addr();
        let stop = Stop::new();
        let theirs = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut server = Server::new(Box::new(Echo { count }), options).unwrap();
            server.add_transport(Rc::new(RefCell::new(port))).unwrap();
            server.run(&theirs).unwrap();
            server.stats()
        });
        let thread = Some(thread);
        Self {
            address,
            stop,
            thread,
        }
    }

    pub(crate) fn stop(mut self) -> ServerStats {
        self.stop.stop();
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

pub(crate) fn options() -> ClientOptions {
    ClientOptions {
        backoff_min: Duration::from_millis(5),
        backoff_max: Duration::from_millis(50),
        give_up_after: Duration::from_secs(20),
        ..ClientOptions::default()
    }
}

pub(crate) fn connect(
    runtime: &Runtime,
    address: SocketAddr,
    options: ClientOptions,
) -> Result<(Client, Rc<RefCell<TcpClient>>), CallError> {
    let port = Rc::new(RefCell::new(TcpClient::new(TcpOptions::default())));
    let connecting = Client::connect(runtime, address, port.clone(), options);
    Ok((runtime.block_on(connecting)?, port))
}

pub(crate) fn call(proc: u32, args: Message) -> Call {
    Call {
        prog: PROG,
        vers: VERS,
        proc,
        args,
        reply: Default::default(),
    }
}

pub(crate) fn echo(data: Bytes) -> Call {
    let mut args = Encoder::new();
    args.bulk(data);
    call(ECHO, args.finish())
}

pub(crate) fn number(proc: u32, number: u32) -> Call {
    let mut args = Encoder::new();
    args.u32(number);
    call(proc, args.finish())
}

/// Returns a call in XDR, without the record mark.
pub(crate) fn called(xid: u32, call: Call) -> Vec<u8> {
    let (message, _) = call.into_message(xid, Credential::None);
    message.gather(|_| true).concat()
}

pub(crate) fn echoed(reply: &Reply) -> Bytes {
    reply.results().bulk(MAX).unwrap().to_bytes()
}

/// Returns bytes that depend on the seed and on their position.
pub(crate) fn pattern(seed: usize, len: usize) -> Bytes {
    (0..len)
        .map(|at| ((at * 31) ^ (at >> 8) ^ seed) as u8)
        .collect()
}
