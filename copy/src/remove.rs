//! Removal of trees on a server.

use std::rc::Rc;

use nfs_binding::client::{Mount, NfsError, Place, RpcClient};
use nfs_binding::proto::{FileHandle, FileType, Status};

use super::ledger::Ledger;
use super::work::{Dir, run_all};
use super::{CopyError, CopyOptions, Report, Totals};

/// Removes the file `remote` or, with [`CopyOptions::recursive`], the directory `remote` with
/// everything in it. A symbolic link is removed itself. `progress` is called after each step.
///
/// An object that is already gone is no error: it existed when it was listed, so another client
/// removed it, or this one did and the first reply was lost.
pub async fn remove<C: RpcClient>(
    mount: &Mount<C>,
    remote: &[u8],
    options: &CopyOptions,
    progress: &mut dyn FnMut(&Totals),
) -> Report {
    let ledger = Ledger::new(progress);
    let remove = Remove {
        mount,
        options,
        ledger: &ledger,
    };
    let work = async {
        match remove.start(remote).await {
            Ok(first) => {
                let limit = options.files_in_flight;
                run_all(vec![first], limit, &ledger, |task| remove.run(task)).await;
            }
            Err(error) => ledger.problem(error),
        }
    };
    ledger.run(&options.interrupt, work).await;
    ledger.report()
}

struct Remove<'a, C> {
    mount: &'a Mount<C>,
    options: &'a CopyOptions,
    ledger: &'a Ledger<'a>,
}

/// A directory in progress, with its handle.
type RemoveDir = Dir<FileHandle>;

struct Item {
    dir: Rc<RemoveDir>,
    name: Box<[u8]>,
    /// The handle and type, if the listing supplied them.
    object: Option<(FileHandle, FileType)>,
}

enum Task {
    Remove(Item),
    Finish(Rc<RemoveDir>),
}

impl<C: RpcClient> Remove<'_, C> {
    async fn start(&self, remote: &[u8]) -> Result<Task, CopyError> {
        let (parent, name) = self.mount.resolve_parent(remote).await?;
        // For the root of the removal, a missing name is an error.
        let object = self.mount.lookup(parent.handle, &name, remote).await?;
        let mut path: Vec<&[u8]> = nfs_binding::client::components(remote).collect();
        path.pop();
        Ok(Task::Remove(Item {
            dir: Dir::new(None, path.join(&b'/'), parent.handle),
            name: name.into(),
            object: Some((object.handle, object.attributes.file_type)),
        }))
    }

    async fn run(&self, task: Task) -> Vec<Task> {
        match task {
            Task::Remove(item) => match self.entry(&item).await {
                Ok(Some(tasks)) => tasks,
                Ok(None) => self.ended(item.dir),
                Err(error) => {
                    self.ledger.problem(error);
                    self.ended(item.dir)
                }
            },
            Task::Finish(dir) => {
                let Some(parent) = dir.parent() else {
                    return Vec::new();
                };
                match gone(self.mount.rmdir(parent.info, dir.name(), &*dir).await) {
                    Ok(()) => self.ledger.count(|totals| totals.directories += 1),
                    Err(error) => self.ledger.problem(error.into()),
                }
                self.ended(Rc::clone(parent))
            }
        }
    }

    fn ended(&self, dir: Rc<RemoveDir>) -> Vec<Task> {
        match dir.end() {
            true => vec![Task::Finish(dir)],
            false => Vec::new(),
        }
    }

    /// Removes an entry. For a directory, returns the tasks to run first.
    async fn entry(&self, item: &Item) -> Result<Option<Vec<Task>>, CopyError> {
        let (dir, name) = (item.dir.info, &item.name);
        let at = item.dir.at(name);
        let (handle, file_type) = match item.object {
            Some(object) => object,
            None => match self.mount.lookup(dir, name, &at).await {
                Ok(object) => (object.handle, object.attributes.file_type),
                Err(error) => return Ok(gone(Err(error)).map(|()| None)?),
            },
        };
        if file_type != FileType::Directory {
            gone(self.mount.remove(dir, name, &at).await)?;
            self.ledger.entry(file_type == FileType::Regular);
            return Ok(None);
        }
        if !self.options.recursive {
            let path = at.display();
            return Err(CopyError::NotRecursive { path });
        }
        let below = Dir::new(Some(Rc::clone(&item.dir)), name.to_vec(), handle);
        // The directory is listed completely first, because a server's cookies may become invalid
        // while entries are removed.
        let mut listing = self.mount.list(handle);
        let mut tasks = Vec::new();
        while let Some(entries) = listing.next(&at).await? {
            listing.keep(&entries, &at)?;
            tasks.extend(entries.into_iter().map(|entry| {
                below.begin();
                let file_type = entry.attributes.map(|attributes| attributes.file_type);
                Task::Remove(Item {
                    dir: Rc::clone(&below),
                    name: entry.name.0[..].into(),
                    object: entry.handle.zip(file_type),
                })
            }));
        }
        tasks.extend(self.ended(below));
        Ok(Some(tasks))
    }
}

/// Ignores the error of an object that is already gone.
fn gone(outcome: Result<(), NfsError>) -> Result<(), NfsError> {
    match outcome {
        Err(error) if error.status() == Some(Status::NOENT) => Ok(()),
        outcome => outcome,
    }
}
