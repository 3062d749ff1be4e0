//! Defects that implementations of version 2 of 2016 and of its extensions could have, planted between a client and
//! this project's server.
//!
//! The relay passes FPDUs without CRC, changes the messages of some and drops others. Sends after a dropped one are
//! numbered anew.

#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy takes for none"
)]

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;

use rpcrdma_conform::wire::v2::{self, HEAD, OPERATION, Operation};
use rpcrdma_conform::wire::{mpa, rpc, v1};

use super::relay::{Passing, Relay, UNTAGGED, is_send, next_ulpdu, pass_opening};

/// A characteristic that nobody knows, which cases tell.
const UNKNOWN: u32 = 99;
/// More characteristics than this project's server takes in one message.
const TOO_MANY: u32 = 65;
/// A receive of this client that is longer than any reply.
const LONG: u32 = 66_560;
/// Codes of ROPT_XMTERR whose two numbers are the one expected and the one found.
const WITH_EXPECTED: [u32; 4] = [1, 2, 4, 5];

/// A defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Replies grant no credit.
    ZeroGrant,
    /// RDMA2_ERROR with INVAL_OPTION is never sent.
    NoInvalidOption,
    /// RDMA2_ERROR says INVAL_OPTION where it should say BAD_HEADER.
    WrongError,
    /// A characteristic that the server does not know is an error.
    UnknownIsError,
    /// ROPT_RESPXCH says that what was rejected is done.
    RejectedIsDone,
    /// The size of the client's receives is not looked at.
    SizeIgnored,
    /// ROPT_XMTERR is never sent.
    NoReports,
    /// ROPT_XMTERR has the expected value and the one found the wrong way round.
    ReportsSwapped,
    /// A transmission has as much of the call as is there, whatever it says.
    LengthIgnored,
    /// A call that was given up is executed when its last transmission comes.
    GivenUpIsExecuted,
    /// ROPT_XMTRESP counts the transmissions that follow it.
    CountsOthers,
    /// The transmissions behind ROPT_XMTRESP are numbered from 0.
    NumbersFromZero,
    /// The last byte of placed data of a call is lost.
    PlacedCut,
    /// The last byte of placed data of a reply is lost.
    PlacedReplyCut,
}

/// Starts a relay to `server` with this defect, which lives as long as the result.
pub fn start(server: SocketAddr, defect: Defect) -> Relay {
    Relay::start(server, move |_| {
        let group = Mutex::default();
        Some(Connection { defect, group })
    })
}

/// One connection.
struct Connection {
    defect: Defect,
    /// The XID of the call whose transmissions are not complete, and whether another message came between.
    group: Mutex<Option<(u32, bool)>>,
}

impl Passing for Connection {
    fn pass(&self, from: &TcpStream, mut to: &TcpStream, is_call: bool) -> std::io::Result<()> {
        pass_opening(from, to, |_| {})?;
        let mut dropped = 0;
        loop {
            let mut ulpdu = next_ulpdu(from)?;
            if is_send(&ulpdu) {
                let number = word(&ulpdu, 10) - dropped;
                put(&mut ulpdu, 10, number);
                // What is changed is in the first segment of a message.
                if word(&ulpdu, 14) == 0 {
                    let message = ulpdu.split_off(UNTAGGED);
                    let changed = match is_call {
                        true => Some(self.of_client(message)),
                        false => self.of_server(message),
                    };
                    let Some(changed) = changed else {
                        dropped += 1;
                        continue;
                    };
                    ulpdu.extend(changed);
                }
            }
            to.write_all(&mpa::fpdu(&ulpdu, false))?;
        }
    }
}

impl Connection {
    fn of_client(&self, mut message: Vec<u8>) -> Vec<u8> {
        let Some(operation) = v2::parse(&message) else {
            self.comes_between();
            return message;
        };
        let Operation {
            xid, opttype, info, ..
        } = operation;
        match (self.defect, opttype) {
            (Defect::UnknownIsError, v2::INITXCH) if info.contains(&UNKNOWN) => {
                put(&mut message, OPERATION, TOO_MANY);
            }
            (Defect::SizeIgnored, v2::INITXCH) if info.get(1) == Some(&v2::RBSIZ) => {
                put(&mut message, OPERATION + 12, LONG);
            }
            (Defect::LengthIgnored, v2::XMTCONT) => {
                let there = operation.rest.len() as u32;
                put(&mut message, OPERATION + 8, info[2].min(there));
            }
            (Defect::PlacedCut, v2::XMTREQ) if message.len() > HEAD => {
                *message.last_mut().unwrap() = 0;
            }
            (Defect::GivenUpIsExecuted, v2::XMTREQ) => {
                let has_more = info[2] > 1;
                *self.group.lock().unwrap() = has_more.then_some((xid, false));
            }
            (Defect::GivenUpIsExecuted, v2::XMTCONT) => {
                let group = self.group.lock().unwrap().take();
                if group == Some((xid, true)) {
                    return v2::plain(xid, v2::CALL, &rpc::null(xid).bytes());
                }
            }
            _ => {}
        }
        message
    }

    /// Notes that a message came between the transmissions of a call.
    fn comes_between(&self) {
        if let Some((_, is_given_up)) = self.group.lock().unwrap().as_mut() {
            *is_given_up = true;
        }
    }

    fn of_server(&self, mut message: Vec<u8>) -> Option<Vec<u8>> {
        const CODE: usize = 16;
        let is_error = message.len() > CODE && word(&message, 12) == v1::ERROR;
        let code = if is_error { word(&message, CODE) } else { 0 };
        match self.defect {
            Defect::ZeroGrant => put(&mut message, 8, 0),
            Defect::NoInvalidOption if code == v2::ERR_INVAL_OPTION => return None,
            Defect::WrongError if code == v2::ERR_BAD_HEADER => {
                put(&mut message, CODE, v2::ERR_INVAL_OPTION);
            }
            _ => {}
        }
        // Only the first segment of a long message is here, which `v2::parse` does not need to be whole.
        if let Some(operation) = v2::parse(&message) {
            return self.operation(operation, message);
        }
        Some(message)
    }

    fn operation(&self, operation: Operation, mut message: Vec<u8>) -> Option<Vec<u8>> {
        let info = operation.info;
        let at = |index: usize| OPERATION + 4 * index;
        match (self.defect, operation.opttype) {
            (Defect::NoReports, v2::XMTERR) => return None,
            (Defect::RejectedIsDone, v2::RESPXCH) if info.len() == 4 && info[1] == 1 => {
                for (index, value) in [1, info[2], 0, 0].into_iter().enumerate() {
                    put(&mut message, at(index), value);
                }
            }
            (Defect::ReportsSwapped, v2::XMTERR) if has_expected(&info) => {
                let last = info.len() - 1;
                put(&mut message, at(last), info[last - 1]);
                put(&mut message, at(last - 1), info[last]);
            }
            (Defect::CountsOthers, v2::XMTRESP) => {
                let count = info.len() - 2;
                put(&mut message, at(count), info[count] - 1);
            }
            (Defect::NumbersFromZero, v2::XMTCONT) => put(&mut message, at(0), info[0] - 1),
            (Defect::PlacedReplyCut, v2::XMTRESP) if info[0] > 0 => {
                *message.last_mut().unwrap() = 0;
            }
            _ => {}
        }
        Some(message)
    }
}

/// Returns whether a report ends with a value that was expected and the one that was found.
fn has_expected(info: &[u32]) -> bool {
    // Behind the transmission that the report is about, and an earlier one if that is named.
    let code = if info.get(3) == Some(&0) { 4 } else { 7 };
    info.get(code).is_some_and(|it| WITH_EXPECTED.contains(it))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}
