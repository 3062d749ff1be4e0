//! The RPC and NFS fields that tshark must find.

use std::collections::HashMap;

use nfs_binding::proto::{
    Attributes, DirOp, NFS_PROGRAM, Procedure, ReadArgs, ReaddirplusResult, WriteResult, Xdr, nfs,
};
use onc_rpc::{
    AcceptStatus, CALL, CallHeader, DecodeError, Decoder, REPLY, ReplyBody, ReplyHeader,
};

use crate::calls::long_name;
use crate::columns::{Columns, Direction};

/// The calls so far, because a reply does not contain its procedure.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    /// The procedures of NFS calls by XID.
    calls: HashMap<u32, u32>,
}

impl Expected {
    /// Adds an RPC message, as far as it was sent inline.
    pub(crate) fn message(
        &mut self,
        direction: Direction,
        from: &mut Decoder<'_>,
        columns: &mut Columns,
    ) -> Result<(), DecodeError> {
        match direction {
            Direction::Call => self.call(from, columns),
            Direction::Reply => self.reply(from, columns),
        }
    }

    fn call(&mut self, from: &mut Decoder<'_>, columns: &mut Columns) -> Result<(), DecodeError> {
        const AT: Direction = Direction::Call;
        let Ok(call) = CallHeader::decode(from) else {
            return Err(DecodeError::Invalid {
                what: "call",
                value: 0,
            });
        };
        columns.push(AT, "rpc.xid", call.xid);
        columns.push(AT, "rpc.msgtyp", CALL);
        columns.push(AT, "rpc.program", call.prog);
        columns.push(AT, "rpc.procedure", call.proc);
        if call.prog == NFS_PROGRAM {
            self.nfs_call(call.xid, call.proc, from, columns)?;
        }
        Ok(())
    }

    /// Adds the call that is so long that it is sent in a Position Zero Read chunk, where the
    /// recorded requests do not show it.
    pub(crate) fn long_call(&mut self, xid: u32, columns: &mut Columns) {
        const AT: Direction = Direction::Call;
        columns.push(AT, "rpc.xid", xid);
        columns.push(AT, "rpc.msgtyp", CALL);
        columns.push(AT, "rpc.program", NFS_PROGRAM);
        columns.push(AT, "rpc.procedure", nfs::Lookup::NUMBER);
        columns.push(AT, "nfs.procedure_v3", nfs::Lookup::NUMBER);
        columns.push(AT, "nfs.name", long_name());
        self.calls.insert(xid, nfs::Lookup::NUMBER);
    }

    fn nfs_call(
        &mut self,
        xid: u32,
        procedure: u32,
        from: &mut Decoder<'_>,
        columns: &mut Columns,
    ) -> Result<(), DecodeError> {
        const AT: Direction = Direction::Call;
        columns.push(AT, "nfs.procedure_v3", procedure);
        self.calls.insert(xid, procedure);
        match procedure {
            // The arguments start with a directory handle and a name.
            nfs::Lookup::NUMBER
            | nfs::Create::NUMBER
            | nfs::Mkdir::NUMBER
            | nfs::Symlink::NUMBER => {
                let place = DirOp::decode(from)?;
                let name = String::from_utf8_lossy(&place.name.0).into_owned();
                columns.push(AT, "nfs.name", name);
            }
            // The arguments start with a file handle, an offset and a count.
            nfs::Read::NUMBER | nfs::Write::NUMBER | nfs::Commit::NUMBER => {
                let args = ReadArgs::decode(from)?;
                columns.push(AT, "nfs.offset3", args.offset);
                columns.push(AT, "nfs.count3", args.count);
            }
            _ => {}
        }
        Ok(())
    }

    fn reply(&mut self, from: &mut Decoder<'_>, columns: &mut Columns) -> Result<(), DecodeError> {
        const AT: Direction = Direction::Reply;
        let reply = ReplyHeader::decode(from)?;
        columns.push(AT, "rpc.xid", reply.xid);
        columns.push(AT, "rpc.msgtyp", REPLY);
        let ReplyBody::Accepted { status, .. } = reply.body else {
            return Ok(());
        };
        let status = match status {
            AcceptStatus::Success => 0,
            AcceptStatus::ProgUnavail => 1,
            AcceptStatus::ProgMismatch { .. } => 2,
            AcceptStatus::ProcUnavail => 3,
            AcceptStatus::GarbageArgs => 4,
            AcceptStatus::SystemErr => 5,
        };
        columns.push(AT, "rpc.state_accept", status);
        match self.calls.get(&reply.xid) {
            Some(&procedure) if status == 0 => Self::nfs_reply(procedure, from, columns),
            _ => Ok(()),
        }
    }

    fn nfs_reply(
        procedure: u32,
        from: &mut Decoder<'_>,
        columns: &mut Columns,
    ) -> Result<(), DecodeError> {
        const AT: Direction = Direction::Reply;
        columns.push(AT, "nfs.procedure_v3", procedure);
        if procedure == nfs::Null::NUMBER {
            return Ok(());
        }
        columns.push(AT, "nfs.status3", from.clone().u32()?);
        match procedure {
            nfs::Readdirplus::NUMBER => {
                for entry in ReaddirplusResult::decode(from)?
                    .iter()
                    .flat_map(|ok| &ok.entries)
                {
                    let name = String::from_utf8_lossy(&entry.name.0).into_owned();
                    columns.push(AT, "nfs.readdirplus.entry.name", name);
                }
            }
            nfs::Write::NUMBER => {
                if let Ok(ok) = WriteResult::decode(from)? {
                    columns.push(AT, "nfs.count3", ok.count);
                }
            }
            // The data may have been placed elsewhere, so the results cannot be decoded completely.
            nfs::Read::NUMBER if from.u32()? == 0 => {
                Option::<Attributes>::decode(from)?;
                columns.push(AT, "nfs.count3", from.u32()?);
            }
            _ => {}
        }
        Ok(())
    }
}
