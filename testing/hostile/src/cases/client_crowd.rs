//! Cases with many hostile clients.

use super::{accepted, memory, null, on};
use crate::End::{Closed, Left, Lives};
use crate::client::{Case, Step, Step::*, case, success};
use crate::wire::mpa::{self, ENHANCED, Frame, REJECT};
use crate::wire::rpc;
use crate::wire::v1::{self, Header};

/// Returns the setup frame with which the server rejects a connection over its limit.
fn rejected() -> Frame {
    Frame {
        flags: ENHANCED | REJECT,
        depths: Some((0, 0)),
        // The client is told to try again: the transport is at its limit.
        private: b"rpcrdma: no room".to_vec(),
        ..accepted()
    }
}

/// The approximate maximum length of a call's chunk here, bytes.
pub(super) const LONG: u32 = 255 << 10;

/// Encodes a WRITE without arguments, with a long Read chunk.
pub(super) fn write_with_chunk() -> Vec<u8> {
    let header = Header {
        reads: vec![(rpc::CALL_HEADER, memory(0, LONG))],
        ..v1::header(1)
    };
    header.with(&rpc::nfs(1, 7, Vec::new()).bytes())
}

/// Encodes a READ of 1 MiB.
pub(super) fn read(file: &[u8]) -> Vec<u8> {
    let call = rpc::Call {
        credential: rpc::root(),
        ..rpc::nfs(1, 6, rpc::read_args(file, 0, 1 << 20))
    };
    let header = Header {
        writes: vec![vec![memory(0, 1 << 20)]],
        ..v1::header(1)
    };
    header.with(&call.bytes())
}

/// Establishes connections that stay open.
fn established(count: usize) -> Step {
    Repeat(count, on(vec![Send(null(1)), Hear(success(1, &[]))]))
}

pub(super) fn cases(file: &[u8]) -> Vec<Case> {
    let request = Frame::request().bytes();
    let chunk = memory(0, 8192);
    let stuck = || {
        let call = super::client_reads::write(file, 0x0bad_1000, &[chunk]);
        vec![
            Repeat(16, vec![Send(call)]),
            Repeat(16, vec![Cheat(chunk, |_| vec![])]),
        ]
    };
    let after = |crowd: Step| {
        let mut script = vec![crowd];
        script.extend(on(vec![]));
        script
    };
    vec![
        case(
            "250 connections that say nothing",
            "RFC 5044, 7.1.2",
            after(Repeat(250, vec![Connect])),
            Lives,
        )
        .costing(8 << 20),
        case(
            "250 connections that begin to say something",
            "RFC 5044, 7.1.2",
            after(Repeat(250, vec![Connect, Bytes(request[..19].to_vec())])),
            Lives,
        )
        .costing(8 << 20),
        case(
            "400 connections that say nothing",
            "RFC 5044, 7.1.2",
            after(Repeat(400, vec![Connect])),
            Lives,
        )
        .costing(8 << 20),
        case(
            "400 connections that come and go",
            "RFC 5044, 7.1.2",
            after(Repeat(400, vec![Connect, Abort])),
            Lives,
        )
        .costing(8 << 20),
        case(
            "200 connections of another protocol",
            "RFC 5044, 7.1.1",
            after({
                Repeat(
                    200,
                    vec![Connect, Bytes(b"GET / HTTP/1.1\r\n\r\n".to_vec())],
                )
            }),
            Lives,
        )
        .costing(8 << 20),
        case(
            "as many connections as there may be",
            "RFC 8166, 3.3",
            vec![established(15)],
            Lives,
        )
        .costing(4 << 20),
        case(
            "one connection too many",
            "RFC 5044, 7.1.1",
            vec![
                established(15),
                Connect,
                Bytes(request.clone()),
                HearFrame(rejected()),
            ],
            Closed,
        )
        .costing(4 << 20),
        case(
            "a hundred connections too many",
            "RFC 5044, 7.1.1",
            vec![
                established(15),
                Repeat(
                    100,
                    vec![Connect, Bytes(request.clone()), HearFrame(rejected())],
                ),
            ],
            Closed,
        )
        .costing(4 << 20),
        case(
            "connections one after the other",
            "RFC 5044, 7.1",
            vec![
                Repeat(100, on(vec![Send(null(1)), Hear(success(1, &[])), Abort])),
                Connect,
                Bytes(request.clone()),
                HearFrame(accepted()),
            ],
            Lives,
        )
        .costing(4 << 20),
        case(
            "connections that are terminated one after the other",
            "RFC 5040, 5.4",
            vec![
                Repeat(100, on(vec![Bytes(mpa::fpdu(&[0xff; 18], false)), Turn])),
                Abort,
                Connect,
                Bytes(request),
                HearFrame(accepted()),
            ],
            Lives,
        )
        .costing(8 << 20),
        case(
            "a crowd of calls whose data never comes",
            "RFC 8166, 3.4.5",
            vec![Repeat(15, on(stuck())), Works],
            Left,
        )
        .costing(8 << 20),
        case(
            "a crowd of long calls whose data never comes",
            "RFC 8166, 3.4.5",
            vec![
                Repeat(
                    15,
                    on(vec![
                        Repeat(16, vec![Send(write_with_chunk())]),
                        Cheat(memory(0, LONG), |_| vec![]),
                    ]),
                ),
                Works,
            ],
            Left,
        )
        .costing(8 << 20),
        case(
            "a crowd of long READs that nobody takes",
            "RFC 8166, 3.3.1",
            {
                let mut script = on(vec![
                    Send(super::client_reads::write(file, 0x0bad_1001, &[chunk])),
                    Serve(chunk, crate::rig::content(8, 8192)),
                    Hear(success(0x0bad_1001, &[0])),
                ]);
                script.push(Repeat(14, on(vec![])));
                script.push(OnAll(vec![Repeat(16, vec![Send(read(file))])]));
                script.push(Works);
                script
            },
            Left,
        )
        .costing(28 << 20),
    ]
}
