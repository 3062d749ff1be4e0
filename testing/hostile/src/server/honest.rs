//! The replies of an honest server: the minimum for mounting, and one file whose parts all have the
//! same content.

mod second;

use crate::rig::content;
use crate::wire::v1::{self, Header, Message, Segment};
use crate::wire::{Reader, Xdr, rpc, v2};
use crate::{Wrong, wrong};
use second::Request;
pub use second::response;

/// The bytes of a READ or WRITE.
pub const LEN: u32 = 8192;
/// The seed of the file's content.
pub const DATA_SEED: u32 = 7;

/// A call that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The transport header of the call.
    pub header: Header,
    /// The RPC message.
    pub rpc: Vec<u8>,
    pub(super) procedure: (u32, u32),
    /// The ROPT_XMTREQ that it came in, if it did.
    pub(super) request: Option<Request>,
    /// The data that was placed in the working group's version 2.
    pub(super) placed: Option<Vec<u8>>,
}

impl Call {
    /// Returns a NULL call, for asking scripts what they send about a call.
    #[must_use]
    pub fn null(xid: u32) -> Self {
        let header = v1::header(xid);
        let rpc = rpc::null(xid).bytes();
        Self {
            header,
            rpc,
            procedure: (rpc::NFS, 0),
            request: None,
            placed: None,
        }
    }

    /// Returns a READ of `len` bytes.
    #[must_use]
    pub fn read(xid: u32, len: u32) -> Self {
        Self {
            procedure: (rpc::NFS, 6),
            rpc: rpc::nfs(xid, 6, rpc::read_args(&[0; 16], 0, len)).bytes(),
            ..Self::null(xid)
        }
    }

    /// Decodes a message.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Wrong> {
        let strange = || wrong(format!("no call but {bytes:x?}"));
        let Some(Message::Rpc(header, rpc)) = v1::parse(bytes) else {
            return Err(strange());
        };
        let mut from = Reader(&rpc);
        let words = [(); 6].map(|()| from.word());
        let [
            Some(xid),
            Some(rpc::CALL),
            Some(2),
            Some(program),
            Some(_),
            Some(procedure),
        ] = words
        else {
            return Err(strange());
        };
        if (xid, header.version) != (header.xid, 1) {
            return Err(strange());
        }
        Ok(Self {
            header,
            procedure: (program, procedure),
            rpc,
            request: None,
            placed: None,
        })
    }

    /// Decodes a message of version 2.
    pub(super) fn parse_second(bytes: &[u8]) -> Result<Self, Wrong> {
        if let Some(first) = v2::to_first(bytes, v2::CALL) {
            return Self::parse(&first);
        }
        let (plain, request) = Request::take_out_of(bytes)?;
        let mut call = Self::parse(&plain)?;
        call.request = Some(request);
        Ok(call)
    }

    /// Returns the first segment that the call offers.
    ///
    /// # Panics
    /// The call offers none, which is a mistake in a script.
    #[must_use]
    pub fn segment(&self) -> Segment {
        let reads = self.header.reads.iter().map(|(_, segment)| segment);
        let writes = self
            .header
            .writes
            .iter()
            .chain(&self.header.reply)
            .flatten();
        let first = reads.chain(writes).next();
        *first.expect("a call with chunks")
    }

    /// Returns the correct reply, as far as the call was correct.
    pub(super) fn answer(&self, credits: u32) -> Answer {
        let xid = self.header.xid;
        let unused = |chunk: &Vec<Segment>| chunk.iter().map(|s| filled(*s, 0)).collect();
        let mut answer = Answer {
            places: Vec::new(),
            header: Header {
                credits,
                writes: self.header.writes.iter().map(unused).collect(),
                reply: self.header.reply.as_ref().map(unused),
                ..v1::header(xid)
            },
            payload: Vec::new(),
            invalidate: None,
            repeat: 1,
        };
        let results = match self.procedure {
            (rpc::NFS, 0) => Xdr::new(),
            // EXPORT: a list of one, for everyone. MNT: a handle.
            (rpc::MOUNT, 5) => Xdr::new().word(1).opaque(EXPORT).word(0).word(0),
            (rpc::MOUNT, 1) => Xdr::new().word(0).opaque(&[0xf1; 16]).word(0),
            (rpc::NFS, 19) => Xdr::new()
                .words(&[0, 0, MOST, LEN, 1, MOST, MOST, 1, LEN])
                .words(&[0x7fff_ffff, 0xffff_ffff, 0, 1, 0x1b]),
            (rpc::NFS, 6) => {
                let len = self.last_word();
                let data = content(DATA_SEED, len as usize);
                let head = Xdr::new().words(&[0, 0, len, 1, len]);
                match answer.header.writes.first_mut() {
                    Some(chunk) => {
                        place(chunk, &self.header.writes[0], &data, &mut answer.places);
                        head
                    }
                    None => head.raw(&data),
                }
            }
            (rpc::NFS, 7) => Xdr::new().words(&[0, 0, 0, self.count(), 2, 5, 5]),
            // READDIR: no entries, and the end.
            (rpc::NFS, 16) => Xdr::new().words(&[0, 0, 0, 0, 0, 1]),
            _ => {
                answer.payload = Xdr::new().words(&[xid, rpc::REPLY, 0, 0, 0, 3]).done();
                return answer;
            }
        };
        answer.payload = rpc::accepted(xid, 0, &results.done());
        if matches!(self.procedure, (rpc::NFS, 0 | 16))
            && let (Some(chunk), Some(offered)) = (&mut answer.header.reply, &self.header.reply)
        {
            let payload = std::mem::take(&mut answer.payload);
            place(chunk, offered, &payload, &mut answer.places);
            answer.header.procedure = v1::NOMSG;
        }
        answer
    }

    /// Returns the `count` of a READ.
    pub(super) fn last_word(&self) -> u32 {
        let at = self.rpc.len().saturating_sub(4);
        Reader(&self.rpc[at..]).word().unwrap_or_default()
    }

    /// Returns the `count` of a WRITE, which follows the file handle and the offset.
    fn count(&self) -> u32 {
        let opaque = |from: &mut Reader<'_>| {
            let len = from.word()? as usize;
            from.take(len.next_multiple_of(4)).map(drop)
        };
        let count = |mut from: Reader<'_>| {
            from.take(24 + 4)?;
            opaque(&mut from)?;
            from.word()?;
            opaque(&mut from)?;
            opaque(&mut from)?;
            from.long()?;
            from.word()
        };
        count(Reader(&self.rpc)).unwrap_or_default()
    }

    /// Returns whether the call is a WRITE, whose data must be read.
    pub(super) fn is_write(&self) -> bool {
        self.procedure == (rpc::NFS, 7)
    }
}

/// The maximum WRITE, bytes.
/// The export of the honest server, which clients mount.
pub(super) const EXPORT: &[u8] = b"/hostile";
const MOST: u32 = 4 << 20;

fn filled(segment: Segment, length: u32) -> Segment {
    Segment { length, ..segment }
}

/// Fills a chunk, and records the data for each place.
fn place(chunk: &mut [Segment], offered: &[Segment], data: &[u8], places: &mut Vec<Place>) {
    let mut left = data;
    for (segment, offered) in chunk.iter_mut().zip(offered) {
        let (now, later) = left.split_at(left.len().min(offered.length as usize));
        segment.length = now.len() as u32;
        if !now.is_empty() {
            places.push((segment.handle, segment.offset, now.to_vec()));
        }
        left = later;
    }
}

/// Handle, offset, and data.
type Place = (u32, u64, Vec<u8>);

/// A reply, which a script can change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The data that RDMA Writes place before the reply.
    pub places: Vec<Place>,
    /// The transport header.
    pub header: Header,
    /// The payload.
    pub payload: Vec<u8>,
    /// The handle that the Send invalidates.
    pub invalidate: Option<u32>,
    /// The number of times it is sent.
    pub repeat: usize,
}

/// The position of `accept_stat` in a reply with an empty verifier, and SYSTEM_ERR (RFC 5531,
/// section 9).
const STATUS: std::ops::Range<usize> = 20..24;
const SYSTEM_ERR: u32 = 5;

impl Answer {
    /// Changes the data and status, so that accepting the reply is detected.
    pub(super) fn poison(&mut self) {
        for byte in self.places.iter_mut().flat_map(|(_, _, bytes)| bytes) {
            *byte = !*byte;
        }
        if let Some(status) = self.payload.get_mut(STATUS) {
            status.copy_from_slice(&SYSTEM_ERR.to_be_bytes());
        }
    }
}
