//! Changes of an object, with its attributes before and after, and with stable storage.

use super::*;

impl Served {
    fn stripe(&self, node: &Node) -> usize {
        node.id.spread(STRIPES)
    }

    /// Locks out other modifications of the object by this server, so that its attributes before
    /// and after a change are exact.
    pub(super) fn hold(&self, node: &Node) -> MutexGuard<'_, ()> {
        self.stripes[self.stripe(node)].lock()
    }

    /// Locks two objects; see [`Served::hold`].
    pub(super) fn hold_both(&self, one: &Node, other: &Node) -> impl Sized {
        let (one, other) = (self.stripe(one), self.stripe(other));
        let first = self.stripes[one.min(other)].lock();
        let second = (one != other).then(|| self.stripes[one.max(other)].lock());
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
        let found = self
            .find(id)
            .and_then(|node| Ok((node, self.authority.impersonate(who)?)));
        let (node, _as_caller) = match found {
            Ok(found) => found,
            Err(error) => return Change::refused(error),
        };
        let held = self.hold(&node);
        let now = match node.attributes() {
            Ok(now) => now,
            Err(error) => {
                drop(held);
                self.forget_if_gone(&node, error);
                return Change::refused(error);
            }
        };
        let mut unstable = Unstable::new();
        let result = change(&node, &now, &mut unstable);
        let wcc = WccData {
            before: Some(wcc(&now)),
            after: node.attributes().ok(),
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
