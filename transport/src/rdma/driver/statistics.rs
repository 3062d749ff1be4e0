//! Statistics of a driver.

use rpcrdma_connection::agreed::{
    BACKWARD_CALLS, CALL_TRANSMISSIONS, CHARACTERISTICS, FeatureValue, INVALIDATED_HERE,
    INVALIDATED_THERE, PLACED_HERE, PLACED_THERE, REPLY_TRANSMISSIONS,
};
use rpcrdma_connection::{
    AgreedFeatures, Connection, Moved, RequesterCounters, ResponderCounters, Side,
};
use rpcrdma_negotiation::VersionAction;

use super::{CallEvent, Driver};
use crate::statistics::{ConnectionKind, TransportStatistics};

/// The counters of connections that have ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EndedConnections {
    moved: Moved,
    requester: RequesterCounters,
    responder: ResponderCounters,
    grants_sent: u64,
}

impl EndedConnections {
    pub(super) fn add(&mut self, connection: &Connection) {
        self.moved += connection.moved();
        self.requester += connection.requester_counters().unwrap_or_default();
        self.responder += connection.responder_counters().unwrap_or_default();
        self.grants_sent += connection.grants_sent();
    }
}

impl<E: CallEvent> Driver<E> {
    /// Returns what the driver has counted for an end of this side, and what it holds.
    pub(in crate::rdma) fn statistics(&self, side: Side) -> TransportStatistics {
        let mut all = self.ended;
        let mut found = TransportStatistics {
            is_rdma: true,
            counters: self.device.counters(),
            shared_receives: self.shared_receives_now(),
            ..TransportStatistics::default()
        };
        found.counters.copied_bytes += self.copied_bytes();
        for link in self.links.values() {
            let connection = &link.connection;
            all.add(connection);
            found.add_connections(kind(connection, side), 1);
            let (used, limit) = connection.own_credits();
            found.own_credits.0 += u64::from(used);
            found.own_credits.1 += u64::from(limit);
            found.granted_credits += u64::from(connection.expected_messages());
            found.unanswered += connection.unanswered_calls() as u64;
            found.waiting_for_memory += u64::from(connection.waits_for_memory());
            found.send_queues_full += u64::from(link.queue.has_backlog());
            let (receives, bytes) = link.own_receives();
            found.own_receives += receives;
            found.receive_bytes += bytes;
        }
        found.receive_bytes += self.shared_receive_bytes();
        found.moved = all.moved;
        found.requester = all.requester;
        found.responder = all.responder;
        found.grants_sent = all.grants_sent;
        found
    }
}

fn kind(connection: &Connection, side: Side) -> ConnectionKind {
    let version = match connection.decision().map(|it| it.action) {
        Some(VersionAction::Use(version)) => version.name(),
        _ => "",
    };
    let features = connection.features();
    ConnectionKind {
        version,
        features: features.map_or_else(String::new, |it| show(&it, side)),
    }
}

/// Returns the features that spare round trips, in the notation of options, and those that programs
/// have added.
fn show(features: &AgreedFeatures, side: Side) -> String {
    let has = |name| match features.value(name) {
        Some(FeatureValue::InUse(on)) => on,
        Some(FeatureValue::UpTo(most)) => most > 1,
        _ => false,
    };
    let (sent, received) = match side {
        Side::Client => (CALL_TRANSMISSIONS, REPLY_TRANSMISSIONS),
        Side::Server => (REPLY_TRANSMISSIONS, CALL_TRANSMISSIONS),
    };
    let mut shown: Vec<String> = Vec::new();
    for (name, sends, receives) in [
        ("ddp", has(PLACED_THERE), has(PLACED_HERE)),
        ("cont", has(sent), has(received)),
    ] {
        match (sends, receives) {
            (true, true) => shown.push(name.to_owned()),
            (true, false) => shown.push(format!("{name}:send")),
            (false, true) => shown.push(format!("{name}:receive")),
            (false, false) => {}
        }
    }
    let known = [
        CHARACTERISTICS,
        INVALIDATED_HERE,
        INVALIDATED_THERE,
        BACKWARD_CALLS,
        PLACED_THERE,
        PLACED_HERE,
        CALL_TRANSMISSIONS,
        REPLY_TRANSMISSIONS,
    ];
    let added = features.iter().filter(|it| !known.contains(&it.name));
    let added = added.filter(|it| it.value == FeatureValue::InUse(true));
    shown.extend(added.map(|it| it.name.to_owned()));
    match shown.is_empty() {
        true => "none".to_owned(),
        false => shown.join("+"),
    }
}
