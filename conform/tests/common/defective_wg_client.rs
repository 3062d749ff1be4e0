//! Defects of clients of version-two-07, planted between this project's client and the judge.
//!
//! The relay changes messages. It adds and removes none, as Sends are numbered.

#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy takes for none"
)]

use std::collections::HashMap;
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;

use rpcrdma_conform::wire::v1::{Header, Segment};
use rpcrdma_conform::wire::v2;
use rpcrdma_conform::wire::wg::{self, Arrived};

use super::messages::pass_messages;
use super::relay::{Passing, Relay};

/// The credits that a client takes which does not look at the limit.
const MANY: u32 = 64;
/// The place of `count`, `eof` and the length of the data in the reply to a READ.
const COUNT: usize = 24 + 4 + 88;
/// A handle that the client has not.
const NO_HANDLE: u32 = 0x0bad_0bad;
/// `rdma_which` of the sizes of messages sent and received, and of the longest segment.
const SBSIZ: u32 = 1;
const RBSIZ: u32 = 2;
const RSSIZ: u32 = 3;

/// A defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Sends more messages than the server has receives for.
    IgnoresCredits,
    /// Tells credits beyond the bound.
    HighCredit,
    /// The XIDs of headers are not those of the calls.
    OtherXid,
    /// The values of a property are too short.
    ShortProperty,
    /// The last properties say that others follow.
    NoFinal,
    /// Does not look at the size of the server's receives.
    IgnoresReceives,
    /// Does not look at the longest segment of the server.
    IgnoresSegments,
    /// Applies properties of a message that it refuses.
    AppliesRefused,
    /// The handle to be invalidated is not in the header.
    OtherHandle,
    /// Offers room for round-up in Write chunks.
    PaddedWriteChunk,
    /// Takes a Write chunk for full, whatever length is returned.
    IgnoresLengths,
    /// Read chunks have positions that are no multiple of four.
    UnalignedPosition,
    /// Read chunks have the position after that of the data.
    WrongPosition,
    /// Does not report what it cannot use.
    Silent,
}

/// Starts a relay to `judge` with this defect.
pub fn start(judge: SocketAddr, defect: Defect) -> Relay {
    Relay::start(judge, move |_| {
        let calls = Mutex::default();
        Some(Connection { defect, calls })
    })
}

/// One connection.
struct Connection {
    defect: Defect,
    /// The Write chunks of calls by their XIDs.
    calls: Mutex<HashMap<u32, Vec<Vec<Segment>>>>,
}

impl Passing for Connection {
    fn pass(&self, from: &TcpStream, to: &TcpStream, is_call: bool) -> std::io::Result<()> {
        pass_messages(from, to, |message| match message.len() < wg::PREFIX {
            true => message,
            false if is_call => self.of_client(message),
            false => self.of_server(message),
        })
    }
}

impl Connection {
    fn of_client(&self, message: Vec<u8>) -> Vec<u8> {
        let credit = wg::credit(&message).unwrap();
        let changed = match wg::parse_call(&message) {
            Some(Arrived::Last(handle, header, payload)) => {
                let writes = header.writes.clone();
                self.calls.lock().unwrap().insert(header.xid, writes);
                self.call(handle, header, &payload)
            }
            _ => match (wg::htype(&message), self.defect) {
                (Some(wg::CONNPROP_FINAL), Defect::ShortProperty) => {
                    let value = |which, value: &[u8]| match which {
                        SBSIZ => value[2..].to_vec(),
                        _ => value.to_vec(),
                    };
                    properties(&message, value)
                }
                (Some(wg::CONNPROP_FINAL), Defect::NoFinal) => {
                    let mut message = message;
                    message[12..16].copy_from_slice(&wg::CONNPROP_MIDDLE.to_be_bytes());
                    message
                }
                (Some(wg::CALL_MIDDLE), Defect::OtherXid) => {
                    let mut message = message;
                    message[0] ^= 0x55;
                    message
                }
                (Some(wg::ERROR), Defect::Silent) => wg::grant(credit),
                _ => message,
            },
        };
        let high = match self.defect {
            Defect::HighCredit => 1 << 31,
            _ => 0,
        };
        wg::with_credit(changed, credit | high)
    }

    fn call(&self, mut handle: u32, mut header: Header, payload: &[u8]) -> Vec<u8> {
        match self.defect {
            Defect::OtherXid => header.xid ^= 0x5500_0000,
            Defect::OtherHandle => handle = NO_HANDLE,
            Defect::PaddedWriteChunk => {
                for last in header.writes.iter_mut().filter_map(|it| it.last_mut()) {
                    last.length = last.length.next_multiple_of(4);
                }
            }
            Defect::UnalignedPosition => header.reads.iter_mut().for_each(|it| it.0 += 1),
            Defect::WrongPosition => header.reads.iter_mut().for_each(|it| it.0 += 4),
            _ => {}
        }
        wg::call_with(&header, handle, payload)
    }

    fn of_server(&self, message: Vec<u8>) -> Vec<u8> {
        let credit = wg::credit(&message).unwrap();
        let is_last = wg::htype(&message) == Some(wg::CONNPROP_FINAL);
        let changed = match (self.defect, wg::parse_reply(&message)) {
            (Defect::IgnoresCredits, _) => return wg::with_credit(message, credit + MANY),
            (Defect::IgnoresReceives, _) if is_last => properties(&message, longer(RBSIZ)),
            (Defect::IgnoresSegments, _) if is_last => properties(&message, longer(RSSIZ)),
            // A value that is cut becomes an empty one, which is valid.
            (Defect::AppliesRefused, _) if is_last => {
                properties(&message, |_, value| match value {
                    [_, _, _, _] => value.to_vec(),
                    _ => Vec::new(),
                })
            }
            (Defect::IgnoresLengths, Some((mut header, mut payload)))
                if !header.writes.is_empty() && payload.len() > COUNT =>
            {
                let calls = self.calls.lock().unwrap();
                header.writes = calls[&header.xid].clone();
                let offered: u32 = header.writes[0].iter().map(|it| it.length).sum();
                for at in [COUNT, COUNT + 8] {
                    payload[at..at + 4].copy_from_slice(&offered.to_be_bytes());
                }
                wg::reply_parts(&header, &payload).remove(0)
            }
            _ => message,
        };
        wg::with_credit(changed, credit)
    }
}

/// Returns a function that makes the values of one property 1 MiB.
fn longer(of: u32) -> impl Fn(u32, &[u8]) -> Vec<u8> {
    move |which, value| match which == of {
        true => v2::bytes(&[1 << 20]),
        false => value.to_vec(),
    }
}

/// Returns a message of properties with other values.
fn properties(message: &[u8], value: impl Fn(u32, &[u8]) -> Vec<u8>) -> Vec<u8> {
    let Some(properties) = wg::parse_properties(message) else {
        return message.to_vec();
    };
    let mut out = message[..wg::PREFIX].to_vec();
    out.extend((properties.len() as u32).to_be_bytes());
    for (which, old) in properties {
        let new = value(which, &old);
        let padding = new.len().wrapping_neg() % 4;
        out.extend(v2::bytes(&[which, new.len() as u32]));
        out.extend(new);
        out.extend(vec![0; padding]);
    }
    out
}
