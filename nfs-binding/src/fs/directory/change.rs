//! Changes of an object, with its attributes before and after, and with stable storage.

use std::sync::{RwLockReadGuard, RwLockWriteGuard};

use super::*;

/// A lock on an object: alone, or together with others.
type Held<'a> = (
    Option<RwLockWriteGuard<'a, ()>>,
    Option<RwLockReadGuard<'a, ()>>,
);

impl Served {
    fn stripe(&self, node: &Node) -> usize {
        node.id.spread(STRIPES)
    }

    /// Returns whether no change is under way that one of this object would wait for.
    pub(super) fn is_unlocked(&self, node: &Node) -> bool {
        self.stripes[self.stripe(node)].is_free()
    }

    /// Locks out other modifications of the object by this server, so that its attributes before
    /// and after a change are exact.
    fn hold(&self, node: &Node) -> RwLockWriteGuard<'_, ()> {
        self.stripes[self.stripe(node)].write()
    }

    /// Locks out modifications of the object by this server, except those that have this lock as
    /// well.
    pub(super) fn hold_beside(&self, node: &Node) -> RwLockReadGuard<'_, ()> {
        self.stripes[self.stripe(node)].read()
    }

    /// Locks two objects; see [`Served::hold`].
    pub(super) fn hold_both(&self, one: &Node, other: &Node) -> impl Sized {
        let (one, other) = (self.stripe(one), self.stripe(other));
        let first = self.stripes[one.min(other)].write();
        let second = (one != other).then(|| self.stripes[one.max(other)].write());
        (first, second)
    }

    /// Changes an object as its caller. Records the attributes before and after, and then syncs the
    /// objects that `change` returns.
    pub(super) fn change<T>(
        &self,
        who: &Caller,
        id: &FileId,
        change: impl FnOnce(&Arc<Node>, &Attributes, &mut Unstable) -> FsResult<T>,
    ) -> Change<T> {
        self.change_by(who, id, |node| (Some(self.hold(node)), None), change)
    }

    /// Changes an object as [`Served::change`] does, at the same time as other calls of this method
    /// that have the same object. If there were any, the attributes before the change are omitted,
    /// since those that were read may be older than another's change.
    pub(super) fn change_beside<T>(
        &self,
        who: &Caller,
        id: &FileId,
        change: impl FnOnce(&Arc<Node>, &Attributes, &mut Unstable) -> FsResult<T>,
    ) -> Change<T> {
        self.change_by(who, id, |node| (None, Some(self.hold_beside(node))), change)
    }

    fn change_by<'a, T>(
        &'a self,
        who: &Caller,
        id: &FileId,
        hold: impl FnOnce(&Node) -> Held<'a>,
        change: impl FnOnce(&Arc<Node>, &Attributes, &mut Unstable) -> FsResult<T>,
    ) -> Change<T> {
        let found = self
            .find(id)
            .and_then(|node| Ok((node, self.authority.impersonate(who)?)));
        let (node, _as_caller) = match found {
            Ok(found) => found,
            Err(error) => return Change::refused(error),
        };
        let held = hold(&node);
        let beside = held.1.is_some().then(|| node.begin_beside());
        let now = match node.attributes() {
            Ok(now) => now,
            Err(error) => {
                drop(beside);
                drop(held);
                self.forget_if_gone(&node, error);
                return Change::refused(error);
            }
        };
        let mut unstable = Unstable::new();
        // Replies of this batch do not have older attributes than the reply to this change.
        batch::forget_attributes();
        let result = change(&node, &now, &mut unstable);
        let after = node.attributes().ok();
        let is_alone = beside.is_none_or(|beside| beside.was_alone());
        let wcc = WccData {
            before: is_alone.then(|| wcc(&now)),
            after,
        };
        // The sync runs without the lock, so that operations on the same directory share the wait
        // for the disk.
        drop(held);
        let result = result.and_then(|value| {
            self.make_stable(&unstable)?;
            Ok(value)
        });
        Change { wcc, result }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::fs::tests::MOST_OPEN;

    /// A direct write waits for the device. Others do not wait for it, and leave out the attributes
    /// that they cannot know.
    #[test]
    fn direct_writes_and_commits_do_not_wait_for_direct_writes() {
        let host = tempfile::tempdir().unwrap();
        let options = DirectoryOptions {
            sync: false,
            direct_io: true,
            most_open: MOST_OPEN,
            ..DirectoryOptions::default()
        };
        let fs = DirectoryFs::open(host.path(), options).unwrap();
        let how = HowToCreate::Guarded(SetAttributes::default());
        let made = fs.create(&Caller::root(), &fs.root(), b"f", &how);
        let file = made.result.unwrap().id;
        let node = fs.0.find(&file).unwrap();
        let write = || fs.write(&Caller::root(), &file, 0, &b"data".into(), Stable::Unstable);
        let (done, written) = mpsc::channel();
        std::thread::scope(|scope| {
            // As a write does that is waiting for the device.
            let held = fs.0.hold_beside(&node);
            let first = node.begin_beside();
            scope.spawn(|| done.send(write()).unwrap());
            let second = written.recv_timeout(Duration::from_secs(60));
            assert!(!first.was_alone());
            drop(held);
            let second = second.expect("a write that waits for nothing");
            assert!(second.result.is_ok() && second.wcc.before.is_none());
        });
        let (done, committed) = mpsc::channel();
        std::thread::scope(|scope| {
            let held = fs.0.hold_beside(&node);
            scope.spawn(|| done.send(fs.commit(&Caller::root(), &file, 0, 0)).unwrap());
            let commit = committed.recv_timeout(Duration::from_secs(60));
            drop(held);
            assert!(
                commit
                    .expect("a COMMIT that waits for nothing")
                    .result
                    .is_ok()
            );
        });
        let third = write();
        assert!(third.result.is_ok() && third.wcc.before.is_some());
        assert!(node.begin_beside().was_alone());
    }
}
