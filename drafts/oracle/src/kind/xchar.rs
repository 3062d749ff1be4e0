//! Operations and characteristics of xcharext-02, sections 2 to 5.

use quickcheck::{Arbitrary, Gen};
use rpcrdma_ext_xchar::{
    BackwardRequestSupport, BackwardSupport, Init, ReceiveBufferSize, Request,
    RequesterRemoteInvalidation, Response, Subset, Update,
};
use rpcrdma_extension::Property;

use super::any::{few, number, one_of, opaque};
use super::optinfo::{Shown, Value, operation};
use super::{Kind, kind};
use crate::show::{Fields, Json};

pub(crate) const KINDS: &[Kind] = &[
    kind!("xchar-init", Init, any_init, payload: false),
    kind!("xchar-request", Request, any_request, payload: false),
    kind!("xchar-response", Response, any_response, payload: false),
    kind!("xchar-update", Update, any_update, payload: false),
    kind!("xchar-rbsiz", Value<ReceiveBufferSize>, number, payload: false),
    kind!("xchar-reqreminv", Value<RequesterRemoteInvalidation>, bool::arbitrary, payload: false),
    kind!("xchar-brs", Value<BackwardRequestSupport>, any_support, payload: false),
];

fn any_property(g: &mut Gen) -> Property {
    Property {
        id: number(g),
        value: opaque(g),
    }
}

fn any_list(g: &mut Gen) -> Vec<Property> {
    few(g, 6, any_property)
}

fn any_subset(g: &mut Gen) -> Subset {
    let below = one_of(g, &[8, 40, 64]).unwrap_or(64);
    Subset::new(few(g, 6, |g| usize::arbitrary(g) % below))
}

fn any_init(g: &mut Gen) -> Init {
    Init {
        start: any_list(g),
        no_change: any_subset(g),
    }
}

fn any_request(g: &mut Gen) -> Request {
    Request { want: any_list(g) }
}

fn any_response(g: &mut Gen) -> Response {
    Response {
        done: any_subset(g),
        rejected: any_subset(g),
        pending: any_subset(g),
    }
}

fn any_update(g: &mut Gen) -> Update {
    Update {
        now: any_property(g),
        pending_cleared: bool::arbitrary(g),
    }
}

fn any_support(g: &mut Gen) -> BackwardSupport {
    let all = [
        BackwardSupport::None,
        BackwardSupport::Inline,
        BackwardSupport::General,
    ];
    one_of(g, &all).unwrap_or(BackwardSupport::None)
}

fn show_property(json: &mut Json, property: &Property) {
    json.object(|to| {
        to.number("xchv_which", property.id)
            .field("xchv_data", |json| json.hex(&property.value));
    });
}

fn show_list(to: &mut Fields<'_>, name: &str, list: &[Property]) {
    to.field(name, |json| json.list(list, show_property));
}

/// Shows the words of a subset up to the last that is not zero.
fn show_subset(to: &mut Fields<'_>, name: &str, subset: Subset) {
    let word = |n: usize| {
        (0..32).fold(0, |w, bit| {
            w | u32::from(subset.contains(32 * n + bit)) << bit
        })
    };
    let words = [word(0), word(1)];
    let len = words
        .iter()
        .rposition(|&word| word != 0)
        .map_or(0, |last| last + 1);
    to.field(name, |json| {
        json.list(&words[..len], |json, word| json.number(*word))
    });
}

operation!(
    Init,
    "optinfo_initxch",
    |init: &Self, to: &mut Fields<'_>| {
        show_list(to, "optixch_start", &init.start);
        show_subset(to, "optixch_nochg", init.no_change);
    }
);
operation!(
    Request,
    "optinfo_reqxch",
    |request: &Self, to: &mut Fields<'_>| {
        show_list(to, "optreqxch_want", &request.want);
    }
);
operation!(
    Response,
    "optinfo_respxch",
    |response: &Self, to: &mut Fields<'_>| {
        show_subset(to, "optrespxch_done", response.done);
        show_subset(to, "optrespxch_rej", response.rejected);
        show_subset(to, "optrespxch_pend", response.pending);
    }
);
operation!(
    Update,
    "optinfo_updxch",
    |update: &Self, to: &mut Fields<'_>| {
        to.field("optupdxch_now", |json| show_property(json, &update.now))
            .field("optupdxch_pendclr", |json| {
                json.boolean(update.pending_cleared)
            });
    }
);

impl Shown for ReceiveBufferSize {
    const XDR: &'static str = "xchrbsiz";

    fn show(value: &u32, json: &mut Json) {
        json.number(*value);
    }
}

impl Shown for RequesterRemoteInvalidation {
    const XDR: &'static str = "xchrreqrem";

    fn show(value: &bool, json: &mut Json) {
        json.boolean(*value);
    }
}

impl Shown for BackwardRequestSupport {
    const XDR: &'static str = "xchrbrs";

    fn show(value: &BackwardSupport, json: &mut Json) {
        json.name(match value {
            BackwardSupport::None => "BKREQSUP_NONE",
            BackwardSupport::Inline => "BKREQSUP_INLINE",
            BackwardSupport::General => "BKREQSUP_GENL",
        });
    }
}
