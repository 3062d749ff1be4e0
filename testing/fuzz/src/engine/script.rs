//! The script of a run: its steps, in the order in which they are taken.

use arbitrary::Arbitrary;

/// The input of one run.
#[derive(Arbitrary, Debug)]
pub struct Script {
    /// Whether the client may send invalid messages; `server_lies`: the same of the server.
    pub(super) client_lies: bool,
    pub(super) server_lies: bool,
    pub(super) remote_invalidation: bool,
    pub(super) client_credits: u8,
    pub(super) server_credits: u8,
    pub(super) steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
pub(super) enum Step {
    Submit {
        words: u8,
        items: [Length; 2],
        room: Room,
    },
    Cancel(u8),
    /// The client's device completes a registration.
    Registered {
        which: u8,
        fails: u8,
    },
    Invalidated(u8),
    ReadDone(u8),
    /// The next message or RDMA Write of the client takes effect at the server; `ToClient`: the
    /// other way round.
    ToServer,
    ToClient,
    Answer {
        which: u8,
        how: Answer,
    },
    /// `kib` KiB of the memory of one end's pool are in use elsewhere from now on; 0 returns them.
    Ballast {
        client: bool,
        kib: u8,
    },
    /// Both ends retry what waits for memory.
    Retry,
    /// The next message of an end arrives with some bits changed.
    Tamper {
        to_server: bool,
        at: u8,
        bits: u8,
    },
    Repeat {
        to_server: bool,
    },
    Call(LyingCall),
    Reply(LyingReply),
    Noise {
        to_server: bool,
        bytes: [u8; 20],
        len: u8,
    },
}

#[derive(Arbitrary, Debug, Clone, Copy)]
pub(super) enum Length {
    None,
    Short(u8),
    Long(u8),
}

#[derive(Arbitrary, Debug)]
pub(super) enum Room {
    Right,
    Small,
    Other { words: u8, item: u16 },
}

#[derive(Arbitrary, Debug)]
pub(super) enum Answer {
    Echo,
    Nothing,
    Longer(u8),
    Unasked(u16),
}

#[derive(Arbitrary, Debug)]
pub(super) struct LyingCall {
    pub(super) xid: u8,
    pub(super) credits: u8,
    pub(super) long: bool,
    pub(super) reads: [(u8, u16); 2],
    pub(super) writes: [u16; 2],
    pub(super) reply: u16,
    pub(super) payload: u8,
}

#[derive(Arbitrary, Debug)]
pub(super) struct LyingReply {
    /// Selects the call to reply to; `other` changes its XID.
    pub(super) which: u8,
    pub(super) other: u8,
    pub(super) credits: u8,
    pub(super) long: bool,
    pub(super) error: u8,
    pub(super) lengths: [u16; 3],
    pub(super) more: u8,
    pub(super) payload: u8,
    pub(super) invalidate: u8,
}

impl Length {
    pub(super) fn bytes(self) -> Option<usize> {
        match self {
            Self::None => None,
            Self::Short(len) => Some(usize::from(len)),
            Self::Long(len) => Some(8 * usize::from(len)),
        }
    }
}
