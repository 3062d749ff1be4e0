//! Operations that change the tree.

use super::locks::InDirectory;
use super::*;

/// How often a CREATE begins again because the name that it found was removed. A client whose CREATE
/// does not succeed by then is told to try again.
const TRIES: u32 = 100;

/// An entry and the present state of its object.
struct Entry {
    node: Arc<Node>,
    attributes: Attributes,
    /// Whether a directory has no entries.
    empty: bool,
}

impl Entry {
    fn is_directory(&self) -> bool {
        self.attributes.file_type == FileType::Directory
    }
}

/// Returns the memory that an object counts for, without a file's content, bytes.
fn cost(body: &Body) -> u64 {
    match body {
        Body::Symlink(target) => NODE_COST + target.len() as u64,
        _ => NODE_COST,
    }
}

/// Removes an entry from a directory. What it counted for is not given back.
fn take_out(dir: &mut State, name: &[u8], victim: &Entry) -> FsResult<()> {
    dir.entries_mut()?.remove(name);
    if victim.is_directory() {
        dir.attributes.nlink -= 1;
    }
    Ok(())
}

/// The type and attributes of a new object.
pub(super) struct NewObject<'a> {
    pub(super) file_type: FileType,
    /// The attributes that the client sets.
    pub(super) set: &'a SetAttributes,
    /// The mode where the client sets none.
    pub(super) default_mode: u32,
}

impl MemoryFs {
    /// Returns the entry `name` of `dir`.
    fn entry(&self, dir: &Node, name: &[u8]) -> FsResult<Option<Entry>> {
        let node = dir.read().entries()?.get(name).cloned();
        Ok(node.map(|node| self.entry_of(node)))
    }

    /// Returns an entry that refers to `node`.
    fn entry_of(&self, node: Arc<Node>) -> Entry {
        let (attributes, empty) = {
            let state = node.read();
            let empty = state.entries().map_or(true, Entries::is_empty);
            (state.attributes.clone(), empty)
        };
        Entry {
            node,
            attributes,
            empty,
        }
    }

    /// Locks the tree for an operation in `dir`.
    fn hold(&self, dir: &FileId) -> InDirectory<'_> {
        // Operations fail by themselves if this is no directory of this file system.
        self.tree
            .in_directory(self.node(dir).map_or(ROOT, |dir| dir.ino))
    }

    /// Adds an object with the body that `body` returns. Checks the caller's permission.
    pub(super) fn make(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        new: &NewObject<'_>,
        body: impl FnOnce(u64) -> Body,
    ) -> Change<Object> {
        let held = self.hold(dir);
        self.make_locked(&held, who, dir, name, |parent, state| {
            let mut plan = permission::plan_new(&state.attributes, new.set, who, new.default_mode)?;
            if new.file_type == FileType::Directory {
                // The set-group-id bit of a directory makes new files inherit the group, and new
                // directories inherit the bit.
                let inherited = state.attributes.mode & permission::SET_GID;
                plan.mode = plan.mode.map(|mode| mode | inherited);
            }
            let body = body(parent);
            self.budget.take(cost(&body) + Entries::cost(name))?;
            Ok(self.new_node(new.file_type, body, &plan))
        })
    }

    /// Adds an object that `make` creates. `make` has to take the cost of the object and of its
    /// entry from the budget.
    fn make_locked(
        &self,
        _held: &InDirectory<'_>,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        make: impl FnOnce(u64, &State) -> FsResult<Arc<Node>>,
    ) -> Change<Object> {
        self.change(dir, |state| {
            permission::require_search(&state.attributes, who)?;
            name::check_new(name)?;
            if state.entries()?.get(name).is_some() {
                return Err(FsError::Exists);
            }
            permission::require_change(&state.attributes, who)?;
            let node = make(state.attributes.fileid, state)?;
            let object = self.object(&node);
            state.entries_mut()?.insert(name, Arc::clone(&node));
            if object.attributes.file_type == FileType::Directory {
                state.attributes.nlink += 1;
            }
            state.update_times(self.now());
            self.nodes.insert(node);
            Ok(object)
        })
    }

    /// Executes CREATE.
    pub(super) fn create_file(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        how: &HowToCreate,
    ) -> Change<Object> {
        let exclusive_set = SetAttributes::default();
        let (set, verifier) = match how {
            HowToCreate::Unchecked(set) | HowToCreate::Guarded(set) => (set, None),
            HowToCreate::Exclusive(verifier) => (&exclusive_set, Some(*verifier)),
        };
        let held = self.hold(dir);
        for _ in 0..TRIES {
            let made = self.make_locked(&held, who, dir, name, |_, state| {
                let plan = permission::plan_new(&state.attributes, set, who, DEFAULT_FILE_MODE)?;
                let mut content = Content::default();
                content.resize(plan.size.unwrap_or(0), &self.budget)?;
                self.budget.take(NODE_COST + Entries::cost(name))?;
                let body = Body::File {
                    content,
                    made_by: verifier,
                };
                Ok(self.new_node(FileType::Regular, body, &plan))
            });
            let dots = matches!(name, b"." | b"..");
            if dots || !matches!(made.result, Err(FsError::Exists)) {
                return made;
            }
            // Unless the name was removed meanwhile, and can be created after all.
            if let Some(result) = self.existing(who, dir, name, how) {
                return Change { result, ..made };
            }
        }
        Change::refused(FsError::Later)
    }

    /// Executes CREATE of a name that exists. Returns `None` if it was removed meanwhile.
    fn existing(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        how: &HowToCreate,
    ) -> Option<FsResult<Object>> {
        let entry = self.node(dir).and_then(|dir| self.entry(&dir, name));
        match entry.transpose()? {
            Ok(entry) => match self.open_existing(who, &entry, how) {
                Err(FsError::Stale) => None,
                opened => Some(opened),
            },
            Err(error) => Some(Err(error)),
        }
    }

    /// Returns what the entry of a CREATE refers to, if the CREATE permits that it exists.
    fn open_existing(&self, who: &Caller, entry: &Entry, how: &HowToCreate) -> FsResult<Object> {
        if entry.attributes.file_type != FileType::Regular {
            return Err(FsError::Exists);
        }
        match how {
            HowToCreate::Guarded(_) => return Err(FsError::Exists),
            HowToCreate::Unchecked(set) => {
                let set = SetAttributes {
                    size: set.size,
                    ..SetAttributes::default()
                };
                if set.size.is_some() {
                    self.setattr(who, &self.id(entry.node.ino), &set, None)
                        .result?;
                }
            }
            HowToCreate::Exclusive(verifier) => match &entry.node.read().body {
                Body::File { made_by, .. } if *made_by == Some(*verifier) => {}
                _ => return Err(FsError::Exists),
            },
        }
        self.found(&entry.node)
    }

    /// Executes MKNOD.
    pub(super) fn make_special(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        what: Special,
        set: &SetAttributes,
    ) -> Change<Object> {
        let (file_type, rdev) = match what {
            Special::Character(rdev) => (FileType::Character, Some(rdev)),
            Special::Block(rdev) => (FileType::Block, Some(rdev)),
            Special::Socket => (FileType::Socket, None),
            Special::Fifo => (FileType::Fifo, None),
        };
        if rdev.is_some() && !who.is_root() {
            return Change::refused(FsError::Perm);
        }
        let body = Body::Special(rdev.unwrap_or_default());
        let held = self.hold(dir);
        self.make_locked(&held, who, dir, name, |_, state| {
            let plan = permission::plan_new(&state.attributes, set, who, DEFAULT_FILE_MODE)?;
            self.budget.take(NODE_COST + Entries::cost(name))?;
            Ok(self.new_node(file_type, body, &plan))
        })
    }

    /// Executes REMOVE and RMDIR.
    pub(super) fn remove_entry(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        directory: bool,
    ) -> Change<()> {
        // A directory must remain empty from the look at it to its removal, wherever objects are
        // being created. Everything else can be removed while others change the tree.
        match directory {
            true => {
                let _alone = self.tree.alone();
                self.remove_held(who, dir, name, directory)
            }
            false => {
                let _held = self.hold(dir);
                self.remove_held(who, dir, name, directory)
            }
        }
    }

    fn remove_held(&self, who: &Caller, dir: &FileId, name: &[u8], directory: bool) -> Change<()> {
        let change = self.change(dir, |state| {
            permission::require_search(&state.attributes, who)?;
            name::check_old(name)?;
            // Of two removals of a name, the second one must not find it any more: so it is looked
            // up under the lock.
            let victim = state.entries()?.get(name).cloned();
            let victim = self.entry_of(victim.ok_or(FsError::NotFound)?);
            permission::require_change(&state.attributes, who)?;
            permission::require_delete(&state.attributes, &victim.attributes, who)?;
            match (victim.is_directory(), directory) {
                (true, false) => return Err(FsError::IsDirectory),
                (false, true) => return Err(FsError::NotDirectory),
                (true, true) if !victim.empty => return Err(FsError::NotEmpty),
                _ => {}
            }
            self.drop_entry(state, name, &victim)?;
            state.update_times(self.now());
            Ok(victim)
        });
        let result = change.result.map(|victim| self.drop_link(&victim.node));
        Change {
            wcc: change.wcc,
            result,
        }
    }

    /// Removes an entry from a directory.
    fn drop_entry(&self, dir: &mut State, name: &[u8], victim: &Entry) -> FsResult<()> {
        take_out(dir, name, victim)?;
        self.budget.give_back(Entries::cost(name));
        Ok(())
    }

    /// Removes a name of an object, and with the last name the object.
    fn drop_link(&self, node: &Node) {
        let mut state = node.write();
        let left = match state.body {
            Body::Directory(_) => 0,
            _ => state.attributes.nlink - 1,
        };
        state.attributes.nlink = left;
        state.attributes.ctime = self.now();
        if left > 0 {
            return;
        }
        // From here on, `live` rejects the object for threads that have found it before.
        if let Body::File { content, .. } = &mut state.body {
            // Truncation to 0 returns all memory of the content, and cannot fail.
            let _ = content.resize(0, &self.budget);
            (state.attributes.size, state.attributes.used) = (0, 0);
        }
        self.budget.give_back(cost(&state.body));
        drop(state);
        self.nodes.remove(node.ino);
    }

    /// Executes LINK.
    pub(super) fn add_link(
        &self,
        who: &Caller,
        file: &FileId,
        dir: &FileId,
        name: &[u8],
    ) -> Change<Attributes> {
        let _alone = self.tree.alone();
        // The target is read before its new directory is locked: it may be that directory, or one above it.
        let target = self.node(file).map(|target| {
            let attributes = target.attributes();
            (target, attributes)
        });
        let change = self.change(dir, |state| {
            let (target, attributes) = target?;
            permission::require_search(&state.attributes, who)?;
            name::check_new(name)?;
            if attributes.file_type == FileType::Directory {
                return Err(FsError::IsDirectory);
            }
            if state.entries()?.get(name).is_some() {
                return Err(FsError::Exists);
            }
            permission::require_change(&state.attributes, who)?;
            if attributes.nlink >= LINK_MAX {
                return Err(FsError::TooManyLinks);
            }
            self.budget.take(Entries::cost(name))?;
            state.entries_mut()?.insert(name, Arc::clone(&target));
            state.update_times(self.now());
            Ok(target)
        });
        let result = change.result.map(|target| {
            let mut state = target.write();
            state.attributes.nlink += 1;
            state.attributes.ctime = self.now();
            state.attributes.clone()
        });
        Change {
            wcc: change.wcc,
            result,
        }
    }

    /// Executes RENAME.
    pub(super) fn rename_entry(
        &self,
        who: &Caller,
        from_dir: &FileId,
        from: &[u8],
        to_dir: &FileId,
        to: &[u8],
    ) -> Renamed {
        let _alone = self.tree.alone();
        let plan = self.plan_move(who, from_dir, from, to_dir, to);
        let (source, target) = match plan {
            Ok(Some(plan)) => plan,
            // Both names refer to one object, so there is nothing to do (RFC 1813, section 3.3.14).
            Ok(None) => return self.unmoved(from_dir, to_dir, Ok(())),
            Err(error) => return self.unmoved(from_dir, to_dir, Err(error)),
        };
        // The old entries pay for the new one, so that this works in a full file system as well.
        let needed = Entries::cost(to);
        let replaced = target.as_ref().map_or(0, |_| needed);
        let freed = Entries::cost(from) + replaced;
        if let Err(error) = self.budget.take(needed.saturating_sub(freed)) {
            return self.unmoved(from_dir, to_dir, Err(error));
        }
        // The new name is added first, so that a concurrent lookup always finds the object under at
        // least one name.
        let added = self.change(to_dir, |state| {
            let keeps = from_dir == to_dir;
            if let Some(target) = &target {
                take_out(state, to, target)?;
            }
            if keeps {
                take_out(state, from, &source)?;
            }
            state.entries_mut()?.insert(to, Arc::clone(&source.node));
            if source.is_directory() {
                state.attributes.nlink += 1;
            }
            state.update_times(self.now());
            Ok(state.attributes.fileid)
        });
        let to_wcc = added.wcc;
        let parent = match added.result {
            Ok(parent) => parent,
            Err(error) => return self.unmoved(from_dir, to_dir, Err(error)),
        };
        let from_wcc = if from_dir == to_dir {
            to_wcc.clone()
        } else {
            self.change(from_dir, |state| {
                take_out(state, from, &source)?;
                state.update_times(self.now());
                Ok(())
            })
            .wcc
        };
        self.budget.give_back(freed.saturating_sub(needed));
        {
            let mut state = source.node.write();
            state.attributes.ctime = self.now();
            if let Body::Directory(entries) = &mut state.body {
                entries.parent = parent;
            }
        }
        if let Some(target) = target {
            self.drop_link(&target.node);
        }
        Renamed {
            from: from_wcc,
            to: to_wcc,
            result: Ok(()),
        }
    }

    /// Determines what RENAME moves and what it replaces.
    /// Returns `None` if both names refer to one object.
    fn plan_move(
        &self,
        who: &Caller,
        from_dir: &FileId,
        from: &[u8],
        to_dir: &FileId,
        to: &[u8],
    ) -> FsResult<Option<(Entry, Option<Entry>)>> {
        let (from_node, to_node) = (self.node(from_dir)?, self.node(to_dir)?);
        let from_attributes = from_node.attributes();
        let to_attributes = to_node.attributes();
        for dir in [&from_attributes, &to_attributes] {
            permission::require_search(dir, who)?;
        }
        name::check_old(from)?;
        name::check_old(to)?;
        let source = self.entry(&from_node, from)?.ok_or(FsError::NotFound)?;
        permission::require_change(&from_attributes, who)?;
        permission::require_change(&to_attributes, who)?;
        permission::require_delete(&from_attributes, &source.attributes, who)?;
        let moves = from_node.ino != to_node.ino;
        if source.is_directory() && moves {
            // The `..` entry of the directory changes.
            permission::require(&source.attributes, who, permission::WRITE)?;
            self.require_not_below(&to_node, source.node.ino)?;
        }
        let target = self.entry(&to_node, to)?;
        if let Some(target) = &target {
            if target.node.ino == source.node.ino {
                return Ok(None);
            }
            permission::require_delete(&to_attributes, &target.attributes, who)?;
            match (source.is_directory(), target.is_directory()) {
                (true, false) => return Err(FsError::NotDirectory),
                (false, true) => return Err(FsError::IsDirectory),
                _ if !target.empty => return Err(FsError::NotEmpty),
                _ => {}
            }
        }
        Ok(Some((source, target)))
    }

    /// Checks that `dir` is neither `ancestor` nor below it.
    fn require_not_below(&self, dir: &Node, ancestor: u64) -> FsResult<()> {
        let mut at = dir.ino;
        while at != ROOT {
            if at == ancestor {
                return Err(FsError::Invalid);
            }
            at = self.by_ino(at)?.read().entries()?.parent;
        }
        Ok(())
    }

    /// Returns the result of a RENAME that changed nothing.
    fn unmoved(&self, from_dir: &FileId, to_dir: &FileId, result: FsResult<()>) -> Renamed {
        Renamed {
            from: self.change(from_dir, |_| Ok(())).wcc,
            to: self.change(to_dir, |_| Ok(())).wcc,
            result,
        }
    }
}
