//! MOUNT over TCP (RFC 1813, appendix I), for clients that mount by it rather than over RDMA.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::call::Call;
use super::export::Export;
use super::nfs;
use crate::wire::rpc::{self, MOUNT};
use crate::wire::{Reader, v1};

/// The time between two looks for a connection.
const GLANCE: Duration = Duration::from_millis(5);
/// The longest wait for the next call of a client, and for its end.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest call, bytes.
const LONGEST: usize = 4096;
/// The mark of the last fragment of a record (RFC 5531, section 11).
const LAST: u32 = 0x8000_0000;

/// Answers calls of MOUNT until `has_ended` says so. A client that sends nothing for a while is closed.
pub(super) fn serve(listener: &TcpListener, has_ended: &(dyn Fn() -> bool + Sync)) {
    while !has_ended() {
        match listener.accept() {
            // The error is the end of one client's connection.
            Ok((socket, _)) => drop(answered(socket, has_ended)),
            Err(_) => std::thread::sleep(GLANCE),
        }
    }
}

/// Answers the calls of one connection.
fn answered(mut socket: TcpStream, has_ended: &(dyn Fn() -> bool + Sync)) -> std::io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(GLANCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    loop {
        let mut mark = [0; 4];
        filled(&mut socket, &mut mark, has_ended)?;
        let mark = u32::from_be_bytes(mark);
        let length = (mark & !LAST) as usize;
        if mark & LAST == 0 || length > LONGEST {
            return Ok(());
        }
        let mut record = vec![0; length];
        filled(&mut socket, &mut record, has_ended)?;
        let Some(reply) = reply(record) else {
            return Ok(());
        };
        let mark = LAST | reply.len() as u32;
        socket.write_all(&[&mark.to_be_bytes()[..], &reply].concat())?;
    }
}

/// Reads so many bytes, unless they do not come in time or `has_ended` says that nobody waits for them.
fn filled(
    socket: &mut TcpStream,
    bytes: &mut [u8],
    has_ended: &(dyn Fn() -> bool + Sync),
) -> std::io::Result<()> {
    let (until, mut done) = (Instant::now() + PATIENCE, 0);
    while done < bytes.len() {
        if has_ended() || Instant::now() > until {
            return Err(ErrorKind::TimedOut.into());
        }
        match socket.read(&mut bytes[done..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => done += n,
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                _ => return Err(error),
            },
        }
    }
    Ok(())
}

/// Returns the reply to a call, or `None` if this is none.
fn reply(record: Vec<u8>) -> Option<Vec<u8>> {
    let xid = Reader(&record).word()?;
    let mut call = Call::new(v1::header(xid), record)?;
    if call.procedure.0 != MOUNT {
        // NFS itself is not here.
        call.procedure.0 = 0;
    }
    let results = nfs::results(&call, &mut Export::new(false), &[], false, None);
    Some(rpc::accepted(xid, results.accepted, &results.head))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, mpsc};
    use std::thread;

    use super::*;
    use crate::wire::Xdr;

    #[test]
    fn mount_is_answered_and_nfs_is_not() {
        let mut call = rpc::null(7);
        call.procedure = (MOUNT, 3, 1);
        call.args = Xdr::new().opaque(b"/conform").done();
        let mounted = reply(call.bytes()).unwrap();
        // The handle has 16 bytes, and two flavors follow.
        assert_eq!(mounted.len(), 24 + 4 + 4 + 16 + 4 + 8);
        let unavailable = rpc::accepted(8, 1, &[]);
        assert_eq!(reply(rpc::null(8).bytes()), Some(unavailable));
        assert!(reply(vec![0; 8]).is_none());
    }
    #[test]
    fn calls_without_end_do_not_outlast_the_judge() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let (tell, told) = mpsc::channel();
        let has_ended = Arc::clone(&ended);
        thread::spawn(move || {
            serve(&listener, &|| has_ended.load(Ordering::Acquire));
            tell.send(()).unwrap();
        });
        let call = rpc::null(7).bytes();
        let record = [&(LAST | call.len() as u32).to_be_bytes()[..], &call].concat();
        let mut replies = client.try_clone().unwrap();
        thread::spawn(move || while client.write_all(&record).is_ok() {});
        replies.read_exact(&mut [0; 4]).unwrap();
        thread::spawn(move || std::io::copy(&mut replies, &mut std::io::sink()));
        ended.store(true, Ordering::Release);
        told.recv_timeout(Duration::from_secs(30)).unwrap();
    }
}
