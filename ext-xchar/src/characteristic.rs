//! What a characteristic is (sections 2.1 and 6).

use std::fmt;
use std::ops::RangeInclusive;

use bytes::BytesMut;
use rpcrdma_v2::extension::Property;
use rpcrdma_v2::{Malformed, Reader};

/// Numbers of characteristics that are tried out (section 6.2).
pub const EXPERIMENTAL: RangeInclusive<u32> = 4_294_967_040..=4_294_967_295;

/// A kind of characteristic, as a type: its number, the type of its values and their XDR. The types
/// that implement it have no values themselves.
pub trait Characteristic: 'static {
    /// Its values.
    type Value: Clone + fmt::Debug + PartialEq;

    /// `xcharid`.
    const ID: u32;

    /// Its name, for logs.
    const NAME: &'static str;

    /// What is assumed of a peer that said nothing, or that cannot be understood (section 3).
    fn default_value() -> Self::Value;

    /// Appends a value as XDR.
    fn encode(value: &Self::Value, out: &mut BytesMut);

    /// Reads a value. What follows it is an error, and need not be looked for here.
    ///
    /// # Errors
    /// It is not what its XDR definition says.
    fn decode(from: &mut Reader<'_>) -> Result<Self::Value, Malformed>;

    /// A value with its number, as an [`Extension`](rpcrdma_v2::extension::Extension) announces it.
    #[must_use]
    fn property(value: &Self::Value) -> Property {
        let mut out = BytesMut::new();
        Self::encode(value, &mut out);
        Property {
            id: Self::ID,
            value: out.freeze(),
        }
    }

    /// The value in these bytes, which hold nothing else.
    ///
    /// # Errors
    /// They do not hold one (section 2.1).
    fn from_bytes(bytes: &[u8]) -> Result<Self::Value, Malformed> {
        Reader::whole(bytes, Self::decode)
    }
}
