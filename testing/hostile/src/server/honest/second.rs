//! Calls of version 2 that come by ROPT_XMTREQ, and honest replies to them by ROPT_XMTRESP
//! (rtrext-00, sections 6 to 9).

use super::{Call, DATA_SEED};
use crate::rig::content;
use crate::wire::v1;
use crate::wire::v2::{self, HEAD, OPERATION, TARGET};
use crate::wire::{Reader, rpc};
use crate::{Wrong, wrong};

/// The values of `xmddp_type`.
const EXRW: u32 = 1;
const TBSN: u32 = 2;
const BYSIZE: u32 = 4;
const NOITEM: u32 = 6;
/// The bytes of READ results before the data: RPC header, status, no attributes, count, eof,
/// length.
const RESULTS: u32 = 24 + 20;

/// The content of a request besides its RPC message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::server) struct Request {
    /// The ways in which items of the reply may be sent, in order: values of `xmddp_type`.
    directions: Vec<u32>,
    /// The data that was placed.
    data: Vec<u8>,
}

/// Returns the fields of ROPT_XMTRESP in reply to a READ of `len` bytes, with their names in the
/// XDR. The data is placed, in as many transmissions as needed.
#[must_use]
pub fn response(len: usize) -> Vec<(&'static str, u32)> {
    let count = len.div_ceil(TARGET) as u32;
    let mut fields = vec![
        ("optxrs_ddp", 1),
        ("xmdmi_disp", RESULTS),
        ("xmdmi_length", len as u32),
        ("xmdl_type", TBSN),
        ("xmdl_offset", 0),
        ("xmdl_bsnum", count),
    ];
    fields.extend((0..count).map(|number| ("xmdl_bsnum", number)));
    fields.extend([("optxrs_count", count), ("optxrs_pslen", RESULTS)]);
    fields
}

impl Request {
    /// Splits a message into the equivalent RDMA_MSG of version 1 and the rest.
    pub(in crate::server) fn take_out_of(bytes: &[u8]) -> Result<(Vec<u8>, Self), Wrong> {
        let strange = || wrong(format!("no call but {bytes:x?}"));
        let heard = v2::parse(bytes).ok_or_else(strange)?;
        if (heard.direction, heard.opttype) != (v2::CALL, v2::XMTREQ) {
            return Err(strange());
        }
        let info = v2::bytes(&heard.info);
        let (request, payload) = Self::parse(&info, bytes).ok_or_else(strange)?;
        let rest = heard.rest.get(..payload as usize).ok_or_else(strange)?;
        Ok((v1::header(heard.xid).with(rest), request))
    }

    /// Decodes a request of one transmission with at most one item.
    fn parse(info: &[u8], bytes: &[u8]) -> Option<(Self, u32)> {
        let mut from = Reader(info);
        let mut data = Vec::new();
        match from.word()? {
            0 => {}
            1 => {
                let (_, len, kind) = (from.word()?, from.word()? as usize, from.word()?);
                if (kind, from.word()?, from.word()?, from.word()?) != (TBSN, 0, 1, 0) {
                    return None;
                }
                data = bytes.get(HEAD..HEAD + len)?.to_vec();
            }
            _ => return None,
        }
        let mut directions = Vec::new();
        for _ in 0..from.word()? {
            let (_, _, count) = (from.word()?, from.word()?, from.word()?);
            for _ in 0..count {
                let (_, kind) = (from.word()?, from.word()?);
                if kind == BYSIZE {
                    from.word()?;
                }
                let segments = if kind == TBSN { 0 } else { from.word()? };
                from.take(16 * segments as usize)?;
                directions.push(kind);
            }
        }
        let (count, _, payload) = (from.word()?, from.word()?, from.word()?);
        let request = Self { directions, data };
        (count == 1 && from.0.is_empty()).then_some((request, payload))
    }
}

impl Call {
    /// Returns the correct reply to a call that came by ROPT_XMTREQ. If `poisoned`, its content is
    /// wrong, so that accepting it is detected.
    pub(in crate::server) fn transmissions(&self, poisoned: bool) -> Result<Vec<Vec<u8>>, Wrong> {
        let Some(request) = &self.request else {
            return Err(wrong("the call came by no operation"));
        };
        if self.is_write() && request.data != content(DATA_SEED, request.data.len()) {
            return Err(wrong("the client wrote other data than it was to"));
        }
        let xid = self.header.xid;
        let is_read = self.procedure == (rpc::NFS, 6);
        let mut answer = self.answer(v2::CREDITS);
        let (fields, data) = match (&request.directions[..], is_read) {
            ([kind], true) if *kind != EXRW => {
                let len = self.last_word() as usize;
                answer.payload.truncate(RESULTS as usize);
                (response(len), content(DATA_SEED, len))
            }
            (directions, false) => {
                let mut fields = vec![("optxrs_ddp", directions.len() as u32)];
                for _ in directions {
                    fields.extend([("xmdmi_disp", 0), ("xmdmi_length", 0)]);
                    fields.push(("xmdl_type", NOITEM));
                }
                let len = answer.payload.len() as u32;
                fields.extend([("optxrs_count", 1), ("optxrs_pslen", len)]);
                (fields, Vec::new())
            }
            other => return Err(wrong(format!("directions {other:?}"))),
        };
        answer.places = vec![(0, 0, data)];
        if poisoned {
            answer.poison();
        }
        let info: Vec<u32> = fields.iter().map(|(_, value)| *value).collect();
        let first = v2::operation(xid, v2::REPLY, v2::XMTRESP, &info, &answer.payload);
        let mut all = vec![first];
        for (number, piece) in answer.places[0].2.chunks(TARGET).enumerate() {
            if number > 0 {
                let info = [number as u32, v2::XMTRESP, 0];
                all.push(v2::operation(xid, v2::REPLY, v2::XMTCONT, &info, &[]));
            }
            let message = &mut all[number];
            if message.len() > HEAD {
                return Err(wrong("the payload reaches into the data"));
            }
            message.resize(HEAD, 0);
            message.extend(piece);
        }
        debug_assert!(all[0].len() >= OPERATION);
        Ok(all)
    }
}
