//! A second opinion on credits: what the messages on the wire say (RFC 8166, section 3.3.1; in
//! version 2 with its direction, version-two-01, section 4.2.2).

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use rpcrdma_v2::{Body, Direction};
use verbs::sim::{End, Happening};
use verbs::{Event, SendWr, Success};

/// ROPT_XMTREQ and ROPT_XMTCONT, as the document has them (rtrext-00, section 9.1).
const XMTREQ: u32 = 5;
const XMTCONT: u32 = 7;

/// A requester's account, kept from what it sends and takes.
#[derive(Debug)]
struct Account {
    /// XIDs of calls that are not answered, each with the messages that it was sent in.
    outstanding: Vec<(u32, u32)>,
    granted: u32,
}

/// The accounts of all requesters: of clients, and of servers that call clients (RFC 8167, section
/// 4.1).
#[derive(Debug, Default)]
pub(crate) struct Credits {
    accounts: BTreeMap<End, Account>,
}

/// What a message means for the account of the requester that sends or takes it.
enum Meaning {
    /// It takes a credit.
    Call,
    /// So does each further transmission of a call (rtrext-00, section 4.3).
    Continued,
    /// It grants so many, and gives one back if it answers a call.
    Answer(u32),
    /// Nothing: an operation of an extension, that asks for credits; or what cannot be told.
    Nothing,
}

/// XID and meaning of a message.
fn read(message: &Bytes) -> Result<(u32, Meaning), String> {
    match rpcrdma_v1::Header::decode(message) {
        Ok((header, at)) => return Ok((header.xid, meaning_1(&header, &message[at..]))),
        Err(rpcrdma_v1::HeaderError::Version { .. }) => {}
        Err(error) => return Err(error.to_string()),
    }
    let decoded = rpcrdma_v2::Header::decode(message);
    let (header, _) = decoded.map_err(|error| error.to_string())?;
    let meaning = match (&header.body, header.direction()) {
        (Body::Msg(..) | Body::NoMsg(..), Direction::Call) => Meaning::Call,
        (Body::Optional(optional), Direction::Call) => match optional.opttype {
            XMTREQ => Meaning::Call,
            XMTCONT => Meaning::Continued,
            _ => Meaning::Nothing,
        },
        (_, Direction::Reply) => Meaning::Answer(header.credits),
        (_, Direction::Call) => Meaning::Nothing,
    };
    Ok((header.xid, meaning))
}

/// Version 1 says in the payload which way it goes, or by the chunk that it is in.
fn meaning_1(header: &rpcrdma_v1::Header, payload: &[u8]) -> Meaning {
    use rpcrdma_v1::Body;
    let answer = Meaning::Answer(header.credits);
    match &header.body {
        Body::Error(_) => answer,
        Body::NoMsg(chunks) if chunks.reads.is_empty() => answer,
        Body::NoMsg(_) => Meaning::Call,
        Body::Msg(_) => match payload.get(4..8) {
            Some([0, 0, 0, 0]) => Meaning::Call,
            Some([0, 0, 0, 1]) => answer,
            _ => Meaning::Nothing,
        },
    }
}

impl Credits {
    /// Enters what an end did. Returns what it must not have done.
    pub(crate) fn happened(&mut self, what: &Happening<'_>) -> Option<String> {
        match what {
            Happening::Posted(end, SendWr::Send { gather, .. }) => self.called(*end, gather),
            Happening::Taken(end, Event::Established { .. }) => {
                // Until the first reply says otherwise, there is one credit (section 3.3.2).
                let account = Account {
                    outstanding: Vec::new(),
                    granted: 1,
                };
                self.accounts.insert(*end, account);
                None
            }
            Happening::Taken(end, Event::Disconnected { .. }) => {
                self.accounts.remove(end);
                None
            }
            Happening::Taken(end, Event::Completion(completion)) => {
                let Ok(Success::Receive { buf, .. }) = &completion.result else {
                    return None;
                };
                let account = self.accounts.get_mut(end)?;
                let message = Bytes::from(buf.to_vec());
                if let Ok((xid, Meaning::Answer(credits))) = read(&message) {
                    account.granted = credits.max(1);
                    let mut calls = account.outstanding.iter();
                    if let Some(at) = calls.position(|&(call, _)| call == xid) {
                        account.outstanding.remove(at);
                    }
                }
                None
            }
            _ => None,
        }
    }

    fn called(&mut self, end: End, gather: &[Bytes]) -> Option<String> {
        let mut bytes = BytesMut::new();
        for piece in gather {
            bytes.extend_from_slice(piece);
        }
        let (xid, meaning) = match read(&bytes.freeze()) {
            Ok(read) => read,
            Err(error) => {
                return Some(format!("{end} sends a header that cannot be read: {error}"));
            }
        };
        let account = self.accounts.get_mut(&end)?;
        match meaning {
            Meaning::Call => account.outstanding.push((xid, 1)),
            Meaning::Continued => match account.outstanding.last_mut() {
                Some((call, messages)) if *call == xid => *messages += 1,
                _ => {
                    return Some(format!(
                        "{end} continues {xid:#x}, which is not the last call"
                    ));
                }
            },
            Meaning::Answer(_) | Meaning::Nothing => return None,
        }
        let messages = account.outstanding.iter().map(|(_, messages)| messages);
        let (calls, granted): (u32, u32) = (messages.sum(), account.granted);
        (calls > granted)
            .then(|| format!("{end} has {calls} calls outstanding, {granted} were granted"))
    }
}
