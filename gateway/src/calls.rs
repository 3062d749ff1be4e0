//! The calls of one end that were passed to the other and are not answered.

use std::collections::{BTreeSet, VecDeque};

use onc_rpc::Message;
use rdma::{IdMap, Time};

use crate::reduction::{CallKind, RememberedCall};

/// A call as it arrived.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) xid: u32,
    /// The id by which the transport that it arrived on takes the reply.
    pub(crate) token: u64,
    pub(crate) message: Message,
}

/// A call that was passed on.
#[derive(Debug)]
pub(crate) struct Passed {
    pub(crate) token: u64,
    /// The part of it that reading its reply takes.
    pub(crate) remembered: RememberedCall,
    /// Its kind, if there is a report of kinds.
    pub(crate) kind: Option<CallKind>,
    /// Bytes that are set aside for the reply.
    pub(crate) reserved: usize,
}

/// A call that was passed on, with later transmissions that have the same XID. Each of these is passed on
/// when the one before has been answered: a transport takes an XID once at a time. So the other end sees
/// that a call was repeated. A reply is never taken for that to another transmission, whose GSS sequence
/// number it would not verify.
#[derive(Debug)]
struct Entry {
    passed: Passed,
    held: VecDeque<Arrived>,
    /// The time since when there are such, if there are.
    since: Option<Time>,
}

/// A call that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) passed: Passed,
    /// The next transmissions with the same XID, oldest first.
    pub(crate) held: VecDeque<Arrived>,
}

/// The unanswered calls of one end, by XID.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    passed: IdMap<u32, Entry>,
    /// The number of transmissions that are held back.
    held: usize,
    /// The XIDs of which transmissions are held back, each with the time since when the one before is not
    /// answered.
    since: BTreeSet<(Time, u32)>,
    /// Later transmissions of calls that were taken from here ([`Calls::end`]) and are not passed on yet.
    later: IdMap<u32, VecDeque<Arrived>>,
}

impl Calls {
    /// Returns the number of transmissions that are not answered, those that are held back included.
    pub(crate) fn outstanding(&self) -> usize {
        self.passed.len() + self.held
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.passed.is_empty()
    }

    /// Returns the time since when a transmission is held back for want of a reply to the one before.
    pub(crate) fn held_since(&self) -> Option<Time> {
        self.since.first().map(|(since, _)| *since)
    }

    /// Returns whether a call with this XID was passed on and is not answered.
    pub(crate) fn contains(&self, xid: u32) -> bool {
        self.passed.contains_key(&xid)
    }

    /// Holds a transmission back until the one before with its XID is answered, which there must be.
    pub(crate) fn hold(&mut self, call: Arrived, now: Time) {
        let xid = call.xid;
        if let Some(entry) = self.passed.get_mut(&xid) {
            entry.held.push_back(call);
            self.held += 1;
            let since = *entry.since.get_or_insert(now);
            self.since.insert((since, xid));
        }
    }

    /// Records that a call was passed on. Its later transmissions, if they are known ([`Calls::follow`]), are
    /// held back for it.
    pub(crate) fn pass(&mut self, xid: u32, passed: Passed, now: Time) {
        let held = self.later.remove(&xid).unwrap_or_default();
        self.held += held.len();
        let since = (!held.is_empty()).then_some(now);
        self.since.extend(since.map(|since| (since, xid)));
        let entry = Entry {
            passed,
            held,
            since,
        };
        self.passed.insert(xid, entry);
    }

    /// Records transmissions that follow one with the same XID which is about to be passed on.
    pub(crate) fn follow(&mut self, xid: u32, later: VecDeque<Arrived>) {
        if !later.is_empty() {
            self.later.insert(xid, later);
        }
    }

    /// Returns the next of the transmissions that follow one which is not passed on after all.
    pub(crate) fn next_of(&mut self, xid: u32) -> Option<Arrived> {
        let mut later = self.later.remove(&xid)?;
        let next = later.pop_front();
        self.follow(xid, later);
        next
    }

    /// Removes all transmissions that follow others which are not passed on yet. Returns their tokens.
    pub(crate) fn take_later(&mut self) -> impl Iterator<Item = u64> + use<> {
        let later = std::mem::take(&mut self.later).into_values();
        later.flatten().map(|call| call.token)
    }

    /// Records the end of a call. Returns `None` if there is none with this XID.
    pub(crate) fn end(&mut self, xid: u32) -> Option<Ended> {
        let Entry {
            passed,
            held,
            since,
        } = self.passed.remove(&xid)?;
        self.held -= held.len();
        if let Some(since) = since {
            self.since.remove(&(since, xid));
        }
        Some(Ended { passed, held })
    }

    /// Removes all calls. Returns the XID of each, with its token and those of its later transmissions.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = (u32, Vec<u64>)> + use<> {
        self.held = 0;
        self.since.clear();
        let all = std::mem::take(&mut self.passed).into_iter();
        all.map(|(xid, Entry { passed, held, .. })| {
            let held = held.iter().map(|held| held.token);
            (xid, std::iter::once(passed.token).chain(held).collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reduction::{Direction, Reducer, ReducerOptions};

    fn arrived(xid: u32, token: u64) -> Arrived {
        let message = Message::default();
        Arrived {
            xid,
            token,
            message,
        }
    }

    fn passed(token: u64) -> Passed {
        let mut reducer = Reducer::new(ReducerOptions::default());
        let call = reducer.call(Direction::Forward, Message::default());
        Passed {
            token,
            remembered: call.remembered,
            kind: None,
            reserved: 100,
        }
    }

    #[test]
    fn transmissions_with_one_xid_are_passed_one_after_another() {
        let (mut calls, now) = (Calls::default(), Time::from_nanos(7));
        calls.pass(1, passed(10), Time::ZERO);
        assert!(calls.held_since().is_none());
        calls.hold(arrived(1, 11), now);
        calls.hold(arrived(1, 12), Time::from_nanos(9));
        assert_eq!((calls.outstanding(), calls.held_since()), (3, Some(now)));
        let Ended { passed, held } = calls.end(1).unwrap();
        assert_eq!((passed.token, passed.reserved), (10, 100));
        let held: Vec<_> = held.iter().map(|held| held.token).collect();
        assert_eq!(held, [11, 12]);
        assert!(calls.outstanding() == 0 && calls.held_since().is_none());
        assert!(calls.end(1).is_none(), "a reply that nobody waits for");
    }

    /// Progress of one XID is none of another one.
    #[test]
    fn each_xid_waits_for_its_own_reply() {
        let mut calls = Calls::default();
        let at = Time::from_nanos;
        calls.pass(1, passed(10), at(0));
        calls.pass(2, passed(20), at(0));
        calls.hold(arrived(1, 11), at(5));
        calls.hold(arrived(2, 21), at(6));
        calls.hold(arrived(2, 22), at(7));
        assert_eq!(calls.held_since(), Some(at(5)));
        assert_eq!(calls.end(2).unwrap().held.len(), 2);
        assert_eq!(
            calls.held_since(),
            Some(at(5)),
            "the other one is still held"
        );
        calls.end(1).unwrap();
        assert_eq!(calls.held_since(), None);
    }

    #[test]
    fn later_transmissions_are_held_for_the_next_or_follow_each_other() {
        let mut calls = Calls::default();
        let at = Time::from_nanos;
        calls.follow(1, VecDeque::from([arrived(1, 11), arrived(1, 12)]));
        assert_eq!((calls.outstanding(), calls.held_since()), (0, None));
        calls.pass(1, passed(10), at(3));
        assert_eq!((calls.outstanding(), calls.held_since()), (3, Some(at(3))));
        let Ended { held, .. } = calls.end(1).unwrap();
        calls.follow(1, held);
        assert_eq!(calls.next_of(1).unwrap().token, 11);
        assert_eq!(calls.next_of(1).unwrap().token, 12);
        assert!(calls.next_of(1).is_none());
        calls.follow(1, VecDeque::from([arrived(1, 13)]));
        assert_eq!(calls.take_later().collect::<Vec<_>>(), [13]);
    }

    #[test]
    fn all_tokens_come_back_when_a_side_is_lost() {
        let mut calls = Calls::default();
        calls.pass(1, passed(10), Time::ZERO);
        calls.pass(2, passed(20), Time::ZERO);
        calls.hold(arrived(2, 21), Time::ZERO);
        let mut taken: Vec<_> = calls.take().collect();
        taken.sort();
        assert_eq!(taken, [(1, vec![10]), (2, vec![20, 21])]);
        assert!(calls.is_empty() && calls.held_since().is_none());
    }
}
