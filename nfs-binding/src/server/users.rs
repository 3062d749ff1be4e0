//! The groups of this host's users.
//!
//! Users are read from /etc/passwd and /etc/group only. Asking the host's name service would need
//! the C library, whose interface is unsafe and can block as long as a remote directory server
//! does. A user who is in neither file has no known groups, and claimed groups are not accepted.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rdma::Time;
use rpcrdma_host::{CountedRwLock, LockCounter};

/// How long cached groups of a user are valid. A user who leaves a group keeps its rights for no
/// longer than this.
const MAX_AGE: Duration = Duration::from_secs(10);
/// The maximum number of cached users.
const MAX_KNOWN: usize = 1024;

/// The groups of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Groups {
    /// The user's primary group in /etc/passwd.
    pub(super) primary: Option<u32>,
    /// The groups in /etc/group that list the user as a member.
    further: Vec<u32>,
}

impl Groups {
    /// Returns whether the user is a member of a group.
    pub(super) fn contains(&self, gid: u32) -> bool {
        self.primary == Some(gid) || self.further.contains(&gid)
    }

    /// Returns all groups of the user.
    pub(super) fn all(&self) -> impl Iterator<Item = u32> {
        self.primary.into_iter().chain(self.further.iter().copied())
    }

    /// Finds the groups in the contents of the two files. If several names share a user number, the
    /// first counts, as with id(1).
    fn find(uid: u32, passwd: &[u8], group: &[u8]) -> Self {
        let entry = fields(passwd).find(|fields| number(fields.get(2)) == Some(uid));
        let Some(entry) = entry else {
            return Self::default();
        };
        let name = entry[0];
        let is_of = |fields: &Vec<&[u8]>| {
            let members = fields.get(3).copied().unwrap_or_default();
            members
                .split(|byte| *byte == b',')
                .any(|member| member == name)
        };
        Self {
            primary: number(entry.get(3)),
            further: fields(group)
                .filter(is_of)
                .filter_map(|fields| number(fields.get(2)))
                .collect(),
        }
    }
}

/// Returns the fields of each line of a file in the format of passwd(5) or group(5).
fn fields(file: &[u8]) -> impl Iterator<Item = Vec<&[u8]>> {
    file.split(|byte| *byte == b'\n')
        .map(|line| line.split(|byte| *byte == b':').collect::<Vec<_>>())
        // Lines for other name services begin with a sign.
        .filter(|fields| !fields[0].is_empty() && !fields[0].starts_with(b"+"))
}

fn number(field: Option<&&[u8]>) -> Option<u32> {
    std::str::from_utf8(field?).ok()?.trim().parse().ok()
}

#[derive(Debug, Default)]
struct Known {
    users: HashMap<u32, (Time, Arc<Groups>)>,
}

/// The users of this host.
#[derive(Debug)]
pub(super) struct Users {
    passwd: PathBuf,
    group: PathBuf,
    known: CountedRwLock<Known>,
}

/// Counts how often a call waited while another one read a user's groups.
static CONTENDED: LockCounter = LockCounter::new("groups of users");

impl Users {
    /// Creates a cache of the users and groups in two files.
    pub(super) fn new(passwd: impl Into<PathBuf>, group: impl Into<PathBuf>) -> Self {
        Self {
            passwd: passwd.into(),
            group: group.into(),
            known: CountedRwLock::new(&CONTENDED, Known::default()),
        }
    }

    /// Returns the groups of a user at `now` or shortly before, if the files need not be read for that.
    pub(super) fn groups_if_known(&self, uid: u32, now: Time) -> Option<Arc<Groups>> {
        let known = self.known.read();
        let (read, groups) = known.users.get(&uid)?;
        (now.since(*read) < MAX_AGE).then(|| Arc::clone(groups))
    }

    /// Returns the groups of a user at `now` or shortly before.
    pub(super) fn groups(&self, uid: u32, now: Time) -> Arc<Groups> {
        if let Some(groups) = self.groups_if_known(uid, now) {
            return groups;
        }
        let found = fs::read(&self.passwd)
            .and_then(|passwd| Ok(Groups::find(uid, &passwd, &fs::read(&self.group)?)));
        let mut known = self.known.write();
        let groups = Arc::new(found.unwrap_or_else(|error| {
            let (passwd, group) = (self.passwd.display(), self.group.display());
            rpcrdma_host::limited!(warn, %error, "cannot read {passwd} and {group}: no user's groups are known");
            Groups::default()
        }));
        if known.users.len() >= MAX_KNOWN {
            known.users.clear();
        }
        known.users.insert(uid, (now, Arc::clone(&groups)));
        groups
    }
}

impl Default for Users {
    fn default() -> Self {
        Self::new("/etc/passwd", "/etc/group")
    }
}

#[cfg(test)]
mod tests {
    use quickcheck::quickcheck;

    use super::*;

    const PASSWD: &[u8] = b"root:x:0:0:root:/root:/bin/bash\n\
        +nis:x:1000:0::/:\n\
        ann:x:1000:1000:Ann,,,:/home/ann:/bin/sh\n\
        anna:x:1000:2000::/home/ann:/bin/sh\n\
        bob:x:1001:100::/home/bob:/bin/sh\n\
        broken:x:1002\n";
    const GROUP: &[u8] = b"root:x:0:\nusers:x:100:\nadm:x:4:syslog,ann\n\
        video:x:44:ann\nlate:x:45:bob,anna\nbroken:x:many:ann\nshort:x\n";

    #[test]
    fn a_user_has_the_groups_of_both_files() {
        let ann = Groups::find(1000, PASSWD, GROUP);
        assert_eq!(ann.primary, Some(1000));
        for gid in [1000, 4, 44] {
            assert!(ann.contains(gid), "{gid}");
        }
        for gid in [0, 45, 100, 2000] {
            assert!(!ann.contains(gid), "{gid}");
        }
        assert_eq!(Groups::find(1001, PASSWD, GROUP).primary, Some(100));
        let unknown = Groups::find(4711, PASSWD, GROUP);
        assert_eq!(unknown, Groups::default());
        assert!(!unknown.contains(0) && !unknown.contains(4711));
        assert_eq!(Groups::find(1002, PASSWD, GROUP).primary, None);
    }

    #[test]
    fn what_was_read_counts_for_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let (passwd, group) = (dir.path().join("passwd"), dir.path().join("group"));
        fs::write(&passwd, PASSWD).unwrap();
        fs::write(&group, GROUP).unwrap();
        let users = Users::new(&passwd, &group);
        assert!(users.groups(1000, Time::ZERO).contains(4));
        fs::write(&group, b"").unwrap();
        let soon = Time::ZERO + MAX_AGE / 2;
        assert!(users.groups(1000, soon).contains(4));
        assert!(!users.groups(1000, Time::ZERO + MAX_AGE).contains(4));
        fs::remove_file(&passwd).unwrap();
        let later = Time::ZERO + MAX_AGE * 2;
        assert_eq!(*users.groups(1000, later), Groups::default());
        for uid in 0..3 * MAX_KNOWN as u32 {
            users.groups(uid, later);
            assert!(users.known.read().users.len() <= MAX_KNOWN);
        }
    }

    quickcheck! {
        fn any_files_are_read(passwd: Vec<u8>, group: Vec<u8>, uid: u32) -> bool {
            let groups = Groups::find(uid, &passwd, &group);
            groups.further.len() <= group.len()
        }
    }
}
