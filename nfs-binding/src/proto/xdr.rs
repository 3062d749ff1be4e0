//! The trait for XDR encoding and decoding, and the macros that implement it.

use onc_rpc::{DecodeError, Decoder, Encoder};

/// A protocol value with its encoding in XDR (RFC 4506).
///
/// Unlike a general serialisation trait, this one knows the longest encoding of its type. The reply
/// size estimates that the upper-layer binding must supply to the transport (RFC 8267, section 3)
/// are sums of these.
pub trait Xdr: Sized {
    /// The length of the longest encoding in bytes, without the content of bulk items, which are
    /// held apart. For results that the protocol does not bound, this is the length of the fixed
    /// part.
    const MAX_LEN: u32;

    /// Encodes the value.
    fn encode(&self, out: &mut Encoder);

    /// Decodes a value.
    ///
    /// # Errors
    /// [`DecodeError`] if the stream ends early or contains no valid value of this type.
    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError>;

    /// Decodes the next elements of a linked list of such values, with their links, as far as this type
    /// has a faster way than one by one, and appends them to `list`. The decoder is before a link
    /// afterwards; elements that are invalid, or that this way does not know, are left to `decode`.
    fn decode_some_of_list(_: &mut Decoder<'_>, _: &mut Vec<Self>) {}
}

impl Xdr for () {
    const MAX_LEN: u32 = 0;

    fn encode(&self, _: &mut Encoder) {}

    fn decode(_: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(())
    }
}

impl Xdr for u32 {
    const MAX_LEN: u32 = 4;

    fn encode(&self, out: &mut Encoder) {
        out.u32(*self);
    }

    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        input.u32()
    }
}

impl Xdr for u64 {
    const MAX_LEN: u32 = 8;

    fn encode(&self, out: &mut Encoder) {
        out.u64(*self);
    }

    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        input.u64()
    }
}

impl Xdr for bool {
    const MAX_LEN: u32 = 4;

    fn encode(&self, out: &mut Encoder) {
        out.bool(*self);
    }

    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        input.bool()
    }
}

/// Verifiers: eight bytes of fixed-length opaque data.
impl Xdr for [u8; 8] {
    const MAX_LEN: u32 = 8;

    fn encode(&self, out: &mut Encoder) {
        out.opaque_fixed(self);
    }

    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        // The encoding of an unsigned hyper integer has the same eight bytes.
        Ok(input.u64()?.to_be_bytes())
    }
}

/// Optional data (RFC 4506, section 4.19), and every union of RFC 1813 with a boolean discriminant.
impl<T: Xdr> Xdr for Option<T> {
    const MAX_LEN: u32 = 4 + T::MAX_LEN;

    fn encode(&self, out: &mut Encoder) {
        out.bool(self.is_some());
        if let Some(value) = self {
            value.encode(out);
        }
    }

    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(if input.bool()? {
            Some(T::decode(input)?)
        } else {
            None
        })
    }
}

/// The maximum number of elements that memory is reserved for before they are decoded.
const MAX_RESERVED: u64 = 512;

/// A linked list of optional data, such as directory entries or exports. The protocol does not
/// bound it, so [`Xdr::MAX_LEN`] is that of an empty list. The decoder accepts no more entries than
/// fit in the message.
impl<T: Xdr> Xdr for Vec<T> {
    const MAX_LEN: u32 = 4;

    fn encode(&self, out: &mut Encoder) {
        for entry in self {
            out.bool(true);
            entry.encode(out);
        }
        out.bool(false);
    }

    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let mut list = Self::new();
        while input.bool()? {
            let before = input.position();
            list.push(T::decode(input)?);
            if list.len() == 1 {
                // The others are probably about as long as the first one.
                let len = input.position() - before;
                let expected = input.remaining() / len.max(1);
                list.reserve(expected.min(MAX_RESERVED) as usize);
            }
            T::decode_some_of_list(input, &mut list);
        }
        // Lists in entries of a list would each keep what was reserved for the rest of the message.
        if list.capacity() / 2 > list.len() {
            list.shrink_to_fit();
        }
        Ok(list)
    }
}

/// Returns the length of the encoded `value` in bytes, without the content of bulk items.
#[must_use]
pub fn encoded_len<T: Xdr>(value: &T) -> u64 {
    let mut out = Encoder::new();
    value.encode(&mut out);
    out.finish().payload_len()
}

/// Defines a structure whose fields are encoded one after the other.
macro_rules! xdr_struct {
    ($($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$field_meta:meta])* pub $field:ident: $ty:ty,)*
    })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $ty,)*
        }

        impl $crate::proto::Xdr for $name {
            const MAX_LEN: u32 = 0 $(+ <$ty as $crate::proto::Xdr>::MAX_LEN)*;

            fn encode(&self, out: &mut onc_rpc::Encoder) {
                $($crate::proto::Xdr::encode(&self.$field, out);)*
            }

            fn decode(input: &mut onc_rpc::Decoder<'_>) -> Result<Self, onc_rpc::DecodeError> {
                Ok(Self { $($field: $crate::proto::Xdr::decode(input)?,)* })
            }
        }

        #[cfg(test)]
        impl quickcheck::Arbitrary for $name {
            fn arbitrary(g: &mut quickcheck::Gen) -> Self {
                Self { $($field: quickcheck::Arbitrary::arbitrary(g),)* }
            }
        }
    )*};
}

/// Defines an enumeration. Any other value on the wire is an error.
macro_rules! xdr_enum {
    ($($(#[$meta:meta])* pub enum $name:ident($what:literal) {
        $($(#[$variant_meta:meta])* $variant:ident = $value:literal,)*
    })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum $name {
            $($(#[$variant_meta])* $variant = $value,)*
        }

        impl $crate::proto::Xdr for $name {
            const MAX_LEN: u32 = 4;

            fn encode(&self, out: &mut onc_rpc::Encoder) {
                out.u32(*self as u32);
            }

            fn decode(input: &mut onc_rpc::Decoder<'_>) -> Result<Self, onc_rpc::DecodeError> {
                Self::from_number(input.u32()?)
            }
        }

        impl $name {
            /// Returns the value with a number.
            pub(crate) fn from_number(number: u32) -> Result<Self, onc_rpc::DecodeError> {
                match number {
                    $($value => Ok(Self::$variant),)*
                    value => Err(onc_rpc::DecodeError::Invalid { what: $what, value }),
                }
            }
        }

        #[cfg(test)]
        impl quickcheck::Arbitrary for $name {
            fn arbitrary(g: &mut quickcheck::Gen) -> Self {
                *g.choose(&[$(Self::$variant),*]).expect("an enumeration has variants")
            }
        }
    )*};
}

/// Defines variable-length opaque data with its maximum length. `bulk` marks DDP-eligible data (RFC
/// 8267).
macro_rules! xdr_opaque {
    ($($(#[$meta:meta])* pub struct $name:ident($kind:ident, $max:expr, $max_len:expr);)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub bytes::Bytes);

        impl $crate::proto::Xdr for $name {
            const MAX_LEN: u32 = $max_len;

            fn encode(&self, out: &mut onc_rpc::Encoder) {
                $crate::proto::xdr::$kind::put(out, &self.0);
            }

            fn decode(input: &mut onc_rpc::Decoder<'_>) -> Result<Self, onc_rpc::DecodeError> {
                $crate::proto::xdr::$kind::get(input, $max).map(Self)
            }
        }

        impl From<&[u8]> for $name {
            fn from(bytes: &[u8]) -> Self {
                Self(bytes::Bytes::copy_from_slice(bytes))
            }
        }

        impl From<bytes::Bytes> for $name {
            fn from(bytes: bytes::Bytes) -> Self {
                Self(bytes)
            }
        }

        impl AsRef<[u8]> for $name {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }

        #[cfg(test)]
        impl quickcheck::Arbitrary for $name {
            fn arbitrary(g: &mut quickcheck::Gen) -> Self {
                let mut bytes = Vec::<u8>::arbitrary(g);
                bytes.truncate($max as usize);
                Self(bytes.into())
            }
        }
    )*};
}

pub(super) use {xdr_enum, xdr_opaque, xdr_struct};

/// Encodes and decodes opaque data that stays in the payload.
pub(super) mod opaque {
    pub(crate) fn put(out: &mut onc_rpc::Encoder, data: &bytes::Bytes) {
        out.opaque(data);
    }

    pub(crate) fn get(
        input: &mut onc_rpc::Decoder<'_>,
        max: u32,
    ) -> Result<bytes::Bytes, onc_rpc::DecodeError> {
        input.opaque(max)
    }
}

/// Encodes and decodes opaque data that is held apart, and is short enough to be contiguous.
pub(super) mod bulk {
    pub(crate) fn put(out: &mut onc_rpc::Encoder, data: &bytes::Bytes) {
        out.bulk(data.clone());
    }

    pub(crate) fn get(
        input: &mut onc_rpc::Decoder<'_>,
        max: u32,
    ) -> Result<bytes::Bytes, onc_rpc::DecodeError> {
        Ok(input.bulk(max)?.to_bytes())
    }
}

/// Writes bytes to the front of `out`.
#[inline]
pub(super) fn put(out: &mut &mut [u8], bytes: &[u8]) {
    let (now, later) = std::mem::take(out).split_at_mut(bytes.len());
    now.copy_from_slice(bytes);
    *out = later;
}

/// Formats bytes that are mostly text.
pub(super) fn debug_bytes(
    what: &str,
    bytes: &[u8],
    f: &mut std::fmt::Formatter<'_>,
) -> std::fmt::Result {
    write!(f, "{what}(\"{}\")", bytes.escape_ascii())
}
