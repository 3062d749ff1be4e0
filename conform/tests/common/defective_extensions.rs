//! Defects of clients with the extensions of both versions 2, planted between this project's client and the judge.
//!
//! The relay changes messages. It adds and removes none, as Sends are numbered.

#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy takes for none"
)]

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};

use rpcrdma_conform::wire::v2::{self, INITXCH, XMTCONT};
use rpcrdma_conform::wire::wg::{self, CALL_PLACED, CALL_PLACED_MIDDLE, REPLY_PLACED, SUPPORT};

use super::messages::pass_messages;
use super::relay::{Passing, Relay};

/// The word of `rdma_offset` of the first item in RDMA2_CALL_PLACED without chunks, and in RDMA2_REPLY_PLACED.
const CALL_OFFSET: usize = 12;
const REPLY_OFFSET: usize = 9;
/// The last octet before the target of the usual receive buffers.
const BEFORE_TARGET: usize = 1023;
/// XCHAR_REQREMINV and XCHAR_REQRXLIM.
const REQREMINV: u32 = 2;
const REQRXLIM: u32 = 6;

/// A defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Takes back credits.
    LowersLimit,
    /// Leaves old content between the Payload stream and the data.
    OldContent,
    /// Lists an item four bytes behind its first octet.
    WrongOffset,
    /// Counts the messages that follow as one more.
    Miscounts,
    /// Does not look whether the server takes placed calls.
    IgnoresSupport,
    /// Takes placed data from the first octet of a target, whatever its offset.
    IgnoresOffset,
    /// Tells a bool that is none.
    BadBool,
    /// Does not look at the most transmissions that the server takes.
    IgnoresTransmissions,
    /// Numbers the transmissions of a call from one.
    WrongNumber,
    /// Does not report an operation that there is not.
    SilentAboutOperation,
}

/// Starts a relay to `judge` with this defect.
pub fn start(judge: SocketAddr, defect: Defect) -> Relay {
    Relay::start(judge, move |_| {
        Some(Connection {
            defect,
            count: AtomicU32::new(0),
        })
    })
}

/// One connection.
struct Connection {
    defect: Defect,
    /// The client's messages.
    count: AtomicU32,
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

/// Returns a message with another word.
fn with_word(mut message: Vec<u8>, word: usize, value: u32) -> Vec<u8> {
    if let Some(old) = message.get_mut(4 * word..4 * word + 4) {
        old.copy_from_slice(&value.to_be_bytes());
    }
    message
}

fn word(message: &[u8], word: usize) -> u32 {
    let bytes = message[4 * word..4 * word + 4].try_into().unwrap();
    u32::from_be_bytes(bytes)
}

/// Returns words in which those of a characteristic or property of one word are others.
fn with_value(message: Vec<u8>, which: u32, value: u32) -> Vec<u8> {
    let words = message.len() / 4;
    let is_it = |at: &usize| word(&message, *at) == which && word(&message, at + 1) == 4;
    match (4..words.saturating_sub(2)).find(is_it) {
        Some(at) => with_word(message, at + 2, value),
        None => message,
    }
}

impl Connection {
    fn of_client(&self, message: Vec<u8>) -> Vec<u8> {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let htype = wg::htype(&message);
        let operation = v2::parse(&message).map(|it| it.opttype);
        match self.defect {
            // More than any difference between two messages.
            Defect::LowersLimit if count % 4 == 3 => {
                let credit = wg::credit(&message).unwrap();
                wg::with_credit(message, credit.wrapping_sub(8))
            }
            Defect::OldContent if htype == Some(CALL_PLACED) => {
                let mut message = message;
                if let Some(octet) = message.get_mut(BEFORE_TARGET) {
                    *octet = 0xa5;
                }
                message
            }
            Defect::WrongOffset if htype == Some(CALL_PLACED) => with_word(message, CALL_OFFSET, 4),
            Defect::Miscounts if htype == Some(CALL_PLACED_MIDDLE) => {
                let follow = word(&message, 4);
                with_word(message, 4, follow + 1)
            }
            Defect::BadBool if operation == Some(INITXCH) => with_value(message, REQREMINV, 2),
            Defect::WrongNumber if operation == Some(XMTCONT) => {
                let number = word(&message, 7);
                with_word(message, 7, number + 1)
            }
            Defect::SilentAboutOperation if word(&message, 3) == wg::ERROR => {
                // Nobody knows this characteristic.
                v2::operation(1, v2::CALL, v2::UPDXCH, &[99, 4, 9, 0], &[])
            }
            _ => message,
        }
    }

    fn of_server(&self, message: Vec<u8>) -> Vec<u8> {
        let htype = wg::htype(&message);
        let is_properties = matches!(htype, Some(wg::CONNPROP_MIDDLE | wg::CONNPROP_FINAL));
        match self.defect {
            Defect::IgnoresSupport if is_properties => with_value(message, SUPPORT, 3),
            Defect::IgnoresOffset if htype == Some(REPLY_PLACED) => {
                with_word(message, REPLY_OFFSET, 0)
            }
            Defect::IgnoresTransmissions
                if v2::parse(&message).is_some_and(|it| it.opttype == INITXCH) =>
            {
                with_value(message, REQRXLIM, 16)
            }
            _ => message,
        }
    }
}
