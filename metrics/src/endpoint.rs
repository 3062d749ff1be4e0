//! A small HTTP server for scrapers.
//!
//! One thread serves all connections, and makes one answer at a time. What a client may cost is bounded:
//! by the number of connections, by the length of a request, and by the time that a connection has. When there
//! are too many, the oldest is closed: a scraper takes milliseconds, and a client that holds connections open
//! cannot keep others out by it.
//!
//! (`tiny_http`, which would be less code here, has a thread for each connection, and no limits.)

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use slab::Slab;

use crate::request::{Asked, Format, MAX_REQUEST, Parsed, parse, response};

/// The maximum number of connections.
const CONNECTIONS: usize = 8;
/// The time that a connection has for its request and the response.
const WHOLE: Duration = Duration::from_secs(10);
/// The time that a client has to close its connection after the response, so that what it still sends does
/// not make it lose the response.
const LINGER: Duration = Duration::from_secs(1);
/// The number of bytes that are dropped in that time.
const DROPPED: usize = 64 << 10;
/// The pause before accepting again when the system has no descriptor left.
const PAUSE: Duration = Duration::from_millis(100);

const WAKE: Token = Token(usize::MAX);

/// The reason why there is no answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// There is nothing at the path.
    NotFound,
    /// The numbers are not known at present (503).
    Unavailable,
    /// The numbers cannot be written in the format (500).
    Failed,
}

impl From<fmt::Error> for NoAnswer {
    fn from(_: fmt::Error) -> Self {
        Self::Failed
    }
}

/// The code that answers requests: returns the text for a path and a format.
pub trait Answer: FnMut(&str, Format) -> Result<String, NoAnswer> + Send + 'static {}

impl<F: FnMut(&str, Format) -> Result<String, NoAnswer> + Send + 'static> Answer for F {}

/// Where requests arrive.
#[derive(Debug)]
pub enum Listener {
    /// A TCP port.
    Tcp(std::net::TcpListener),
    /// A socket in the file system.
    Unix(std::os::unix::net::UnixListener),
}

/// A thread that answers requests, until this is dropped.
pub struct Endpoint {
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Starts to answer requests that arrive at these listeners.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn start(listeners: Vec<Listener>, answer: impl Answer) -> io::Result<Self> {
        Self::with_limits(listeners, answer, WHOLE)
    }

    fn with_limits(
        listeners: Vec<Listener>,
        answer: impl Answer,
        whole: Duration,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
        let mut accepting = Vec::new();
        for (at, listener) in listeners.into_iter().enumerate() {
            let mut listener = Accepting::new(listener)?;
            let registry = poll.registry();
            listener
                .source()
                .register(registry, Token(at), Interest::READABLE)?;
            accepting.push(listener);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let mut server = Server {
            poll,
            listeners: accepting,
            connections: Slab::new(),
            serial: 0,
            accept_at: None,
            whole,
            answer,
        };
        let builder = thread::Builder::new().name("metrics".to_owned());
        let thread = builder.spawn(move || server.run(&stopped))?;
        Ok(Self {
            stop,
            waker,
            thread: Some(thread),
        })
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        if let Err(error) = self.waker.wake() {
            tracing::error!(%error, "the thread for metrics cannot be ended");
            return;
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread for metrics panicked");
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").finish_non_exhaustive()
    }
}

enum Accepting {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Accepting {
    fn new(listener: Listener) -> io::Result<Self> {
        Ok(match listener {
            Listener::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                Self::Tcp(TcpListener::from_std(listener))
            }
            Listener::Unix(listener) => {
                listener.set_nonblocking(true)?;
                Self::Unix(UnixListener::from_std(listener))
            }
        })
    }

    fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(listener) => listener,
            Self::Unix(listener) => listener,
        }
    }

    fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Tcp(listener) => Box::new(listener.accept()?.0),
            Self::Unix(listener) => Box::new(listener.accept()?.0),
        })
    }
}

/// A socket of either kind.
trait Stream: Read + Write + Source + Send {
    fn end(&self) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

impl Stream for UnixStream {
    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

/// The progress of a connection.
enum State {
    /// The request, as far as it has arrived.
    Reading(Vec<u8>),
    /// The response, and how much of it has left.
    Writing(Vec<u8>, usize),
    /// The response has left. What arrives is dropped until the client closes the connection, or has sent too much:
    /// the number of bytes.
    Lingering(usize),
}

struct Connection {
    stream: Box<dyn Stream>,
    state: State,
    /// When it is closed, however far it is.
    until: Instant,
    /// Its number in the order of acceptance.
    serial: u64,
}

struct Server<A> {
    poll: Poll,
    listeners: Vec<Accepting>,
    connections: Slab<Connection>,
    serial: u64,
    /// When to accept again after the system had no descriptor left.
    accept_at: Option<Instant>,
    whole: Duration,
    answer: A,
}

impl<A: Answer> Server<A> {
    fn run(&mut self, stop: &AtomicBool) {
        let mut events = Events::with_capacity(2 * CONNECTIONS);
        while !stop.load(SeqCst) {
            let deadlines = self.connections.iter().map(|(_, it)| it.until);
            let next = deadlines.chain(self.accept_at).min();
            let now = Instant::now();
            // Rounded up, as the system counts milliseconds.
            let timeout =
                next.map(|at| at.saturating_duration_since(now) + Duration::from_millis(1));
            match self.poll.poll(&mut events, timeout) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    tracing::error!(%error, "no more metrics");
                    return;
                }
            }
            for event in &events {
                let Token(token) = event.token();
                if event.token() == WAKE {
                    continue;
                }
                match token.checked_sub(self.listeners.len()) {
                    None => self.accept(token),
                    Some(key) => self.advance(key),
                }
            }
            let now = Instant::now();
            if self.accept_at.is_some_and(|at| at <= now) {
                self.accept_at = None;
                (0..self.listeners.len()).for_each(|at| self.accept(at));
            }
            let late = |(key, it): (usize, &Connection)| (it.until <= now).then_some(key);
            let late: Vec<usize> = self.connections.iter().filter_map(late).collect();
            late.into_iter().for_each(|key| self.close(key));
        }
    }

    fn accept(&mut self, at: usize) {
        loop {
            let stream = match self.listeners[at].accept() {
                Ok(stream) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    rpcrdma_host::limited!(warn, %error, "a connection for metrics is not accepted");
                    self.accept_at = Some(Instant::now() + PAUSE);
                    return;
                }
            };
            if self.connections.len() >= CONNECTIONS {
                let oldest = self.connections.iter().min_by_key(|(_, it)| it.serial);
                if let Some(key) = oldest.map(|(key, _)| key) {
                    rpcrdma_host::limited!(
                        warn,
                        "too many connections for metrics: the oldest is closed"
                    );
                    self.close(key);
                }
            }
            self.serial += 1;
            let entry = self.connections.vacant_entry();
            let key = entry.key();
            let connection = entry.insert(Connection {
                stream,
                state: State::Reading(Vec::new()),
                until: Instant::now() + self.whole,
                serial: self.serial,
            });
            let token = Token(self.listeners.len() + key);
            let interest = Interest::READABLE | Interest::WRITABLE;
            let registered = connection
                .stream
                .register(self.poll.registry(), token, interest);
            match registered {
                // What has arrived already may cause no event.
                Ok(()) => self.advance(key),
                Err(_) => drop(self.connections.remove(key)),
            }
        }
    }

    fn close(&mut self, key: usize) {
        if let Some(mut connection) = self.connections.try_remove(key) {
            let registry: &Registry = self.poll.registry();
            let _ = connection.stream.deregister(registry);
        }
    }

    /// Does what a connection can do now, and closes it if it has ended.
    fn advance(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let ended = loop {
            match connection.step() {
                Ok(Step::Again) => {}
                Ok(Step::Asked(parsed)) => {
                    let answered = answer(&mut self.answer, parsed);
                    connection.state = State::Writing(answered, 0);
                }
                Ok(Step::End) => break true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break true,
            }
        };
        if ended {
            self.close(key);
        }
    }
}

/// Returns the response to a request.
fn answer(answer: &mut impl Answer, parsed: Parsed) -> Vec<u8> {
    const PLAIN: &str = "text/plain; charset=utf-8";
    let Asked { path, format, head } = match parsed {
        Parsed::Request(asked) => asked,
        Parsed::Refused(status) => return response(status, PLAIN, &format!("{status}\n"), false),
        Parsed::Incomplete => return Vec::new(),
    };
    let (status, body) = match answer(&path, format) {
        Ok(body) => return response("200 OK", format.media_type(), &body, head),
        Err(NoAnswer::NotFound) => ("404 Not Found", "Metrics are at /metrics.\n"),
        Err(NoAnswer::Unavailable) => ("503 Service Unavailable", "No answer in time.\n"),
        Err(NoAnswer::Failed) => (
            "500 Internal Server Error",
            "The metrics cannot be written.\n",
        ),
    };
    response(status, PLAIN, body, head)
}

/// The consequence of a step of a connection.
enum Step {
    Again,
    /// A request, or a refusal, is to be answered.
    Asked(Parsed),
    End,
}

impl Connection {
    /// Does the next thing, without waiting.
    fn step(&mut self) -> io::Result<Step> {
        let mut bytes = [0; MAX_REQUEST];
        match &mut self.state {
            State::Reading(request) => {
                let room = MAX_REQUEST - request.len();
                let count = self.stream.read(&mut bytes[..room])?;
                request.extend_from_slice(&bytes[..count]);
                Ok(match parse(request) {
                    Parsed::Incomplete if count == 0 => Step::End,
                    Parsed::Incomplete => Step::Again,
                    parsed => Step::Asked(parsed),
                })
            }
            State::Writing(response, at) => {
                if *at < response.len() {
                    *at += self.stream.write(&response[*at..])?;
                    return Ok(Step::Again);
                }
                self.stream.end()?;
                self.state = State::Lingering(0);
                self.until = self.until.min(Instant::now() + LINGER);
                Ok(Step::Again)
            }
            State::Lingering(dropped) => {
                let count = self.stream.read(&mut bytes)?;
                *dropped += count;
                match count == 0 || *dropped > DROPPED {
                    true => Ok(Step::End),
                    false => Ok(Step::Again),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
