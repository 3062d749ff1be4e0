//! The client that holds handles of exports which the administrator changes.
//!
//! After a change, a handle is valid as long as its export shows the tree that it was issued for, with
//! the same key. Otherwise it is stale: it must not reach anything else, nor the same by another way.

use std::rc::Rc;

use nfs_binding::client::{Mount3, Nfs3, RpcClient};
use nfs_binding::proto::{
    Attributes, CreateArgs, CreateHow, CreateResult, DirOpArgs, FileHandle, FileType, HandleArgs,
    LinkArgs, MkdirArgs, MountArgs, MountPath, NfsResult, ReadArgs, ReaddirplusArgs, RenameArgs,
    SetAttributes, SetattrArgs, Stable, Status, WriteArgs,
};
use rdma::Time;
use rdma_sim::Random;
use rpc_transport::CallError;
use rpcrdma_programs::pattern;

use crate::client::{Counted, Desk};
use crate::exports::{ADMINISTERED, Served};
use crate::joining::connect;
use crate::plan::Victim;
use crate::shared::{PAUSE, Shared, TRIES};
use crate::work::place;

/// The least and the most operations.
const LEAST: usize = 24;
const MOST: usize = 60;
/// The maximum pause between two operations is the time of all changes divided by this number.
const PAUSE_PART: u32 = 16;
/// The maximum number of handles that are kept.
const KEPT: usize = 24;

/// A handle, and what it was issued for.
#[derive(Clone, Copy, Debug)]
struct Held {
    handle: FileHandle,
    is_dir: bool,
    /// The index of the export in [`ADMINISTERED`].
    export: usize,
    tree: usize,
    /// The number of the handle key.
    key: u8,
}

impl Held {
    /// Returns whether the handle is valid at a server that exports this.
    fn is_valid(&self, served: &Served) -> bool {
        self.key == served.key && served.trees[self.export] == Some(self.tree)
    }
}

struct Tenant {
    shared: Rc<Shared>,
    nfs: Nfs3<Counted>,
    mountd: Mount3<Counted>,
    random: Random,
    held: Vec<Held>,
    made: u64,
}

/// Runs the workload of the client.
pub(crate) async fn hold(shared: Rc<Shared>, desk: Desk, random: Random) {
    let Some(client) = connect(&shared, &desk, None).await else {
        let text = "a tenant cannot connect although nothing is wrong any more".to_owned();
        let now = desk.runtime.now();
        return shared.journal.borrow_mut().violation(now, text);
    };
    let rpc = Counted::new(client, desk.under_way, Rc::clone(&shared.tally));
    let tenant = Tenant {
        nfs: Nfs3::new(rpc.clone()),
        mountd: Mount3::new(rpc),
        shared,
        random,
        held: Vec::new(),
        made: 0,
    };
    tenant.work().await;
}

/// Returns the status of a call.
fn status<T, F>(result: &Result<NfsResult<T, F>, CallError>) -> Option<Status> {
    match result {
        Ok(Ok(_)) => Some(Status::OK),
        Ok(Err(failed)) => Some(failed.status),
        Err(_) => None,
    }
}

impl Tenant {
    async fn work(mut self) {
        let changes = self.shared.plan.crashes.iter();
        let changes = changes.filter(|crash| matches!(crash.victim, Victim::Administrator(_)));
        let ends = changes.map(|crash| crash.at + crash.lasts);
        let span = ends.max().unwrap_or_default();
        let until = Time::ZERO + span;
        for number in 0..MOST {
            if number >= LEAST && self.nfs.rpc().now() > until {
                break;
            }
            match self.held.is_empty() || self.random.below(6) == 0 {
                true => {
                    let export = self.random.below(2) as usize;
                    self.mount(export).await;
                }
                false => self.operate().await,
            }
            let pause = self.random.duration(span / PAUSE_PART);
            self.nfs.rpc().sleep(pause).await;
        }
        self.go_on().await;
    }

    fn served(&self) -> Served {
        self.shared.exports.served.borrow().clone()
    }

    fn note(&self, what: std::fmt::Arguments<'_>) {
        let now = self.nfs.rpc().now();
        let line = format_args!("tenant: {what}");
        self.shared.journal.borrow_mut().line(now, line);
    }

    fn violation(&self, what: String) {
        let now = self.nfs.rpc().now();
        self.shared.journal.borrow_mut().violation(now, what);
    }

    /// Keeps a handle that was issued while the server exported `before`, if it still does and the
    /// object can be told from its attributes.
    fn keep(
        &mut self,
        export: usize,
        handle: FileHandle,
        attributes: Option<&Attributes>,
        before: &Served,
    ) {
        let trees = self.shared.exports.trees.as_ref();
        let tree = attributes.zip(trees);
        let tree = tree.and_then(|(attributes, trees)| trees.tree_of(attributes.fileid));
        let (Some(attributes), Some(tree)) = (attributes, tree) else {
            return;
        };
        if self.served() != *before {
            return;
        }
        if before.trees[export] != Some(tree) {
            let path = ADMINISTERED[export];
            let trees = before.trees;
            return self.violation(format!(
                "{path} gave a handle of tree {tree}; the exports show {trees:?}"
            ));
        }
        let is_dir = attributes.file_type == FileType::Directory;
        let key = before.key;
        let held = Held {
            handle,
            is_dir,
            export,
            tree,
            key,
        };
        match self.held.len() < KEPT {
            true => self.held.push(held),
            false => {
                let at = self.random.below(KEPT as u64) as usize;
                self.held[at] = held;
            }
        }
    }

    /// Mounts an export. Returns whether that gave a valid handle.
    async fn mount(&mut self, export: usize) -> bool {
        let before = self.served();
        let path = ADMINISTERED[export];
        let args = MountArgs {
            path: MountPath::from(path.as_bytes()),
        };
        let mounted = self.mountd.mount(&args).await;
        let Ok(Ok(mounted)) = mounted else {
            self.note(format_args!("MNT of {path} failed"));
            return false;
        };
        self.note(format_args!("MNT of {path}"));
        if before.trees[export].is_none() && self.served() == before {
            self.violation(format!("MNT of {path} succeeded, which is not exported"));
        }
        let object = mounted.handle;
        let Ok(Ok(ok)) = self.nfs.getattr(&HandleArgs { object }).await else {
            return false;
        };
        let count = self.held.len();
        self.keep(export, object, Some(&ok), &before);
        self.held.len() > count || count == KEPT
    }

    /// Returns a handle, of a directory if `dirs`.
    fn one(&mut self, dirs: bool) -> Option<Held> {
        let fit: Vec<Held> = self
            .held
            .iter()
            .filter(|one| one.is_dir == dirs)
            .copied()
            .collect();
        (!fit.is_empty()).then(|| self.random.pick(&fit))
    }

    /// Checks the status of a call with these handles.
    fn check(
        &self,
        what: &str,
        handles: &[Held],
        changes: bool,
        before: &Served,
        status: Option<Status>,
    ) {
        self.note(format_args!("{what} with {handles:?}: {status:?}"));
        let Some(status) = status else {
            if self.shared.plan.is_patient() {
                self.violation(format!("{what} failed on a client that is patient"));
            }
            return;
        };
        // Whether the call was executed before or after a change in the meantime is unknown.
        if self.served() != *before || status == Status::JUKEBOX {
            return;
        }
        let path = |one: &Held| ADMINISTERED[one.export];
        if let Some(old) = handles.iter().find(|one| !one.is_valid(before)) {
            // Another reason may be found before the second handle is looked at.
            let refused =
                status == Status::STALE || (changes && status == Status::ROFS && handles.len() > 1);
            if !refused {
                let (path, tree) = (path(old), old.tree);
                let Served { trees, key, .. } = before;
                self.violation(format!(
                    "{what} with a handle of {path} from tree {tree} and key {}: {status}, but the \
                     exports show {trees:?} with key {key}",
                    old.key
                ));
            }
            return;
        }
        if changes && handles.iter().any(|one| before.is_read_only(one.export)) {
            if status != Status::ROFS {
                self.violation(format!("{what} on a read-only export: {status}"));
            }
            return;
        }
        let is_across = handles.iter().any(|one| one.export != handles[0].export);
        let allowed = match status {
            Status::OK => !is_across,
            Status::XDEV => is_across,
            // Names that an earlier call has renamed or removed, or that were there before.
            Status::NOENT | Status::EXIST | Status::NOTEMPTY | Status::ISDIR => true,
            _ => false,
        };
        if !allowed {
            self.violation(format!("{what} with valid handles: {status}"));
        }
    }

    /// Performs an operation with a handle, or two.
    async fn operate(&mut self) {
        let dirs = self.random.below(2) == 0;
        let Some(one) = self.one(dirs).or_else(|| self.one(!dirs)) else {
            return;
        };
        let before = self.served();
        match one.is_dir {
            true => self.operate_on_directory(one, &before).await,
            false => self.operate_on_file(one, &before).await,
        }
    }

    async fn operate_on_file(&mut self, one: Held, before: &Served) {
        let file = one.handle;
        match self.random.below(6) {
            0 => {
                let result = self.nfs.getattr(&HandleArgs { object: file }).await;
                self.check("GETATTR", &[one], false, before, status(&result));
            }
            1 => {
                let args = ReadArgs {
                    file,
                    offset: 0,
                    count: 100,
                };
                let result = self.nfs.read(&args).await;
                self.check("READ", &[one], false, before, status(&result));
            }
            2 | 3 => {
                let args = WriteArgs {
                    file,
                    offset: 0,
                    count: 100,
                    stable: Stable::FileSync,
                    data: pattern::content(one.tree as u64, 100).into(),
                };
                let result = self.nfs.write(&args).await;
                self.check("WRITE", &[one], true, before, status(&result));
            }
            4 => {
                let args = SetattrArgs {
                    object: file,
                    attributes: SetAttributes {
                        mode: Some(0o600),
                        ..SetAttributes::default()
                    },
                    guard: None,
                };
                let result = self.nfs.setattr(&args).await;
                self.check("SETATTR", &[one], true, before, status(&result));
            }
            _ => {
                let Some(dir) = self.one(true) else { return };
                self.made += 1;
                let args = LinkArgs {
                    object: file,
                    link: place(dir.handle, &format!("link{}", self.made)),
                };
                let result = self.nfs.link(&args).await;
                self.check("LINK", &[one, dir], true, before, status(&result));
            }
        }
    }

    async fn operate_on_directory(&mut self, one: Held, before: &Served) {
        let dir = one.handle;
        match self.random.below(8) {
            0 => {
                let args = ReaddirplusArgs {
                    dir,
                    cookie: 0,
                    verifier: [0; 8],
                    dir_count: 1024,
                    max_count: 4096,
                };
                let result = self.nfs.readdirplus(&args).await;
                self.check("READDIRPLUS", &[one], false, before, status(&result));
            }
            1 => {
                let what = place(dir, &format!("file{}", self.made));
                let result = self.nfs.lookup(&DirOpArgs { what }).await;
                self.check("LOOKUP", &[one], false, before, status(&result));
            }
            2 => {
                let what = place(dir, &format!("link{}", self.made));
                let result = self.nfs.remove(&DirOpArgs { what }).await;
                self.check("REMOVE", &[one], true, before, status(&result));
            }
            3 | 4 => {
                let Some(to) = self.one(true) else { return };
                let args = RenameArgs {
                    from: place(dir, &format!("file{}", self.made)),
                    to: place(to.handle, &format!("file{}", self.made + 1)),
                };
                self.made += 1;
                let result = self.nfs.rename(&args).await;
                self.check("RENAME", &[one, to], true, before, status(&result));
            }
            5 => {
                self.made += 1;
                let args = MkdirArgs {
                    place: place(dir, &format!("dir{}", self.made)),
                    attributes: SetAttributes::default(),
                };
                let result = self.nfs.mkdir(&args).await;
                self.check("MKDIR", &[one], true, before, status(&result));
                self.keep_made(one, result, before);
            }
            _ => {
                self.made += 1;
                let args = CreateArgs {
                    place: place(dir, &format!("file{}", self.made)),
                    how: CreateHow::Unchecked(SetAttributes::default()),
                };
                let result = self.nfs.create(&args).await;
                self.check("CREATE", &[one], true, before, status(&result));
                self.keep_made(one, result, before);
            }
        }
    }

    fn keep_made(&mut self, dir: Held, result: Result<CreateResult, CallError>, before: &Served) {
        if let Ok(Ok(made)) = result
            && let Some(handle) = made.object
            && dir.is_valid(before)
        {
            self.keep(dir.export, handle, made.attributes.as_ref(), before);
        }
    }

    /// Checks that everything that is exported can be mounted and used after the last change.
    async fn go_on(&mut self) {
        // Until then its tries may all fail, and after long failures a client pauses for seconds before it connects.
        let healed = Time::ZERO + self.shared.plan.heal_at;
        let wait = healed.since(self.nfs.rpc().now());
        self.nfs.rpc().sleep(wait).await;
        for (export, path) in ADMINISTERED.into_iter().enumerate() {
            self.held.clear();
            for tries in 1.. {
                if self.served().trees[export].is_none() || self.mount(export).await {
                    break;
                }
                if tries == TRIES {
                    let text = "cannot be mounted although nothing is wrong any more";
                    return self.violation(format!("{path} {text}"));
                }
                self.nfs.rpc().sleep(PAUSE).await;
            }
            let before = self.served();
            if let Some(root) = self.one(true) {
                self.operate_on_directory(root, &before).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::ExportChange;

    #[test]
    fn a_handle_is_valid_while_its_export_shows_its_tree_with_its_key() {
        let held = Held {
            handle: FileHandle::new(b"handle").unwrap(),
            is_dir: true,
            export: 0,
            tree: 0,
            key: 0,
        };
        let other = Held { export: 1, ..held };
        let valid_after = |changes: &[ExportChange]| {
            let mut served = Served::default();
            changes.iter().for_each(|change| served.change(*change));
            (held.is_valid(&served), other.is_valid(&served))
        };
        use ExportChange::*;
        assert_eq!(valid_after(&[]), (true, false));
        assert_eq!(valid_after(&[ReadOnly]), (true, false));
        assert_eq!(valid_after(&[Repoint(2)]), (false, false));
        assert_eq!(valid_after(&[Remove]), (false, false));
        assert_eq!(valid_after(&[Remove, Repoint(0)]), (true, false));
        assert_eq!(valid_after(&[Swap]), (false, true));
        assert_eq!(valid_after(&[Swap, Swap]), (true, false));
        assert_eq!(valid_after(&[Key]), (false, false));
    }
}
