//! The definition of a characteristic (sections 2.1 and 6).

use std::fmt;
use std::ops::RangeInclusive;

use bytes::BytesMut;
use rpcrdma_extension::Property;
use rpcrdma_v2::{Malformed, Reader};

/// Range of characteristic numbers for experimental use (section 6.2).
pub const EXPERIMENTAL: RangeInclusive<u32> = 4_294_967_040..=4_294_967_295;

/// A kind of characteristic, represented by a type: its number, the type of its values and their
/// XDR encoding. The implementing types themselves have no values.
pub trait Characteristic: 'static {
    /// Type of the values.
    type Value: Clone + fmt::Debug + PartialEq;

    /// `xcharid`: the number of the characteristic.
    const ID: u32;

    /// Name of the characteristic, for logs.
    const NAME: &'static str;

    /// Returns the value to assume for a peer that did not announce the characteristic or sent an
    /// invalid value (section 3).
    fn default_value() -> Self::Value;

    /// Appends a value as XDR.
    fn encode(value: &Self::Value, out: &mut BytesMut);

    /// Decodes a value. Bytes after the value are an error, which [`Characteristic::from_bytes`]
    /// checks.
    ///
    /// # Errors
    /// [`Malformed`] if the value does not match its XDR definition.
    fn decode(from: &mut Reader<'_>) -> Result<Self::Value, Malformed>;

    /// Returns a value with its number, in the form in which an
    /// [`Extension`](rpcrdma_extension::Extension) announces it.
    #[must_use]
    fn property(value: &Self::Value) -> Property {
        let mut out = BytesMut::new();
        Self::encode(value, &mut out);
        Property {
            id: Self::ID,
            value: out.freeze(),
        }
    }

    /// Decodes a value from `bytes`, which must hold nothing else.
    ///
    /// # Errors
    /// [`Malformed`] if `bytes` are not a valid value (section 2.1).
    fn from_bytes(bytes: &[u8]) -> Result<Self::Value, Malformed> {
        Reader::whole(bytes, Self::decode)
    }
}
