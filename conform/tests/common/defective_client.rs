//! Defects of clients, planted between this project's client and the judge.
//!
//! The relay passes FPDUs without CRC and changes the messages of some.

#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy takes for none"
)]

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;

use rpcrdma_conform::wire::ddp::{self, Arrived, ReadRequest, Tagged, Untagged};
use rpcrdma_conform::wire::v1::{self, Header, Message};
use rpcrdma_conform::wire::{mpa, rpc};

use super::relay::{Passing, Relay, UNTAGGED, next_ulpdu, pass_opening};

/// The judge's `rtmax`.
const RTMAX: u32 = 8192;
/// `accept_stat` SYSTEM_ERR.
const SYSTEM_ERR: u32 = 5;
/// The credits that a client takes which does not look at the grant.
const MANY: u32 = 64;
/// The place of `count`, `eof` and the length of the data in the reply to a READ.
const COUNT: usize = 24 + 4 + 88;

/// A defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Makes more calls at once than were granted.
    IgnoresGrant,
    /// Asks for one credit in each call, and uses all that are granted.
    AsksForOne,
    /// Offers room for round-up in Write chunks.
    PaddedWriteChunk,
    /// Makes an RDMA Read for each READ.
    ReadsResults,
    /// Takes a reply in a Reply chunk that the call did not offer.
    TakesUnoffered,
    /// Repeats a call that ERR_CHUNK has answered.
    RepeatsRefused,
    /// Neither carries out nor refuses an RDMA Write to memory that may only be read.
    DropsWrites,
    /// Takes a Write chunk for full, whatever length is returned.
    IgnoresLengths,
    /// Read chunks have positions that are no multiple of four.
    UnalignedPosition,
    /// Read chunks have the position after that of the data.
    WrongPosition,
    /// Calls on the second connection say version 2.
    WrongVersionAgain,
    /// Calls on the second connection have other XIDs.
    OtherXidAgain,
    /// The XIDs of headers are not those of the calls.
    OtherXid,
    /// Never offers a Reply chunk.
    NoReplyChunk,
    /// Sets a reserved flag in the private data.
    ReservedFlag,
    /// Memory of calls that have ended can be read.
    MemoryStays,
    /// Does not come back after its connection has ended.
    StaysAway,
    /// Begins each connection with version 2, and goes on with version 1 after ERR_VERS. No defect.
    NegotiatesAgain,
    /// Offers more room in Write chunks than a READ can fill. No defect.
    Roomy,
    /// Asks for more than `rtmax` in READs, and has room for that. No defect.
    AsksBeyond,
}

/// Starts a relay to `judge` with this defect.
pub fn start(judge: SocketAddr, defect: Defect) -> Relay {
    Relay::start(judge, move |number| {
        let stays_away = number > 0 && defect == Defect::StaysAway;
        (!stays_away).then(|| Connection {
            defect,
            number,
            calls: Mutex::default(),
            messages: Mutex::default(),
            answered: Mutex::default(),
            sends: Default::default(),
        })
    })
}

/// One connection.
struct Connection {
    defect: Defect,
    number: usize,
    /// The headers of calls by their XIDs.
    calls: Mutex<HashMap<u32, Header>>,
    /// The messages of calls by their XIDs, as they were sent.
    messages: Mutex<HashMap<u32, Vec<u8>>>,
    /// The Sends to the client, and those to the judge.
    sends: [Mutex<u32>; 2],
    /// The handles of calls that were answered.
    answered: Mutex<HashSet<u32>>,
}

impl Passing for Connection {
    fn pass(&self, mut from: &TcpStream, mut to: &TcpStream, is_call: bool) -> std::io::Result<()> {
        pass_opening(from, to, |private| {
            if is_call && self.defect == Defect::ReservedFlag {
                let length = private.len();
                private[length - 3] |= 0x80;
            }
        })?;
        loop {
            let ulpdu = next_ulpdu(from)?;
            if let Some(Arrived::Read(request)) = ddp::parse(&ulpdu)
                && self.defect == Defect::MemoryStays
                && self.answered.lock().unwrap().contains(&request.source)
            {
                let bytes = vec![0; request.length as usize];
                let response = Tagged::response(request.sink, request.sink_offset, &bytes);
                from.write_all(&mpa::fpdu(&response.ulpdu(), false))?;
                continue;
            }
            if self.defect == Defect::DropsWrites && !is_call && self.is_misuse(&ulpdu) {
                continue;
            }
            for mut ulpdu in self.changed(ulpdu, is_call) {
                self.before(&ulpdu, from, to, is_call)?;
                let mut sends = self.sends[usize::from(is_call)].lock().unwrap();
                number(&mut ulpdu, &mut sends);
                to.write_all(&mpa::fpdu(&ulpdu, false))?;
            }
        }
    }
}

impl Connection {
    /// Returns whether the judge writes to memory that may only be read, or waits for a sign of life after that.
    fn is_misuse(&self, ulpdu: &[u8]) -> bool {
        let calls = self.calls.lock().unwrap();
        let is_source = |stag: u32| {
            let mut sources = calls.values().flat_map(|it| &it.reads);
            sources.any(|(_, segment)| segment.handle == stag)
        };
        match ddp::parse(ulpdu) {
            Some(Arrived::Write { stag, .. }) => is_source(stag),
            Some(Arrived::Read(request)) => request.length == 0,
            _ => false,
        }
    }

    /// Sends what this defect sends before a ULPDU passes.
    fn before(
        &self,
        ulpdu: &[u8],
        mut from: &TcpStream,
        mut to: &TcpStream,
        is_call: bool,
    ) -> std::io::Result<()> {
        const READ: [u8; 4] = [0, 0, 0, 6];
        let Some(Arrived::Send { payload, .. }) = ddp::parse(ulpdu) else {
            return Ok(());
        };
        match (self.defect, v1::parse(&payload)) {
            (Defect::ReadsResults, Some(Message::Rpc(_, rpc)))
                if is_call && rpc.get(20..24) == Some(&READ) =>
            {
                let request = ReadRequest {
                    sink: 1,
                    sink_offset: 0,
                    length: 8,
                    source: 2,
                    source_offset: 0,
                };
                let request = Untagged::read_request(1, &request);
                to.write_all(&mpa::fpdu(&request.ulpdu(), false))
            }
            (Defect::RepeatsRefused, Some(Message::Error(xid, 1, words)))
                if !is_call && words == [v1::ERR_CHUNK] =>
            {
                let Some(call) = self.messages.lock().unwrap().get(&xid).cloned() else {
                    return Ok(());
                };
                let mut sends = self.sends[1].lock().unwrap();
                *sends += 1;
                let again = Untagged::send(*sends, &call).ulpdu();
                from.write_all(&mpa::fpdu(&again, false))
            }
            _ => Ok(()),
        }
    }

    /// Returns what is passed on instead of a ULPDU.
    fn changed(&self, mut ulpdu: Vec<u8>, is_call: bool) -> Vec<Vec<u8>> {
        let is_send = ulpdu[0] & 0x80 == 0 && matches!(ulpdu[1] & 0x0f, 3 | 4);
        if !is_send || ulpdu.len() < UNTAGGED {
            return vec![ulpdu];
        }
        let message = ulpdu.split_off(UNTAGGED);
        let header = ulpdu.clone();
        let message = match v1::parse(&message) {
            Some(Message::Rpc(header, payload)) if is_call => self.call(header, payload),
            Some(Message::Error(_, 2, _)) if self.defect == Defect::NegotiatesAgain => {
                return Vec::new();
            }
            Some(Message::Rpc(header, payload)) => self.reply(header, payload),
            // The client takes an error of the version that it believes to speak.
            Some(Message::Error(xid, 2, words)) if self.defect == Defect::WrongVersionAgain => {
                v1::error(xid, 1, &words)
            }
            _ => message,
        };
        let is_first = is_call && *self.sends[1].lock().unwrap() == 0;
        ulpdu.extend(&message);
        if self.defect == Defect::NegotiatesAgain && is_first {
            let mut other = [&header[..], &message].concat();
            other[UNTAGGED + 7] = 2;
            return vec![other, ulpdu];
        }
        vec![ulpdu]
    }

    fn call(&self, mut header: Header, mut payload: Vec<u8>) -> Vec<u8> {
        self.calls
            .lock()
            .unwrap()
            .insert(header.xid, header.clone());
        let xid = header.xid;
        let is_second = self.number > 0;
        match self.defect {
            Defect::IgnoresGrant => header.credits = MANY,
            Defect::AsksForOne => header.credits = 1,
            Defect::PaddedWriteChunk | Defect::Roomy => {
                let more = match self.defect {
                    Defect::Roomy => 4096,
                    _ => 0,
                };
                for last in header.writes.iter_mut().filter_map(|it| it.last_mut()) {
                    last.length = last.length.next_multiple_of(4) + more;
                }
            }
            Defect::AsksBeyond if payload.get(20..24) == Some(&[0, 0, 0, 6]) => {
                let count = payload.len() - 4;
                if payload[count..] == RTMAX.to_be_bytes() {
                    payload[count..].copy_from_slice(&(8 * RTMAX).to_be_bytes());
                }
            }
            Defect::UnalignedPosition => header.reads.iter_mut().for_each(|it| it.0 += 1),
            Defect::WrongPosition => header.reads.iter_mut().for_each(|it| it.0 += 4),
            Defect::WrongVersionAgain if is_second => header.version = 2,
            Defect::OtherXidAgain if is_second => {
                header.xid ^= 0x5500_0000;
                payload[0] ^= 0x55;
            }
            Defect::OtherXid => header.xid ^= 0x5500_0000,
            Defect::NoReplyChunk => header.reply = None,
            _ => {}
        }
        let message = header.with(&payload);
        self.messages.lock().unwrap().insert(xid, message.clone());
        message
    }

    fn reply(&self, mut header: Header, mut payload: Vec<u8>) -> Vec<u8> {
        if let Some(call) = self.calls.lock().unwrap().get(&header.xid) {
            let handles = call.reads.iter().map(|(_, segment)| segment.handle);
            self.answered.lock().unwrap().extend(handles);
        }
        match self.defect {
            Defect::IgnoresGrant => header.credits = MANY,
            // What this client checks instead is that its Write list comes back.
            Defect::TakesUnoffered if header.procedure == v1::NOMSG => {
                let calls = self.calls.lock().unwrap();
                let is_unoffered = |call: &Header| {
                    call.reply.is_none() && call.writes.len() == header.writes.len()
                };
                if calls.get(&header.xid).is_some_and(is_unoffered) {
                    (header.procedure, header.reply) = (v1::MSG, None);
                    payload = rpc::accepted(header.xid, SYSTEM_ERR, &[]);
                }
            }
            Defect::OtherXidAgain if self.number > 0 => {
                header.xid ^= 0x5500_0000;
                payload[0] ^= 0x55;
            }
            Defect::IgnoresLengths if !header.writes.is_empty() && payload.len() > COUNT => {
                let calls = self.calls.lock().unwrap();
                header.writes = calls[&header.xid].writes.clone();
                let offered: u32 = header.writes[0].iter().map(|it| it.length).sum();
                for at in [COUNT, COUNT + 8] {
                    payload[at..at + 4].copy_from_slice(&offered.to_be_bytes());
                }
            }
            _ => {}
        }
        header.with(&payload)
    }
}

/// Numbers a segment of a Send after those that have passed.
fn number(ulpdu: &mut [u8], sends: &mut u32) {
    let is_untagged = ulpdu.len() >= UNTAGGED && ulpdu[0] & 0x80 == 0;
    if !is_untagged || ulpdu[6..10] != [0; 4] {
        return;
    }
    if ulpdu[14..18] == [0; 4] {
        *sends += 1;
    }
    ulpdu[10..14].copy_from_slice(&sends.to_be_bytes());
}
