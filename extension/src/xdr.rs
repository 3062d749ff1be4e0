//! Fields of extensions in XDR (RFC 4506): a structure is written once, with the names of its `.x` file, and
//! has its codec from that.
//!
//! ```
//! use rpcrdma_extension::xdr::Structure;
//!
//! rpcrdma_extension::xdr_struct! {
//!     /// The fields of RDMA2_MINE.
//!     pub struct Mine = "rpcrdma2_hdr_mine" {
//!         /// A number of the caller.
//!         pub number: u32 = "rdma_number",
//!         /// A text.
//!         pub text: bytes::Bytes = "rdma_text",
//!     }
//! }
//!
//! let mine = Mine { number: 7, text: "hello".into() };
//! assert_eq!(&mine.encode()[..], b"\0\0\0\x07\0\0\0\x05hello\0\0\0");
//! assert_eq!(Mine::decode(&mine.encode())?, mine);
//! # Ok::<_, rpcrdma_chunks::Malformed>(())
//! ```
//!
//! The names are for comparing the codec with its `.x` file, and for showing values ([`Xdr::show`]).

use bytes::{BufMut as _, Bytes, BytesMut};
use onc_rpc::pad;
use rpcrdma_chunks::{Malformed, Reader};

/// A value that has an encoding in XDR.
pub trait Xdr: Sized {
    /// Appends the encoding.
    fn encode_into(&self, to: &mut BytesMut);

    /// Decodes a value. Takes no more memory than its encoding has bytes, but for a constant factor.
    ///
    /// # Errors
    /// [`Malformed`]: the bytes do not match the definition.
    fn decode_from(from: &mut Reader<'_>) -> Result<Self, Malformed>;

    /// Returns the value by the names of its fields.
    fn show(&self) -> Shown;

    /// Makes a value of arbitrary numbers, for tests.
    fn arbitrary(next: &mut dyn FnMut() -> u32) -> Self;
}

/// A structure of an `.x` file, which [`xdr_struct!`](crate::xdr_struct) defines.
pub trait Structure: Xdr {
    /// The name of the structure in the `.x` file.
    const NAME: &'static str;

    /// Returns the encoding.
    #[must_use]
    fn encode(&self) -> Bytes {
        let mut to = BytesMut::new();
        self.encode_into(&mut to);
        to.freeze()
    }

    /// Decodes a value that fills `bytes`.
    ///
    /// # Errors
    /// [`Malformed`]: the bytes do not match the definition, or some follow.
    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        Reader::whole(bytes, Self::decode_from)
    }
}

/// A value by the names of its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// `unsigned int`.
    Number(u32),
    /// `unsigned hyper`.
    Wide(u64),
    /// `bool`.
    Boolean(bool),
    /// `opaque`, of a fixed length or any.
    Bytes(Bytes),
    /// The elements of an array.
    List(Vec<Shown>),
    /// Optional data.
    Optional(Option<Box<Shown>>),
    /// The fields of a structure, each with its name.
    Fields(Vec<(&'static str, Shown)>),
}

impl Xdr for u32 {
    fn encode_into(&self, to: &mut BytesMut) {
        to.put_u32(*self);
    }

    fn decode_from(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        from.u32()
    }

    fn show(&self) -> Shown {
        Shown::Number(*self)
    }

    /// Makes a number of any magnitude.
    fn arbitrary(next: &mut dyn FnMut() -> u32) -> Self {
        next() >> (next() % 32)
    }
}

impl Xdr for u64 {
    fn encode_into(&self, to: &mut BytesMut) {
        to.put_u64(*self);
    }

    fn decode_from(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        from.u64()
    }

    fn show(&self) -> Shown {
        Shown::Wide(*self)
    }

    fn arbitrary(next: &mut dyn FnMut() -> u32) -> Self {
        (u64::from(next()) << 32 | u64::from(next())) >> (next() % 64)
    }
}

impl Xdr for bool {
    fn encode_into(&self, to: &mut BytesMut) {
        to.put_u32(u32::from(*self));
    }

    fn decode_from(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        from.boolean()
    }

    fn show(&self) -> Shown {
        Shown::Boolean(*self)
    }

    fn arbitrary(next: &mut dyn FnMut() -> u32) -> Self {
        next().is_multiple_of(2)
    }
}

impl Xdr for Bytes {
    /// Appends opaque data. Its length is that of a message at most.
    fn encode_into(&self, to: &mut BytesMut) {
        to.put_u32(self.len() as u32);
        to.put_slice(self);
        to.put_bytes(0, pad(self.len() as u64) as usize);
    }

    fn decode_from(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        from.opaque().map(Self::copy_from_slice)
    }

    fn show(&self) -> Shown {
        Shown::Bytes(self.clone())
    }

    fn arbitrary(next: &mut dyn FnMut() -> u32) -> Self {
        (0..next() % 25).map(|_| next() as u8).collect()
    }
}

impl<const N: usize> Xdr for [u8; N] {
    /// Appends fixed opaque data, which has no length in front of it.
    fn encode_into(&self, to: &mut BytesMut) {
        to.put_slice(self);
        to.put_bytes(0, pad(N as u64) as usize);
    }

    fn decode_from(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut data = [0; N];
        for part in data.chunks_mut(4) {
            let word = from.u32()?.to_be_bytes();
            let (bytes, round_up) = word.split_at(part.len());
            if round_up.iter().any(|&byte| byte != 0) {
                return Err(Malformed::RoundUp);
            }
            part.copy_from_slice(bytes);
        }
        Ok(data)
    }

    fn show(&self) -> Shown {
        Shown::Bytes(Bytes::copy_from_slice(self))
    }

    fn arbitrary(next: &mut dyn FnMut() -> u32) -> Self {
        std::array::from_fn(|_| next() as u8)
    }
}

impl<T: Xdr> Xdr for Vec<T> {
    /// Appends an array. It has no more elements than a message has bytes.
    fn encode_into(&self, to: &mut BytesMut) {
        to.put_u32(self.len() as u32);
        self.iter().for_each(|element| element.encode_into(to));
    }

    /// Decodes an array. Memory is taken as its elements arrive, whatever its length says: each has four
    /// bytes at least.
    fn decode_from(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let count = from.u32()? as usize;
        if count > from.left() / 4 {
            return Err(Malformed::Truncated);
        }
        (0..count).map(|_| T::decode_from(from)).collect()
    }

    fn show(&self) -> Shown {
        Shown::List(self.iter().map(T::show).collect())
    }

    fn arbitrary(next: &mut dyn FnMut() -> u32) -> Self {
        (0..next() % 5).map(|_| T::arbitrary(next)).collect()
    }
}

impl<T: Xdr> Xdr for Option<T> {
    fn encode_into(&self, to: &mut BytesMut) {
        self.is_some().encode_into(to);
        self.iter().for_each(|value| value.encode_into(to));
    }

    fn decode_from(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        match from.boolean()? {
            true => T::decode_from(from).map(Some),
            false => Ok(None),
        }
    }

    fn show(&self) -> Shown {
        Shown::Optional(self.as_ref().map(|value| Box::new(value.show())))
    }

    fn arbitrary(next: &mut dyn FnMut() -> u32) -> Self {
        bool::arbitrary(next).then(|| T::arbitrary(next))
    }
}

/// Defines a structure with its codec ([`xdr`](crate::xdr)): its name in Rust and in the `.x` file, and
/// its fields in their order, each with its type and its name in the `.x` file.
///
/// | XDR | Rust |
/// |---|---|
/// | `unsigned int`, `unsigned hyper`, `bool` | `u32`, `u64`, `bool` |
/// | `opaque name<>` | `bytes::Bytes` |
/// | `opaque name[N]` | `[u8; N]`, for N from 1 to 32 |
/// | `type name<>`, `type *name` | `Vec<Type>`, `Option<Type>` |
/// | `struct` | another structure of this macro |
///
/// `int` and enumerations are not supported. A number of fewer bits is `unsigned int`, with a check
/// in `received`.
///
/// The structure derives `Clone`, `Debug`, `Default`, `PartialEq` and `Eq`. Attributes that are written above it,
/// such as `#[derive(Copy)]`, are added.
///
/// A structure must not contain itself, be it in an array: it is decoded by recursion, whose depth the
/// peer would decide.
#[macro_export]
macro_rules! xdr_struct {
    (
        $(#[$doc:meta])*
        $vis:vis struct $name:ident = $xdr:literal {
            $($(#[$field_doc:meta])* $field_vis:vis $field:ident: $of:ty = $field_xdr:literal),* $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        $vis struct $name {
            $($(#[$field_doc])* $field_vis $field: $of),*
        }

        impl $crate::xdr::Xdr for $name {
            fn encode_into(&self, to: &mut $crate::xdr::exported::BytesMut) {
                $($crate::xdr::Xdr::encode_into(&self.$field, to);)*
            }

            fn decode_from(
                from: &mut $crate::xdr::exported::Reader<'_>,
            ) -> ::core::result::Result<Self, $crate::xdr::exported::Malformed> {
                // Evaluated in the order of the fields.
                Ok(Self { $($field: $crate::xdr::Xdr::decode_from(from)?),* })
            }

            fn show(&self) -> $crate::xdr::Shown {
                $crate::xdr::Shown::Fields(vec![
                    $(($field_xdr, $crate::xdr::Xdr::show(&self.$field))),*
                ])
            }

            fn arbitrary(next: &mut dyn FnMut() -> u32) -> Self {
                Self { $($field: $crate::xdr::Xdr::arbitrary(next)),* }
            }
        }

        impl $crate::xdr::Structure for $name {
            const NAME: &'static str = $xdr;
        }
    };
}

/// The types that [`xdr_struct!`](crate::xdr_struct) names.
#[doc(hidden)]
pub mod exported {
    pub use bytes::BytesMut;
    pub use rpcrdma_chunks::{Malformed, Reader};
}
