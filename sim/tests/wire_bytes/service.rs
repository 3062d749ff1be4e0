//! A test program with calls and replies of any length, each with any number of bulk data items.

use bytes::Bytes;
use onc_rpc::{AcceptStatus, DecodeError, Encoder, Message};
use rpc_transport::{
    Call, ErrorReply, ProgramVersions, Reply, ReplyRoom, Request, Service, ServiceOutcome,
};

/// A program number from the unassigned range (RFC 5531, section 8.3).
const PROGRAM: ProgramVersions = ProgramVersions {
    prog: 0x2000_0019,
    low: 1,
    high: 1,
};
const NULL: u32 = 0;
const ECHO: u32 = 1;
/// The maximum length of a part of a call or reply, bytes.
const MOST: u32 = 1 << 20;
/// The maximum number of items of a call or reply.
const MOST_ITEMS: u32 = 4;
/// The seeds of the contents of calls and replies.
const CALL: u8 = 0x11;
const REPLY: u8 = 0x77;

/// The lengths of a message in one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sizes {
    /// The bytes that are not DDP-eligible.
    pub(crate) plain: u32,
    /// The bytes of each DDP-eligible item.
    pub(crate) items: &'static [u32],
}

/// A call and its expected reply.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Echo {
    pub(crate) call: Sizes,
    pub(crate) reply: Sizes,
    /// The number of bytes by which the announced size of each part of the reply is too small.
    pub(crate) short: u32,
}

/// Returns the call of the NULL procedure.
pub(crate) fn null() -> Call {
    Call {
        prog: PROGRAM.prog,
        vers: PROGRAM.low,
        proc: NULL,
        args: Message::default(),
        reply: ReplyRoom::default(),
    }
}

impl Echo {
    /// Encodes the call.
    pub(crate) fn call(&self) -> Call {
        let mut args = Encoder::new();
        args.u32(self.reply.plain).u32(count(self.reply.items));
        for &len in self.reply.items {
            args.u32(len);
        }
        args.u32(count(self.call.items));
        put(&mut args, CALL, self.call);
        let plain = 4 + self.reply.plain.next_multiple_of(4) + 4 * count(self.reply.items);
        let items = self.reply.items.iter();
        Call {
            prog: PROGRAM.prog,
            vers: PROGRAM.low,
            proc: ECHO,
            args: args.finish(),
            reply: ReplyRoom {
                payload: plain.saturating_sub(self.short),
                items: items.map(|len| len.saturating_sub(self.short)).collect(),
                idempotent: false,
            },
        }
    }

    /// Returns whether a reply has the requested content.
    pub(crate) fn is_answered(&self, reply: &Reply) -> bool {
        let mut results = reply.results();
        let Ok(plain) = results.opaque(MOST) else {
            return false;
        };
        let mut right = plain == content(REPLY, self.reply.plain);
        for (number, &len) in (1..).zip(self.reply.items) {
            let item = results.bulk(MOST).map(|item| item.to_bytes());
            right &= item.is_ok_and(|item| item == content(REPLY + number, len));
        }
        right && results.finish().is_ok()
    }
}

fn count(items: &[u32]) -> u32 {
    u32::try_from(items.len()).unwrap_or(u32::MAX)
}

/// Returns the content of a part. Neighbouring bytes differ, so that misplaced data is detected.
fn content(kind: u8, len: u32) -> Bytes {
    let byte = |at: u32| kind ^ (at as u8) ^ ((at >> 8) as u8).wrapping_mul(3);
    (0..len).map(byte).collect()
}

fn put(out: &mut Encoder, kind: u8, sizes: Sizes) {
    out.opaque(&content(kind, sizes.plain));
    for (number, &len) in (1..).zip(sizes.items) {
        out.bulk(content(kind + number, len));
    }
}

/// The server of the program.
pub(crate) struct Echoes;

impl Service for Echoes {
    fn programs(&self) -> &[ProgramVersions] {
        &[PROGRAM]
    }

    fn call(&mut self, request: Request) -> ServiceOutcome {
        ServiceOutcome::Done(match request.proc {
            NULL => Ok(Message::default()),
            ECHO => answer(&request).map_err(|_| ErrorReply::Accepted(AcceptStatus::GarbageArgs)),
            _ => Err(ErrorReply::Accepted(AcceptStatus::ProcUnavail)),
        })
    }

    fn remember_reply(&self, _: u32, _: u32, proc: u32) -> bool {
        proc == ECHO
    }
}

/// The error of arguments with the wrong content.
#[derive(Debug)]
struct Wrong;

impl From<DecodeError> for Wrong {
    fn from(_: DecodeError) -> Self {
        Self
    }
}

fn answer(request: &Request) -> Result<Message, Wrong> {
    let mut args = request.args();
    let plain = args.u32()?;
    let wanted = args.u32()?.min(MOST_ITEMS);
    let wanted: Result<Vec<u32>, _> = (0..wanted).map(|_| args.u32()).collect();
    let wanted = wanted?;
    let items = args.u32()?.min(MOST_ITEMS);
    let ballast = args.opaque(MOST)?;
    let mut right = ballast == content(CALL, count_bytes(&ballast));
    for number in (1..).take(items as usize) {
        let item = args.bulk(MOST)?.to_bytes();
        right &= item == content(CALL + number, count_bytes(&item));
    }
    args.finish()?;
    if !right {
        return Err(Wrong);
    }
    let mut results = Encoder::new();
    results.opaque(&content(REPLY, plain.min(MOST)));
    for (number, len) in (1..).zip(wanted) {
        results.bulk(content(REPLY + number, len.min(MOST)));
    }
    Ok(results.finish())
}

fn count_bytes(bytes: &Bytes) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}
