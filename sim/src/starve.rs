//! Credit starvation: grants that shrink, down to 0, and grow again (RFC 8166, section 3.3.1).
//!
//! Connections of the working group's version 2 are left alone. Their credit values are limits that
//! an end remembers and never takes back, so a smaller value on the wire would be a fault that no
//! network has.

use std::collections::BTreeSet;

use bytes::BytesMut;
use rdma::middleware::Edited;
use rdma::{Device, QpId, SendWr, Time};
use rdma_sim::{Fabric, Random, SimDevice};

use crate::message::{self, CREDITS, Meaning, Rules, read};
use crate::sends::is_wg;

/// The rate and end of reduced grants.
#[derive(Clone, Debug)]
pub(crate) struct Starvation {
    /// The number of messages per million granting messages whose grant is replaced by a smaller
    /// one.
    pub(crate) parts: u32,
    /// The time after which grants are as intended.
    pub(crate) heal_at: Time,
    pub(crate) random: Random,
}

/// Wraps a device so that some grants are reduced.
pub(crate) fn starving(device: SimDevice, fabric: &Fabric, how: Starvation) -> Box<dyn Device> {
    let Starvation {
        parts,
        heal_at,
        mut random,
    } = how;
    if parts == 0 {
        return Box::new(device);
    }
    let fabric = fabric.clone();
    let mut wg = BTreeSet::new();
    Box::new(Edited::new(device, move |qp: QpId, wr: &mut SendWr| {
        if let SendWr::Send { gather, .. } = wr
            && let Some(start) = message::sent(gather)
            && is_wg(&start)
        {
            wg.insert(qp);
        }
        if let SendWr::Send { gather, .. } = wr
            && fabric.now() < heal_at
            && random.chance(parts)
            && let Some(start) = message::sent(gather)
            && !wg.contains(&qp)
            && let Ok((_, Meaning::Answer(credits))) = read(&start, Rules::Calls)
            // The header is in the first piece.
            && let Some(header) = gather.first_mut()
        {
            let fewer = random.below(u64::from(credits) + 1) as u32;
            let mut changed = BytesMut::from(&header[..]);
            changed[CREDITS].copy_from_slice(&fewer.to_be_bytes());
            *header = changed.freeze();
        }
    }))
}
