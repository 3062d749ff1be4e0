//! What a script says: two ends, and events in the order in which they happen.

use arbitrary::Arbitrary;

/// A run.
#[derive(Arbitrary, Debug)]
pub struct Script {
    pub(super) client: End,
    pub(super) server: End,
    /// What else arrives at an end than what the other one sent.
    pub(super) lies: Lies,
    pub(super) events: Vec<Event>,
}

/// What an end is like.
#[derive(Arbitrary, Debug)]
pub(super) struct End {
    /// One, two, or both.
    pub(super) versions: u8,
    /// A bit for each way of each feature.
    pub(super) features: u8,
    pub(super) credits: u8,
    pub(super) callbacks: u8,
    pub(super) chunks: bool,
    pub(super) invalidation: bool,
    /// Kibibytes.
    pub(super) inline: u8,
}

/// Who hears lies.
#[derive(Arbitrary, Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lies {
    Nobody,
    ToClient,
    ToServer,
    ToBoth,
}

impl Lies {
    pub(super) fn are_heard(self, by_server: bool) -> bool {
        match self {
            Self::Nobody => false,
            Self::ToBoth => true,
            Self::ToClient => !by_server,
            Self::ToServer => by_server,
        }
    }
}

#[derive(Arbitrary, Debug)]
pub(super) enum Event {
    /// A call of the client's, or of the server's.
    Call {
        back: bool,
        words: u8,
        items: [Length; 2],
        small_room: u8,
    },
    Cancel {
        back: bool,
        which: u8,
    },
    Answer {
        back: bool,
        which: u8,
        how: Answer,
    },
    /// An end acts.
    Turn {
        server: bool,
    },
    /// Both do, until nothing comes of it any more.
    Settle,
    /// So many milliseconds pass.
    Wait(u16),
    /// An end's device sends nothing, or goes on.
    Stall {
        server: bool,
        on: bool,
    },
    Lose,
    Close,
    Open,
    /// An end's pool is short of memory, or no more.
    Ballast {
        server: bool,
        kib: u16,
    },
    Tamper {
        by_server: bool,
        at: u16,
        bits: u8,
    },
    /// The last message, once more.
    Repeat {
        to_server: bool,
    },
    Lie {
        to_server: bool,
        invalidate: u8,
        lie: Lie,
    },
}

#[derive(Arbitrary, Debug, Clone, Copy)]
pub(super) enum Length {
    None,
    Short(u8),
    Long(u8),
}

impl Length {
    pub(super) fn bytes(self) -> Option<usize> {
        match self {
            Self::None => None,
            Self::Short(len) => Some(usize::from(len)),
            Self::Long(len) => Some(512 * usize::from(len)),
        }
    }
}

#[derive(Arbitrary, Debug, Clone, Copy)]
pub(super) enum Answer {
    Echo,
    Nothing,
    Longer(u8),
}

/// A message that nobody sent.
#[derive(Arbitrary, Debug)]
pub(super) struct Lie {
    pub(super) xid: u8,
    pub(super) version: u8,
    pub(super) credits: u8,
    pub(super) reply: bool,
    pub(super) body: Body,
    /// Words of the RPC message, whether it begins as it must, and bytes behind it.
    pub(super) words: u8,
    pub(super) rpc: u8,
    pub(super) behind: u8,
    /// Bytes of which all but so many are there.
    pub(super) cut: u8,
}

#[derive(Arbitrary, Debug)]
pub(super) enum Body {
    Lists {
        long: bool,
        reads: [(u8, u8); 2],
        writes: [u8; 2],
        reply: u8,
    },
    Error {
        code: u8,
        versions: [u8; 2],
    },
    Begin([Said; 3]),
    Want([Said; 2]),
    Done([u8; 3]),
    Update {
        said: Said,
        cleared: u8,
    },
    Transmit {
        items: [Item; 2],
        wanted: [Wanted; 2],
        count: u8,
        reserved: u8,
    },
    Respond {
        items: [Item; 2],
        count: u8,
    },
    Continue {
        number: u8,
        initial: u8,
    },
    Report {
        number: u8,
        lead: bool,
        code: u8,
    },
    Words {
        procedure: u8,
        words: [u8; 8],
    },
}

/// A characteristic.
#[derive(Arbitrary, Debug)]
pub(super) enum Said {
    Nothing,
    Word { id: u8, value: u8 },
    Structure { head: u8, count: u8, len: u8 },
}

/// An item of a message, and where it is.
#[derive(Arbitrary, Debug)]
pub(super) struct Item {
    pub(super) position: u8,
    pub(super) len: u8,
    pub(super) kind: u8,
    pub(super) at: u8,
}

/// Where an item of the reply is wanted.
#[derive(Arbitrary, Debug)]
pub(super) struct Wanted {
    pub(super) kind: u8,
    pub(super) at: u8,
    pub(super) least: u8,
}
