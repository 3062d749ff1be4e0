//! Properties of the working group's version 2 (version-two-07, section 5.2).

use bytes::Bytes;
use quickcheck::{Arbitrary, Gen};
use rpcrdma_v2_wg::{Malformed, Properties, Property, ReverseSupport, property_id};

use super::any::{number, opaque};
use super::{Codec, Kind, Refused, kind};
use crate::show::Json;

pub(crate) const KINDS: &[Kind] = &[
    kind!("wg-sbsiz", SendSize, |g| with(g, |g, to| to.send_size = number(g)), payload: false),
    kind!("wg-rbsiz", ReceiveSize, |g| with(g, |g, to| to.receive_size = number(g)), payload: false),
    kind!("wg-rssiz", SegmentSize, |g| with(g, |g, to| to.segment_size = number(g)), payload: false),
    kind!("wg-rcsiz", SegmentCount, |g| with(g, |g, to| to.segment_count = number(g)), payload: false),
    kind!("wg-brs", Reverse, |g| with(g, |g, to| to.reverse = any_level(g)), payload: false),
    kind!("wg-hostauth", HostAuth, |g| with(g, |g, to| to.host_auth = Some(opaque(g))), payload: false),
];

fn with(g: &mut Gen, set: fn(&mut Gen, &mut Properties)) -> Properties {
    let mut properties = Properties::default();
    set(g, &mut properties);
    properties
}

fn any_level(g: &mut Gen) -> ReverseSupport {
    ReverseSupport::from_number(u32::arbitrary(g) % 4).unwrap_or_default()
}

fn encode(properties: &Properties, id: u32) -> Bytes {
    let mut list = properties.encode().into_iter();
    let property = list.find(|property| property.id == id);
    property.map_or_else(Bytes::new, |property| property.value)
}

fn decode(bytes: &Bytes, id: u32) -> Result<(Properties, usize), Refused> {
    if bytes.is_empty() {
        // In a list of properties, an empty value stands for the default. It is no value itself.
        return Err(Refused::Form);
    }
    let property = Property {
        id,
        value: bytes.clone(),
    };
    let mut properties = Properties::default();
    let applied = properties.apply(&[property]);
    applied.map_err(|bad| match bad.reason {
        Malformed::Enumeration(..) => Refused::Level,
        reason => reason.into(),
    })?;
    Ok((properties, bytes.len()))
}

/// Defines the codec of one property: its name, number, XDR type, and its value as JSON.
macro_rules! property {
    ($name:ident, $id:expr, $xdr:literal, $show:expr) => {
        #[doc = concat!("The type `", $xdr, "`.")]
        enum $name {}

        impl Codec for $name {
            type Value = Properties;
            const XDR: &'static str = $xdr;

            fn encode(value: &Properties) -> Bytes {
                encode(value, $id)
            }

            fn decode(bytes: &Bytes) -> Result<(Properties, usize), Refused> {
                decode(bytes, $id)
            }

            fn show(value: &Properties, json: &mut Json) {
                let show: fn(&Properties, &mut Json) = $show;
                show(value, json);
            }
        }
    };
}

property!(
    SendSize,
    property_id::SEND_SIZE,
    "rpcrdma2wg_prop_sbsiz",
    |of, json| json.number(of.send_size)
);
property!(
    ReceiveSize,
    property_id::RECEIVE_SIZE,
    "rpcrdma2wg_prop_rbsiz",
    |of, json| json.number(of.receive_size)
);
property!(
    SegmentSize,
    property_id::SEGMENT_SIZE,
    "rpcrdma2wg_prop_rssiz",
    |of, json| json.number(of.segment_size)
);
property!(
    SegmentCount,
    property_id::SEGMENT_COUNT,
    "rpcrdma2wg_prop_rcsiz",
    |of, json| json.number(of.segment_count)
);
property!(
    Reverse,
    property_id::REVERSE,
    "rpcrdma2wg_prop_brs",
    |of, json| json.number(of.reverse.number())
);
property!(
    HostAuth,
    property_id::HOST_AUTH,
    "rpcrdma2wg_prop_hostauth",
    |of, json| json.hex(of.host_auth.as_deref().unwrap_or_default())
);
