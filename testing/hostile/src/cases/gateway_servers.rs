//! Tables of hostile servers behind a gateway: the cases against a client, which here comes to the gateway by TCP.
//! Another client of the gateway has an honest server. `server::run` says how the client's call ends, and that its
//! connection ends with the server's.

use super::{Attacked, Table, replies_as_second, second, server, table, translated, wg};
use crate::server::{Ask, Case, Outcome};

/// Tables of servers of a gateway.
pub const GATEWAY_SERVERS: [Table; 10] = [
    before(table("gateway, server, set-up", |_| {
        server(by_gateway(super::server_setup::cases()))
    })),
    before(table("gateway, server, segments", |_| {
        server(by_gateway(super::server_segments::cases()))
    })),
    before(table("gateway, server, replies", |_| {
        server(by_gateway(super::server_replies::cases()))
    })),
    before(table("gateway, server, RPC and NFS", |_| {
        server(by_gateway(super::server_nfs::cases()))
    })),
    calling(table("gateway, server, callbacks", |_| {
        server(called(super::server_callbacks::cases()))
    })),
    before(translated(
        "gateway, version 1 as version 2, server, replies",
        |_| {
            server(by_gateway(
                replies_as_second(super::server_replies::cases()),
            ))
        },
    )),
    before(second("gateway, version 2, server, replies", |_| {
        server(by_gateway(second::replies::cases()))
    })),
    calling(second("gateway, version 2, server, callbacks", |_| {
        server(called(second::callbacks::cases()))
    })),
    before(wg(
        "gateway, version 2 of the working group, server, replies",
        |_| {
            server(by_gateway(
                [
                    wg::replies::cases(),
                    wg::server_properties::cases(),
                    wg::placed_replies::cases(),
                ]
                .concat(),
            ))
        },
    )),
    calling(wg(
        "gateway, version 2 of the working group, server, callbacks",
        |_| server(called(wg::reverse::cases())),
    )),
];

/// Puts a gateway between the servers of a table and the client.
const fn before(table: Table) -> Table {
    Table {
        attacked: Attacked::GatewayByServers { callbacks: false },
        ..table
    }
}

/// Puts a gateway between them that passes calls of the servers to the client.
const fn calling(table: Table) -> Table {
    Table {
        attacked: Attacked::GatewayByServers { callbacks: true },
        ..table
    }
}

/// Selects cases whose client has the options that a gateway has here, and whose calls a gateway passes on as the
/// client made them.
fn by_gateway(mut cases: Vec<Case>) -> Vec<Case> {
    cases.retain(|case| {
        let options = case.plain || matches!(case.ask, Ask::LongWrite(_));
        // The room for a reply is the gateway's decision.
        let room = matches!(case.ask, Ask::Room(_));
        // NoAnswer cases need a time-out of the client for connecting, and the gateway has its own.
        !(options || room || case.outcome == Outcome::NoAnswer)
    });
    cases
}

/// Selects cases with a client that accepts callbacks, as the gateway does.
fn called(mut cases: Vec<Case>) -> Vec<Case> {
    cases.retain(|case| case.called);
    by_gateway(cases)
}
