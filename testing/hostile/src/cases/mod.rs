//! The tables of cases. A new case is a new row; a new protocol version is a new file of rows.

mod behind_gateway;
mod client_calls;
mod client_chunks;
mod client_crowd;
mod client_framing;
mod client_headers;
mod client_memory;
mod client_progress;
mod client_reads;
mod client_segments;
mod client_setup;
mod client_silence;
mod ends;
mod gateway_servers;
mod gateway_tcp;
mod judged;
mod second;
mod server_callbacks;
mod server_nfs;
mod server_replies;
mod server_segments;
mod server_setup;
mod vary;
mod wg;

pub use behind_gateway::BEHIND_GATEWAY;
pub use gateway_servers::GATEWAY_SERVERS;

use crate::Wrong;
use crate::client::Step;
use crate::rig::{Fixture, Form, Timeouts};
use crate::wire::mpa::{self, Frame};
use crate::wire::v1::{self, Segment};
use crate::wire::{rpc, v1::segment};
use crate::{client, server};

/// A case for either role.
#[derive(Clone, Debug)]
pub enum Case {
    /// A case with a hostile client.
    Client(client::Case),
    /// A case with a hostile server.
    Server(server::Case),
}

impl Case {
    /// Returns the description.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Client(case) => &case.name,
            Self::Server(case) => &case.name,
        }
    }

    /// Returns the section of the specification that determines the result.
    #[must_use]
    pub fn section(&self) -> &str {
        match self {
            Self::Client(case) => &case.section,
            Self::Server(case) => case.section,
        }
    }

    /// Returns the maximum memory growth, bytes.
    #[must_use]
    pub fn growth(&self) -> usize {
        match self {
            Self::Client(case) => case.growth,
            Self::Server(case) => case.growth,
        }
    }
}

/// The side that hostile peers attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attacked {
    /// A server, or a client, without a gateway.
    Peer,
    /// A gateway, by its clients. The time-outs are those of the gateway.
    GatewayByClients,
    /// A gateway, by servers that it connects to.
    GatewayByServers {
        /// Whether it passes their calls to clients.
        callbacks: bool,
    },
}

/// A table of cases.
pub struct Table {
    /// The common subject of its cases.
    pub name: &'static str,
    /// The server's time-outs.
    pub timeouts: Timeouts,
    /// The protocol version.
    pub form: Form,
    /// The side that is attacked.
    pub attacked: Attacked,
    /// Creates the cases, given the handle of an existing file.
    pub cases: fn(&[u8]) -> Vec<Case>,
}

impl Table {
    /// Starts the server that the cases are for, with its bystander.
    ///
    /// # Errors
    /// Errors of [`Fixture::start`].
    pub fn fixture(&self) -> Result<Fixture, Wrong> {
        match self.attacked {
            Attacked::Peer => Fixture::start(self.timeouts, self.form),
            Attacked::GatewayByClients => Fixture::start_behind_gateway(self.timeouts, self.form),
            Attacked::GatewayByServers { callbacks } => {
                Fixture::start_before_servers(self.timeouts, self.form, callbacks)
            }
        }
    }
}

/// The program of clients that accept callbacks. It has only NULL.
pub const CALLED: u32 = 0x4000_8168;

/// All tables.
pub const TABLES: [Table; 36] = [
    table("client, set-up", |_| client(client_setup::cases())),
    table("client, framing", |_| client(client_framing::cases())),
    table("client, segments", |_| client(client_segments::cases())),
    table("client, memory", |_| client(client_memory::cases())),
    table("client, RDMA Reads", |file| {
        client(client_reads::cases(file))
    }),
    table("client, headers", |_| client(client_headers::cases())),
    table("client, chunks", |file| client(client_chunks::cases(file))),
    table("client, calls", |file| client(client_calls::cases(file))),
    table("client, crowds", |file| client(client_crowd::cases(file))),
    Table {
        timeouts: Timeouts::SHORT,
        ..table("client, silence", |file| {
            client(client_silence::cases(file))
        })
    },
    Table {
        timeouts: Timeouts::NO_PROGRESS,
        ..table("client, no progress", |file| {
            client(client_progress::cases(file))
        })
    },
    table("server, set-up", |_| server(server_setup::cases())),
    table("server, segments", |_| server(server_segments::cases())),
    table("server, replies", |_| server(server_replies::cases())),
    table("server, RPC and NFS", |_| server(server_nfs::cases())),
    table("server, callbacks", |_| server(server_callbacks::cases())),
    translated("version 1 as version 2, client, chunks", |file| {
        client(as_second(client_chunks::cases(file)))
    }),
    translated("version 1 as version 2, client, calls", |file| {
        client(as_second(client_calls::cases(file)))
    }),
    translated("version 1 as version 2, server, replies", |_| {
        server(replies_as_second(server_replies::cases()))
    }),
    translated("version 1 as version 2, server, RPC and NFS", |_| {
        server(server_nfs::cases())
    }),
    second("version 2, client, headers", |_| {
        client(second::headers::cases())
    }),
    second("version 2, client, characteristics", |_| {
        client(second::characteristics::cases())
    }),
    second("version 2, client, requests", |file| {
        client(second::requests::cases(file))
    }),
    second("version 2, client, groups", |_| {
        client(second::groups::cases())
    }),
    second("version 2, client, reports", |file| {
        client(second::reports::cases(file))
    }),
    second("version 2, server, replies", |_| {
        server(second::replies::cases())
    }),
    second("version 2, server, callbacks", |_| {
        server(second::callbacks::cases())
    }),
    wg("version 2 of the working group, client, headers", |_| {
        client(wg::headers::cases())
    }),
    wg(
        "version 2 of the working group, client, properties",
        |file| client(wg::properties::cases(file)),
    ),
    wg("version 2 of the working group, client, calls", |file| {
        client(wg::calls::cases(file))
    }),
    wg("version 2 of the working group, client, parts", |file| {
        client(wg::continued::cases(file))
    }),
    wg("version 2 of the working group, client, credits", |_| {
        client(wg::credits::cases())
    }),
    Table {
        timeouts: Timeouts::NO_PROGRESS,
        ..wg(
            "version 2 of the working group, client, no progress",
            |_| client(wg::credits::without_progress()),
        )
    },
    wg(
        "version 2 of the working group, client, placement",
        |file| client(wg::placement::cases(file)),
    ),
    wg("version 2 of the working group, server, replies", |_| {
        server(
            [
                wg::replies::cases(),
                wg::server_properties::cases(),
                wg::placed_replies::cases(),
            ]
            .concat(),
        )
    }),
    wg("version 2 of the working group, server, callbacks", |_| {
        server(wg::reverse::cases())
    }),
];

const fn table(name: &'static str, cases: fn(&[u8]) -> Vec<Case>) -> Table {
    Table {
        name,
        timeouts: Timeouts::LONG,
        form: Form::First,
        attacked: Attacked::Peer,
        cases,
    }
}

/// Returns a table of version 1 cases, translated to version 2.
const fn translated(name: &'static str, cases: fn(&[u8]) -> Vec<Case>) -> Table {
    Table {
        form: Form::Translated,
        ..table(name, cases)
    }
}

/// Returns a table of version 2 cases.
const fn second(name: &'static str, cases: fn(&[u8]) -> Vec<Case>) -> Table {
    Table {
        form: Form::Second,
        ..table(name, cases)
    }
}

/// Returns a table of cases of the working group's version 2.
const fn wg(name: &'static str, cases: fn(&[u8]) -> Vec<Case>) -> Table {
    Table {
        form: Form::Wg,
        ..table(name, cases)
    }
}

/// Selects cases of version 1 that have the same meaning in version 2. There, the direction of a
/// message is in its transport header, an RPC message that disagrees with it is answered, and
/// replies can be longer.
fn as_second(mut cases: Vec<client::Case>) -> Vec<client::Case> {
    cases.retain(|case| {
        ![
            "more segments than a reply's header has room for",
            "an XID and no more",
            "a reply to a call never made",
            "a message that is neither call nor reply",
            "a message of kind 4294967295",
            "messages to discard without end",
        ]
        .contains(&case.name.as_str())
    });
    cases
}

/// Selects cases of hostile servers that have the same meaning in version 2. Cases about versions
/// or error numbers do not.
fn replies_as_second(mut cases: Vec<server::Case>) -> Vec<server::Case> {
    cases.retain(|case| {
        let otherwise = ["an error that there is not"].contains(&case.name.as_str());
        !otherwise && !case.name.contains("version")
    });
    cases
}

fn client(cases: Vec<client::Case>) -> Vec<Case> {
    cases.into_iter().map(Case::Client).collect()
}

fn server(cases: Vec<server::Case>) -> Vec<Case> {
    cases.into_iter().map(Case::Server).collect()
}

// ---- common parts of the scripts of hostile clients ----

/// Returns the server's setup frame in answer to [`Frame::request`].
fn accepted() -> Frame {
    Frame {
        depths: Some((1, 16)),
        ..Frame {
            key: mpa::REPLY_KEY,
            ..Frame::request()
        }
    }
}

/// Returns a script that establishes a connection with default setup frames and continues with
/// `steps`.
fn on(steps: Vec<Step>) -> Vec<Step> {
    after(Frame::request(), accepted(), steps)
}

/// Returns a script that establishes a connection with these setup frames and continues with
/// `steps`.
fn after(request: Frame, reply: Frame, mut steps: Vec<Step>) -> Vec<Step> {
    let mut script = vec![
        Step::Connect,
        Step::Bytes(request.bytes()),
        Step::HearFrame(reply),
    ];
    script.append(&mut steps);
    script
}

/// Returns a complete NULL call.
fn null(xid: u32) -> Vec<u8> {
    v1::header(xid).with(&rpc::null(xid).bytes())
}

/// Returns a segment that the hostile client offers, without real memory. These are the handles
/// that its scripts offer.
fn memory(number: u32, length: u32) -> Segment {
    segment(0x5100_0000 + (number << 24), length, 0x1_0000_0000)
}

/// Returns the words of a segment, in the XDR of every version.
fn segment_words(at: Segment) -> [u32; 4] {
    let (upper, lower) = ((at.offset >> 32) as u32, at.offset as u32);
    [at.handle, at.length, upper, lower]
}
