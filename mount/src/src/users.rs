//! The users on whose behalf calls are made.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use onc_rpc::AuthSys;

/// The maximum number of groups in AUTH_SYS credentials (RFC 5531, appendix A). As with Linux's own
/// client, a server does not learn of further ones.
const MAX_GROUPS: usize = 16;
/// How long the groups of a process are remembered. A process that changes its groups and goes on is
/// rare; one that makes thousands of requests in a second is not.
const REMEMBERED: Duration = Duration::from_secs(1);
/// The number of remembered processes above which those that are out of date are removed.
const MANY: usize = 1024;

/// The process that makes a request, as FUSE reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Requester {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The thread, or 0 for one of another pid namespace or of the kernel.
    pub(crate) pid: u32,
}

/// A user as the server gets to know it, with the client that makes this user's calls.
#[derive(Debug)]
pub(crate) struct User<A> {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
    pub(crate) caller: A,
}

impl<A> User<A> {
    /// Returns whether the server cannot tell the two apart.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        self.uid == other.uid && self.gid == other.gid && self.groups == other.groups
    }
}

/// A remembered user, and when its groups were read.
type Remembered<A> = (Rc<User<A>>, Instant);

/// The users of recent requests.
#[derive(Debug)]
pub(crate) struct Users<A> {
    machine: Bytes,
    recent: RefCell<HashMap<Requester, Remembered<A>>>,
}

impl<A> Users<A> {
    /// Creates an empty table. Credentials carry the name of the machine.
    pub(crate) fn new() -> Self {
        let name = rustix::system::uname().nodename().to_bytes().to_vec();
        Self {
            machine: name.into(),
            recent: RefCell::default(),
        }
    }

    /// Returns the user of a process. `make` creates the client for a credential.
    pub(crate) fn of(
        &self,
        requester: Requester,
        now: Instant,
        make: impl FnOnce(&AuthSys) -> A,
    ) -> Rc<User<A>> {
        let mut recent = self.recent.borrow_mut();
        if let Some((user, read)) = recent.get(&requester)
            && now.saturating_duration_since(*read) < REMEMBERED
        {
            return Rc::clone(user);
        }
        if recent.len() >= MANY {
            recent.retain(|_, (_, read)| now.saturating_duration_since(*read) < REMEMBERED);
        }
        let user = Rc::new(self.make(requester, groups_of(requester.pid), make));
        recent.insert(requester, (Rc::clone(&user), now));
        user
    }

    /// Creates a user with the given groups.
    pub(crate) fn make(
        &self,
        requester: Requester,
        mut groups: Vec<u32>,
        make: impl FnOnce(&AuthSys) -> A,
    ) -> User<A> {
        groups.truncate(MAX_GROUPS);
        let credential = AuthSys {
            stamp: 0,
            machine_name: self.machine.clone(),
            uid: requester.uid,
            gid: requester.gid,
            gids: groups.iter().copied().collect(),
        };
        User {
            uid: requester.uid,
            gid: requester.gid,
            caller: make(&credential),
            groups,
        }
    }
}

/// Returns the supplementary groups of a process. A process that cannot be seen has none: its
/// requests are made with its primary group alone, which never grants more than it has.
fn groups_of(pid: u32) -> Vec<u32> {
    if pid == 0 {
        return Vec::new();
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    status.map_or_else(|_| Vec::new(), |status| parse_groups(&status))
}

/// Returns the groups of a `/proc/PID/status`.
fn parse_groups(status: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    let words = line.unwrap_or_default().split_ascii_whitespace();
    words.filter_map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read_from_the_status_of_a_process() {
        let status = "Name:\tx\nGid:\t5\t5\t5\t5\nGroups:\t0 4 1000 \nSigPnd:\t0000000000000000\n";
        assert_eq!(parse_groups(status), [0, 4, 1000]);
        assert_eq!(parse_groups("Groups:\t \n"), []);
        assert_eq!(parse_groups("Name: y\n"), []);
        let own = groups_of(std::process::id());
        let mut known: Vec<u32> = rustix::process::getgroups()
            .unwrap()
            .iter()
            .map(|gid| gid.as_raw())
            .collect();
        known.sort_unstable();
        let mut sorted = own;
        sorted.sort_unstable();
        assert_eq!(sorted, known);
    }

    #[test]
    fn a_user_is_remembered_briefly_and_has_at_most_sixteen_groups() {
        let users = Users::new();
        let made = std::cell::Cell::new(0);
        let make = |_: &AuthSys| made.set(made.get() + 1);
        let requester = Requester {
            uid: 1,
            gid: 2,
            pid: 0,
        };
        let now = Instant::now();
        let first = users.of(requester, now, make);
        let second = users.of(requester, now + REMEMBERED / 2, make);
        assert!(Rc::ptr_eq(&first, &second));
        users.of(requester, now + REMEMBERED, make);
        assert_eq!(made.get(), 2);
        let many = users.make(requester, (0..40).collect(), |auth| {
            assert_eq!(auth.gids.len(), MAX_GROUPS);
        });
        assert_eq!(many.groups.len(), MAX_GROUPS);
        assert!(!many.is_same_as(&users.make(requester, vec![], |_| ())));
    }
}
