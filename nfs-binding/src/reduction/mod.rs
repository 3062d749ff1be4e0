//! Upper-layer bindings of messages that pass through: of a call or reply of any program, as it was
//! received, the DDP-eligible items are held apart, and the length of the reply is bounded.
//!
//! A relay, unlike a client, does not make the messages that it sends. A [`Reducer`] finds in the
//! XDR stream of a message what RFC 8267 lets it reduce, and cuts it out without copying. It
//! decodes no more than it needs for that. What it does not understand is carried whole: it refuses
//! nothing, except a reply in which it cannot say where a placed item belongs.
//!
//! There is one reducer for each pair of connections. It holds no state of calls: what a reply
//! needs to know of its call is a [`RememberedCall`], which the relay keeps beside the XID. So
//! calls may be retransmitted, and XIDs may occur twice.
//!
//! ```
//! use nfs_binding::reduction::{Direction, Reducer, ReducerOptions};
//! use onc_rpc::{CallHeader, Credential, Encoder, Verifier};
//!
//! // A READ of 4 KiB by NFS version 3, as TCP delivers it.
//! let mut call = Encoder::new();
//! call.opaque(b"handle").u64(0).u32(4096);
//! let mut call = call.finish();
//! let (cred, verf) = (Credential::None, Verifier::default());
//! call.prepend(CallHeader { xid: 7, prog: 100_003, vers: 3, proc: 6, cred, verf }.encode());
//!
//! let mut reducer = Reducer::new(ReducerOptions::default());
//! let reduced = reducer.call(Direction::Forward, call.clone());
//! assert_eq!(reduced.message, call);
//! assert_eq!(reduced.room.items[..], [4096]);
//! assert_eq!(reduced.kind.to_string(), "NFSv3 READ");
//! ```

mod gss;
mod kind;
mod legacy;
mod room;

use std::cmp::Reverse;

use onc_rpc::{
    AUTH_NONE, AUTH_SYS, CALL, DecodeError, MAX_AUTH_BYTES, Message, Position, RPC_VERSION,
    Reduction, ReplyBody, ReplyHeader,
};
use rpc_transport::{ReducedArguments, ReplyRoom};

use crate::proto::{MOUNT_PROGRAM, MOUNT_VERSION, NFS_PROGRAM, NFS_VERSION};
use crate::v4::compound::{self, Compound, Stopped};
use crate::v4::fields::{Asked, Longest, pass};
use crate::v4::sessions::Sessions;

pub use kind::{CallKind, WholeReason};

use gss::Protection;
use room::Bounds;

/// The default of [`ReducerOptions::max_reply`]: a READ of 1 MiB in an RPCSEC_GSS reply with
/// privacy fits, which is the longest reply that Linux asks for.
pub const DEFAULT_MAX_REPLY: u32 = (1 << 20) + (64 << 10);

/// The default of [`ReducerOptions::max_items`]: as many write chunks as the versions of this
/// project accept in a message.
pub const MAX_ITEMS: usize = 16;

/// The version of NFS that has COMPOUND.
const NFS_V4: u32 = 4;
/// The version of callback programs (RFC 8881, section 20).
const CALLBACK_VERSION: u32 = 1;
/// The number of COMPOUND and of CB_COMPOUND.
const COMPOUND: u32 = 1;

/// The DDP-eligible arguments of all programs that a [`Reducer`] knows, for the server side of a
/// relay. Of a COMPOUND, [`MAX_ITEMS`] arguments may be reduced; of an unknown program, any.
pub const RELAYED_ARGUMENTS: ReducedArguments = ReducedArguments::new(
    |program, version, procedure| match (program, version, procedure) {
        (NFS_PROGRAM, NFS_V4, 0) => Some(0),
        (NFS_PROGRAM, NFS_V4, COMPOUND) => Some(MAX_ITEMS as u32),
        _ => legacy::eligible_arguments(program, version, procedure),
    },
)
.with_most_of_any(MAX_ITEMS as u32);

/// The limits that a relay sets to calls.
#[derive(Clone, Copy, Debug)]
pub struct ReducerOptions {
    /// The room, in bytes, for results whose length does not follow from their call.
    pub max_reply: u32,
    /// The maximum number of items that are held apart in one call, and of result items for which
    /// room is offered. Further items stay in the payload: of a call, all but the longest of the first
    /// [`MAX_ITEMS`]; of a reply, all but the first, because responders fill chunks in order.
    /// Without an agreement with the server, RFC 8267 (section 6.4.2) wants no more than one.
    ///
    /// In a reply, up to [`MAX_ITEMS`] are held apart: the caller has offered room for as many as it
    /// may, and the transport puts the others back into the payload.
    pub max_items: usize,
}

impl Default for ReducerOptions {
    fn default() -> Self {
        Self {
            max_reply: DEFAULT_MAX_REPLY,
            max_items: MAX_ITEMS,
        }
    }
}

/// The side from which a call comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client to the server.
    Forward,
    /// From the server to the client (RFC 8167): a callback.
    Backward,
}

/// A call to pass on.
#[derive(Debug)]
pub struct ReducedCall {
    /// The call, with its eligible items held apart, each with its position. The stream is that of
    /// the call received, XID and credential included.
    pub message: Message,
    /// The room for its reply. Items are those that write chunks may be offered for, in the order
    /// of decoding.
    pub room: ReplyRoom,
    /// The part of the call that [`Reducer::reply`] takes.
    pub remembered: RememberedCall,
    /// The kind of call, for reports.
    pub kind: CallKind,
}

/// The part of a call that reading its reply takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RememberedCall(Results);

/// The way in which a reply is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Results {
    /// Not at all: it has no items.
    Whole,
    /// By the results of a procedure of NFS version 2 or 3.
    Procedure { version: u32, procedure: u32 },
    /// By the results of a COMPOUND of which so many operations have an item.
    Compound { items: u32, creates_session: bool },
}

/// The fixed part of a call header.
struct Called {
    program: u32,
    version: u32,
    procedure: u32,
    /// Flavor of the credential.
    flavor: u32,
    protection: Protection,
}

/// Finds DDP-eligible items in the messages of one pair of connections, and bounds replies.
#[derive(Debug)]
pub struct Reducer {
    options: ReducerOptions,
    sessions: Sessions,
}

impl Reducer {
    /// Creates the reducer of a new pair of connections.
    #[must_use]
    pub fn new(options: ReducerOptions) -> Self {
        Self {
            options,
            sessions: Sessions::default(),
        }
    }

    /// Sets [`ReducerOptions::max_items`] for later calls, when more is known of the server.
    pub fn set_max_items(&mut self, max_items: usize) {
        self.options.max_items = max_items;
    }

    /// Prepares a call that was received from one side to be sent to the other. It may have items
    /// that were received apart: those that are not eligible are put back into the payload, and
    /// [`CallKind::whole`] says so. A relay that is to answer as a responder must (RFC 8166,
    /// section 6.1) refuses a call whose kind is [`WholeReason::Misplaced`].
    #[must_use]
    pub fn call(&mut self, direction: Direction, call: Message) -> ReducedCall {
        let mut kind = CallKind::default();
        let (room, results, reduced) = {
            let mut from = Reduction::new(&call);
            match self.read(direction, &mut from, &mut kind) {
                Ok(bounds) => match from.finish() {
                    Ok(reduced) => (bounds.room(&self.options), bounds.results, Some(reduced)),
                    Err(_) => {
                        kind.whole = Some(WholeReason::Misplaced);
                        (bounds.room_whole(&self.options), Results::Whole, None)
                    }
                },
                Err((reason, bounds)) => {
                    kind.whole = Some(reason);
                    (bounds.room_whole(&self.options), Results::Whole, None)
                }
            }
        };
        let message = match reduced {
            Some(Some(reduced)) => reduced,
            Some(None) => call,
            // Items of calls have positions.
            None => put_back(call).unwrap_or_default(),
        };
        ReducedCall {
            message: keep_longest(message, self.options.max_items),
            room,
            remembered: RememberedCall(results),
            kind,
        }
    }

    /// Prepares the reply to a call to be sent to the caller: eligible items are held apart, and
    /// those that were received without a position get one.
    ///
    /// # Errors
    /// [`DecodeError`] if the reply has items whose place is not found: the responder has violated
    /// the binding, and the reply cannot be put together.
    pub fn reply(
        &mut self,
        remembered: RememberedCall,
        reply: Message,
    ) -> Result<Message, DecodeError> {
        let mut from = Reduction::new(&reply);
        let read = self.read_reply(remembered.0, &mut from);
        match read.and_then(|()| from.finish()) {
            Ok(Some(reduced)) => Ok(reduced),
            Ok(None) => Ok(reply),
            Err(_) => put_back(reply),
        }
    }

    /// Reads the header of a call.
    fn header(from: &mut Reduction<'_>) -> Result<Called, DecodeError> {
        let from = from.decoder();
        from.skip(4)?;
        for (what, expected) in [("msg_type of a call", CALL), ("RPC version", RPC_VERSION)] {
            let value = from.u32()?;
            if value != expected {
                return Err(DecodeError::Invalid { what, value });
            }
        }
        let (program, version, procedure) = (from.u32()?, from.u32()?, from.u32()?);
        let flavor = from.u32()?;
        let protection = match flavor {
            gss::RPCSEC_GSS => gss::protection(from)?,
            _ => {
                from.skip_opaque()?;
                Protection::None
            }
        };
        from.skip(4)?;
        from.skip_opaque()?;
        Ok(Called {
            program,
            version,
            procedure,
            flavor,
            protection,
        })
    }

    /// Reads a call. If it is to be carried whole, returns the reason and what is known of its
    /// reply.
    fn read(
        &mut self,
        direction: Direction,
        from: &mut Reduction<'_>,
        kind: &mut CallKind,
    ) -> Result<Bounds, (WholeReason, Bounds)> {
        let malformed = |error| (whole(error), Bounds::unknown());
        let called = Self::header(from).map_err(malformed)?;
        kind.program = called.program;
        kind.version = called.version;
        kind.procedure = called.procedure;
        kind.direction = Some(direction);
        // The longest of them are kept in the end (`keep_longest`).
        let mut max_items = self.options.max_items.max(MAX_ITEMS);
        match called.protection {
            Protection::None => {}
            Protection::Integrity => {
                // The length of the protected data, and a sequence number.
                from.decoder().skip(8).map_err(malformed)?;
                max_items = 0;
            }
            Protection::Hidden => return Err((WholeReason::Protected, Bounds::unknown())),
        }
        let read = self.read_arguments(direction, &called, from, max_items, kind);
        // The verifier of the reply.
        let verifier = match called.flavor {
            AUTH_NONE | AUTH_SYS => 0,
            _ => MAX_AUTH_BYTES,
        };
        let read = match read {
            Ok(bounds) => Ok(bounds.with_more(verifier)),
            Err((reason, bounds)) => Err((reason, bounds.with_more(verifier))),
        };
        match (called.protection, read) {
            (Protection::Integrity, Ok(bounds) | Err((_, bounds))) => Err((
                WholeReason::Protected,
                // Length, sequence number and checksum.
                bounds.with_more(12 + gss::MAX_CHECKSUM),
            )),
            (_, read) => read,
        }
    }

    /// Reads the arguments of a call.
    fn read_arguments(
        &mut self,
        direction: Direction,
        called: &Called,
        from: &mut Reduction<'_>,
        max_items: usize,
        kind: &mut CallKind,
    ) -> Result<Bounds, (WholeReason, Bounds)> {
        let unknown = |reason| (reason, Bounds::unknown());
        let malformed = |error| unknown(whole(error));
        let &Called {
            program,
            version,
            procedure,
            ..
        } = called;
        let callback = direction == Direction::Backward;
        let is_compound = match callback {
            true => version == CALLBACK_VERSION && self.sessions.is_callback(program),
            false => (program, version) == (NFS_PROGRAM, NFS_V4),
        };
        if is_compound {
            match procedure {
                0 => return Ok(Bounds::new(Longest::default(), Results::Whole, true)),
                COMPOUND => {}
                _ => return Err(unknown(WholeReason::NoBinding)),
            }
            let mut compound = Compound::default();
            let read =
                compound::arguments(from, callback, &mut self.sessions, max_items, &mut compound);
            kind.minor = Some(compound.minor);
            kind.operations = compound.operations;
            if let Err(stopped) = read {
                let reason = match stopped {
                    Stopped::UnknownOperation(number) => WholeReason::UnknownOperation(number),
                    Stopped::Malformed(error) => whole(error),
                };
                return Err((reason, Bounds::unknown().with_limit(compound.limit)));
            }
            let items = compound.longest.items.len() as u32;
            let creates_session = compound.creates_session;
            let results = match (items, creates_session) {
                // Nothing in the reply matters.
                (0, false) => Results::Whole,
                _ => Results::Compound {
                    items,
                    creates_session,
                },
            };
            let bounds = Bounds::new(compound.longest, results, compound.idempotent);
            return Ok(bounds.with_limit(compound.limit));
        }
        if callback {
            return Err(unknown(WholeReason::NoBinding));
        }
        if let (NFS_PROGRAM, NFS_VERSION) | (MOUNT_PROGRAM, MOUNT_VERSION) = (program, version) {
            let room = legacy::typed_room(program, procedure, from.decoder());
            let room = room.ok_or_else(|| unknown(WholeReason::NoBinding))?;
            let room = room.map_err(malformed)?;
            let mut results = Results::Whole;
            if program == NFS_PROGRAM
                && let Some(shape) = legacy::v3(procedure)
            {
                pass(from, shape.args, max_items, &mut Asked::default()).map_err(malformed)?;
                if !shape.results.is_empty() {
                    results = Results::Procedure { version, procedure };
                }
            }
            let longest = Longest {
                payload: u64::from(room.payload),
                items: room.items.iter().copied().collect(),
            };
            return Ok(Bounds::new(longest, results, room.idempotent));
        }
        let Some(shape) = legacy::shape(program, version, procedure) else {
            return Err(unknown(WholeReason::NoBinding));
        };
        let mut asked = Asked::default();
        pass(from, shape.args, max_items, &mut asked).map_err(malformed)?;
        let mut longest = Longest::default();
        longest.add(shape.results, &asked);
        let results = match longest.items.is_empty() {
            true => Results::Whole,
            false => Results::Procedure { version, procedure },
        };
        Ok(Bounds::new(longest, results, shape.idempotent))
    }

    /// Reads a reply, as far as it has items.
    fn read_reply(
        &mut self,
        results: Results,
        from: &mut Reduction<'_>,
    ) -> Result<(), DecodeError> {
        if results == Results::Whole {
            return Ok(());
        }
        let header = ReplyHeader::decode(from.decoder())?;
        let ReplyBody::Accepted { status, .. } = header.body else {
            return Ok(());
        };
        if status != onc_rpc::AcceptStatus::Success {
            return Ok(());
        }
        let max_items = MAX_ITEMS;
        match results {
            Results::Whole => Ok(()),
            Results::Procedure { version, procedure } => {
                let shape = legacy::results(version, procedure);
                pass(from, shape, max_items, &mut Asked::default())
            }
            Results::Compound {
                items,
                creates_session,
            } => compound::results(from, &mut self.sessions, max_items, items, creates_session),
        }
    }
}

/// Returns why a call is carried whole that cannot be decoded.
fn whole(error: DecodeError) -> WholeReason {
    match error {
        DecodeError::StrayBulk(_)
        | DecodeError::BulkLength { .. }
        | DecodeError::UnclaimedBulk(_) => WholeReason::Misplaced,
        _ => WholeReason::Malformed,
    }
}

/// Puts all items back into the payload.
///
/// # Errors
/// [`DecodeError::UnclaimedBulk`] if an item has no position.
fn put_back(message: Message) -> Result<Message, DecodeError> {
    if message.items().is_empty() {
        return Ok(message);
    }
    for item in message.items() {
        let len = item.data.len() as u64;
        if !matches!(item.position, Position::At(_)) && len > 0 {
            return Err(DecodeError::UnclaimedBulk(len));
        }
    }
    let extras = message.extras().clone();
    Ok(Message::without_items(message.gather(|_| true)).with_extras(extras))
}

/// Puts all but the `most` longest items of a call back into the payload; of equal ones, the first stay.
fn keep_longest(call: Message, most: usize) -> Message {
    let items = call.items();
    if items.len() <= most {
        return call;
    }
    let mut by_length: Vec<usize> = (0..items.len()).collect();
    by_length.sort_by_key(|&index| Reverse(items[index].data.len()));
    let mut kept = by_length[..most].to_vec();
    kept.sort_unstable();
    let payload = call.gather(|index| kept.binary_search(&index).is_err());
    // Positions are those of the whole stream, so they stay.
    let kept = kept.into_iter().map(|index| items[index].clone());
    Message::new(payload, kept).with_extras(call.extras().clone())
}

#[cfg(test)]
mod tests;
