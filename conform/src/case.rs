//! Cases as data: addresses, levels, steps.

use std::borrow::Cow;
use std::cell::Cell;
use std::time::Duration;

use crate::characteristics::Needed;
use crate::dialect::Dialect;
use crate::expect::{Expect, Reply, success};
use crate::wire::v1::Segment;
use crate::wire::{Xdr, mpa, rpc, v1, v2, wg};

/// Force of the text that decides a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Level {
    /// A MUST, MUST NOT, REQUIRED or SHALL of the text.
    Must,
    /// A SHOULD or SHOULD NOT of the text. Deviations count with `--strict` alone.
    Should,
    /// No requirement of the text, but what keeps a server alive and its peers unharmed.
    #[serde(rename = "robustness")]
    Robustness,
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Must => "MUST",
            Self::Should => "SHOULD",
            Self::Robustness => "robustness",
        })
    }
}

/// The end of a case's last connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A further NULL call on the connection is answered.
    Lives,
    /// A further NULL call is answered, or the server has closed the connection.
    LivesOrCloses,
    /// Nothing is sent after the script, which leaves a message incomplete.
    Incomplete,
}

/// An action of the scripted client, or something that must come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Connects with this private data. The previous connection, if any, is closed, and what was offered on
    /// it is withdrawn.
    Connect(Vec<u8>),
    /// Offers memory that the server may read, with its content.
    Offer(Segment, Vec<u8>),
    /// Offers memory that the server may read, whose content does not matter. It is made when the case is performed.
    OfferAny(Segment),
    /// Offers memory that the server may write.
    Room(Segment),
    /// Names the handle of a segment that exceeds the address space, which no adapter can register: an RDMA Read of it
    /// makes this client end the connection.
    Unreadable(u32),
    /// Sends a message. What does not fit the server's receives is not sent, and the case is not applicable.
    Send(Vec<u8>),
    /// Expects one of these. The first is what the text prefers.
    Expect(Vec<Expect>),
    /// Expects one of these within this time, however long other messages may take.
    Within(Duration, Vec<Expect>),
    /// Checks that the server has written exactly these bytes into the room with this handle, from its
    /// beginning on.
    Holds(u32, Vec<u8>),
    /// Checks the Reply chunk of the last message, whose segments have these handles. If the message is a long reply
    /// (RDMA_NOMSG), the rooms hold this reply, one after the other, and the chunk says how much of each is used. If it
    /// is a short one, none is used.
    Message(Vec<u32>, Reply),
    /// Makes as many NULL calls at once as the server's credits allow, and at most this many, and expects a
    /// reply to each, in any order.
    Burst(u32),
    /// Sends a message in whose credit field is the number of messages received so far plus this. In the
    /// working group's version 2 only.
    SendGranting(i32, Vec<u8>),
    /// Sends a message this many times, whatever the server's credits are.
    Flood(usize, Vec<u8>),
    /// Checks that nothing comes for a moment but credits and properties. Parts of a reply that is not complete must
    /// have been expected.
    Quiet,
    /// Expects that the server tells its properties, if it has not done so. In the working group's version 2
    /// only.
    Properties,
    /// Expects the server's characteristics, in version 2 of 2016 only. Where they lack something, or the server does
    /// not tell any because it does not support that, the case is not applicable.
    Characteristics(Needed),
    /// Sends a message, and data behind it in the first segment for bulk data that the receives of the server have, in
    /// version 2 of 2016 only. Where they have none that takes it, the case is not applicable.
    SendPlaced(Vec<u8>, Vec<u8>),
    /// Waits for 300 ms. No message need come, and one that comes must be one of these.
    Perhaps(Vec<Expect>),
    /// Checks that the last reply came in several messages, each of which told how many bytes would follow
    /// it. In the working group's version 2 only.
    Counted,
}

/// The XID of the call that begins a connection of version 2 of 2016.
const BEGINNING: u32 = 0x0f00_0001;

/// Returns the first steps of the usual connection: private data for 4096 bytes in both directions and for remote
/// invalidation; in version 2 of 2016 also a call, whose reply settles the version (version-two-01, section 5), and
/// in that of the working group this end's properties.
#[must_use]
pub fn opening(dialect: Dialect) -> Vec<Step> {
    let connect = Step::Connect(mpa::PRIVATE_DATA.to_vec());
    match dialect {
        Dialect::One => vec![connect],
        Dialect::Two => {
            let first = v2::plain(BEGINNING, v2::CALL, &rpc::null(BEGINNING).bytes());
            let reply = Expect::Reply(success(BEGINNING, &[]));
            vec![connect, Step::Send(first), Step::Expect(vec![reply])]
        }
        Dialect::Wg => {
            let first = wg::introduction(&wg::plain_properties());
            vec![connect, Step::Send(first)]
        }
    }
}

/// One exchange with its expectations.
#[derive(Clone, Debug)]
pub struct Case {
    /// The version that is spoken.
    pub dialect: Dialect,
    /// The section that decides, as `RFC 8166, 4.5.2`.
    pub section: Cow<'static, str>,
    /// The number within the section. Numbers are never given again.
    pub number: u32,
    /// Force of the section.
    pub level: Level,
    /// A noun phrase: what is sent.
    pub sends: String,
    /// A noun phrase: what must come.
    pub expects: Cow<'static, str>,
    /// The address of a simpler case of the same rule. If that fails, this one says nothing new and is not
    /// tested.
    pub needs: Option<Cow<'static, str>>,
    /// Whether the case could exhaust a server. Such cases run with `--hostile` alone.
    pub hostile: bool,
    /// The steps, in order.
    pub script: Vec<Step>,
    /// The end of the connection.
    pub end: End,
}

impl Case {
    /// Returns the address: specification, section, number.
    #[must_use]
    pub fn address(&self) -> String {
        address_of(&self.section, self.number)
    }

    /// Sets the simpler case without which this one is not tested.
    #[must_use]
    pub fn needs(self, address: &'static str) -> Self {
        Self {
            needs: Some(address.into()),
            ..self
        }
    }

    /// Marks a case that could exhaust a server.
    #[must_use]
    pub fn hostile(self) -> Self {
        Self {
            hostile: true,
            ..self
        }
    }

    /// Sets the level.
    #[must_use]
    pub fn level(self, level: Level) -> Self {
        Self { level, ..self }
    }

    /// Sets the version that is spoken.
    #[must_use]
    pub fn speaking(self, dialect: Dialect) -> Self {
        Self { dialect, ..self }
    }

    /// Leaves the connection in the middle of a message.
    #[must_use]
    pub fn incomplete(self) -> Self {
        Self {
            end: End::Incomplete,
            ..self
        }
    }

    /// Allows the server to close the connection at the end.
    #[must_use]
    pub fn may_close(self) -> Self {
        Self {
            end: End::LivesOrCloses,
            ..self
        }
    }
}

/// Returns the address of a case of this section, as in `RFC 8166, 4.5.2`, with this number.
pub(crate) fn address_of(section: &str, number: u32) -> String {
    let (document, section) = section.split_once(", ").unwrap_or((section, "0"));
    let document = match document.strip_prefix("version-two-") {
        Some(revision) => format!("rpcrdma2-{revision}"),
        None => document.replace(' ', "").to_ascii_lowercase(),
    };
    format!("{document}/{section}/{number}")
}

/// Creates a case of version 1 and of level MUST after which the connection lives.
#[must_use]
pub fn case(
    section: &'static str,
    number: u32,
    sends: impl Into<String>,
    expects: &'static str,
    script: Vec<Step>,
) -> Case {
    Case {
        dialect: Dialect::One,
        section: section.into(),
        number,
        level: Level::Must,
        sends: sends.into(),
        expects: expects.into(),
        needs: None,
        hostile: false,
        script,
        end: End::Lives,
    }
}

/// The objects on the server that cases use, and the XIDs of their calls.
#[derive(Clone, Debug)]
pub struct Ground {
    /// The handle of an empty folder.
    pub folder: Vec<u8>,
    /// The handle of a file in it, which cases write and read.
    pub file: Vec<u8>,
    /// The user and the group that calls are made as.
    pub user: (u32, u32),
    /// The first bytes of the file, if it may only be read. Cases that read compare with these. Otherwise, it is
    /// empty, and cases write first.
    pub held: Vec<u8>,
    xid: Cell<u32>,
    /// Whether every call has an XID of its own.
    counts: bool,
}

impl Ground {
    /// Creates a ground whose calls have the XIDs from `xid` on, each one once.
    #[must_use]
    pub fn new(folder: Vec<u8>, file: Vec<u8>, user: (u32, u32), xid: u32) -> Self {
        Self {
            folder,
            file,
            user,
            held: Vec::new(),
            xid: Cell::new(xid),
            counts: true,
        }
    }

    /// Creates a ground without objects, all of whose calls have one XID: for lists of cases, and for
    /// cases that use no file.
    #[must_use]
    pub fn without_files(xid: u32) -> Self {
        Self {
            counts: false,
            ..Self::new(vec![0; 32], vec![0; 32], (0, 0), xid)
        }
    }

    /// Returns the XID of the next call.
    pub fn xid(&self) -> u32 {
        let xid = self.xid.get();
        if self.counts {
            self.xid.set(xid.wrapping_add(1));
        }
        xid
    }

    /// Returns AUTH_SYS of the user: flavor and body.
    #[must_use]
    pub fn credential(&self) -> (u32, Vec<u8>) {
        let (user, group) = self.user;
        let body = Xdr::new().word(0).opaque(b"conform");
        let body = body.words(&[user, group, 0]).done();
        (1, Xdr::new().opaque(&body).done())
    }
}

/// Returns memory that a script offers.
#[must_use]
pub fn memory(number: u32, length: u32) -> Segment {
    let handle = 0x5100_0000_u32.wrapping_add(number << 24);
    v1::segment(handle, length, 0x1_0000_0000)
}
