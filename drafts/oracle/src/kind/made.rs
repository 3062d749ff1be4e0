//! Types whose codec `rpcrdma_extension::xdr_struct!` makes.

use bytes::Bytes;
use quickcheck::{Arbitrary, Gen};
use rpcrdma_extension::xdr::{Shown, Structure};
use rpcrdma_v2::Reader;

use super::{Codec, Kind, Refused, read, sample};
use crate::show::Json;

/// The codec of a structure, which payload may follow or nothing.
struct Made<T, const HAS_PAYLOAD: bool>(std::marker::PhantomData<T>);

/// Returns the [`Kind`] of a structure, with its name in reports and vectors.
#[must_use]
pub const fn kind<T: Structure + PartialEq>(name: &'static str, has_payload: bool) -> Kind {
    Kind {
        name,
        xdr: T::NAME,
        sample: any::<T>,
        read: match has_payload {
            true => read::<Made<T, true>>,
            false => read::<Made<T, false>>,
        },
        has_payload,
        made: Some(names::<T>),
    }
}

fn names<T: Structure>() -> (&'static str, Vec<&'static str>) {
    let fields = match T::arbitrary(&mut || 0).show() {
        Shown::Fields(fields) => fields.into_iter().map(|(name, _)| name).collect(),
        _ => Vec::new(),
    };
    let name = std::any::type_name::<T>();
    (name.rsplit("::").next().unwrap_or(name), fields)
}

fn any<T: Structure + PartialEq>(g: &mut Gen) -> (Bytes, String) {
    sample::<Made<T, true>>(&T::arbitrary(&mut || <u32 as Arbitrary>::arbitrary(g)))
}

impl<T: Structure + PartialEq, const HAS_PAYLOAD: bool> Codec for Made<T, HAS_PAYLOAD> {
    type Value = T;
    const XDR: &'static str = T::NAME;

    fn encode(value: &T) -> Bytes {
        value.encode()
    }

    fn decode(bytes: &Bytes) -> Result<(T, usize), Refused> {
        let mut from = Reader::new(bytes);
        let value = T::decode_from(&mut from)?;
        if !HAS_PAYLOAD {
            from.end()?;
        }
        Ok((value, bytes.len() - from.left()))
    }

    fn show(value: &T, json: &mut Json) {
        show(value.show(), json);
    }
}

fn show(value: Shown, json: &mut Json) {
    match value {
        Shown::Number(number) => json.number(number),
        Shown::Wide(number) => json.wide(number),
        Shown::Boolean(value) => json.boolean(value),
        Shown::Bytes(bytes) => json.hex(&bytes),
        Shown::List(list) => json.list(list, |json, element| show(element, json)),
        Shown::Optional(value) => json.option(value, |json, value| show(*value, json)),
        Shown::Fields(fields) => json.object(|to| {
            for (name, value) in fields {
                to.field(name, |json| show(value, json));
            }
        }),
    }
}
