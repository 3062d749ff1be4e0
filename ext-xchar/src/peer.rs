//! What the peer said of itself.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use rpcrdma_v2::extension::Property;

use crate::{Characteristic, Init, MAX_CHARACTERISTICS};

/// Longest value that is kept, bytes. The longest that is defined, a receive buffer's structure,
/// takes 16 for each group of segments.
const MAX_VALUE: usize = 4096;

/// The peer's characteristics, understood here or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    values: BTreeMap<u32, Bytes>,
    no_change: BTreeSet<u32>,
}

impl Peer {
    /// A characteristic's value, or the default of one that the peer did not mention.
    #[must_use]
    pub fn get<C: Characteristic>(&self) -> C::Value {
        self.said::<C>().unwrap_or_else(C::default_value)
    }

    /// A characteristic's value, if the peer mentioned it.
    #[must_use]
    pub fn said<C: Characteristic>(&self) -> Option<C::Value> {
        // Values of what is registered were checked on arrival.
        C::from_bytes(self.values.get(&C::ID)?).ok()
    }

    /// All that the peer mentioned, by their numbers.
    pub fn properties(&self) -> impl Iterator<Item = Property> {
        let values = self.values.iter();
        values.map(|(&id, value)| Property {
            id,
            value: value.clone(),
        })
    }

    /// Whether the peer said that a characteristic is not going to change.
    #[must_use]
    pub fn is_fixed(&self, id: u32) -> bool {
        self.no_change.contains(&id)
    }

    /// Everything at once. Of several values for the same characteristic, the last counts.
    pub(crate) fn begin(&mut self, init: &Init) {
        for (element, property) in init.start.iter().enumerate() {
            self.update(property);
            if init.no_change.contains(element) {
                self.no_change.insert(property.id);
            }
        }
    }

    /// One that is new or has changed. Copied, so that it does not keep the receive it came in. Not
    /// kept is what is longer than anything known, and what is more than any list can have.
    pub(crate) fn update(&mut self, property: &Property) {
        if property.value.len() > MAX_VALUE {
            return;
        }
        if self.values.len() < MAX_CHARACTERISTICS || self.values.contains_key(&property.id) {
            let value = Bytes::copy_from_slice(&property.value);
            self.values.insert(property.id, value);
        }
    }
}
