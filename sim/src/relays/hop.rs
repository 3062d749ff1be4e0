//! The connections from one process of a run to the next.

use std::fmt;

use rdma_sim::Random;
use rpc_transport::rdma::{
    CallbackOptions, Choice, RdmaClientOptions, RdmaOptions, RdmaServerOptions, Version, Versions,
};

use crate::pairing::Pairing;
use crate::plan::options;

/// The memory for receives of an end that listens, bytes.
const RECEIVE_MEMORY: usize = 16 << 20;

/// The connections from one process to the next.
#[derive(Clone, Debug)]
pub(super) struct Hop {
    pub(super) version: Version,
    /// Whether it is TCP, without a version.
    pub(super) is_tcp: bool,
    /// The calls from server to client on it, at the end that connects and at the one that listens.
    pub(super) callbacks: [CallbackOptions; 2],
    /// The features of both ends.
    pub(super) features: Pairing,
    requester: RdmaOptions,
    responder: RdmaOptions,
}

impl Hop {
    pub(super) fn new(random: &mut Random) -> Self {
        // A Read list of small segments might not fit into a header.
        let segments = |side: RdmaOptions| RdmaOptions {
            max_segment: side.max_segment.max(4096),
            ..side
        };
        Self {
            version: random.pick(&[Version::ONE, Version::TWO, Version::TWO_WG]),
            is_tcp: false,
            callbacks: [CallbackOptions::default(); 2],
            features: Pairing::nth(random.below(Pairing::COUNT as u64)),
            requester: segments(options(random, false)),
            responder: segments(options(random, true)),
        }
    }

    /// Returns how many items a call may hold apart, and have room for in its reply, by the bindings (RFC 8267, section
    /// 6.4.2).
    pub(super) fn max_items(&self) -> usize {
        match self.version == Version::ONE {
            true => 1,
            false => usize::MAX,
        }
    }

    /// Returns the options of the end that connects, if it is one of RDMA.
    pub(super) fn client(&self) -> Option<RdmaClientOptions> {
        let protocols = rpcrdma_protocols::standard(&self.features.client);
        let options = RdmaClientOptions {
            common: RdmaOptions {
                callbacks: self.callbacks[0],
                protocols: protocols.clone(),
                ..self.requester.clone()
            },
            version: Choice::Only(self.version),
            ..RdmaClientOptions::new(protocols)
        };
        Some(options).filter(|_| !self.is_tcp)
    }

    /// Returns the options of the end that listens, if it is one of RDMA.
    pub(super) fn server(&self) -> Option<RdmaServerOptions> {
        let protocols = rpcrdma_protocols::standard(&self.features.server);
        let options = RdmaServerOptions {
            common: RdmaOptions {
                callbacks: self.callbacks[1],
                protocols: protocols.clone(),
                ..self.responder.clone()
            },
            versions: Versions::only(self.version),
            max_receive_memory: RECEIVE_MEMORY,
            ..RdmaServerOptions::new(protocols)
        };
        Some(options).filter(|_| !self.is_tcp)
    }
}

impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (client, server) = (&self.requester, &self.responder);
        if self.is_tcp {
            return f.write_str("TCP");
        }
        let [called, calls] = &self.callbacks;
        if calls.credits > 0 {
            let credits = (called.credits, calls.credits);
            write!(f, "credits {credits:?} for callbacks, ")?;
        }
        write!(
            f,
            "version {} ({}), credits {} and {}, inline {}:{} and {}:{}, segments of {} and {}",
            self.version,
            self.features,
            client.credits,
            server.credits,
            client.inline_send,
            client.inline_receive,
            server.inline_send,
            server.inline_receive,
            client.max_segment,
            server.max_segment,
        )
    }
}
