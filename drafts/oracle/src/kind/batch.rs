//! The operation of the example extension (`examples/batch`).

use bytes::Bytes;
use quickcheck::Gen;

use super::any::{few, number};
use super::{Codec, Kind, Refused, kind};
use crate::show::Json;

/// The maximum number of messages in one transmission, which the decoder needs as a parameter.
const MOST: u32 = 256;

pub(crate) const KINDS: &[Kind] = &[kind!("batch", Batch, any_lengths, payload: false)];

/// The type `optxmt_batch`.
enum Batch {}

fn any_lengths(g: &mut Gen) -> Vec<u32> {
    few(g, 8, number)
}

impl Codec for Batch {
    type Value = Vec<u32>;
    const XDR: &'static str = "optxmt_batch";

    fn encode(value: &Vec<u32>) -> Bytes {
        batch::encode(value)
    }

    fn decode(bytes: &Bytes) -> Result<(Vec<u32>, usize), Refused> {
        Ok((batch::decode(bytes, MOST)?, bytes.len()))
    }

    fn show(value: &Vec<u32>, json: &mut Json) {
        json.object(|to| {
            to.field("optbt_lengths", |json| {
                json.list(value, |json, length| json.number(*length));
            });
        });
    }
}
