//! Permissions. The server decides: its answers to ACCESS, and what it has done for a user, are remembered as long as
//! attributes are.

use std::rc::Rc;

use nfs_binding::proto::{Access, AccessArgs, NfsTime};
use rustix::io::Errno;

use crate::core::{Connect, Core, UserOf};
use crate::node::{Granted, Node};

/// The number of users whose permissions are remembered for each object.
const USERS: usize = 8;

/// All permissions of a directory that matter to a client.
const OF_DIRECTORY: Access = Access::READ
    .union(Access::LOOKUP)
    .union(Access::MODIFY)
    .union(Access::EXTEND)
    .union(Access::DELETE);
/// All permissions of any other object that matter to a client.
const OF_FILE: Access = Access::READ
    .union(Access::MODIFY)
    .union(Access::EXTEND)
    .union(Access::EXECUTE);

impl<C: Connect> Core<C> {
    /// Checks that a user has permissions.
    ///
    /// # Errors
    /// EACCES, or the error of ACCESS.
    pub(crate) async fn permit(
        &self,
        user: &UserOf<C>,
        node: &Node<C::As>,
        want: Access,
    ) -> Result<(), Errno> {
        let remembered = self.remembered(user, node, want);
        let granted = match remembered.filter(|_| self.is_fresh(node)) {
            Some(granted) => granted,
            None => self.fetch_access(user, node).await?.contains(want),
        };
        match granted {
            true => Ok(()),
            false => Err(Errno::ACCESS),
        }
    }

    /// Returns whether a user has permissions, if the server has said so since the object changed.
    pub(crate) fn remembered(
        &self,
        user: &UserOf<C>,
        node: &Node<C::As>,
        want: Access,
    ) -> Option<bool> {
        let ctime = node.attributes.borrow().get().ctime;
        let granted = node.granted.borrow();
        let found = granted.iter().find(|it| it.is_of(user))?;
        let is_known = found.ctime == ctime && found.asked.contains(want);
        is_known.then(|| found.access.contains(want))
    }

    /// Remembers that a user has a permission, because a call that needs it has succeeded. `after` is the object's
    /// ctime in the reply.
    pub(crate) fn has_proven(
        &self,
        user: &UserOf<C>,
        node: &Node<C::As>,
        access: Access,
        after: NfsTime,
    ) {
        if node.attributes.borrow().get().ctime == after {
            self.grant(user, node, (access, access), after);
        }
    }

    /// Remembers which permissions of those that were `asked` for a user has, as of the object's ctime.
    fn grant(
        &self,
        user: &UserOf<C>,
        node: &Node<C::As>,
        (asked, access): (Access, Access),
        ctime: NfsTime,
    ) {
        let mut granted = node.granted.borrow_mut();
        if let Some(known) = granted.iter_mut().find(|it| it.is_of(user))
            && known.ctime == ctime
        {
            known.access = (known.access - asked) | (access & asked);
            known.asked |= asked;
            return;
        }
        granted.retain(|it| it.ctime == ctime && !it.is_of(user));
        if granted.len() >= USERS {
            granted.remove(0);
        }
        granted.push(Granted {
            user: Rc::clone(user),
            asked,
            access,
            ctime,
        });
    }

    /// Asks the server for a user's permissions, which brings the object's attributes as well.
    pub(crate) async fn fetch_access(
        &self,
        user: &UserOf<C>,
        node: &Node<C::As>,
    ) -> Result<Access, Errno> {
        let access = match node.is_directory() {
            true => OF_DIRECTORY,
            false => OF_FILE,
        };
        let args = &AccessArgs {
            object: node.handle,
            access,
        };
        let call = self.begin();
        let ok = self.ask(user, |nfs| async move { nfs.access(args).await });
        let ok = ok.await.map_err(|error| self.stale(node, error))?;
        match ok.attributes {
            Some(attributes) => self.learn(node, attributes, call),
            None => self.getattr_now(user, node).await?,
        }
        let ctime = node.attributes.borrow().get().ctime;
        self.grant(user, node, (access, ok.access), ctime);
        Ok(ok.access)
    }
}
