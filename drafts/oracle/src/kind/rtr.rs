//! Operations and characteristics of rtrext-00, sections 6 to 9.

use quickcheck::{Arbitrary, Gen};
use rpcrdma_ext_continuation::{
    Continuation, Fault, OutOfRange, Report, Request, RequestReceiveLimit, Response,
    ResponseSendLimit, TransmissionId,
};
use rpcrdma_ext_send_ddp::{
    DirectedItem, DirectedSet, Direction, Location, PlacedItem, ReceiveBufferStructure,
    RoundTripSupport, Support,
};
use rpcrdma_extension::layout::{BufferSegment, BufferStructure, SegmentFlags, SegmentGroup, Spot};
use rpcrdma_v2::WriteChunk;

use super::any::{few, number};
use super::chunks::{any_segment, show_segment};
use super::optinfo::{Shown, Value, operation};
use super::v2::{any_direction, direction_name};
use super::{Kind, kind};
use crate::show::{Fields, Json};

pub(crate) const KINDS: &[Kind] = &[
    kind!("rtr-request", Request, any_request, payload: false),
    kind!("rtr-response", Response, any_response, payload: false),
    kind!("rtr-continuation", Continuation, any_continuation, payload: false),
    kind!("rtr-error", Report, any_report, payload: false),
    kind!("rtr-rtrsupp", Value<RoundTripSupport>, any_support, payload: false),
    kind!("rtr-rbstruct", Value<ReceiveBufferStructure>, any_structure, payload: false),
    kind!("rtr-reqrxlim", Value<RequestReceiveLimit>, number, payload: false),
    kind!("rtr-respsxlim", Value<ResponseSendLimit>, number, payload: false),
];

fn any_chunk(g: &mut Gen) -> WriteChunk {
    few(g, 3, any_segment).into()
}

fn any_item(g: &mut Gen) -> PlacedItem {
    PlacedItem {
        position: number(g),
        length: number(g),
        location: match u8::arbitrary(g) % 6 {
            0 => Location::TooShort,
            1 => Location::NoItem,
            2 | 3 => Location::Explicit(any_chunk(g)),
            _ => Location::Placed(Spot {
                offset: number(g),
                segments: few(g, 5, number).into(),
            }),
        },
    }
}

fn any_directed(g: &mut Gen) -> DirectedItem {
    DirectedItem {
        min_len: number(g),
        to: match u8::arbitrary(g) % 4 {
            0 => Direction::Explicit(any_chunk(g)),
            1 => Direction::Placed,
            2 => Direction::Choice(any_chunk(g)),
            _ => Direction::BySize {
                longest_placed: number(g),
                chunk: any_chunk(g),
            },
        },
    }
}

fn any_set(g: &mut Gen) -> DirectedSet {
    DirectedSet {
        begin: number(g),
        end: number(g),
        items: few(g, 3, any_directed).into(),
    }
}

fn any_request(g: &mut Gen) -> Request {
    Request {
        items: few(g, 3, any_item).into(),
        directions: few(g, 3, any_set).into(),
        count: number(g),
        reserved: number(g),
        payload: number(g),
    }
}

fn any_response(g: &mut Gen) -> Response {
    Response {
        items: few(g, 4, any_item).into(),
        count: number(g),
        payload: number(g),
    }
}

fn any_continuation(g: &mut Gen) -> Continuation {
    Continuation {
        number: number(g),
        initial: number(g),
        payload: number(g),
    }
}

fn any_id(g: &mut Gen) -> TransmissionId {
    TransmissionId {
        xid: u32::arbitrary(g),
        direction: any_direction(g),
        number: number(g),
    }
}

fn any_fault(g: &mut Gen) -> Fault {
    let (expected, found) = (number(g), number(g));
    let range = OutOfRange {
        value: number(g),
        min: number(g),
        max: number(g),
    };
    match u8::arbitrary(g) % 8 {
        0 => Fault::HeaderType { expected, found },
        1 => Fault::OperationType { expected, found },
        2 => Fault::Continuation,
        3 => Fault::Sequence { expected, found },
        4 => Fault::Xid { expected, found },
        5 => Fault::Offset(range),
        6 => Fault::Segment(range),
        _ => Fault::Payload(range),
    }
}

fn any_report(g: &mut Gen) -> Report {
    Report {
        bad: any_id(g),
        lead: bool::arbitrary(g).then(|| any_id(g)),
        fault: any_fault(g),
    }
}

fn any_support(g: &mut Gen) -> Support {
    Support::from_bits_retain(number(g))
}

fn any_structure(g: &mut Gen) -> BufferStructure {
    let group = |g: &mut Gen| SegmentGroup {
        count: number(g),
        segment: BufferSegment {
            length: number(g),
            align: number(g),
            flags: SegmentFlags::from_bits_retain(number(g)),
        },
    };
    BufferStructure::with_length(number(g), few(g, 4, group))
}

fn show_items(to: &mut Fields<'_>, name: &str, items: &[PlacedItem]) {
    to.field(name, |json| {
        json.list(items, |json, item| {
            json.object(|to| {
                to.number("xmdmi_disp", item.position)
                    .number("xmdmi_length", item.length)
                    .field("xmdmi_where", |json| {
                        json.object(|to| show_location(to, &item.location));
                    });
            });
        });
    });
}

fn show_location(to: &mut Fields<'_>, location: &Location) {
    match location {
        Location::Explicit(segments) => {
            to.name("xmdl_type", "XMDTYPE_EXRW")
                .field("xmdl_ex", |json| json.list(segments, show_segment));
        }
        Location::Placed(spot) => {
            to.name("xmdl_type", "XMDTYPE_TBSN")
                .field("xmdl_tbsn", |json| {
                    json.object(|to| {
                        to.number("xmdl_offset", spot.offset)
                            .field("xmdl_bsnum", |json| {
                                json.list(&spot.segments, |json, number| json.number(*number));
                            });
                    });
                });
        }
        Location::TooShort => {
            to.name("xmdl_type", "XMDTYPE_TOOSHORT");
        }
        Location::NoItem => {
            to.name("xmdl_type", "XMDTYPE_NOITEM");
        }
    }
}

fn show_direction(to: &mut Fields<'_>, direction: &Direction) {
    let segments = |json: &mut Json, chunk: &WriteChunk| json.list(chunk, show_segment);
    match direction {
        Direction::Explicit(chunk) => {
            to.name("xmdrsdl_type", "XMDTYPE_EXRW")
                .field("xmdrsdl_ex", |json| segments(json, chunk));
        }
        Direction::Placed => {
            to.name("xmdrsdl_type", "XMDTYPE_TBSN");
        }
        Direction::Choice(chunk) => {
            to.name("xmdrsdl_type", "XMDTYPE_CHOICE")
                .field("xmdrsdl_ex", |json| segments(json, chunk));
        }
        Direction::BySize {
            longest_placed,
            chunk,
        } => {
            to.name("xmdrsdl_type", "XMDTYPE_BYSIZE")
                .field("xmdrsdl_bysize", |json| {
                    json.object(|to| {
                        to.number("xmdrsdl_dsdov", *longest_placed)
                            .field("xmdrsdl_bsex", |json| segments(json, chunk));
                    });
                });
        }
    }
}

fn show_set(json: &mut Json, set: &DirectedSet) {
    json.object(|to| {
        to.field("xmdrsds_range", |json| {
            json.object(|to| {
                to.number("xmdrsdr_begin", set.begin)
                    .number("xmdrsdr_end", set.end);
            });
        })
        .field("xmdrsds_items", |json| {
            json.list(&set.items, |json, item| {
                json.object(|to| {
                    to.number("xmdrsdi_minlen", item.min_len)
                        .field("xmdrsdi_loc", |json| {
                            json.object(|to| show_direction(to, &item.to));
                        });
                });
            });
        });
    });
}

operation!(
    Request,
    "optxmt_req",
    |request: &Self, to: &mut Fields<'_>| {
        show_items(to, "optxrq_ddp", &request.items);
        to.field("optxrq_rsd", |json| {
            json.list(&request.directions, show_set)
        })
        .number("optxrq_count", request.count)
        .number("optxrq_rsbuf", request.reserved)
        .number("optxrq_pslen", request.payload);
    }
);
operation!(
    Response,
    "optxmt_resp",
    |response: &Self, to: &mut Fields<'_>| {
        show_items(to, "optxrs_ddp", &response.items);
        to.number("optxrs_count", response.count)
            .number("optxrs_pslen", response.payload);
    }
);
operation!(
    Continuation,
    "optxmt_cont",
    |continuation: &Self, to: &mut Fields<'_>| {
        to.number("optxc_xnum", continuation.number)
            .number("optxc_itype", continuation.initial)
            .number("optxc_pslen", continuation.payload);
    }
);

fn show_id(json: &mut Json, id: TransmissionId) {
    json.object(|to| {
        to.number("xmsi_xid", id.xid)
            .name("xmsi_dir", direction_name(id.direction))
            .number("xmsi_seq", id.number);
    });
}

fn show_fault(to: &mut Fields<'_>, fault: &Fault) {
    let name = match fault {
        Fault::HeaderType { .. } => "OPTXERR_BADHMT",
        Fault::OperationType { .. } => "OPTXERR_BADOMT",
        Fault::Continuation => "OPTXERR_BADCONT",
        Fault::Sequence { .. } => "OPTXERR_BADSEQ",
        Fault::Xid { .. } => "OPTXERR_BADXID",
        Fault::Offset(_) => "OPTXERR_BADOFF",
        Fault::Segment(_) => "OPTXERR_BADTBSN",
        Fault::Payload(_) => "OPTXERR_BADPL",
    };
    to.name("optxe_which", name);
    match fault {
        Fault::Continuation => {}
        Fault::HeaderType { expected, found }
        | Fault::OperationType { expected, found }
        | Fault::Sequence { expected, found }
        | Fault::Xid { expected, found } => {
            to.field("optxi_mismatch", |json| {
                json.object(|to| {
                    to.number("optxi_expect", *expected)
                        .number("optxi_current", *found);
                });
            });
        }
        Fault::Offset(range) | Fault::Segment(range) | Fault::Payload(range) => {
            to.field("optxi_range", |json| {
                json.object(|to| {
                    to.number("optxi_value", range.value)
                        .number("optxi_min", range.min)
                        .number("optxi_max", range.max);
                });
            });
        }
    }
}

operation!(
    Report,
    "optxmt_err",
    |report: &Self, to: &mut Fields<'_>| {
        to.field("optxe_bad", |json| show_id(json, report.bad))
            .field("optxe_lead", |json| json.option(report.lead, show_id))
            .field("optxe_info", |json| {
                json.object(|to| show_fault(to, &report.fault))
            });
    }
);

impl Shown for RoundTripSupport {
    const XDR: &'static str = "xchrrtrs";

    fn show(value: &Support, json: &mut Json) {
        json.number(value.bits());
    }
}

impl Shown for ReceiveBufferStructure {
    const XDR: &'static str = "xchrrbs";

    fn show(value: &BufferStructure, json: &mut Json) {
        json.object(|to| {
            to.number("xmrbuf_length", value.len())
                .field("xmrbuf_groups", |json| {
                    json.list(value.groups(), |json, group| {
                        json.object(|to| {
                            to.number("xmrgrp_count", group.count)
                                .field("xmrgrp_info", |json| show_buffer_segment(json, group));
                        });
                    });
                });
        });
    }
}

fn show_buffer_segment(json: &mut Json, group: &SegmentGroup) {
    json.object(|to| {
        to.number("xmrseg_length", group.segment.length)
            .number("xmrseg_align", group.segment.align)
            .number("xmrseg_flags", group.segment.flags.bits());
    });
}

/// Implements [`Shown`] for a characteristic that is a number.
macro_rules! number_shown {
    ($characteristic:ty, $xdr:literal) => {
        impl Shown for $characteristic {
            const XDR: &'static str = $xdr;

            fn show(value: &u32, json: &mut Json) {
                json.number(*value);
            }
        }
    };
}
number_shown!(RequestReceiveLimit, "xchrqrxl");
number_shown!(ResponseSendLimit, "xchrssxl");
