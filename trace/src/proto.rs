//! An encoder of protocol buffers' wire format.
//!
//! A trace has a dozen kinds of small messages, whose fields are written in one place each. The crates for
//! protocol buffers want generated code, or build a tree of allocated messages first; this writes numbers
//! into a buffer. `packets.rs` names the fields.

/// A buffer that fields of messages are appended to.
#[derive(Debug, Default)]
pub(crate) struct Buffer(pub(crate) Vec<u8>);

/// The wire types.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;

impl Buffer {
    #[inline]
    fn varint(&mut self, mut value: u64) {
        if value < 0x80 {
            return self.0.push(value as u8);
        }
        // Appended together, so that room is looked for once.
        let (mut bytes, mut len) = ([0; 10], 0);
        for byte in &mut bytes {
            len += 1;
            if value < 0x80 {
                *byte = value as u8;
                break;
            }
            *byte = value as u8 | 0x80;
            value >>= 7;
        }
        self.0.extend_from_slice(&bytes[..len]);
    }

    /// Appends encoded fields.
    pub(crate) fn encoded(&mut self, fields: &[u8]) {
        self.0.extend_from_slice(fields);
    }

    #[inline]
    fn tag(&mut self, field: u32, wire_type: u64) {
        self.varint(u64::from(field) << 3 | wire_type);
    }

    /// Appends an unsigned number, or an enumerator.
    #[inline]
    pub(crate) fn uint(&mut self, field: u32, value: u64) {
        self.tag(field, VARINT);
        self.varint(value);
    }

    /// Appends a number of 64 bits.
    pub(crate) fn fixed64(&mut self, field: u32, value: u64) {
        self.tag(field, FIXED64);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends a string.
    pub(crate) fn string(&mut self, field: u32, value: &str) {
        self.tag(field, LENGTH);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value.as_bytes());
    }

    /// Appends a message, whose fields `fill` writes.
    #[inline]
    pub(crate) fn message(&mut self, field: u32, fill: impl FnOnce(&mut Self)) {
        self.tag(field, LENGTH);
        let at = self.0.len();
        self.0.push(0);
        fill(self);
        let len = self.0.len() - at - 1;
        // Nearly all messages have a length of one byte. The others are moved.
        if let Ok(short @ 0..0x80) = u8::try_from(len) {
            self.0[at] = short;
            return;
        }
        let mut prefix = Self::default();
        prefix.varint(len as u64);
        self.0.splice(at..=at, prefix.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of protocol buffers' description of the encoding.
    #[test]
    fn fields_are_encoded_as_the_specification_shows() {
        let mut buffer = Buffer::default();
        buffer.uint(1, 150);
        assert_eq!(buffer.0, [0x08, 0x96, 0x01]);
        let mut buffer = Buffer::default();
        buffer.string(2, "testing");
        assert_eq!(buffer.0, *b"\x12\x07testing");
        let mut buffer = Buffer::default();
        buffer.message(3, |inner| inner.uint(1, 150));
        assert_eq!(buffer.0, [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let mut buffer = Buffer::default();
        buffer.fixed64(1, 2);
        assert_eq!(buffer.0, [0x09, 2, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_long_message_has_a_long_length() {
        let text = "x".repeat(300);
        let mut buffer = Buffer::default();
        buffer.message(1, |inner| inner.string(1, &text));
        // 300 bytes, with a tag and two bytes of length: 303, which is 0xaf 0x02.
        assert_eq!(buffer.0[..6], [0x0a, 0xaf, 0x02, 0x0a, 0xac, 0x02]);
        assert_eq!(buffer.0.len(), 306);
    }
}
