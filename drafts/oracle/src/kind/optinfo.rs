//! The common parts of all extensions: operations, whose information is read to its end, and
//! characteristics.

use bytes::{Bytes, BytesMut};
use rpcrdma_ext_xchar::Characteristic;

use super::{Codec, Refused};
use crate::show::Json;

/// Implements [`Codec`] for an operation, whose information is read to its end.
macro_rules! operation {
    ($operation:ty, $xdr:literal, $show:expr) => {
        impl $crate::kind::Codec for $operation {
            type Value = Self;
            const XDR: &'static str = $xdr;

            fn encode(value: &Self) -> bytes::Bytes {
                value.encode()
            }

            fn decode(bytes: &bytes::Bytes) -> Result<(Self, usize), $crate::kind::Refused> {
                Ok((<$operation>::decode(bytes)?, bytes.len()))
            }

            fn show(value: &Self, json: &mut $crate::show::Json) {
                json.object(|to| $show(value, to));
            }
        }
    };
}

pub(super) use operation;

/// The codec of a characteristic's value.
pub(super) struct Value<C>(std::marker::PhantomData<C>);

/// The parts of a [`Codec`] that a characteristic has to define.
pub(super) trait Shown: Characteristic {
    /// The name of its XDR type.
    const XDR: &'static str;

    /// Shows the value by the names of its fields.
    fn show(value: &Self::Value, json: &mut Json);
}

impl<C: Shown> Codec for Value<C> {
    type Value = C::Value;
    const XDR: &'static str = C::XDR;

    fn encode(value: &C::Value) -> Bytes {
        let mut out = BytesMut::new();
        C::encode(value, &mut out);
        out.freeze()
    }

    fn decode(bytes: &Bytes) -> Result<(C::Value, usize), Refused> {
        Ok((C::from_bytes(bytes)?, bytes.len()))
    }

    fn show(value: &C::Value, json: &mut Json) {
        C::show(value, json);
    }
}
