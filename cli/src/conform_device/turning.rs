//! The thread that owns a device: it performs what scripts ask for, and takes what comes.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::JoinHandle;

use rpc_transport::{PollLoop, Wake};
use rpcrdma_setup::access::LinkOptions;
use rpcrdma_setup::device::DeviceChoice;
use rpcrdma_setup::{Context, Failure};

use super::ends::{Ends, Facts};

/// Something that the thread is to do.
type Job = Box<dyn FnOnce(&mut Ends) + Send>;

/// The thread, as others see it. It ends when this is dropped and all connections have ended.
pub(super) struct Turning {
    /// `None` when this is being dropped.
    jobs: Option<Sender<Job>>,
    wake: Arc<Wake>,
    pub(super) facts: Facts,
    thread: Option<JoinHandle<()>>,
}

impl Turning {
    /// Opens a device in a thread of its own.
    ///
    /// # Errors
    /// The device cannot be opened.
    pub(super) fn start(choice: DeviceChoice, link: LinkOptions) -> Result<Self, Failure> {
        let (jobs, next) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let thread = std::thread::Builder::new().name("device".into());
        let thread = thread.spawn(move || {
            let opened = open(&choice, &link);
            let (ends, poll_loop) = match opened {
                Ok((ends, poll_loop)) => (ends, poll_loop),
                Err(failure) => return drop(tell.send(Err(failure))),
            };
            let facts = ends.borrow().facts();
            if tell.send(Ok((Arc::clone(poll_loop.wake()), facts))).is_ok() {
                turn(&ends, poll_loop, &next);
            }
        });
        let thread = thread.context("cannot start a thread")?;
        let opened = told.recv().map_err(|_| Failure::work("no device"))?;
        let (wake, facts) = opened?;
        Ok(Self {
            jobs: Some(jobs),
            wake,
            facts,
            thread: Some(thread),
        })
    }

    /// Has the thread do something, and returns what comes of it. `None`: the thread has ended.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Ends) -> T + Send + 'static,
    ) -> Option<T> {
        let (tell, told) = mpsc::channel();
        self.post(move |ends| {
            // Nobody waits for it if this thread has panicked.
            drop(tell.send(job(ends)));
        });
        told.recv().ok()
    }

    /// Has the thread do something.
    pub(super) fn post(&self, job: impl FnOnce(&mut Ends) + Send + 'static) {
        if let Some(jobs) = &self.jobs {
            // An error means that the thread has ended, and its connections with it.
            drop(jobs.send(Box::new(job)));
            self.wake.wake();
        }
    }
}

impl fmt::Debug for Turning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turning").finish_non_exhaustive()
    }
}

impl Drop for Turning {
    fn drop(&mut self) {
        self.jobs = None;
        self.wake.wake();
        if let Some(thread) = self.thread.take() {
            // A panic was reported by the thread itself.
            drop(thread.join());
        }
    }
}

fn open(
    choice: &DeviceChoice,
    link: &LinkOptions,
) -> Result<(Rc<RefCell<Ends>>, PollLoop), Failure> {
    let opened = link.device(choice)?;
    let ends = Rc::new(RefCell::new(Ends::new(opened.device)));
    let mut poll_loop = PollLoop::new().context("cannot wait for a device")?;
    let source = Rc::clone(&ends);
    poll_loop
        .add(source)
        .context("cannot wait for the device")?;
    Ok((ends, poll_loop))
}

/// Turns the loop until nobody is left who has jobs, and all connections have ended.
fn turn(ends: &Rc<RefCell<Ends>>, mut poll_loop: PollLoop, jobs: &Receiver<Job>) {
    let mut is_over = false;
    loop {
        poll_loop.wake().take();
        // The last turn may have been long ago.
        ends.borrow_mut().begin(poll_loop.clock().now());
        loop {
            match jobs.try_recv() {
                Ok(job) => job(&mut ends.borrow_mut()),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    is_over = true;
                    break;
                }
            }
        }
        if is_over && ends.borrow_mut().leave_all() {
            return;
        }
        let now = poll_loop.clock().now();
        if !poll_loop.turn(now) {
            poll_loop.wait(None);
        }
    }
}
