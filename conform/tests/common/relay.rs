//! A relay between a client and the judge, for the time of one performance.

#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy takes for none"
)]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rpcrdma_conform::wire::mpa;

/// Passes on the MPA frame with which an end begins, with the private data as `change` returns it.
pub fn pass_opening(
    mut from: impl Read,
    mut to: impl Write,
    change: impl FnOnce(&mut [u8]),
) -> std::io::Result<()> {
    let mut frame = [0; 20];
    from.read_exact(&mut frame)?;
    let mut private = vec![0; usize::from(u16::from_be_bytes([frame[18], frame[19]]))];
    from.read_exact(&mut private)?;
    change(&mut private);
    to.write_all(&[&frame[..], &private].concat())
}

/// Reads the ULPDU of the next FPDU, whose CRC is not looked at.
pub fn next_ulpdu(mut from: impl Read) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 2];
    from.read_exact(&mut length)?;
    let length = usize::from(u16::from_be_bytes(length));
    let mut ulpdu = vec![0; length + mpa::padding(length) + 4];
    from.read_exact(&mut ulpdu)?;
    ulpdu.truncate(length);
    Ok(ulpdu)
}

/// Returns whether a ULPDU is a segment of a Send.
pub fn is_send(ulpdu: &[u8]) -> bool {
    ulpdu.len() >= UNTAGGED && ulpdu[0] & 0x80 == 0 && matches!(ulpdu[1] & 0x0f, 3 | 4)
}

/// The header of an untagged DDP segment, bytes.
pub const UNTAGGED: usize = 18;

/// The relay of one performance. Once it is dropped, it accepts no more connections.
pub struct Relay {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
}

/// One connection that a relay passes on.
pub trait Passing: Send + Sync + 'static {
    /// Passes on what comes from one end, the client's calls or the judge's replies, until a stream ends.
    fn pass(&self, from: &TcpStream, to: &TcpStream, is_call: bool) -> std::io::Result<()>;
}

impl Relay {
    /// Starts a relay to `judge`. `each` makes what passes a connection with this number, from 0; where it returns
    /// none, that connection and all later ones are refused.
    pub fn start<P: Passing>(
        judge: SocketAddr,
        each: impl Fn(usize) -> Option<P> + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&is_over);
        std::thread::spawn(move || {
            for number in 0.. {
                let Ok((client, _)) = listener.accept() else {
                    return;
                };
                if ended.load(Ordering::Acquire) {
                    return;
                }
                let Some(passing) = each(number).map(Arc::new) else {
                    return;
                };
                let Ok(judge) = TcpStream::connect(judge) else {
                    return;
                };
                pass_both_ways(&passing, client, judge);
            }
        });
        Self { address, is_over }
    }

    /// Returns the address that the client connects to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // A connection wakes the thread that accepts. If it refuses, that thread has ended already.
        drop(TcpStream::connect(self.address));
    }
}

fn pass_both_ways<P: Passing>(passing: &Arc<P>, client: TcpStream, judge: TcpStream) {
    let [from_client, from_judge] = [&client, &judge].map(|it| it.try_clone().unwrap());
    for (from, to, is_call) in [(from_client, judge, true), (from_judge, client, false)] {
        to.set_nodelay(true).unwrap();
        let passing = Arc::clone(passing);
        std::thread::spawn(move || {
            // An error is the end of one of the two connections, and ends the other one.
            drop(passing.pass(&from, &to, is_call));
            for stream in [from, to] {
                drop(stream.shutdown(Shutdown::Both));
            }
        });
    }
}
