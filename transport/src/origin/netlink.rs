//! One request to the kernel over netlink, and its answer (netlink(7)).
//!
//! The kernel answers before the system call that sends the request returns, so nothing here
//! blocks.

use std::io;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send,
    socket_with,
};

use super::malformed;

/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// `NLMSG_ERROR`, a type of message.
const ERROR: u16 = 2;
/// The sequence number of every request: each socket is used for one request only.
const SEQUENCE: u32 = 1;
/// The size of the answer buffer in bytes. No answer to the requests here is longer.
const MAX_ANSWER: usize = 8192;

/// Sends a request to the kernel's side of `protocol` (`None` stands for NETLINK_ROUTE, number 0).
/// Returns the type of the answer and its bytes behind the header.
///
/// # Errors
/// The error that the kernel answered with, an error of the socket, or a malformed answer.
pub(super) fn ask(
    protocol: Option<Protocol>,
    kind: u16,
    body: &[u8],
) -> io::Result<(u16, Vec<u8>)> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        protocol,
    )?;
    // The socket is connected to the kernel (port 0), so no process can inject an answer.
    connect(&socket, &SocketAddrNetlink::new(0, 0))?;
    send(&socket, &question(kind, body), SendFlags::empty())?;
    let mut answer = vec![0; MAX_ANSWER];
    let (read, _) = recv(&socket, &mut answer[..], RecvFlags::DONTWAIT)?;
    answer.truncate(read);
    let (kind, payload) = parse(&answer)?;
    Ok((kind, payload.to_vec()))
}

fn question(kind: u16, body: &[u8]) -> Vec<u8> {
    let len = (HEADER + body.len()) as u32;
    let mut message = Vec::with_capacity(HEADER + body.len());
    message.extend(len.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    message.extend(SEQUENCE.to_ne_bytes());
    message.extend([0; 4]);
    message.extend(body);
    message
}

/// Returns the type of the first message of an answer, and the bytes behind its header.
fn parse(answer: &[u8]) -> io::Result<(u16, &[u8])> {
    let len = u32_at(answer, 0)? as usize;
    let kind = u16_at(answer, 4)?;
    let sequence = u32_at(answer, 8)?;
    let payload = answer.get(HEADER..len).ok_or_else(malformed)?;
    if sequence != SEQUENCE {
        return Err(malformed());
    }
    if kind == ERROR {
        let code = u32_at(payload, 0)?.cast_signed();
        return Err(match code.checked_neg().filter(|errno| *errno > 0) {
            Some(errno) => io::Error::from(Errno::from_raw_os_error(errno)),
            None => malformed(),
        });
    }
    Ok((kind, payload))
}

/// Reads two bytes in host byte order.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> io::Result<u16> {
    array_at(bytes, at).map(u16::from_ne_bytes)
}

/// Reads four bytes in host byte order.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> io::Result<u32> {
    array_at(bytes, at).map(u32::from_ne_bytes)
}

/// Returns the `N` bytes that start at offset `at`.
pub(super) fn array_at<const N: usize>(bytes: &[u8], at: usize) -> io::Result<[u8; N]> {
    let rest = bytes.get(at..).ok_or_else(malformed)?;
    rest.first_chunk().copied().ok_or_else(malformed)
}

#[cfg(test)]
mod tests {
    use quickcheck::quickcheck;

    use super::*;

    #[test]
    fn a_question_has_the_form_of_an_answer() {
        let message = question(20, b"body");
        assert_eq!(parse(&message).unwrap(), (20, &b"body"[..]));
    }

    #[test]
    fn errors_are_the_kernels() {
        let mut body = (-2i32).to_ne_bytes().to_vec();
        body.extend([0; 16]);
        let error = parse(&question(ERROR, &body)).unwrap_err();
        assert!(super::super::is_absent(&error));
        // An acknowledgement, which was not requested.
        assert!(parse(&question(ERROR, &[0; 4])).is_err());
        assert!(parse(&question(ERROR, &i32::MIN.to_ne_bytes())).is_err());
        assert!(parse(&question(ERROR, &[])).is_err());
    }

    #[test]
    fn what_is_cut_short_is_refused() {
        let message = question(20, &[7; 40]);
        for len in 0..message.len() {
            assert!(parse(&message[..len]).is_err(), "{len}");
        }
        let mut other = message.clone();
        other[8] ^= 1;
        assert!(parse(&other).is_err(), "an answer to another question");
    }

    quickcheck! {
        fn any_bytes_are_parsed(bytes: Vec<u8>) -> bool {
            parse(&bytes).is_ok_and(|(_, payload)| payload.len() + HEADER <= bytes.len())
                || parse(&bytes).is_err()
        }
    }
}
