//! Hostile clients that hold memory of the server without making progress: they do not answer its
//! RDMA Reads, or do not read its replies. Each is disconnected in bounded time, and the client
//! that was there before continues.

use super::client_crowd::{LONG, read, write_with_chunk};
use super::{memory, on};
use crate::End::Left;
use crate::client::{Case, Step::*, case, success};
use crate::wire::rpc;

/// The number of connections of a crowd: all that the server accepts besides the bystander's.
const CROWD: usize = 15;
/// The credits of each.
const CREDITS: usize = 16;

/// Returns a TCP record in one fragment.
pub(super) fn record(message: &[u8]) -> Vec<u8> {
    let mut out = (0x8000_0000 | message.len() as u32).to_be_bytes().to_vec();
    out.extend(message);
    out
}

/// Returns a READ of 1 MiB as a record.
fn read_record(file: &[u8]) -> Vec<u8> {
    let call = rpc::Call {
        credential: rpc::root(),
        ..rpc::nfs(1, 6, rpc::read_args(file, 0, 1 << 20))
    };
    record(&call.bytes())
}

pub(super) fn cases(file: &[u8]) -> Vec<Case> {
    let chunk = memory(0, 8192);
    // Makes the file 1 MiB long.
    let write = || {
        let call = super::client_reads::write(file, 0x0bad_3000, &[chunk]);
        on(vec![
            Send(call),
            Serve(chunk, crate::rig::content(8, 8192)),
            Hear(success(0x0bad_3000, &[0])),
        ])
    };
    let unanswered = || Repeat(CREDITS, vec![Send(write_with_chunk())]);
    let unread = || Repeat(CREDITS, vec![Send(read(file))]);
    let with = |mut script: Vec<_>, more: Vec<_>| {
        script.extend(more);
        script
    };
    let half: Vec<u8> = record(&vec![0; LONG as usize])[..LONG as usize / 2].to_vec();
    vec![
        case(
            "long calls whose data never comes",
            "RFC 8166, 3.4.5",
            on(vec![
                unanswered(),
                Cheat(memory(0, LONG), |_| vec![]),
                LetsGo,
            ]),
            Left,
        )
        .costing(2 << 20),
        case(
            "a crowd of calls whose data never comes",
            "RFC 8166, 3.4.5",
            vec![
                Repeat(CROWD, on(vec![unanswered()])),
                OnAll(vec![Cheat(memory(0, LONG), |_| vec![])]),
                Works,
                LetsGo,
            ],
            Left,
        )
        .costing(12 << 20),
        case(
            "replies that nobody takes",
            "RFC 8166, 3.3.1",
            with(write(), vec![unread(), LetsGo]),
            Left,
        )
        .costing(24 << 20),
        case(
            "a crowd whose replies nobody takes",
            "RFC 8166, 3.3.1",
            with(
                write(),
                vec![
                    Repeat(CROWD - 1, on(vec![])),
                    OnAll(vec![unread()]),
                    Works,
                    LetsGo,
                ],
            ),
            Left,
        )
        .costing(28 << 20),
        case(
            "replies over TCP that nobody takes",
            "RFC 5531, 11",
            with(write(), vec![ConnectTcp, BytesUntilEnd(read_record(file))]),
            Left,
        )
        .costing(16 << 20),
        case(
            "a crowd of halves of records",
            "RFC 5531, 11",
            vec![Repeat(CROWD, vec![ConnectTcp, Bytes(half)]), Works, LetsGo],
            Left,
        )
        .costing(12 << 20),
    ]
}
