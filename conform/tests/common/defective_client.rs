//! Defects of clients, planted between this project's client and the judge.
//!
//! The relay passes FPDUs without CRC and changes the messages of some.

#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy takes for none"
)]

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use rpcrdma_conform::wire::ddp::{self, Arrived, Tagged};
use rpcrdma_conform::wire::mpa;
use rpcrdma_conform::wire::v1::{self, Header, Message};

/// The credits that a client takes which does not look at the grant.
const MANY: u32 = 64;
/// The place of `count`, `eof` and the length of the data in the reply to a READ.
const COUNT: usize = 24 + 4 + 88;

/// A defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Makes more calls at once than were granted.
    IgnoresGrant,
    /// Offers room for round-up in Write chunks.
    PaddedWriteChunk,
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
}

/// Starts a relay to `judge` with this defect, and returns its address. It lives as long as the process.
pub fn start(judge: SocketAddr, defect: Defect) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for number in 0.. {
            let Ok((client, _)) = listener.accept() else {
                return;
            };
            if number > 0 && defect == Defect::StaysAway {
                return;
            }
            let Ok(upstream) = TcpStream::connect(judge) else {
                return;
            };
            for stream in [&client, &upstream] {
                stream.set_nodelay(true).unwrap();
            }
            let relay = Relay {
                defect,
                number,
                calls: Arc::default(),
                answered: Arc::default(),
            };
            for is_call in [true, false] {
                let (mut from, mut to) =
                    (client.try_clone().unwrap(), upstream.try_clone().unwrap());
                if !is_call {
                    std::mem::swap(&mut from, &mut to);
                }
                let relay = relay.clone();
                std::thread::spawn(move || {
                    // An error is the end of one of the two connections, and ends the other one.
                    drop(relay.pass(&mut from, &mut to, is_call));
                    for stream in [from, to] {
                        drop(stream.shutdown(std::net::Shutdown::Both));
                    }
                });
            }
        }
    });
    address
}

/// One connection.
#[derive(Clone)]
struct Relay {
    defect: Defect,
    number: usize,
    /// The headers of calls by their XIDs.
    calls: Arc<Mutex<HashMap<u32, Header>>>,
    /// The handles of calls that were answered.
    answered: Arc<Mutex<HashSet<u32>>>,
}

impl Relay {
    fn pass(&self, from: &mut TcpStream, to: &mut TcpStream, is_call: bool) -> std::io::Result<()> {
        let mut frame = [0; 20];
        from.read_exact(&mut frame)?;
        let mut private = vec![0; usize::from(u16::from_be_bytes([frame[18], frame[19]]))];
        from.read_exact(&mut private)?;
        if is_call && self.defect == Defect::ReservedFlag {
            let length = private.len();
            private[length - 3] |= 0x80;
        }
        to.write_all(&[&frame[..], &private].concat())?;
        loop {
            let mut length = [0; 2];
            from.read_exact(&mut length)?;
            let length = usize::from(u16::from_be_bytes(length));
            let mut ulpdu = vec![0; length + mpa::padding(length) + 4];
            from.read_exact(&mut ulpdu)?;
            ulpdu.truncate(length);
            if let Some(Arrived::Read(request)) = ddp::parse(&ulpdu)
                && self.defect == Defect::MemoryStays
                && self.answered.lock().unwrap().contains(&request.source)
            {
                let bytes = vec![0; request.length as usize];
                let response = Tagged::response(request.sink, request.sink_offset, &bytes);
                from.write_all(&mpa::fpdu(&response.ulpdu(), false))?;
                continue;
            }
            to.write_all(&mpa::fpdu(&self.changed(ulpdu, is_call), false))?;
        }
    }

    fn changed(&self, mut ulpdu: Vec<u8>, is_call: bool) -> Vec<u8> {
        const UNTAGGED: usize = 18;
        let is_send = ulpdu[0] & 0x80 == 0 && matches!(ulpdu[1] & 0x0f, 3 | 4);
        if !is_send || ulpdu.len() < UNTAGGED {
            return ulpdu;
        }
        let message = ulpdu.split_off(UNTAGGED);
        let message = match v1::parse(&message) {
            Some(Message::Rpc(header, payload)) if is_call => self.call(header, payload),
            Some(Message::Rpc(header, payload)) => self.reply(header, payload),
            // The client takes an error of the version that it believes to speak.
            Some(Message::Error(xid, 2, words)) if self.defect == Defect::WrongVersionAgain => {
                v1::error(xid, 1, &words)
            }
            _ => message,
        };
        ulpdu.extend(message);
        ulpdu
    }

    fn call(&self, mut header: Header, mut payload: Vec<u8>) -> Vec<u8> {
        self.calls
            .lock()
            .unwrap()
            .insert(header.xid, header.clone());
        let is_second = self.number > 0;
        match self.defect {
            Defect::IgnoresGrant => header.credits = MANY,
            Defect::PaddedWriteChunk => {
                for last in header.writes.iter_mut().filter_map(|it| it.last_mut()) {
                    last.length += 4;
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
        header.with(&payload)
    }

    fn reply(&self, mut header: Header, mut payload: Vec<u8>) -> Vec<u8> {
        if let Some(call) = self.calls.lock().unwrap().get(&header.xid) {
            let handles = call.reads.iter().map(|(_, segment)| segment.handle);
            self.answered.lock().unwrap().extend(handles);
        }
        match self.defect {
            Defect::IgnoresGrant => header.credits = MANY,
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
