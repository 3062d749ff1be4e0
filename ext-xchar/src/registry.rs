//! The characteristics that this end understands (sections 2.1, 2.2 and 6.1).

use std::collections::BTreeMap;

use rpcrdma_extension::Property;
use rpcrdma_v2::Malformed;

use crate::known::{BackwardRequestSupport, ReceiveBufferSize, RequesterRemoteInvalidation};
use crate::{Characteristic, EXPERIMENTAL};

/// A characteristic has a number that is already registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{second} has the number {id}, which is {first}'s")]
pub struct IdTaken {
    /// The number.
    pub id: u32,
    /// Name of the characteristic that was registered first.
    pub first: &'static str,
    /// Name of the characteristic that was registered later.
    pub second: &'static str,
}

/// The operations of a registered characteristic, with its type erased.
#[derive(Clone, Copy, Debug)]
struct Kind {
    name: &'static str,
    check: fn(&[u8]) -> Result<(), Malformed>,
    describe: fn(&[u8]) -> Option<String>,
}

/// The set of characteristics that this end understands. Other crates may add theirs before
/// connections are made.
#[derive(Clone, Debug)]
pub struct Registry {
    kinds: BTreeMap<u32, Kind>,
}

impl Default for Registry {
    /// Returns a registry with the three characteristics that the draft defines.
    fn default() -> Self {
        let mut kinds = BTreeMap::new();
        kinds.insert(ReceiveBufferSize::ID, kind::<ReceiveBufferSize>());
        let invalidation = kind::<RequesterRemoteInvalidation>();
        kinds.insert(RequesterRemoteInvalidation::ID, invalidation);
        kinds.insert(BackwardRequestSupport::ID, kind::<BackwardRequestSupport>());
        Self { kinds }
    }
}

impl Registry {
    /// Registers a characteristic.
    ///
    /// # Errors
    /// [`IdTaken`] if its number is already registered.
    pub fn register<C: Characteristic>(&mut self) -> Result<(), IdTaken> {
        let added = kind::<C>();
        if let Some(first) = self.kinds.get(&C::ID) {
            return Err(IdTaken {
                id: C::ID,
                first: first.name,
                second: added.name,
            });
        }
        self.kinds.insert(C::ID, added);
        Ok(())
    }

    /// Returns whether a characteristic is understood.
    #[must_use]
    pub fn knows(&self, id: u32) -> bool {
        self.kinds.contains_key(&id)
    }

    /// Checks that a value matches its XDR definition. A value of an unknown characteristic is
    /// accepted without a check (section 2.1).
    ///
    /// # Errors
    /// [`Malformed`] if the value does not match.
    pub fn check(&self, property: &Property) -> Result<(), Malformed> {
        match self.kinds.get(&property.id) {
            Some(kind) => (kind.check)(&property.value),
            None => Ok(()),
        }
    }

    /// Formats a value, for logs and `ping -v`.
    #[must_use]
    pub fn describe(&self, property: &Property) -> String {
        let Property { id, value } = property;
        let known = self.kinds.get(id);
        if let Some((kind, value)) = known.and_then(|kind| Some((kind, (kind.describe)(value)?))) {
            return format!("{} {value}", kind.name);
        }
        let range = match EXPERIMENTAL.contains(id) {
            true => "experimental",
            false => "unknown",
        };
        format!("{range} characteristic {id} ({} B)", value.len())
    }
}

fn kind<C: Characteristic>() -> Kind {
    Kind {
        name: C::NAME,
        check: |bytes| C::from_bytes(bytes).map(|_| ()),
        describe: |bytes| C::from_bytes(bytes).ok().map(|value| format!("{value:?}")),
    }
}
