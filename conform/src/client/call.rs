//! Calls of a client, decoded as far as they are judged and answered.

use crate::wire::Reader;
use crate::wire::rpc::{CALL, NFS};
use crate::wire::v1::{Header, Segment};

/// Procedures of NFS version 3.
pub(super) const READLINK: u32 = 5;
pub(super) const READ: u32 = 6;
pub(super) const WRITE: u32 = 7;
pub(super) const SYMLINK: u32 = 10;
pub(super) const READDIR: u32 = 16;
pub(super) const READDIRPLUS: u32 = 17;

/// A call that arrived.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// The transport header.
    pub(super) header: Header,
    /// The RPC message without what is in Read chunks of a position that is not zero.
    pub(super) payload: Vec<u8>,
    /// Program, version, procedure.
    pub(super) procedure: (u32, u32, u32),
    /// The place of the arguments in the payload.
    args: usize,
}

impl Call {
    /// Decodes the RPC header. Returns `None` if this is no call.
    pub(super) fn new(header: Header, payload: Vec<u8>) -> Option<Self> {
        let mut from = Reader(&payload);
        let words = [(); 6].map(|()| from.word());
        let [
            _,
            Some(CALL),
            Some(2),
            Some(program),
            Some(version),
            Some(procedure),
        ] = words
        else {
            return None;
        };
        for _ in 0..2 {
            // Flavor and body of the credential and of the verifier.
            from.word()?;
            opaque(&mut from)?;
        }
        let args = payload.len() - from.0.len();
        Some(Self {
            header,
            procedure: (program, version, procedure),
            args,
            payload,
        })
    }

    /// Returns the XID of the RPC message.
    pub(super) fn xid(&self) -> u32 {
        Reader(&self.payload).word().unwrap_or_default()
    }

    /// Returns the arguments.
    pub(super) fn args(&self) -> Reader<'_> {
        Reader(&self.payload[self.args..])
    }

    /// Returns whether this is a procedure of NFS version 3.
    pub(super) fn is(&self, procedure: u32) -> bool {
        self.procedure == (NFS, 3, procedure)
    }

    /// Returns the segments of Read chunks that hold items.
    pub(super) fn reduced(&self) -> Vec<(u32, Segment)> {
        let is_item = |it: &&(u32, Segment)| it.0 != 0;
        self.header.reads.iter().filter(is_item).copied().collect()
    }

    /// Returns the place of the data of a WRITE in the RPC message, and its length.
    pub(super) fn data(&self) -> Option<(usize, u32)> {
        if !self.is(WRITE) {
            return None;
        }
        let mut from = self.args();
        opaque(&mut from)?;
        from.long()?;
        // count, stable
        from.word()?;
        from.word()?;
        let length = from.word()?;
        Some((self.payload.len() - from.0.len(), length))
    }

    /// Returns the bytes that the call asks for, in READ, READDIR and READDIRPLUS.
    pub(super) fn count(&self) -> Option<u32> {
        let mut from = self.args();
        opaque(&mut from)?;
        from.long()?;
        if self.is(READ) {
            return from.word();
        }
        if !self.is(READDIR) && !self.is(READDIRPLUS) {
            return None;
        }
        // The verifier of the cookie.
        from.long()?;
        if self.is(READDIRPLUS) {
            from.word()?;
        }
        from.word()
    }

    /// Returns a handle that the call offered.
    pub(super) fn handle(&self) -> Option<u32> {
        let header = &self.header;
        let written = header.writes.iter().chain(&header.reply).flatten();
        let read = header.reads.iter().map(|(_, segment)| segment);
        read.chain(written).next().map(|segment| segment.handle)
    }

    /// Returns whether this is the same call as another one, sent again: the whole RPC message is the same. A call that
    /// only has the XID of one that has ended is another call.
    pub(super) fn is_again(&self, other: &Self) -> bool {
        self.payload == other.payload
    }

    /// Returns the RPC message behind its XID.
    pub(super) fn behind_xid(&self) -> &[u8] {
        self.payload.get(4..).unwrap_or_default()
    }
}

/// Reads variable-length opaque data with its round-up.
pub(super) fn opaque<'a>(from: &mut Reader<'a>) -> Option<&'a [u8]> {
    let length = from.word()? as usize;
    let padded = length.checked_next_multiple_of(4)?;
    from.take(padded).map(|bytes| &bytes[..length])
}

/// Returns the number of bytes of segments.
pub(super) fn total<'a>(segments: impl IntoIterator<Item = &'a Segment>) -> u64 {
    let lengths = segments.into_iter().map(|it| u64::from(it.length));
    lengths.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{rpc, v1};

    #[test]
    fn the_data_of_a_write_is_where_its_chunk_must_be() {
        let call = rpc::nfs(7, WRITE, rpc::write_args(&[1; 8], 0, 6001));
        let call = Call::new(v1::header(7), call.bytes()).unwrap();
        assert_eq!(call.data(), Some((call.payload.len(), 6001)));
        let call = rpc::nfs(7, READ, rpc::read_args(&[1; 7], 3, 99));
        let call = Call::new(v1::header(7), call.bytes()).unwrap();
        assert_eq!((call.data(), call.count()), (None, Some(99)));
    }

    #[test]
    fn a_call_that_comes_again_is_the_whole_message() {
        let read = |xid, offset| {
            let call = rpc::nfs(xid, READ, rpc::read_args(&[1; 8], offset, 99));
            Call::new(v1::header(xid), call.bytes()).unwrap()
        };
        assert!(read(7, 0).is_again(&read(7, 0)));
        assert!(!read(7, 0).is_again(&read(7, 99)));
        assert!(!read(7, 0).is_again(&read(8, 0)));
    }

    #[test]
    fn a_length_beyond_the_message_is_no_call() {
        let mut call = rpc::null(7).bytes();
        call[28..32].fill(0xff);
        assert!(Call::new(v1::header(7), call).is_none());
        assert!(Call::new(v1::header(7), rpc::accepted(7, 0, &[])).is_none());
    }
}
