//! Round trips between two gateways, by count and by the clock: a WRITE of NFS version 4.1 with 8 KiB.

use std::time::{Duration, Instant};

use rpc_transport::rdma::Version;
use rpcrdma_protocols::RoundTripFeatures;

use crate::compounds::opaque;
use crate::support::{Over, words};
use crate::{Ends, ends, ends_apart};

const DATA: usize = 8 << 10;
/// The delay between the gateways in each direction.
const DELAY: Duration = Duration::from_millis(1);
/// The least number of WRITEs that are timed, and the most, of which one has to be undisturbed by other work.
const TIMED: (u32, u32) = (10, 200);

/// Returns a COMPOUND of version 4.1 that writes to a file as Linux does, and its reply, octet by octet.
fn write(xid: u32) -> [Vec<u8>; 2] {
    let session = [0x1234, 0x5678, 0x9abc, 0xdef0];
    // Version 4, COMPOUND, AUTH_NONE, no tag, minor version 1, four operations.
    let mut call = words(&[xid, 0, 2, 100_003, 4, 1, 0, 0, 0, 0, 0, 1, 4]);
    let mut reply = words(&[xid, 1, 0, 0, 0, 0, 0, 0, 4]);
    // SEQUENCE.
    call.extend(words(&[53]));
    call.extend(words(&session));
    call.extend(words(&[xid, 0, 0, 0]));
    reply.extend(words(&[53, 0]));
    reply.extend(words(&session));
    reply.extend(words(&[xid, 0, 30, 30, 0]));
    // PUTFH.
    call.extend(words(&[22]));
    opaque(&mut call, 28, 3);
    reply.extend(words(&[22, 0]));
    // WRITE with a state, at an offset, unstable.
    call.extend(words(&[38, 1, 2, 3, 4, 0, 4096, 0]));
    opaque(&mut call, DATA, 7);
    reply.extend(words(&[38, 0, DATA as u32, 0, 8, 9]));
    // GETATTR of the size.
    call.extend(words(&[9, 1, 1 << 4]));
    reply.extend(words(&[9, 0, 1, 1 << 4]));
    opaque(&mut reply, 8, 5);
    [call, reply]
}

impl Ends {
    /// Passes a WRITE and its reply, and returns the time from call to reply.
    fn write(&mut self, xid: u32) -> Duration {
        let [call, reply] = write(xid);
        let begun = Instant::now();
        self.client.send(&call);
        self.server.expect(&call);
        self.server.send(&reply);
        self.client.expect(&reply);
        begun.elapsed()
    }
}

/// Returns the Sends and RDMA Reads of both gateways together for so many WRITEs, and for the set-up.
fn counted(between: Over, writes: u32) -> [u64; 2] {
    let mut ends = ends(between);
    (0..writes).for_each(|number| {
        ends.write(100 + number);
    });
    let [first, last] = ends.end().try_into().unwrap();
    let (first, last) = (first.counters[1], last.counters[0]);
    assert_eq!(first.rdma_reads + last.rdma_writes, 0, "{between:?}");
    [first.sends + last.sends, last.rdma_reads]
}

/// Checks the round trips of a WRITE: the Sends of each of both gateways, and its RDMA Reads; and that it takes so many
/// round trips by the clock.
fn check(between: Over, sends: u64, reads: u64) {
    let (few, many) = (counted(between, 10), counted(between, 30));
    assert_eq!(few[1], 10 * reads, "{between:?}");
    let more = [many[0] - few[0], many[1] - few[1]];
    assert_eq!(more, [20 * sends, 20 * reads], "{between:?}");
    let round_trips = 1 + u32::try_from(reads).unwrap();
    let round_trip = 2 * DELAY;
    let mut ends = ends_apart(between, DELAY);
    let (least, most) = TIMED;
    let mut fastest = Duration::MAX;
    for number in 0..most {
        let took = ends.write(100 + number);
        assert!(took >= round_trips * round_trip, "{between:?}: {took:?}");
        fastest = fastest.min(took);
        if number >= least && fastest < (round_trips + 1) * round_trip {
            break;
        }
    }
    assert!(
        fastest < (round_trips + 1) * round_trip,
        "{between:?}: {fastest:?}"
    );
    ends.end();
}

#[test]
fn a_write_of_version_4_1_takes_one_round_trip_between_gateways_of_version_2() {
    for version in [Version::TWO, Version::TWO_WG] {
        check(Over::Rdma(version, RoundTripFeatures::ALL), 2, 0);
    }
}

/// The last gateway fetches the data by RDMA Read.
#[test]
fn a_write_of_version_4_1_takes_two_round_trips_between_gateways_of_version_1() {
    check(Over::Rdma(Version::ONE, RoundTripFeatures::default()), 2, 1);
}
