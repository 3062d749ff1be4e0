//! Messages that a relay changes.

#![allow(
    unreachable_pub,
    reason = "helpers of tests, which clippy takes for none"
)]

use std::io::{Read, Write};
use std::net::TcpStream;

use rpcrdma_conform::wire::mpa;

/// Passes on one direction of a connection: FPDUs without CRC, with the messages of Sends as `change` returns them.
pub fn pass_messages(
    mut from: &TcpStream,
    mut to: &TcpStream,
    change: impl Fn(Vec<u8>) -> Vec<u8>,
) -> std::io::Result<()> {
    const UNTAGGED: usize = 18;
    let mut frame = [0; 20];
    from.read_exact(&mut frame)?;
    let mut private = vec![0; usize::from(u16::from_be_bytes([frame[18], frame[19]]))];
    from.read_exact(&mut private)?;
    to.write_all(&[&frame[..], &private].concat())?;
    // The segments of a message that is not complete.
    let mut begun: Vec<Vec<u8>> = Vec::new();
    loop {
        let mut length = [0; 2];
        from.read_exact(&mut length)?;
        let length = usize::from(u16::from_be_bytes(length));
        let mut ulpdu = vec![0; length + mpa::padding(length) + 4];
        from.read_exact(&mut ulpdu)?;
        ulpdu.truncate(length);
        let is_send = ulpdu[0] & 0x80 == 0 && matches!(ulpdu[1] & 0x0f, 3 | 4);
        if !is_send || ulpdu.len() < UNTAGGED {
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
