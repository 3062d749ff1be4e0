//! Wrong values for the fields of replies that place data, as tables: the cases here, and whoever else attacks clients,
//! make replies of them.

/// A field of a message, and values that a client must not take in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name in the XDR.
    pub name: &'static str,
    /// The message of the reply, from zero.
    pub part: usize,
    /// The word of that message, from zero.
    pub word: usize,
    /// The values.
    pub values: Vec<u32>,
}

/// The right values of a placed reply with one item (send-placement-00, 4.3 and 4.4).
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    /// The position of the item, where the reduced Payload stream ends.
    pub position: u32,
    /// The length of the item, octets.
    pub length: u32,
    /// The length of each target, octets.
    pub target: u32,
    /// The number of the target in which the item begins.
    pub segment: u32,
    /// The number of messages.
    pub messages: u32,
    /// The octets of the Payload stream behind those of the first message.
    pub remaining: u32,
    /// The octets of the Payload stream in the last message.
    pub last: u32,
}

fn field(name: &'static str, part: usize, word: usize, values: &[u32]) -> Field {
    Field {
        name,
        part,
        word,
        values: values.to_vec(),
    }
}

/// Returns the fields of a reply of one message, RDMA2_REPLY_PLACED. Its call fails by each of the values.
#[must_use]
pub fn placed_reply(right: &Placed) -> Vec<Field> {
    let (top, position, target) = (u32::MAX, right.position, right.target);
    let more = right.length.saturating_add(1);
    let beyond = target.saturating_add(1);
    vec![
        field("rdma_writes", 0, 4, &[1, 2]),
        field("rdma_placed", 0, 5, &[0, 2, 17, top]),
        field("rdma_position", 0, 6, &[4, position - 2, position + 4, top]),
        field("rdma_length", 0, 7, &[0, more, target, beyond, top]),
        field("rdma_segment", 0, 8, &[1, top]),
        field("rdma_offset", 0, 9, &[4, target, top]),
        field("rdma_payload_length", 0, 10, &[0, position - 1, top]),
    ]
}

/// Returns the fields of a reply of several messages: one RDMA2_REPLY_PLACED_MIDDLE or more, and RDMA2_REPLY_PLACED. Its
/// call fails by each of the values.
#[must_use]
pub fn placed_sequence(right: &Placed) -> Vec<Field> {
    let top = u32::MAX;
    let follow = right.messages.saturating_sub(1);
    let last = follow as usize;
    let mut counts = vec![0, follow.saturating_sub(1), follow + 1, 128, top];
    counts.dedup();
    vec![
        field("rdma_messages", 0, 4, &counts),
        field("rdma_remaining", 0, 5, &[right.remaining + 4, top]),
        field("rdma_payload_length", 0, 6, &[0, top]),
        field("rdma_segment", last, 8, &[right.segment + 1]),
        field("rdma_length", last, 7, &[right.length.saturating_add(1)]),
        field("rdma_payload_length", last, 10, &[right.last + 4]),
    ]
}

/// The right values of ROPT_XMTRESP with one item in one target (rtrext-00, 9.3).
#[derive(Clone, Copy, Debug)]
pub struct Response {
    /// The length of the results without the data: the position of the item.
    pub results: u32,
    /// The length of the item, bytes.
    pub length: u32,
    /// The length of a target, bytes.
    pub target: u32,
    /// The bytes behind the header.
    pub room: u32,
    /// The longest message that the client takes, bytes.
    pub most: u32,
}

/// A wrong value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The name in the XDR.
    pub name: &'static str,
    /// The word of the operation's information, from zero.
    pub word: usize,
    /// The value.
    pub value: u32,
    /// The words of ROPT_XMTERR behind the transmissions that it names, with which this project's client reports the
    /// reply. It discards others.
    pub report: Option<Vec<u32>>,
}

/// Returns wrong values of the fields of ROPT_XMTRESP, all of which a client reports or discards.
#[must_use]
pub fn response(right: &Response) -> Vec<Wrong> {
    let Response {
        results,
        length,
        target,
        room,
        most,
    } = *right;
    let top = u32::MAX;
    let missing: &[u32] = &[7, 0, 0, 0];
    let mut all = Vec::new();
    let mut put = |name, word, value, report: Option<&[u32]>| {
        all.push(Wrong {
            name,
            word,
            value,
            report: report.map(<[u32]>::to_vec),
        });
    };
    for value in [0, 2, top] {
        put("optxrs_ddp", 0, value, None);
    }
    for value in [4, results + 1, results + 4, top] {
        put("xmdmi_disp", 1, value, Some(&[6, value, 8, results]));
    }
    put("xmdmi_length", 2, 0, Some(&[7, 1, 0, 0]));
    put("xmdmi_length", 2, length.saturating_add(1), Some(missing));
    let beyond = target.saturating_add(1);
    put("xmdmi_length", 2, beyond, Some(&[7, 1, 2, 1024]));
    put("xmdmi_length", 2, top, Some(&[8, top, 0, most]));
    for value in [0, 1, 3, 4, 5, 6, top] {
        put("xmdl_type", 3, value, None);
    }
    let end = target.saturating_sub(1);
    put("xmdl_offset", 4, 2, Some(&[6, 2, 0, end]));
    put("xmdl_offset", 4, 4, Some(missing));
    put("xmdl_offset", 4, top, Some(&[6, top, 0, end]));
    for value in [0, 2, top] {
        put("xmdl_bsnum", 5, value, None);
    }
    for value in [1, top] {
        put("xmdl_bsnum", 6, value, Some(&[7, value, 0, 0]));
    }
    for value in [0, 2, top] {
        put("optxrs_count", 7, value, Some(&[4, 1, value]));
    }
    put("optxrs_pslen", 8, 0, Some(&[6, results, 8, 0]));
    put(
        "optxrs_pslen",
        8,
        results - 1,
        Some(&[8, results - 1, 0, room]),
    );
    put("optxrs_pslen", 8, room, Some(missing));
    for value in [room + 4, top - 3, top] {
        put("optxrs_pslen", 8, value, Some(&[8, value, 0, room]));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_wrong_value_is_the_right_one() {
        let placed = Placed {
            position: 128,
            length: 8192,
            target: 65_536,
            segment: 1,
            messages: 2,
            remaining: 64,
            last: 64,
        };
        let right = [0, 1, 128, 8192, 0, 0, 128];
        for field in placed_reply(&placed) {
            assert!(
                !field.values.contains(&right[field.word - 4]),
                "{}",
                field.name
            );
        }
        for field in placed_sequence(&placed) {
            let right = match (field.part, field.word) {
                (0, 4) => 1,
                (0, 5 | 6) | (1, 10) => 64,
                (1, 8) => 1,
                (1, 7) => 8192,
                other => panic!("{other:?}"),
            };
            assert!(!field.values.contains(&right), "{}", field.name);
        }
        let response_of = Response {
            results: 128,
            length: 8192,
            target: 65_536,
            room: 9152,
            most: 1 << 20,
        };
        let right = [1, 128, 8192, 2, 0, 1, 0, 1, 128];
        for wrong in response(&response_of) {
            assert_ne!(wrong.value, right[wrong.word], "{}", wrong.name);
        }
    }
}
