//! A program of this project's own, beside NFS: calls and replies of any length without a
//! DDP-eligible item, which NFS version 3 hardly has.

use bytes::Bytes;
use onc_rpc::{AcceptStatus, Encoder, Message};
use rpc_transport::{Call, Denial, Outcome, Programs, ReplyRoom, Request, Service, ServiceReply};
use rpcrdma_callbacks::{FORWARD, Orders};

use crate::pattern;

/// Of the numbers that are there to be used without being assigned (RFC 5531, section 8.3).
const PROGRAM: u32 = 0x2000_5166;
const VERSION: u32 = 1;
const ECHO: u32 = 1;
const LONG: u32 = 2;
/// Longest part of a call or reply, bytes.
const MOST: u32 = 1 << 20;

/// A call of the probe: how long it is, and how long its reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Echo {
    /// Bytes of the call that are not DDP-eligible.
    pub(crate) call: u32,
    /// Bytes of the reply that are not.
    pub(crate) payload: u32,
    /// Bytes of the reply that are.
    pub(crate) item: u32,
    /// Bytes less of room than the reply needs, of either kind.
    pub(crate) short_payload: u32,
    pub(crate) short_item: u32,
}

impl Echo {
    /// The call.
    pub(crate) fn call(self) -> Call {
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
            },
        }
    }

    /// Whether the room was understated.
    pub(crate) fn is_short(self) -> bool {
        self.short_payload + self.short_item > 0
    }

    /// Whether a reply is what was asked for.
    pub(crate) fn is_answered(self, reply: &rpc_transport::Reply) -> bool {
        let mut results = reply.results();
        let payload = results.opaque(MOST);
        let item = results.bulk(MOST).map(|item| item.to_bytes());
        let right = |got: Result<Bytes, onc_rpc::DecodeError>, number, len: u32| {
            got.is_ok_and(|got| got[..] == pattern::content(number, len as usize))
        };
        right(payload, 2, self.payload) && right(item, 3, self.item) && results.finish().is_ok()
    }
}

/// A call with `call` bytes that are not DDP-eligible, whose reply has `reply` of them. What they are
/// is not looked at, so that nothing but their way takes time.
#[derive(Clone, Debug)]
pub struct Long {
    call: Call,
    reply: u32,
}

impl Long {
    /// Of so many bytes.
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
            },
        };
        Self { call, reply }
    }

    /// The call. Its copies share their memory.
    #[must_use]
    pub fn call(&self) -> Call {
        self.call.clone()
    }

    /// Whether a reply is as long as was asked for.
    #[must_use]
    pub fn is_answered(&self, reply: &rpc_transport::Reply) -> bool {
        let mut results = reply.results();
        let got = results.opaque(MOST).map(|got| got.len());
        got == Ok(self.reply as usize) && results.finish().is_ok()
    }
}

/// A service with this program beside its own.
pub struct Probe<S> {
    service: S,
    orders: Orders,
    programs: Vec<Programs>,
}

impl<S: Service> Probe<S> {
    /// Beside `service`.
    #[must_use]
    pub fn new(service: S) -> Self {
        Self::with_orders(service, Orders::new())
    }

    /// The same, with the test program of callbacks.
    pub(crate) fn with_orders(service: S, orders: Orders) -> Self {
        let mut programs = service.programs().to_vec();
        programs.push(FORWARD);
        programs.push(Programs {
            prog: PROGRAM,
            low: VERSION,
            high: VERSION,
        });
        Self {
            service,
            orders,
            programs,
        }
    }
}

fn echo(request: &Request) -> ServiceReply {
    let garbage = |_| Denial::Accepted(AcceptStatus::GarbageArgs);
    let mut args = request.args();
    let payload = args.u32().map_err(garbage)?.min(MOST);
    let item = args.u32().map_err(garbage)?.min(MOST);
    let ballast = args.opaque(MOST).map_err(garbage)?;
    args.finish().map_err(garbage)?;
    if ballast[..] != pattern::content(1, ballast.len()) {
        return Err(Denial::Accepted(AcceptStatus::GarbageArgs));
    }
    let mut out = Encoder::new();
    out.opaque(&pattern::content(2, payload as usize));
    out.bulk(Bytes::from(pattern::content(3, item as usize)));
    Ok(out.finish())
}

fn long(request: &Request) -> ServiceReply {
    let garbage = |_| Denial::Accepted(AcceptStatus::GarbageArgs);
    let mut args = request.args();
    let reply = args.u32().map_err(garbage)?.min(MOST);
    args.opaque(MOST).map_err(garbage)?;
    args.finish().map_err(garbage)?;
    let mut out = Encoder::new();
    out.opaque(&vec![0x4d; reply as usize]);
    Ok(out.finish())
}

impl<S: Service> Service for Probe<S> {
    fn programs(&self) -> &[Programs] {
        &self.programs
    }

    fn call(&mut self, request: Request) -> Outcome {
        match (request.prog, request.proc) {
            (PROGRAM, 0) => Outcome::Done(Ok(Message::default())),
            (PROGRAM, ECHO) => Outcome::Done(echo(&request)),
            (PROGRAM, LONG) => Outcome::Done(long(&request)),
            (PROGRAM, _) => Outcome::Done(Err(Denial::Accepted(AcceptStatus::ProcUnavail))),
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
}
