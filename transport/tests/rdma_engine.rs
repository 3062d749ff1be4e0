//! Client and server ports over devices in one process.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod rdma_support;

use bytes::Bytes;
use rdma_support::{Pair, data, message, open, room};

#[test]
fn calls_of_every_shape_come_back() {
    let (world, mut pair) = Pair::fake();
    pair.echo();
    let conn = pair.connect();
    let mut xid = 0;
    for words in [0, 1, 900, 1015, 1016, 1020, 5000] {
        for lens in [
            &[][..],
            &[1],
            &[3000],
            &[4096],
            &[1 << 20],
            &[5000, 3, 70_000],
        ] {
            xid += 1;
            let items: Vec<Bytes> = lens.iter().map(|&len| data(xid, len)).collect();
            let reply = pair.call(conn, message(xid, words, &items), &room(words, lens));
            assert_eq!(open(&reply.reply()), (xid, words, items));
        }
    }
    assert_eq!(world.borrow().overruns, 0);
}
