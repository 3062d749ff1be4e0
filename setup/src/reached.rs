//! A client that is connected to a server, and what its connections say of themselves.

use std::cell::RefCell;
use std::rc::Rc;

use rdma::{Counters, Pool};
use rdma_core::Registration;
use rpc_transport::rdma::{Properties, RdmaClient, VersionAction};
use rpc_transport::{Client, ClientLoops, Runtime, TcpClient, TcpCounters, TransportStatistics};
use rpcrdma_extension::FeatureValue;
use serde_json::{Value, json};

/// The transport of a client, which is kept for its counters.
#[derive(Clone)]
pub(crate) enum Port {
    Tcp(Rc<RefCell<TcpClient>>),
    Rdma(Rc<RefCell<RdmaClient>>),
    /// TCP, driven by several threads.
    TcpLoops(Rc<RefCell<ClientLoops<TcpClient>>>),
    /// RPC-over-RDMA, driven by several threads, each with a device.
    RdmaLoops(Rc<RefCell<ClientLoops<RdmaClient>>>),
}

impl Port {
    /// Calls `question` for each RDMA transport and returns the answers. Over TCP there are none.
    fn ask_rdma<R: Send + 'static>(&self, question: fn(&RdmaClient) -> R) -> Vec<R> {
        match self {
            Self::Tcp(_) | Self::TcpLoops(_) => Vec::new(),
            Self::Rdma(port) => vec![question(&port.borrow())],
            Self::RdmaLoops(loops) => loops.borrow().ask(question),
        }
    }
}

/// A client that is connected to a server.
pub struct Reached {
    /// The runtime (of `rpc_transport`) that drives the client.
    pub runtime: Runtime,
    /// The client.
    pub client: Client,
    pub(crate) port: Port,
    pub(crate) pool: Pool,
    pub(crate) registration: Option<Registration>,
}

impl Reached {
    /// Returns the pool from whose memory the transport sends without a copy.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns the name of the device, or `None` for TCP.
    pub fn device_name(&self) -> Option<String> {
        let name = |port: &RdmaClient| port.device().attributes().name.clone();
        self.port.ask_rdma(name).pop()
    }

    /// Returns the method by which the device registers memory for the server, or `None` for TCP.
    pub fn registration(&self) -> Option<&'static str> {
        self.registration.map(Registration::name)
    }

    /// Returns for each RDMA connection its version and the features that may be used on it, with
    /// the reasons. In the working group's version 2, the properties of both ends follow. Equal texts
    /// are merged into one, which begins with the number of connections.
    pub fn decisions(&self) -> Vec<String> {
        merged(self.port.ask_rdma(decisions_of).concat())
    }

    /// Returns the same as [`Reached::decisions`] in JSON, with the number of connections of each kind.
    pub fn decisions_json(&self) -> Vec<Value> {
        let texts = self.port.ask_rdma(decisions_json_of).concat();
        let counted = counted(texts).into_iter().map(|(count, mut described)| {
            described["connections"] = count.into();
            described
        });
        counted.collect()
    }

    /// Returns the number of messages that only granted credits, sent on the connections that exist
    /// now.
    pub fn grants_sent(&self) -> u64 {
        self.port.ask_rdma(RdmaClient::grants_sent).iter().sum()
    }

    /// Returns the greatest number of credits that one of the connections has taken at the same time,
    /// or `None` for TCP.
    pub fn most_credits(&self) -> Option<u32> {
        let most = |port: &RdmaClient| {
            let counters = port
                .connections()
                .filter_map(|conn| port.requester_counters(conn));
            counters.map(|counters| counters.most_in_flight).max()
        };
        self.port.ask_rdma(most).into_iter().flatten().max()
    }

    /// Returns the bytes of the receives of all connections over RDMA if the server uses all that it ever
    /// could at a time.
    pub fn receive_memory(&self) -> u64 {
        self.port.ask_rdma(RdmaClient::receive_memory).iter().sum()
    }

    /// Returns what tells what the transport has counted, and what it holds. It is for the thread of the
    /// client.
    pub fn observer(&self) -> impl Fn() -> TransportStatistics + 'static {
        let port = self.port.clone();
        move || {
            let each = match &port {
                Port::Tcp(port) => vec![port.borrow().statistics()],
                Port::TcpLoops(loops) => loops.borrow().ask(TcpClient::statistics),
                rdma => rdma.ask_rdma(RdmaClient::statistics),
            };
            let mut sum = TransportStatistics::default();
            each.into_iter().for_each(|it| sum += it);
            sum
        }
    }

    /// Returns the counters of the device, or of TCP.
    pub fn counters(&self) -> Counters {
        match &self.port {
            Port::Tcp(port) => port.borrow().counters().as_device(),
            Port::TcpLoops(loops) => {
                let each = loops.borrow().ask(TcpClient::counters);
                each.iter().map(TcpCounters::as_device).sum()
            }
            rdma => rdma.ask_rdma(RdmaClient::counters).into_iter().sum(),
        }
    }
}

/// Returns for each connection its version and features, as [`Reached::decisions`] does.
fn decisions_of(port: &RdmaClient) -> Vec<String> {
    let described = |conn| {
        let (decision, features) = (port.decision(conn)?, port.features(conn)?);
        let mut text = format!("RPC-over-RDMA {decision}\n{features}");
        if let Some((own, peer)) = port.properties(conn) {
            text.push_str(&format!("\nproperties of this end: {own}"));
            text.push_str(&match peer {
                Some(peer) => format!("\nproperties of the server: {peer}"),
                None => "\nproperties of the server: not arrived".to_owned(),
            });
        }
        Some(text)
    };
    port.connections().filter_map(described).collect()
}

/// Returns for each connection its version, features and properties in JSON.
fn decisions_json_of(port: &RdmaClient) -> Vec<Value> {
    let described = |conn| {
        let (decision, features) = (port.decision(conn)?, port.features(conn)?);
        let version = match decision.action {
            VersionAction::Use(version) | VersionAction::Reconnect(version) => Some(version.name()),
            VersionAction::GiveUp => None,
        };
        let features = features.iter().map(|feature| {
            let value = match feature.value {
                FeatureValue::InUse(used) => used.into(),
                FeatureValue::Bytes(bytes) => bytes.into(),
                // Any number.
                FeatureValue::UpTo(u32::MAX) => Value::Null,
                FeatureValue::UpTo(most) => most.into(),
                FeatureValue::Text(text) => text.into(),
            };
            json!({"name": feature.name, "value": value, "reason": feature.reason.to_string()})
        });
        let mut described = json!({
            "version": version,
            "reason": decision.reason.to_string(),
            "features": features.collect::<Vec<_>>(),
        });
        if let Some((own, peer)) = port.properties(conn) {
            described["properties"] = properties_json(&own);
            described["server_properties"] =
                peer.map_or(Value::Null, |peer| properties_json(&peer));
        }
        Some(described)
    };
    port.connections().filter_map(described).collect()
}

fn properties_json(properties: &Properties) -> Value {
    json!({
        "send_size": properties.send_size,
        "receive_size": properties.receive_size,
        "segment_size": properties.segment_size,
        "segment_count": properties.segment_count,
    })
}

/// Counts equal values, in the order of their first occurrence.
fn counted<T: PartialEq>(values: Vec<T>) -> Vec<(usize, T)> {
    let mut counted: Vec<(usize, T)> = Vec::new();
    for value in values {
        match counted.iter_mut().find(|(_, known)| *known == value) {
            Some((count, _)) => *count += 1,
            None => counted.push((1, value)),
        }
    }
    counted
}

/// Merges equal texts, in the order of their first occurrence. A text that occurs several times is prefixed with
/// the number of connections.
fn merged(texts: Vec<String>) -> Vec<String> {
    let counted = counted(texts).into_iter().map(|(count, text)| match count {
        1 => text,
        _ => format!("{count} connections: {text}"),
    });
    counted.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_merged_with_their_number() {
        let texts = ["one", "two", "one"].map(str::to_owned);
        assert_eq!(merged(texts.to_vec()), ["2 connections: one", "two"]);
    }
}
