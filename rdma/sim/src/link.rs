//! The link that carries messages: by its direction, with jitter and losses.

use std::time::Duration;

use super::state::State;
use super::{End, FabricEvent, Link, NodeId, Noise};

/// The way of a message over the link.
pub(super) struct Crossing {
    /// Time that the sender takes to transmit it.
    pub(super) sending: Duration,
    /// Time that the sender takes, later, to transmit lost packets again.
    pub(super) again: Duration,
    /// Bytes on the wire, with framing, and with packets that were sent again.
    pub(super) bytes: u64,
    /// Time from the last bit leaving for the first time until all of the message has arrived.
    pub(super) travel: Duration,
}

impl State {
    /// Returns the link on which a host sends.
    pub(super) fn link(&self, node: NodeId) -> &Link {
        match self.nodes[node.0].listeners.is_empty() {
            true => &self.costs.up,
            false => &self.costs.down,
        }
    }

    /// Returns the delay of what the peer of `end` sends.
    pub(super) fn delay_back(&mut self, end: End) -> Duration {
        let peer = self.qp(end).and_then(|qp| qp.peer);
        peer.map_or(Duration::ZERO, |peer| self.link(peer.node).delay)
    }

    /// Lets a message of `len` bytes cross the link. Random numbers are drawn only if there is noise.
    pub(super) fn cross(&mut self, from: End, len: usize) -> Crossing {
        let framed = self.costs.framed(len);
        let link = *self.link(from.node);
        let mut crossing = Crossing {
            sending: link.sending(framed),
            again: Duration::ZERO,
            bytes: framed as u64,
            travel: link.delay,
        };
        let Noise { jitter, loss, .. } = self.costs.noise;
        if !jitter.is_zero() {
            crossing.travel += self.noise.duration(jitter);
        }
        if loss > 0 {
            self.lose_packets(from, len, &link, &mut crossing);
        }
        crossing
    }

    fn lose_packets(&mut self, from: End, len: usize, link: &Link, crossing: &mut Crossing) {
        let Noise {
            loss, retransmit, ..
        } = self.costs.noise;
        let loss = loss.min(Noise::MAX_LOSS);
        let (header, packet) = (self.costs.header, self.costs.packet.max(1));
        let payload = |at: usize| (len - at * packet).min(packet);
        let mut lost: Vec<usize> = (0..self.costs.packets(len))
            .map(|at| header + payload(at))
            .collect();
        loop {
            lost.retain(|_| self.noise.chance(loss));
            if lost.is_empty() {
                return;
            }
            let bytes = lost.iter().sum();
            let sending = link.sending(bytes);
            crossing.again += sending;
            crossing.bytes += bytes as u64;
            crossing.travel += retransmit + sending;
            self.retransmissions += lost.len() as u64;
            self.note(&FabricEvent::SentAgain(from, lost.len()));
        }
    }
}
