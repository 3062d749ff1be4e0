//! The characteristics that the peer announced.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use rpcrdma_extension::Property;

use crate::{Characteristic, Init, MAX_CHARACTERISTICS};

/// Maximum length in bytes of a value to keep. The longest defined value, a receive buffer's
/// structure, takes 16 bytes for each group of segments.
const MAX_VALUE: usize = 4096;

/// The peer's characteristics, including those that this end does not understand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    values: BTreeMap<u32, Bytes>,
    no_change: BTreeSet<u32>,
}

impl Peer {
    /// Returns the value of a characteristic, or its default if the peer did not announce it.
    #[must_use]
    pub fn get<C: Characteristic>(&self) -> C::Value {
        self.said::<C>().unwrap_or_else(C::default_value)
    }

    /// Returns the value of a characteristic, if the peer announced it.
    #[must_use]
    pub fn said<C: Characteristic>(&self) -> Option<C::Value> {
        // Values of registered characteristics were checked on arrival.
        C::from_bytes(self.values.get(&C::ID)?).ok()
    }

    /// Returns all characteristics that the peer announced, in ascending order of their numbers.
    pub fn properties(&self) -> impl Iterator<Item = Property> {
        let values = self.values.iter();
        values.map(|(&id, value)| Property {
            id,
            value: value.clone(),
        })
    }

    /// Returns whether the peer announced that a characteristic will not change.
    #[must_use]
    pub fn is_fixed(&self, id: u32) -> bool {
        self.no_change.contains(&id)
    }

    /// Records the peer's initial announcement. If it has several values for a characteristic, the
    /// last one counts.
    pub(crate) fn begin(&mut self, init: &Init) {
        for (element, property) in init.start.iter().enumerate() {
            self.update(property);
            if init.no_change.contains(element) {
                self.no_change.insert(property.id);
            }
        }
    }

    /// Records a new or changed characteristic. The value is copied, so that it does not hold on to
    /// its receive buffer. Values longer than [`MAX_VALUE`], and new ones beyond the longest
    /// possible list, are dropped.
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
