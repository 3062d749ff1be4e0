//! Which characteristics this end understands (sections 2.1, 2.2 and 6.1).

use std::collections::BTreeMap;

use rpcrdma_v2::Malformed;
use rpcrdma_v2::extension::Property;

use crate::known::{BackwardRequestSupport, ReceiveBufferSize, RequesterRemoteInvalidation};
use crate::{Characteristic, EXPERIMENTAL};

/// The number of a characteristic is another one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{second} has the number {id}, which is {first}'s")]
pub struct IdTaken {
    /// The number.
    pub id: u32,
    /// Who had it.
    pub first: &'static str,
    /// Who wants it.
    pub second: &'static str,
}

/// What is known of a characteristic whose type is not known here.
#[derive(Clone, Copy, Debug)]
struct Kind {
    name: &'static str,
    check: fn(&[u8]) -> Result<(), Malformed>,
    describe: fn(&[u8]) -> Option<String>,
}

/// The characteristics that are understood. Open: other crates add theirs, before connections are
/// made.
#[derive(Clone, Debug)]
pub struct Registry {
    kinds: BTreeMap<u32, Kind>,
}

impl Default for Registry {
    /// With the three that the document defines.
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
    /// Adds a characteristic.
    ///
    /// # Errors
    /// [`IdTaken`].
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

    /// Whether a characteristic is understood.
    #[must_use]
    pub fn knows(&self, id: u32) -> bool {
        self.kinds.contains_key(&id)
    }

    /// Whether a value is what its definition says. One that is not understood always is: it is not
    /// looked at (section 2.1).
    ///
    /// # Errors
    /// It is an XDR error.
    pub fn check(&self, property: &Property) -> Result<(), Malformed> {
        match self.kinds.get(&property.id) {
            Some(kind) => (kind.check)(&property.value),
            None => Ok(()),
        }
    }

    /// A value in words, for logs and `ping -v`.
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
