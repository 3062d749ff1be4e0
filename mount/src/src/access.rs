//! Permissions. The server decides (ACCESS); its answers are remembered as long as attributes are.

use std::rc::Rc;

use nfs_binding::proto::{Access, AccessArgs};
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
        let granted = match self.remembered(user, node).filter(|_| self.is_fresh(node)) {
            Some(granted) => granted,
            None => self.fetch_access(user, node).await?,
        };
        match granted.contains(want) {
            true => Ok(()),
            false => Err(Errno::ACCESS),
        }
    }

    /// Returns the permissions that the server granted a user last, if the object has not changed
    /// since.
    pub(crate) fn remembered(&self, user: &UserOf<C>, node: &Node<C::As>) -> Option<Access> {
        let ctime = node.attributes.borrow().get().ctime;
        let granted = node.granted.borrow();
        let of_user = |it: &&Granted<C::As>| Rc::ptr_eq(&it.user, user) || it.user.is_same_as(user);
        let found = granted.iter().find(of_user)?;
        (found.ctime == ctime).then_some(found.access)
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
        let mut granted = node.granted.borrow_mut();
        granted.retain(|it| it.ctime == ctime && !it.user.is_same_as(user));
        if granted.len() >= USERS {
            granted.remove(0);
        }
        granted.push(Granted {
            user: Rc::clone(user),
            access: ok.access,
            ctime,
        });
        Ok(ok.access)
    }
}
