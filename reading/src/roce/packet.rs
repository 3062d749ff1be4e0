//! Packets of reliable connections over UDP (InfiniBand architecture specification, chapter 9, and
//! annex A17).

use std::net::IpAddr;

use crate::link::Datagram;

/// The UDP port of RoCE version 2.
pub(crate) const PORT: u16 = 4791;
/// The queue pair of the connection manager.
const GENERAL_SERVICES: u32 = 1;
/// Lengths in bytes of headers.
const BASE: usize = 12;
const DATAGRAM: usize = 8;
const EXTENDED: usize = 16;
const SHORT: usize = 4;
/// Length in bytes of the invariant CRC.
const ICRC: usize = 4;
/// Opcode of a Send over an unreliable datagram.
const UD_SEND: u8 = 0x64;

/// Message or operation that a packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Send,
    Write,
    ReadRequest,
    ReadResponse,
    Acknowledge,
}

/// A packet.
#[derive(Debug)]
pub(super) struct Packet<'a> {
    pub(super) from: IpAddr,
    pub(super) to: IpAddr,
    /// The queue pair that it goes to.
    pub(super) queue_pair: u32,
    pub(super) number: u32,
    pub(super) kind: Kind,
    pub(super) is_first: bool,
    pub(super) is_last: bool,
    /// Address, key and length of the memory that it names (RETH).
    pub(super) target: Option<(u64, u32, u32)>,
    pub(super) invalidates: Option<u32>,
    /// The syndrome of an acknowledgement.
    pub(super) syndrome: Option<u8>,
    pub(super) payload: &'a [u8],
    /// Length of the payload in bytes, with what the capture has cut off.
    pub(super) length: usize,
}

pub(super) enum Parsed<'a> {
    Packet(Packet<'a>),
    /// A message of the connection manager.
    Manager(&'a [u8]),
    Other,
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*word))
}

/// Returns kind, whether it is the first and the last packet of its message, and the lengths of the
/// headers that follow: target, acknowledgement, immediate data or handle to invalidate.
fn opcode(code: u8) -> Option<(Kind, bool, bool, [bool; 4])> {
    const NONE: [bool; 4] = [false; 4];
    const TARGET: [bool; 4] = [true, false, false, false];
    const ACKNOWLEDGED: [bool; 4] = [false, true, false, false];
    const IMMEDIATE: [bool; 4] = [false, false, true, false];
    const INVALIDATE: [bool; 4] = [false, false, false, true];
    Some(match code {
        0x00 => (Kind::Send, true, false, NONE),
        0x01 => (Kind::Send, false, false, NONE),
        0x02 => (Kind::Send, false, true, NONE),
        0x03 => (Kind::Send, false, true, IMMEDIATE),
        0x04 => (Kind::Send, true, true, NONE),
        0x05 => (Kind::Send, true, true, IMMEDIATE),
        0x06 => (Kind::Write, true, false, TARGET),
        0x07 => (Kind::Write, false, false, NONE),
        0x08 => (Kind::Write, false, true, NONE),
        0x09 => (Kind::Write, false, true, IMMEDIATE),
        0x0a => (Kind::Write, true, true, TARGET),
        0x0b => (Kind::Write, true, true, [true, false, true, false]),
        0x0c => (Kind::ReadRequest, true, true, TARGET),
        0x0d => (Kind::ReadResponse, true, false, ACKNOWLEDGED),
        0x0e => (Kind::ReadResponse, false, false, NONE),
        0x0f => (Kind::ReadResponse, false, true, ACKNOWLEDGED),
        0x10 => (Kind::ReadResponse, true, true, ACKNOWLEDGED),
        0x11 => (Kind::Acknowledge, true, true, ACKNOWLEDGED),
        0x16 => (Kind::Send, false, true, INVALIDATE),
        0x17 => (Kind::Send, true, true, INVALIDATE),
        _ => return None,
    })
}

pub(super) fn parse<'a>(datagram: &Datagram<'a>) -> Parsed<'a> {
    packet(datagram).unwrap_or(Parsed::Other)
}

fn packet<'a>(datagram: &Datagram<'a>) -> Option<Parsed<'a>> {
    let bytes = datagram.payload;
    let base = bytes.get(..BASE)?;
    let queue_pair = be32(base, 4)? & 0x00ff_ffff;
    let number = be32(base, 8)? & 0x00ff_ffff;
    let pad = usize::from(base[1] >> 4 & 3);
    // What the capture has cut off is first of all the CRC.
    let missing = datagram.missing as usize;
    let end = bytes.len() - ICRC.saturating_sub(missing).min(bytes.len() - BASE);
    if base[0] == UD_SEND && queue_pair == GENERAL_SERVICES {
        return Some(Parsed::Manager(bytes.get(BASE + DATAGRAM..end)?));
    }
    let (kind, is_first, is_last, [target, acknowledge, immediate, invalidate]) = opcode(base[0])?;
    let mut at = BASE;
    let mut next = |is_there: bool, len: usize| {
        let from = at;
        at += if is_there { len } else { 0 };
        is_there.then_some(from)
    };
    let target = next(target, EXTENDED);
    let acknowledge = next(acknowledge, SHORT);
    next(immediate, SHORT);
    let invalidate = next(invalidate, SHORT);
    let target = match target {
        Some(at) => {
            let address = u64::from(be32(bytes, at)?) << 32 | u64::from(be32(bytes, at + 4)?);
            Some((address, be32(bytes, at + 8)?, be32(bytes, at + 12)?))
        }
        None => None,
    };
    let start = at.min(end);
    let cut = missing.saturating_sub(ICRC);
    let padding = if cut == 0 { pad } else { 0 };
    let payload = &bytes[start..end - padding.min(end - start)];
    Some(Parsed::Packet(Packet {
        from: datagram.from,
        to: datagram.to,
        queue_pair,
        number,
        kind,
        is_first,
        is_last,
        target,
        invalidates: invalidate.and_then(|at| be32(bytes, at)),
        syndrome: acknowledge.and_then(|at| bytes.get(at).copied()),
        payload,
        length: payload.len() + cut.saturating_sub(pad - padding),
    }))
}

/// A message of the connection manager (InfiniBand architecture specification, section 12.6).
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Managed<'a> {
    /// A request, with the sender's number for the connection, its queue pair and its private data.
    Request(u32, u32, &'a [u8]),
    /// A reply, with the numbers of sender and receiver, and the same.
    Reply(u32, u32, u32, &'a [u8]),
    Other,
}

/// Bytes of the header of a management datagram.
const MANAGEMENT: usize = 24;
const CLASS: u8 = 0x07;
const REQUEST: u16 = 0x0010;
const REPLY: u16 = 0x0013;

pub(super) fn managed(bytes: &[u8]) -> Managed<'_> {
    let parse = || {
        let attribute = u16::from_be_bytes([*bytes.get(16)?, *bytes.get(17)?]);
        let body = bytes.get(MANAGEMENT..)?;
        if *bytes.get(1)? != CLASS {
            return None;
        }
        match attribute {
            REQUEST => Some(Managed::Request(
                be32(body, 0)?,
                be32(body, 32)? >> 8,
                body.get(140..)?,
            )),
            REPLY => {
                let numbers = (be32(body, 0)?, be32(body, 4)?);
                let queue_pair = be32(body, 12)? >> 8;
                Some(Managed::Reply(
                    numbers.0,
                    numbers.1,
                    queue_pair,
                    body.get(36..)?,
                ))
            }
            _ => None,
        }
    };
    parse().unwrap_or(Managed::Other)
}
