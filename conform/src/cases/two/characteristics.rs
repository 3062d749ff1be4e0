//! The exchange of transport characteristics (draft-dnoveck-nfsv4-rpcrdma-xcharext-02).
//!
//! Its support is optional, operation by operation. The document says most of what it requires in lower case: a case
//! is a MUST where the other end could not go on otherwise.

use super::{FIRST, bad_header, error};
use crate::case::{Case, Ground, Level, Step, case, memory};
use crate::cases::nfs;
use crate::characteristics::Needed;
use crate::dialect::Dialect;
use crate::expect::{Expect, success};
use crate::operation::Operation;
use crate::wire::mpa;
use crate::wire::v2::{
    CALL, ERR_INVAL_OPTION, INITXCH, RBSIZ, REQXCH, RESPXCH, UPDXCH, from_first, operation,
};

/// The address of the simplest exchange.
pub(super) const FIRST_TOLD: &str = "rpcrdma2-01/xcharext-4.1/1";
/// The XID of this client's characteristics.
const INIT: u32 = 0x0f00_0001;
/// The information of a ROPT_INITXCH that tells no characteristic.
const NOTHING: [u32; 2] = [0, 0];

/// Creates a case of level MUST on a connection on which both ends have told their characteristics, this client those
/// in `own`.
pub(super) fn told(
    (section, number): (&'static str, u32),
    sends: &str,
    expects: &'static str,
    own: &[u32],
    needed: Needed,
    steps: Vec<Step>,
) -> Case {
    let beginning = vec![
        Step::Connect(mpa::PRIVATE_DATA.to_vec()),
        Step::Send(operation(INIT, CALL, INITXCH, own, &[])),
        Step::Characteristics(needed),
    ];
    let script = [beginning, steps].concat();
    let case = case(section, number, sends, expects, script).speaking(Dialect::Two);
    match case.address() == FIRST_TOLD {
        true => case.needs(FIRST),
        false => case.needs(FIRST_TOLD),
    }
}

/// Translates the messages of a script of version 1.
pub(super) fn of_second(steps: Vec<Step>) -> Vec<Step> {
    let translated = steps.into_iter().map(|step| match step {
        Step::Send(message) => Step::Send(from_first(&message, CALL)),
        other => other,
    });
    translated.collect()
}

/// Returns the cases.
pub(super) fn cases(ground: &Ground) -> Vec<Case> {
    let any = Needed::default();
    let first = told(
        ("version-two-01, xcharext-4.1", 1),
        "ROPT_INITXCH as the first message",
        "the server's ROPT_INITXCH before anything else, and the next call is answered",
        &NOTHING,
        any,
        Vec::new(),
    );
    let unknown = told(
        ("version-two-01, xcharext-2.1", 1),
        "ROPT_INITXCH with two characteristics that nobody knows",
        "no error, and the next call is answered",
        &[2, 99, 4, 7, 0xffff_ff01, 0, 0],
        any,
        Vec::new(),
    );
    vec![
        // "Generally, a participant will send a ROPT_INITXCH message as the first message".
        first.level(Level::Should),
        unknown,
        empty_value(ground),
        rejected(ground),
        short_receives(ground),
    ]
}

/// A receiver "MUST report an XDR error if [...] the length of xchv_data is insufficient" (section 2.1). The base has one
/// error for that.
fn empty_value(ground: &Ground) -> Case {
    let xid = ground.xid();
    let update = operation(xid, CALL, UPDXCH, &[RBSIZ, 0, 0], &[]);
    let allowed = vec![bad_header(xid), error(xid, ERR_INVAL_OPTION)];
    told(
        ("version-two-01, xcharext-2.1", 2),
        "ROPT_UPDXCH with a receive buffer size of no bytes",
        "RDMA2_ERROR with BAD_HEADER, or with INVAL_OPTION where ROPT_UPDXCH is not supported",
        &NOTHING,
        Needed::default(),
        vec![Step::Send(update), Step::Expect(allowed)],
    )
}

/// A request to change what the server cannot know.
fn rejected(ground: &Ground) -> Case {
    const BOTH: u32 = 0b11;
    let xid = ground.xid();
    let request = operation(xid, CALL, REQXCH, &[2, 99, 0, 0xffff_ff00, 0], &[]);
    // A subset without elements has no words, or words of zero (section 2.1).
    let subsets = |subset: &dyn Fn(u32) -> Vec<u32>| {
        let info = [subset(0), subset(BOTH), subset(0)].concat();
        let info: Vec<Option<u32>> = info.into_iter().map(Some).collect();
        Expect::Operation(Box::new(Operation::new(xid, RESPXCH, &info)))
    };
    let allowed = vec![
        subsets(&|bits| if bits == 0 { vec![0] } else { vec![1, bits] }),
        subsets(&|bits| vec![1, bits]),
        error(xid, ERR_INVAL_OPTION),
    ];
    told(
        ("version-two-01, xcharext-4.3", 1),
        "ROPT_REQXCH for two characteristics that nobody knows",
        "ROPT_RESPXCH with its XID, both rejected, or RDMA2_ERROR with INVAL_OPTION",
        &NOTHING,
        Needed::default(),
        vec![Step::Send(request), Step::Expect(allowed)],
    )
}

/// A reply that is longer than the receives that this client has told.
fn short_receives(ground: &Ground) -> Case {
    const DATA: usize = 8192;
    let room = memory(0, 2 * DATA as u32);
    let data = crate::cases::content(500, DATA);
    let (xid, message) = nfs::read(ground, 0, DATA as u32, &[], Some(&[room]));
    let reply = success(xid, &[0]).ends(&nfs::opaque_words(&data)[1..]);
    let mut steps = nfs::stored(ground, 0, &data);
    steps.extend([
        Step::Room(room),
        Step::Send(message),
        Step::Expect(vec![Expect::Reply(success(xid, &[0]).long())]),
        Step::Message(vec![room.handle], reply),
    ]);
    told(
        ("version-two-01, xcharext-3.1", 1),
        "READ of 8192 bytes by a Reply chunk, to a client whose receives have 4096",
        "the reply in the chunk",
        &[1, RBSIZ, 4, 4096, 0],
        Needed::default(),
        of_second(steps),
    )
}
