//! A script: the options of two ends, and events in order.

use arbitrary::Arbitrary;

/// The input of one run.
#[derive(Arbitrary, Debug)]
pub struct Script {
    pub(super) client: End,
    pub(super) server: End,
    /// The ends that also receive forged messages.
    pub(super) lies: Lies,
    pub(super) events: Vec<Event>,
}

/// The options of an end.
#[derive(Arbitrary, Debug)]
pub(super) struct End {
    /// Chooses version 1, version 2 or both.
    pub(super) versions: u8,
    /// One bit for each direction of each feature.
    pub(super) features: u8,
    pub(super) credits: u8,
    pub(super) callbacks: u8,
    pub(super) chunks: bool,
    pub(super) invalidation: bool,
    /// Chooses the inline thresholds, in KiB.
    pub(super) inline: u8,
}

/// The ends that receive forged messages.
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
    /// The client makes a call, or (`back`) the server.
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
    /// An end is polled, and its events are handled.
    Turn {
        server: bool,
    },
    /// Both ends are polled until no more events arise.
    Settle,
    /// This number of milliseconds passes.
    Wait(u16),
    /// The device of an end stops executing Sends, or continues.
    Stall {
        server: bool,
        on: bool,
    },
    Lose,
    Close,
    Open,
    /// All of one end's pool but a few KiB is in use elsewhere from now on; a large number returns
    /// it.
    Ballast {
        server: bool,
        kib: u16,
    },
    Tamper {
        by_server: bool,
        at: u16,
        bits: u8,
    },
    /// The last message arrives again.
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

/// A forged message.
#[derive(Arbitrary, Debug)]
pub(super) struct Lie {
    pub(super) xid: u8,
    pub(super) version: u8,
    pub(super) credits: u8,
    pub(super) reply: bool,
    pub(super) body: Body,
    /// The number of words of the RPC message; `rpc` makes its beginning valid or not, and `behind`
    /// adds bytes after it.
    pub(super) words: u8,
    pub(super) rpc: u8,
    pub(super) behind: u8,
    /// The number of bytes that are missing at the end of the message.
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

/// A transport characteristic (xcharext-02).
#[derive(Arbitrary, Debug)]
pub(super) enum Said {
    Nothing,
    Word { id: u8, value: u8 },
    Structure { head: u8, count: u8, len: u8 },
}

/// A bulk item of a message, and its location.
#[derive(Arbitrary, Debug)]
pub(super) struct Item {
    pub(super) position: u8,
    pub(super) len: u8,
    pub(super) kind: u8,
    pub(super) at: u8,
}

/// The location in which an item of the reply is requested.
#[derive(Arbitrary, Debug)]
pub(super) struct Wanted {
    pub(super) kind: u8,
    pub(super) at: u8,
    pub(super) least: u8,
}
