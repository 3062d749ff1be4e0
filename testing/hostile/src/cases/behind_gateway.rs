//! Tables of hostile clients that attack both faces of a gateway, with a server behind it and with an honest client
//! that comes by the same gateway. What decides is the same as for a server, except where a case says otherwise.

use super::{Attacked, Table, client, second, table, translated, wg};
use crate::rig::Timeouts;

/// Tables of clients of a gateway.
pub const BEHIND_GATEWAY: [Table; 15] = [
    behind(table("gateway, client, set-up", |_| {
        client(super::client_setup::cases())
    })),
    behind(table("gateway, client, framing", |_| {
        client(super::client_framing::cases())
    })),
    behind(table("gateway, client, segments", |_| {
        client(super::client_segments::cases())
    })),
    behind(table("gateway, client, RDMA Reads", |file| {
        client(super::client_reads::cases(file))
    })),
    behind(table("gateway, client, headers", |_| {
        client(super::client_headers::cases())
    })),
    behind(table("gateway, client, chunks", |file| {
        client(super::client_chunks::cases(file))
    })),
    behind(table("gateway, client, calls", |file| {
        client(super::client_calls::cases(file))
    })),
    behind(table("gateway, client, crowds", |file| {
        client(super::client_crowd::cases(file))
    })),
    Table {
        timeouts: Timeouts::NO_PROGRESS,
        ..behind(table("gateway, client, no progress", |file| {
            client(super::client_progress::cases(file))
        }))
    },
    behind(translated(
        "gateway, version 1 as version 2, client, calls",
        |file| client(super::as_second(super::client_calls::cases(file))),
    )),
    behind(second("gateway, version 2, client, requests", |file| {
        client(second::requests::cases(file))
    })),
    behind(wg(
        "gateway, version 2 of the working group, client, calls",
        |file| client(wg::calls::cases(file)),
    )),
    behind(wg(
        "gateway, version 2 of the working group, client, parts",
        |file| client(wg::continued::cases(file)),
    )),
    behind(wg(
        "gateway, version 2 of the working group, client, placement",
        |file| client(wg::placement::cases(file)),
    )),
    behind(table("gateway, client over TCP", |file| {
        client(super::gateway_tcp::cases(file))
    })),
];

/// Puts a gateway between the clients of a table and the server.
const fn behind(table: Table) -> Table {
    Table {
        attacked: Attacked::GatewayByClients,
        ..table
    }
}
