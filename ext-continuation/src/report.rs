//! ROPT_XMTERR: the report of an error in a transmission (section 9.5).

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use rpcrdma_v2::{Direction, Malformed, OPTIONAL, Reader};

use crate::XMTCONT;

/// `xms_id`: the identification of a transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransmissionId {
    /// `xmsi_xid`: XID of the transmission's message.
    pub xid: u32,
    /// `xmsi_dir`: direction of the transmission's message.
    pub direction: Direction,
    /// `xmsi_seq`: number of the transmission in the group.
    pub number: u32,
}

/// `optx_info`: the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// OPTXERR_BADHMT: a message of another type inside a group.
    HeaderType {
        /// The `rdma_proc` that was expected.
        expected: u32,
        /// The `rdma_proc` that was received.
        found: u32,
    },
    /// OPTXERR_BADOMT: an operation of another type inside a group, or a continuation of a group
    /// that began with another operation.
    OperationType {
        /// The `rdma_opttype` that was expected.
        expected: u32,
        /// The `rdma_opttype` that was received.
        found: u32,
    },
    /// OPTXERR_BADCONT: a continuation without a group.
    Continuation,
    /// OPTXERR_BADSEQ: a wrong number in the group, or a group with more transmissions than
    /// accepted.
    Sequence {
        /// The number that was expected, or the maximum that is accepted.
        expected: u32,
        /// The number that was received.
        found: u32,
    },
    /// OPTXERR_BADXID: a continuation of another message.
    Xid {
        /// The XID that was expected.
        expected: u32,
        /// The XID that was received.
        found: u32,
    },
    /// OPTXERR_BADOFF: an invalid offset.
    Offset(OutOfRange),
    /// OPTXERR_BADTBSN: an invalid number of a buffer segment.
    Segment(OutOfRange),
    /// OPTXERR_BADPL: an invalid payload length.
    Payload(OutOfRange),
}

/// A value and the range of valid values. A value inside the range is not a multiple of four, or
/// contradicts other fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    /// `optxi_value`: the invalid value.
    pub value: u32,
    /// `optxi_min`: the smallest valid value.
    pub min: u32,
    /// `optxi_max`: the largest valid value.
    pub max: u32,
}

/// `optxmt_err`: an error report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// `optxe_bad`: the transmission in which the error was found.
    pub bad: TransmissionId,
    /// `optxe_lead`: an earlier transmission that may have led to the error.
    pub lead: Option<TransmissionId>,
    /// `optxe_info`: the error.
    pub fault: Fault,
}

/// The values of `optx_err`, which names the kind of error.
mod code {
    pub(super) const BADHMT: u32 = 1;
    pub(super) const BADOMT: u32 = 2;
    pub(super) const BADCONT: u32 = 3;
    pub(super) const BADSEQ: u32 = 4;
    pub(super) const BADXID: u32 = 5;
    pub(super) const BADOFF: u32 = 6;
    pub(super) const BADTBSN: u32 = 7;
    pub(super) const BADPL: u32 = 8;
}

impl Fault {
    /// Returns the `optx_err` of the error.
    #[must_use]
    pub fn code(&self) -> u32 {
        match self {
            Self::HeaderType { .. } => code::BADHMT,
            Self::OperationType { .. } => code::BADOMT,
            Self::Continuation => code::BADCONT,
            Self::Sequence { .. } => code::BADSEQ,
            Self::Xid { .. } => code::BADXID,
            Self::Offset(_) => code::BADOFF,
            Self::Segment(_) => code::BADTBSN,
            Self::Payload(_) => code::BADPL,
        }
    }

    fn fields(&self) -> ([u32; 3], usize) {
        match *self {
            Self::HeaderType { expected, found }
            | Self::OperationType { expected, found }
            | Self::Sequence { expected, found }
            | Self::Xid { expected, found } => ([expected, found, 0], 2),
            Self::Continuation => ([0; 3], 0),
            Self::Offset(OutOfRange { value, min, max })
            | Self::Segment(OutOfRange { value, min, max })
            | Self::Payload(OutOfRange { value, min, max }) => ([value, min, max], 3),
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let code = from.u32()?;
        let fields = match code {
            code::BADHMT | code::BADOMT | code::BADSEQ | code::BADXID => 2,
            code::BADCONT => 0,
            code::BADOFF | code::BADTBSN | code::BADPL => 3,
            other => return Err(Malformed::Enumeration("optx_err", other)),
        };
        let mut read = [0; 3];
        for field in &mut read[..fields] {
            *field = from.u32()?;
        }
        let [value, min, max] = read;
        let (expected, found) = (value, min);
        let range = OutOfRange { value, min, max };
        Ok(match code {
            code::BADHMT => Self::HeaderType { expected, found },
            code::BADOMT => Self::OperationType { expected, found },
            code::BADCONT => Self::Continuation,
            code::BADSEQ => Self::Sequence { expected, found },
            code::BADXID => Self::Xid { expected, found },
            code::BADOFF => Self::Offset(range),
            code::BADTBSN => Self::Segment(range),
            _ => Self::Payload(range),
        })
    }
}

impl TransmissionId {
    fn encode_into(self, out: &mut BytesMut) {
        out.put_u32(self.xid);
        out.put_u32(self.direction.number());
        out.put_u32(self.number);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let xid = from.u32()?;
        let direction = from.u32()?;
        Ok(Self {
            xid,
            direction: Direction::from_number(direction)
                .ok_or(Malformed::Enumeration("msg_type", direction))?,
            number: from.u32()?,
        })
    }
}

impl Report {
    /// Encodes the report as XDR, for `rdma_optinfo`.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(44);
        self.bad.encode_into(&mut out);
        out.put_u32(u32::from(self.lead.is_some()));
        if let Some(lead) = self.lead {
            lead.encode_into(&mut out);
        }
        out.put_u32(self.fault.code());
        let (fields, used) = self.fault.fields();
        fields[..used].iter().for_each(|&field| out.put_u32(field));
        out.freeze()
    }

    /// Returns the next expected transmission of a group that another message interrupted, if the
    /// report is about an interruption and consistent: a group was expected to continue (section
    /// 9.5), and the bad transmission is not part of it. The receiver has dropped that group
    /// (section 4.2), whatever the other message is.
    #[must_use]
    pub fn broken_into(&self) -> Option<TransmissionId> {
        let lead = self.lead?;
        let is_so = match self.fault {
            Fault::HeaderType { expected, found } => expected == OPTIONAL && found != OPTIONAL,
            Fault::OperationType { expected, found } => expected == XMTCONT && found != XMTCONT,
            Fault::Xid { expected, found } => expected == lead.xid && found == self.bad.xid,
            Fault::Continuation
            | Fault::Sequence { .. }
            | Fault::Offset(_)
            | Fault::Segment(_)
            | Fault::Payload(_) => false,
        };
        is_so.then_some(lead)
    }

    /// Decodes a report.
    ///
    /// # Errors
    /// [`Malformed`] if `info` does not match the XDR definition.
    pub fn decode(info: &[u8]) -> Result<Self, Malformed> {
        Reader::whole(info, |from| {
            Ok(Self {
                bad: TransmissionId::decode(from)?,
                lead: match from.boolean()? {
                    true => Some(TransmissionId::decode(from)?),
                    false => None,
                },
                fault: Fault::decode(from)?,
            })
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.code() {
            code::BADHMT => "OPTXERR_BADHMT",
            code::BADOMT => "OPTXERR_BADOMT",
            code::BADCONT => "OPTXERR_BADCONT",
            code::BADSEQ => "OPTXERR_BADSEQ",
            code::BADXID => "OPTXERR_BADXID",
            code::BADOFF => "OPTXERR_BADOFF",
            code::BADTBSN => "OPTXERR_BADTBSN",
            _ => "OPTXERR_BADPL",
        };
        match self.fields() {
            (_, 0) => f.write_str(name),
            ([expected, found, _], 2) => write!(f, "{name} ({found}, expected {expected})"),
            ([value, min, max], _) => write!(f, "{name} ({value}, valid are {min} to {max})"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TransmissionId {
            xid,
            direction,
            number,
        } = self.bad;
        let fault = self.fault;
        write!(
            f,
            "{fault} in transmission {number} of {direction} {xid:#010x}"
        )?;
        match self.broken_into() {
            Some(group) if (group.xid, group.direction) != (xid, direction) => {
                let TransmissionId { xid, direction, .. } = group;
                write!(f, ", in the middle of {direction} {xid:#010x}")
            }
            _ => Ok(()),
        }
    }
}
