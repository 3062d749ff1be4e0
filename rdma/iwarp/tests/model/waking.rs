//! Sleeping and waking: no wake-up is lost, and interrupts are counted correctly.

use bytes::Bytes;
use rdma::{QpId, WrId};

use super::world::{CLIENT, SERVER, World};

/// Exchanges messages in both directions; both sides sleep in between.
fn ping_pong(world: &mut World, qps: [QpId; 2], rounds: u64) {
    for n in 0..rounds {
        for (from, text) in [(CLIENT, &b"ping"[..]), (SERVER, b"pong")] {
            // Both sides are one thread, and some devices deliver before the sender has returned,
            // so the receiver must fall asleep first.
            world.fall_asleep(1 - from);
            let wr = rdma::SendWr::Send {
                gather: std::iter::once(Bytes::from_static(text)).collect(),
                invalidate: None,
            };
            world
                .device(from)
                .post_send(qps[from], WrId(n), wr, false)
                .unwrap();
            assert_eq!(world.receive(1 - from, qps[1 - from]), text);
            let buf = world.device(1 - from).pool().alloc(64).unwrap();
            world
                .device(1 - from)
                .post_receive(qps[1 - from], WrId(1000), buf.into())
                .unwrap();
        }
    }
}

#[test]
fn no_wake_up_is_lost_and_each_is_counted() {
    let mut world = World::new();
    let qps = world.connected(3, 64);
    ping_pong(&mut world, qps, 2);
    let before = [world.counters(CLIENT), world.counters(SERVER)];
    ping_pong(&mut world, qps, 1000);
    for side in [CLIENT, SERVER] {
        let interrupts = world.counters(side).interrupts - before[side].interrupts;
        // One interrupt for each message that did not arrive before the sleep.
        assert!((1..=1000).contains(&interrupts), "{interrupts}");
    }
    world.close(qps);
}

#[test]
fn busy_polling_needs_no_interrupt() {
    let mut world = World::new();
    world.busy = true;
    for side in [CLIENT, SERVER] {
        world.device(side).set_busy_poll(true);
    }
    let qps = world.connected(3, 64);
    ping_pong(&mut world, qps, 200);
    assert_eq!(world.counters(CLIENT).interrupts, 0);
    assert_eq!(world.counters(SERVER).interrupts, 0);
    world.close(qps);
}

#[test]
fn a_side_that_did_not_poll_finds_its_events() {
    let mut world = World::new();
    let qps = world.connected(8, 64);
    for _ in 0..5 {
        world.send(CLIENT, qps[CLIENT], 1, &[Bytes::from_static(b"while away")]);
        world
            .device(CLIENT)
            .poll(rdma::Time::now(), &mut Default::default());
    }
    std::thread::sleep(std::time::Duration::from_millis(50));
    for _ in 0..5 {
        assert_eq!(world.receive(SERVER, qps[SERVER]), &b"while away"[..]);
    }
    world.close(qps);
}
