//! Steps of version 2 of 2016 with its extensions.

use super::*;
use crate::characteristics::Needed;
use crate::dialect::Dialect;
use crate::operation::Operation;
use crate::wire::v1::ERROR;
use crate::wire::v2::{
    self, CALL, ERR_BAD_HEADER, ERR_INVAL_OPTION, INITXCH, REPLY, UPDXCH, XMTERR,
};

/// Everything that a case can need.
const ALL: Needed = Needed {
    operations: 7,
    request: 2,
    response: 2,
};

fn told(needed: Needed, steps: &[Step]) -> Case {
    let beginning = [
        Step::Connect(Vec::new()),
        Step::Send(v2::operation(7, CALL, INITXCH, &[0, 0], &[])),
        Step::Characteristics(needed),
    ];
    let script = [&beginning[..], steps].concat();
    case("version-two-01, xcharext-4.1", 900, "x", "x", script).speaking(Dialect::Two)
}

/// Performs a case with a server that sends this after the client's characteristics, answers calls by RDMA2_MSG, and
/// says nothing to anything else.
fn performed_with(case: &Case, first: Vec<u8>) -> Result<(), Failed> {
    performed_and(case, first, |_, _| {})
}

/// Performs a case with such a server, which answers other operations than ROPT_INITXCH in this way.
fn performed_and(
    case: &Case,
    first: Vec<u8>,
    other: impl Fn(&mut Peer, &[u8]) + Send + 'static,
) -> Result<(), Failed> {
    performed(case, PATIENCE, move |peer, message| {
        match v2::parse(message).map(|it| it.opttype) {
            Some(INITXCH) => peer.send(&first),
            Some(_) => other(peer, message),
            None => {
                let xid = xid(message);
                peer.send(&v2::plain(xid, REPLY, &rpc::accepted(xid, 0, &[])));
            }
        }
        true
    })
}

fn characteristics(info: &[u32]) -> Vec<u8> {
    v2::operation(7, REPLY, INITXCH, info, &[])
}

#[test]
fn what_a_server_tells_decides_which_cases_apply() {
    let none = Needed::default();
    let everything = characteristics(&v2::everything());
    assert_eq!(performed_with(&told(ALL, &[]), everything.clone()), Ok(()));
    assert_eq!(
        performed_with(&told(none, &[]), characteristics(&[0, 0])),
        Ok(())
    );
    let unknown = v2::bytes(&[7, 2, 8, ERROR, ERR_INVAL_OPTION]);
    let absent = [
        (ALL, characteristics(&[0, 0])),
        (Needed { request: 17, ..ALL }, everything),
        (none, unknown),
    ];
    for (needed, first) in absent {
        let result = performed_with(&told(needed, &[]), first);
        assert!(
            matches!(result, Err(Failed::NotApplicable(_))),
            "{result:?}"
        );
    }
    let wrong = [
        characteristics(&[1]),
        v2::plain(7, REPLY, &rpc::accepted(7, 0, &[])),
        v2::bytes(&[7, 2, 8, ERROR, ERR_BAD_HEADER]),
    ];
    for first in wrong {
        let result = performed_with(&told(none, &[]), first);
        assert!(matches!(result, Err(Failed::Deviation(_))), "{result:?}");
    }
}

#[test]
fn a_message_longer_than_the_clients_receives_is_a_deviation() {
    let long = v2::operation(7, REPLY, INITXCH, &[0, 0], &[0; v2::INLINE]);
    let result = performed_with(&told(Needed::default(), &[]), long);
    let Err(Failed::Deviation(what)) = result else {
        panic!("{result:?}");
    };
    assert!(what.contains("this client receives 4096"), "{what}");
}

#[test]
fn placed_data_follows_the_padding_to_its_segment() {
    let message = v2::operation(9, CALL, UPDXCH, &[1], &[5; 4]);
    let send = |data: usize| told(ALL, &[Step::SendPlaced(message.clone(), vec![6; data])]);
    let (sent, heard) = std::sync::mpsc::channel();
    let everything = characteristics(&v2::everything());
    let result = performed_and(&send(8), everything.clone(), move |_, message| {
        sent.send(message.to_vec()).unwrap();
    });
    assert_eq!(result, Ok(()));
    let whole = heard.recv().unwrap();
    let mut expected = message.clone();
    expected.resize(v2::HEAD, 0);
    expected.extend([6; 8]);
    assert_eq!(whole, expected);
    let too_much = performed_with(&send(v2::TARGET + 1), everything);
    let plain = told(
        Needed::default(),
        &[Step::SendPlaced(message.clone(), vec![6])],
    );
    for result in [too_much, performed_with(&plain, characteristics(&[0, 0]))] {
        assert!(
            matches!(result, Err(Failed::NotApplicable(_))),
            "{result:?}"
        );
    }
}

/// The server answers an update by reports.
#[test]
fn what_may_come_need_not_come_but_nothing_else_may() {
    let report = |code| v2::operation(9, REPLY, XMTERR, &[code], &[]);
    let allowed = Operation::new(9, XMTERR, &[Some(3)]);
    let steps = [
        Step::Send(v2::operation(9, CALL, UPDXCH, &[1], &[])),
        Step::Perhaps(vec![Expect::Operation(Box::new(allowed))]),
    ];
    let case = told(ALL, &steps);
    let with = |reports: Vec<Vec<u8>>| {
        let everything = characteristics(&v2::everything());
        performed_and(&case, everything, move |peer, _| {
            reports.iter().for_each(|it| peer.send(it));
        })
    };
    assert_eq!(with(Vec::new()), Ok(()));
    assert_eq!(with(vec![report(3)]), Ok(()));
    let others = [with(vec![report(4)]), with(vec![report(3), report(3)])];
    for result in others {
        assert!(matches!(result, Err(Failed::Deviation(_))), "{result:?}");
    }
}
