//! A program besides NFS, with calls and replies of any length without DDP-eligible items,
//! which NFS version 3 hardly has.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use crate::callbacks::{FORWARD, Orders};
use crate::pattern;
use bytes::Bytes;
use onc_rpc::{AcceptStatus, Decoder, Encoder, Message, Segments, padded};
use rpc_transport::{
    Call, ErrorReply, ProgramVersions, ReducedArguments, ReplyRoom, Request, Service,
    ServiceOutcome, ServiceReply,
};

/// A program number from the range that needs no assignment (RFC 5531, section 8.3).
const PROGRAM: u32 = 0x2000_5166;
const VERSION: u32 = 1;
const ECHO: u32 = 1;
const LONG: u32 = 2;
/// The maximum length of a part of a call or reply, bytes.
const MOST: u32 = 1 << 20;

/// The lengths of a call of this program and of its reply.
#[derive(Clone, Copy, Debug)]
pub struct Echo {
    /// The bytes of the call that are not DDP-eligible.
    pub call: u32,
    /// The bytes of the reply that are not DDP-eligible.
    pub payload: u32,
    /// The bytes of the reply that are DDP-eligible.
    pub item: u32,
    /// The number of bytes by which the announced size of the payload is too small.
    pub short_payload: u32,
    /// The number of bytes by which the announced size of the item is too small.
    pub short_item: u32,
}

impl Echo {
    /// Encodes the call.
    #[must_use]
    pub fn call(self) -> Call {
        let mut args = Encoder::new();
        args.u32(self.payload).u32(self.item);
        args.opaque(&pattern::content(1, self.call as usize));
        let payload = 4 + self.payload.next_multiple_of(4) + 4;
        Call {
            prog: PROGRAM,
            vers: VERSION,
            proc: ECHO,
            args: args.finish(),
            reply: ReplyRoom {
                payload: payload.saturating_sub(self.short_payload),
                items: [self.item.saturating_sub(self.short_item)]
                    .into_iter()
                    .collect(),
                idempotent: false,
            },
        }
    }

    /// Returns whether the announced reply size is too small.
    #[must_use]
    pub fn is_short(self) -> bool {
        self.short_payload + self.short_item > 0
    }

    /// Returns whether a reply has the requested content.
    #[must_use]
    pub fn is_answered(self, reply: &rpc_transport::Reply) -> bool {
        let mut results = reply.results();
        let payload = results.opaque(MOST);
        let item = results.bulk(MOST).map(|item| item.to_bytes());
        let right = |got: Result<Bytes, onc_rpc::DecodeError>, number, len: u32| {
            got.is_ok_and(|got| got[..] == pattern::content(number, len as usize))
        };
        right(payload, 2, self.payload) && right(item, 3, self.item) && results.finish().is_ok()
    }
}

/// A call with data that is not DDP-eligible, and a reply with such data. The content is not
/// examined, so that only the transfer takes time.
#[derive(Clone, Debug)]
pub struct Long {
    call: Call,
    reply: u32,
}

impl Long {
    /// Creates a call with these numbers of bytes.
    #[must_use]
    pub fn new(call: u32, reply: u32) -> Self {
        let mut args = Encoder::new();
        args.u32(reply).opaque(&vec![0x4c; call as usize]);
        let call = Call {
            prog: PROGRAM,
            vers: VERSION,
            proc: LONG,
            args: args.finish(),
            reply: ReplyRoom {
                payload: 4 + reply.next_multiple_of(4),
                items: Default::default(),
                idempotent: false,
            },
        };
        Self { call, reply }
    }

    /// Returns the call. Copies share their memory.
    #[must_use]
    pub fn call(&self) -> Call {
        self.call.clone()
    }

    /// Returns whether a reply has the requested length.
    #[must_use]
    pub fn is_answered(&self, reply: &rpc_transport::Reply) -> bool {
        opaque_alone(reply.results()) == Some(self.reply)
    }
}

/// A service that adds this program to another service.
pub struct Probe<S> {
    service: S,
    orders: Orders,
    programs: Vec<ProgramVersions>,
    /// The number of calls whose bulk data arrived apart from the rest, and needed no copy.
    placed: Arc<AtomicU64>,
}

impl<S: Service> Probe<S> {
    /// Adds the program to `service`.
    #[must_use]
    pub fn new(service: S) -> Self {
        Self::with_orders(service, Orders::new())
    }

    /// Adds the program and that of callbacks to `service`. The loops of a server must
    /// share their orders: clones of `orders` do.
    #[must_use]
    pub fn with_orders(service: S, orders: Orders) -> Self {
        let mut programs = service.programs().to_vec();
        programs.push(FORWARD);
        programs.push(ProgramVersions {
            prog: PROGRAM,
            low: VERSION,
            high: VERSION,
        });
        Self {
            service,
            orders,
            programs,
            placed: Arc::default(),
        }
    }

    /// Returns the number of calls so far whose bulk data arrived apart from the rest.
    #[must_use]
    pub fn placed(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.placed)
    }
}

fn echo(request: &Request) -> ServiceReply {
    let garbage = |_| ErrorReply::Accepted(AcceptStatus::GarbageArgs);
    let mut args = request.args();
    let payload = args.u32().map_err(garbage)?.min(MOST);
    let item = args.u32().map_err(garbage)?.min(MOST);
    let ballast = args.opaque(MOST).map_err(garbage)?;
    args.finish().map_err(garbage)?;
    if ballast[..] != pattern::content(1, ballast.len()) {
        return Err(ErrorReply::Accepted(AcceptStatus::GarbageArgs));
    }
    let mut out = Encoder::new();
    out.opaque(&pattern::content(2, payload as usize));
    out.bulk(Bytes::from(pattern::content(3, item as usize)));
    Ok(out.finish())
}

/// The data of all long replies. Replies that were made for each call would take the time of the allocator
/// and of copies, and a page fault for each 4 KiB whenever the heap's end returned to the system in between.
static CONTENT: LazyLock<Bytes> = LazyLock::new(|| vec![0x4d; MOST as usize].into());

fn long(request: &Request) -> ServiceReply {
    let garbage = |_| ErrorReply::Accepted(AcceptStatus::GarbageArgs);
    let mut args = request.args();
    let reply = args.u32().map_err(garbage)?.min(MOST);
    opaque_alone(args).ok_or(ErrorReply::Accepted(AcceptStatus::GarbageArgs))?;
    Ok(Message::without_items(content(reply)))
}

/// Returns opaque data of this length, at most [`MOST`].
fn content(len: u32) -> Segments {
    static ZEROES: [u8; 3] = [0; 3];
    let mut length = Encoder::new();
    length.u32(len);
    let round_up = (padded(len.into()) - u64::from(len)) as usize;
    let mut out = Segments::new();
    out.push(length.into_bytes());
    out.push(CONTENT.slice(..len as usize));
    if round_up > 0 {
        out.push(Bytes::from_static(&ZEROES[..round_up]));
    }
    out
}

/// Returns the length of opaque data that nothing else is with. The data are not touched: to put together
/// what arrived in several pieces is not part of the transfer.
fn opaque_alone(mut left: Decoder<'_>) -> Option<u32> {
    let len = left.u32().ok()?;
    let alone = left.remaining() == padded(len.into()) && left.items_used().is_ok();
    alone.then_some(len)
}

impl<S: Service> Service for Probe<S> {
    fn programs(&self) -> &[ProgramVersions] {
        &self.programs
    }

    fn call(&mut self, request: Request) -> ServiceOutcome {
        // An item that no decoder has used yet lies apart.
        let placed = request.args().items_used().is_err();
        self.placed.fetch_add(placed.into(), Ordering::Relaxed);
        match (request.prog, request.proc) {
            (PROGRAM, 0) => ServiceOutcome::Done(Ok(Message::default())),
            (PROGRAM, ECHO) => ServiceOutcome::Done(echo(&request)),
            (PROGRAM, LONG) => ServiceOutcome::Done(long(&request)),
            (PROGRAM, _) => {
                ServiceOutcome::Done(Err(ErrorReply::Accepted(AcceptStatus::ProcUnavail)))
            }
            (prog, _) if prog == FORWARD.prog => self.orders.call(request),
            _ => self.service.call(request),
        }
    }

    fn remember_reply(&self, prog: u32, vers: u32, proc: u32) -> bool {
        match prog {
            PROGRAM => false,
            prog if prog == FORWARD.prog => self.orders.remember_reply(prog, vers, proc),
            _ => self.service.remember_reply(prog, vers, proc),
        }
    }

    fn reduced_arguments(&self) -> ReducedArguments {
        self.service.reduced_arguments()
    }

    fn has_changed(&self, prog: u32, vers: u32, proc: u32, results: &Message) -> bool {
        match prog {
            prog if prog == FORWARD.prog => self.orders.has_changed(prog, vers, proc, results),
            _ => self.service.has_changed(prog, vers, proc, results),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4506, section 4.10: the round-up is of zeroes.
    #[test]
    fn long_replies_are_opaque_data() {
        for len in [0, 1, 2, 3, 4, 4097, MOST] {
            let mut opaque = Encoder::new();
            opaque.opaque(&vec![0x4d; len as usize]);
            assert!(content(len).concat() == opaque.into_bytes(), "{len}");
        }
    }
}
