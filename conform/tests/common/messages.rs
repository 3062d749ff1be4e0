//! Messages that a relay changes.

#![allow(
    unreachable_pub,
    reason = "helpers of tests, which clippy takes for none"
)]

use std::io::Write;
use std::net::TcpStream;

use rpcrdma_conform::wire::mpa;

use super::relay::{UNTAGGED, is_send, next_ulpdu, pass_opening};

/// Passes on one direction of a connection: FPDUs without CRC, with the messages of Sends as `change` returns them.
pub fn pass_messages(
    from: &TcpStream,
    mut to: &TcpStream,
    change: impl Fn(Vec<u8>) -> Vec<u8>,
) -> std::io::Result<()> {
    pass_opening(from, to, |_| {})?;
    // The segments of a message that is not complete.
    let mut begun: Vec<Vec<u8>> = Vec::new();
    loop {
        let ulpdu = next_ulpdu(from)?;
        if !is_send(&ulpdu) {
            to.write_all(&mpa::fpdu(&ulpdu, false))?;
            continue;
        }
        let is_last = ulpdu[0] & 0x40 != 0;
        begun.push(ulpdu);
        if !is_last {
            continue;
        }
        let segments = std::mem::take(&mut begun);
        let payloads = segments.iter().map(|it| &it[UNTAGGED..]);
        let message = change(payloads.collect::<Vec<_>>().concat());
        let mut rest = &message[..];
        for (number, segment) in segments.iter().enumerate() {
            let is_end = number + 1 == segments.len();
            let usual = segment.len() - UNTAGGED;
            let (now, later) = match is_end {
                true => (rest, &[][..]),
                false => rest.split_at(usual.min(rest.len())),
            };
            let ulpdu = [&segment[..UNTAGGED], now].concat();
            to.write_all(&mpa::fpdu(&ulpdu, false))?;
            rest = later;
        }
    }
}
