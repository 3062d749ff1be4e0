//! The calls of the exchanges, always the same and in the same order.

use std::time::Duration;

use futures_util::future::join_all;
use rpc_transport::rdma::{NotChanged, RdmaClient, RdmaOptions};
use rpc_transport::{CallError, ConnectionId, Reply};
use rpcrdma_programs::callbacks::{Order, run};

use crate::service::{Echo, Sizes, null};
use crate::world::Desk;

/// A change of the receive size, at the client's own end or at the server's.
type Change = fn(&mut RdmaClient, ConnectionId, u32) -> Result<(), NotChanged>;

const KIB: u32 = 1 << 10;
/// Lengths of bulk data: inline, too long for inline, not a multiple of four, many pieces.
const LENGTHS: [(&str, &[u32]); 4] = [
    ("100 bytes", &[100]),
    ("8 KiB", &[8 * KIB]),
    ("64 KiB and 3 bytes", &[64 * KIB + 3]),
    ("1 MiB", &[KIB * KIB]),
];
/// Two items, each of which needs a chunk.
const TWO: &[u32] = &[8 * KIB + 1, 6 * KIB];
const ONE: &[u32] = &[8 * KIB];
/// The length of plain data that is too long for one Send, and a receive size in which it fits.
const LONG: u32 = 10_000;
const LONGER_RECEIVES: u32 = 16 * KIB;
/// The number of calls that consume all posted receives.
const CALLS_BETWEEN: usize = 12;
/// A time that suffices for a call to be sent, but is shorter than a round trip.
const SOON: Duration = Duration::from_micros(7);

const fn plain(call: u32, reply: u32) -> Echo {
    both(call, &[], reply, &[])
}

const fn both(
    call: u32,
    call_items: &'static [u32],
    reply: u32,
    reply_items: &'static [u32],
) -> Echo {
    Echo {
        call: Sizes {
            plain: call,
            items: call_items,
        },
        reply: Sizes {
            plain: reply,
            items: reply_items,
        },
        short: 0,
    }
}

/// Returns a call with the data of a WRITE in the call. That of a READ is in the reply.
fn write(items: &'static [u32]) -> Echo {
    both(40, items, 60, &[])
}

fn read(items: &'static [u32]) -> Echo {
    both(40, &[], 60, items)
}

async fn call(desk: &Desk, echo: Echo) -> Result<Reply, CallError> {
    desk.client.call(echo.call()).await
}

async fn make(desk: &Desk, echo: Echo) {
    let reply = call(desk, echo).await.unwrap();
    assert!(echo.is_answered(&reply), "a wrong answer to {echo:?}");
}

/// Makes the calls that every kind of connection must support.
pub(crate) async fn few(desk: &Desk) {
    desk.step("NULL").await;
    desk.client.call(null()).await.unwrap();
    desk.step("short call and reply").await;
    make(desk, plain(100, 120)).await;
    desk.step("WRITE of 1 MiB").await;
    make(desk, write(LENGTHS[3].1)).await;
    desk.step("READ of 1 MiB").await;
    make(desk, read(LENGTHS[3].1)).await;
    desk.step("long call and long reply").await;
    make(desk, plain(LONG, LONG)).await;
}

/// Makes all kinds of calls.
pub(crate) async fn all(desk: Desk) {
    desk.step("NULL").await;
    desk.client.call(null()).await.unwrap();
    desk.step("short call and reply").await;
    make(&desk, plain(100, 120)).await;
    for (name, items) in LENGTHS {
        desk.step(&format!("WRITE of {name}")).await;
        make(&desk, write(items)).await;
    }
    for (name, items) in LENGTHS {
        desk.step(&format!("READ of {name}")).await;
        make(&desk, read(items)).await;
    }
    let kinds = [
        ("two items each way", both(40, TWO, 60, TWO)),
        ("long call", plain(LONG, 60)),
        ("long call with an item", both(LONG, ONE, 60, &[])),
        ("long reply", plain(40, LONG)),
        ("long reply with an item", both(40, &[], LONG, ONE)),
        ("long call and long reply", plain(LONG, LONG)),
    ];
    for (name, echo) in kinds {
        desk.step(name).await;
        make(&desk, echo).await;
    }
    desk.step("more calls at a time than there are credits")
        .await;
    let kinds = [plain(100, 120), write(ONE), plain(20, 20), read(ONE)];
    join_all(kinds.repeat(3).into_iter().map(|echo| make(&desk, echo))).await;
    refused(&desk).await;
    lost(&desk).await;
    cancelled(&desk).await;
}

/// Makes calls whose replies exceed the announced size. Without features, the server answers with
/// an error; with them, it sends a reply that can be placed or continued nevertheless.
async fn refused(desk: &Desk) {
    let kinds = [
        ("reply item longer than its chunk", read(ONE)),
        ("reply longer than its chunk", plain(40, LONG)),
        ("reply of 1 MiB longer than its chunk", read(LENGTHS[3].1)),
    ];
    for (name, echo) in kinds {
        desk.step(name).await;
        let ended = call(desk, Echo { short: 64, ..echo }).await;
        let right = match &ended {
            Ok(reply) => echo.is_answered(reply),
            Err(error) => matches!(error, CallError::Chunk(_)),
        };
        assert!(right, "{name}: {:?}", ended.err());
    }
}

/// Loses the connection while calls are outstanding, which are then retransmitted on the next one.
async fn lost(desk: &Desk) {
    desk.step("connection lost, and calls sent again").await;
    let kinds = [plain(100, 120), write(ONE), read(ONE)];
    let calls = join_all(kinds.into_iter().map(|echo| make(desk, echo)));
    let lose = async {
        desk.runtime.sleep(SOON).await;
        desk.fabric.lose_one();
    };
    futures_util::future::join(calls, lose).await;
}

/// Cancels calls while the server has them, and makes another call after each.
async fn cancelled(desk: &Desk) {
    let kinds = [
        ("cancelled short call", plain(100, 120)),
        ("cancelled WRITE", write(ONE)),
        ("cancelled READ", read(ONE)),
        ("cancelled long call and long reply", plain(LONG, LONG)),
    ];
    for (name, echo) in kinds {
        desk.step(name).await;
        let given_up = desk.runtime.timeout(SOON, call(desk, echo)).await;
        assert!(given_up.is_err(), "{name} was answered too early");
        desk.step(&format!("the call after the {name}")).await;
        make(desk, plain(100, 120)).await;
    }
}

/// In version 2, enlarges the receives of both ends, so that messages that were too long are sent
/// inline, and then reduces the server's again. An end announces a change when the last receive of
/// the old size is used, so calls are made in between.
pub(crate) async fn resized(desk: Desk) {
    let conn = desk.port.borrow().connections().next().unwrap();
    let changes: [(&str, Change, u32); 3] = [
        (
            "the client's receives become longer",
            RdmaClient::raise_receive_size,
            LONGER_RECEIVES,
        ),
        (
            "the server is asked for longer receives",
            RdmaClient::request_receive_size,
            LONGER_RECEIVES,
        ),
        (
            "the server is asked for shorter receives",
            RdmaClient::request_receive_size,
            RdmaOptions::DEFAULT_INLINE,
        ),
    ];
    desk.step("long call and long reply").await;
    make(&desk, plain(LONG, LONG)).await;
    for (name, change, size) in changes {
        desk.step(name).await;
        change(&mut desk.port.borrow_mut(), conn, size).unwrap();
        for _ in 0..CALLS_BETWEEN {
            desk.client.call(null()).await.unwrap();
        }
        desk.step(&format!("{name}: long call and long reply"))
            .await;
        make(&desk, plain(LONG, LONG)).await;
    }
}

/// Makes the server call the client. `lens` are the data lengths of callbacks and their replies.
pub(crate) async fn callbacks(desk: &Desk, lens: &[u32]) {
    for (ticket, &len) in (1..).zip(lens) {
        desk.step(&format!("callbacks of {len} bytes")).await;
        let order = Order {
            count: 3,
            at_a_time: 2,
            call_len: len,
            reply_len: len,
            ..Order::default()
        };
        let tally = run(&desk.client, ticket, order).await.unwrap();
        assert_eq!(tally.answered, order.count, "{tally:?}");
    }
}
