//! The walk through COMPOUND and CB_COMPOUND.

use onc_rpc::{DecodeError, Reduction, padded};
use smallvec::SmallVec;

use super::fields::{Asked, Longest, pass};
use super::operations::{self, ILLEGAL, is_idempotent, number};
use super::sessions::{Channel, Channels, Sessions};

/// The maximum number of operations of a call that are named in reports.
const MAX_NAMED: usize = 32;

/// A COMPOUND or CB_COMPOUND call that was read.
#[derive(Debug, Default)]
pub(crate) struct Compound {
    /// Minor version.
    pub(crate) minor: u32,
    /// The numbers of the first operations.
    pub(crate) operations: SmallVec<[u8; 16]>,
    /// The longest reply: the results of all operations.
    pub(crate) longest: Longest,
    /// The limit that the session sets to the whole reply, if there is a session whose limits are
    /// known.
    pub(crate) limit: Option<u32>,
    /// Whether executing the call twice has the same effect as executing it once.
    pub(crate) idempotent: bool,
    /// Whether the reply tells the limits of a new session.
    pub(crate) creates_session: bool,
}

/// The reason why the walk ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// At an operation that is not known, so that its arguments cannot be passed over.
    UnknownOperation(u32),
    /// At a value that is not there.
    Malformed(DecodeError),
}

impl From<DecodeError> for Stopped {
    fn from(error: DecodeError) -> Self {
        Self::Malformed(error)
    }
}

/// Passes over the arguments of COMPOUND, or of CB_COMPOUND if `callback`, and fills `compound`, as
/// far as it comes.
pub(crate) fn arguments(
    from: &mut Reduction<'_>,
    callback: bool,
    sessions: &mut Sessions,
    max_items: usize,
    compound: &mut Compound,
) -> Result<(), Stopped> {
    let tag = from.decoder().skip_opaque()?;
    compound.minor = from.decoder().u32()?;
    if callback {
        // `callback_ident`
        from.decoder().skip(4)?;
    }
    let count = from.decoder().u32()?;
    // Status, tag, and the number of results.
    compound.longest.payload = 12 + padded(u64::from(tag));
    compound.idempotent = true;
    // Whether the server keeps the reply, and answers a retry with it.
    let mut cached = None;
    for index in 0..count {
        let number = from.decoder().u32()?;
        let operation = match callback {
            true => operations::callback(number),
            false => operations::forward(number),
        };
        let Some(operation) = operation else {
            return Err(Stopped::UnknownOperation(number));
        };
        if compound.operations.len() < MAX_NAMED {
            compound.operations.push(number as u8);
        }
        let mut asked = Asked::default();
        let sequence = match callback {
            true => number::CB_SEQUENCE,
            false => number::SEQUENCE,
        };
        if number == sequence && index == 0 {
            // The decoder of the rest begins at the same place.
            let mut ahead = from.decoder().clone();
            let session = ahead.words::<16>()?;
            ahead.skip(12)?;
            let cache = ahead.u32()? != 0;
            cached = Some(cache);
            compound.limit = sessions.get(&session).map(|channels| {
                let channel = match callback {
                    true => &channels.back,
                    false => &channels.fore,
                };
                channel.longest(cache)
            });
        } else if number == number::DESTROY_SESSION && !callback {
            let session = from.decoder().clone().words::<16>()?;
            sessions.remove(&session);
        }
        pass(from, operation.args, max_items, &mut asked)?;
        if !callback {
            match number {
                number::CREATE_SESSION => {
                    sessions.insert_program(asked.count);
                    compound.creates_session = true;
                }
                number::BACKCHANNEL_CTL => sessions.insert_program(asked.count),
                _ => {}
            }
        }
        compound.idempotent &= is_idempotent(number) && !callback;
        compound.longest.payload = compound.longest.payload.saturating_add(4);
        compound.longest.add(operation.results, &asked);
    }
    // A call of a session that is made again is answered from the reply cache, or with
    // NFS4ERR_RETRY_UNCACHED_REP.
    compound.idempotent = cached.unwrap_or(compound.idempotent);
    Ok(())
}

/// Passes over the results of a COMPOUND whose call has `items` operations with DDP-eligible
/// results, and learns the limits of a session that was created.
pub(crate) fn results(
    from: &mut Reduction<'_>,
    sessions: &mut Sessions,
    max_items: usize,
    items: u32,
    creates_session: bool,
) -> Result<(), DecodeError> {
    from.decoder().skip(4)?;
    from.decoder().skip_opaque()?;
    let count = from.decoder().u32()?;
    let mut items = items;
    for _ in 0..count {
        // What is behind the last item does not matter.
        if items == 0 && !creates_session {
            break;
        }
        let number = from.decoder().u32()?;
        if number == ILLEGAL {
            from.decoder().skip(4)?;
            continue;
        }
        let Some(operation) = operations::forward(number) else {
            return Err(DecodeError::Invalid {
                what: "operation",
                value: number,
            });
        };
        if number == number::CREATE_SESSION {
            learn(from, sessions)?;
        }
        if operations::has_item(number) {
            items = items.saturating_sub(1);
        }
        pass(from, operation.results, max_items, &mut Asked::default())?;
    }
    Ok(())
}

/// Reads the results of CREATE_SESSION, and stays at their beginning.
fn learn(from: &mut Reduction<'_>, sessions: &mut Sessions) -> Result<(), DecodeError> {
    let mut ahead = from.decoder().clone();
    if ahead.u32()? == 0 {
        let session = ahead.words::<16>()?;
        ahead.skip(8)?;
        let channels = Channels {
            fore: Channel::decode(&mut ahead)?,
            back: Channel::decode(&mut ahead)?,
        };
        sessions.insert(session, channels);
    }
    Ok(())
}
