//! Detects that a local object and one on the server are the same, as when this machine exports it.

use nfs_binding::client::{Mount, NfsError, Place, RpcClient};
use nfs_binding::proto::FileHandle;

use super::local::{Meta, nfs_time};

/// Returns whether a local object, whose metadata `here` returns, is the object on the server with this
/// handle and inode number. That costs a GETATTR if the inode numbers are equal.
///
/// Two machines can have equal inode numbers, but hardly an equal ctime, which has nanoseconds. The
/// object may be changing, so its ctime on the server is compared with that before and after the GETATTR.
pub(super) async fn is_same<C: RpcClient>(
    mount: &Mount<C>,
    (handle, fileid): (FileHandle, u64),
    at: &(impl Place + ?Sized),
    here: impl Fn() -> Option<Meta>,
) -> Result<bool, NfsError> {
    let Some(before) = here().filter(|here| here.key.1 == fileid) else {
        return Ok(false);
    };
    let there = mount.getattr(handle, at).await?;
    let ctime = |meta: &Meta| nfs_time(meta.ctime).0;
    Ok(here().is_some_and(|after| {
        after.key == before.key && (ctime(&before)..=ctime(&after)).contains(&there.ctime)
    }))
}
