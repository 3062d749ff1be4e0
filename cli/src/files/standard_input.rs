//! Standard input as a stream, read by a thread of its own.

use std::io::{self, Read};
use std::sync::mpsc::{self, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::thread;

use futures_util::Stream;
use futures_util::stream::poll_fn;

/// The size of one read from standard input: that of a pipe on Linux.
const READ: usize = 64 << 10;
/// The maximum number of reads that wait to be used.
const AHEAD: usize = 16;

/// Reads standard input. Waiting for it does not keep the caller's other work from progress, and
/// can be interrupted.
///
/// # Errors
/// No thread can be started.
pub(super) fn standard_input() -> io::Result<impl Stream<Item = io::Result<Vec<u8>>> + Unpin> {
    let (sender, receiver) = mpsc::sync_channel(AHEAD);
    let waiting: Arc<Mutex<Option<Waker>>> = Arc::default();
    let wake = Waiting(Arc::clone(&waiting));
    thread::Builder::new()
        .name("standard-input".to_owned())
        .spawn(move || {
            loop {
                let mut data = vec![0; READ];
                let read = match io::stdin().lock().read(&mut data) {
                    Ok(0) => break,
                    Ok(len) => {
                        data.truncate(len);
                        Ok(data)
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => Err(error),
                };
                let failed = read.is_err();
                if sender.send(read).is_err() || failed {
                    break;
                }
                wake.wake();
            }
            // The receiver is woken once more and finds the end.
            drop(sender);
            wake.wake();
        })?;
    Ok(poll_fn(move |context| {
        // Registered first: what arrives after the look below wakes this task.
        let mut waker = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        *waker = Some(context.waker().clone());
        drop(waker);
        match receiver.try_recv() {
            Ok(read) => Poll::Ready(Some(read)),
            Err(TryRecvError::Disconnected) => Poll::Ready(None),
            Err(TryRecvError::Empty) => Poll::Pending,
        }
    }))
}

/// The task that waits for input.
struct Waiting(Arc<Mutex<Option<Waker>>>);

impl Waiting {
    fn wake(&self) {
        let waker = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
