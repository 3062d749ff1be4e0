//! How an object is changed: noted before and after, and made stable.

use super::*;

impl Served {
    fn stripe(&self, node: &Node) -> usize {
        let bytes = node.id.as_bytes();
        let sum = bytes.iter().fold(0, |sum: usize, &byte| {
            sum.wrapping_mul(31) + usize::from(byte)
        });
        sum % STRIPES
    }

    /// Keeps other operations of this server from changing the object: what is noted of it before
    /// and after a change is then exact.
    pub(super) fn hold(&self, node: &Node) -> MutexGuard<'_, ()> {
        locked(&self.stripes[self.stripe(node)])
    }

    /// The same for two objects.
    pub(super) fn hold_both(&self, one: &Node, other: &Node) -> impl Sized {
        let (one, other) = (self.stripe(one), self.stripe(other));
        let first = locked(&self.stripes[one.min(other)]);
        let second = (one != other).then(|| locked(&self.stripes[one.max(other)]));
        (first, second)
    }

    /// Changes an object as its caller, noting its attributes before and after, and then brings to
    /// stable storage what `change` says.
    pub(super) fn change<T>(
        &self,
        who: &Caller,
        id: &FileId,
        change: impl FnOnce(&Arc<Node>, &Attributes, &mut Unstable) -> FsResult<T>,
    ) -> Change<T> {
        let found = self
            .find(id)
            .and_then(|node| Ok((node, self.authority.assume(who)?)));
        let (node, _as_caller) = match found {
            Ok(found) => found,
            Err(error) => return Change::refused(error),
        };
        let held = self.hold(&node);
        let now = match node.attributes() {
            Ok(now) => now,
            Err(error) => {
                drop(held);
                self.forget(&node);
                return Change::refused(error);
            }
        };
        let mut unstable = Unstable::new();
        let result = change(&node, &now, &mut unstable);
        let wcc = WccData {
            before: Some(wcc(&now)),
            after: node.attributes().ok(),
        };
        // Not under the lock: operations on the same directory then share the wait for the disk.
        drop(held);
        let result = result.and_then(|value| {
            self.make_stable(&unstable)?;
            Ok(value)
        });
        Change { wcc, result }
    }
}
