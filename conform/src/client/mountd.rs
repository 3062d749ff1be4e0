//! MOUNT over TCP (RFC 1813, appendix I), for clients that mount by it rather than over RDMA.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use super::call::Call;
use super::export::Export;
use super::nfs;
use crate::wire::rpc::{self, MOUNT};
use crate::wire::{Reader, v1};

/// The time between two looks for a connection.
const GLANCE: Duration = Duration::from_millis(5);
/// The longest wait for the next bytes of a client.
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
            Ok((socket, _)) => drop(answered(socket)),
            Err(_) => std::thread::sleep(GLANCE),
        }
    }
}

/// Answers the calls of one connection.
fn answered(mut socket: TcpStream) -> std::io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    loop {
        let mut mark = [0; 4];
        socket.read_exact(&mut mark)?;
        let mark = u32::from_be_bytes(mark);
        let length = (mark & !LAST) as usize;
        if mark & LAST == 0 || length > LONGEST {
            return Ok(());
        }
        let mut record = vec![0; length];
        socket.read_exact(&mut record)?;
        let Some(reply) = reply(record) else {
            return Ok(());
        };
        let mark = LAST | reply.len() as u32;
        socket.write_all(&[&mark.to_be_bytes()[..], &reply].concat())?;
    }
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
}
