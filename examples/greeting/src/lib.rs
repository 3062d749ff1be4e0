//! An example of what a program adds to the `rpcrdma` command: an extension of the working group's
//! version 2 by which each end greets the other, a policy of granting half of the credits, and a
//! setting, and calls of an RPC program. `src/main.rs` is the program.

#![forbid(unsafe_code)]

mod program;

pub use program::Greet;

use bytes::Bytes;
use rpcrdma::{Demand, Effect, GrantEvent, GrantPolicy, MakeGrantPolicy, Setting, Side, Unit};
use rpcrdma_extension::{
    EndConfig, Extension, ExtensionFactory, Outbox, Property, ReceivedMessage, Refusal,
};

/// The property, of those for experiments: a greeting of any length.
pub const GREETING: u32 = 0xffff_ffa0;

/// The length of the greeting of this end.
pub static LENGTH: Setting = Setting {
    name: "greeting-length",
    unit: Unit::Bytes,
    bounds: (1, 512),
    step: 1,
    help: "Length of the greeting that this end sends with --features greeting",
    effect: Effect::Own { default: 16 },
};

/// Makes the extension of each connection, and is its state as well.
#[derive(Clone, Debug)]
pub struct Greeting {
    /// The length of this end's greeting in bytes.
    pub length: usize,
}

impl ExtensionFactory for Greeting {
    fn make(&self, _: &EndConfig<'_>) -> Option<Box<dyn Extension>> {
        Some(Box::new(self.clone()))
    }
}

impl Extension for Greeting {
    fn name(&self) -> &'static str {
        "greeting"
    }

    fn numbers(&self) -> &[u32] {
        &[]
    }

    fn properties(&self) -> Vec<Property> {
        let value = Bytes::from(vec![b'!'; self.length]);
        vec![Property {
            id: GREETING,
            value,
        }]
    }

    fn property_received(&mut self, property: &Property, _: &mut Outbox<'_>) {
        if property.id == GREETING {
            let bytes = property.value.len();
            tracing::info!(bytes, "the peer has sent a greeting");
        }
    }

    fn received(&mut self, _: &ReceivedMessage<'_>, _: &mut Outbox<'_>) -> Result<(), Refusal> {
        Err(Refusal::Unsupported)
    }
}

/// Grants half of the credits for which there are receives.
#[derive(Clone, Copy, Debug)]
pub struct Half;

impl GrantPolicy for Half {
    fn credits(&mut self, _: GrantEvent, demand: &Demand) -> u32 {
        demand.most / 2
    }
}

impl MakeGrantPolicy for Half {
    fn make(&self, _: Side) -> Box<dyn GrantPolicy> {
        Box::new(*self)
    }
}
