//! The workload of a simulated client: it mounts, creates files, and runs several workers whose
//! calls have results that can be checked.

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{join_all, select};
use nfs_binding::client::{Mount3, Nfs3, RpcClient};
use nfs_binding::proto::{
    CommitArgs, CreateArgs, CreateHow, DirOp, DirOpArgs, FileHandle, HandleArgs, MkdirArgs,
    MountArgs, MountPath, Name, NfsResult, ReadArgs, ReaddirplusArgs, RenameArgs, SetAttributes,
    Stable, Status, WriteArgs,
};
use rdma_sim::Random;
use rpc_transport::rdma::RdmaClient;
use rpc_transport::{CallError, Client, ConnectionId, Runtime};
use rpcrdma_programs::Echo;
use rpcrdma_programs::callbacks::{Answers, Order, run};
use rpcrdma_programs::pattern;

use crate::client::{Counted, Desk};
use crate::exports::EXPORT;
use crate::history::SlotId;
use crate::joining::connect;
use crate::shared::{FOR_EVER, File, PAUSE, Shared, TRIES};

/// The number of files of each client.
const FILES: usize = 2;
/// The number of slots of a file for each worker.
const SLOTS: usize = 3;
/// A concurrent worker of a client.
struct Worker<'a> {
    shared: &'a Shared,
    nfs: &'a Nfs3<Counted>,
    dir: FileHandle,
    files: &'a [(u64, FileHandle)],
    number: usize,
    random: Random,
    client: &'a Client,
    answers: &'a Answers,
    /// The number of the handle key when the handles were issued.
    key: u8,
}

/// The data lengths of callbacks and of the replies to them, bytes.
const CALLBACK_LENGTHS: [u32; 7] = [0, 100, 700, 700, 3000, 9000, 25_000];
/// The length up to which no callback needs a chunk, bytes.
const ALWAYS_INLINE: u32 = 700;

/// The maximum pause between two changes of receive sizes.
const RESIZE_WITHIN: Duration = Duration::from_millis(5);
/// The sizes that are requested, bytes.
const SIZES: [u32; 5] = [4096, 6000, 8192, 16_384, 32_768];

/// Runs the whole workload of a client.
pub(crate) async fn life(shared: Rc<Shared>, desk: Desk, random: Random) {
    let answers = Answers::new();
    let Some(client) = connect(&shared, &desk, Some(&answers)).await else {
        let now = desk.runtime.now();
        let text = "a client cannot connect although nothing is wrong any more".to_owned();
        return shared.journal.borrow_mut().violation(now, text);
    };
    let rpc = Counted::new(client.clone(), desk.under_way, Rc::clone(&shared.tally));
    let nfs = Nfs3::new(rpc.clone());
    let key = || shared.exports.served.borrow().key;
    let (key, prepared) = loop {
        let before = key();
        let prepared = prepare(&shared, &rpc, &nfs).await;
        // The first handles may be stale before the last ones are there.
        if prepared.is_some() || key() == before {
            break (before, prepared);
        }
    };
    let Some((dir, files)) = prepared else {
        let now = desk.runtime.now();
        let text = "a client cannot make its files although nothing is wrong any more".to_owned();
        return shared.journal.borrow_mut().violation(now, text);
    };
    let workers = (0..shared.plan.workers).map(|number| {
        let worker = Worker {
            shared: &shared,
            nfs: &nfs,
            dir,
            files: &files,
            number,
            random: random.split(number as u64 + 1),
            client: &client,
            answers: &answers,
            key,
        };
        worker.work()
    });
    let work = pin!(join_all(workers));
    let (port, runtime) = (&desk.port, &desk.runtime);
    match shared.plan.resizes {
        true => drop(select(work, pin!(resize(port, runtime, random.split(0)))).await),
        false => drop(work.await),
    }
}

/// Changes the sizes of receives of both ends repeatedly. A change that is not possible at the
/// moment is skipped: another one may be in progress, or the peer uses version 1.
async fn resize(port: &RefCell<RdmaClient>, runtime: &Runtime, mut random: Random) {
    loop {
        runtime.sleep(random.duration(RESIZE_WITHIN)).await;
        let connections: Vec<ConnectionId> = port.borrow().connections().collect();
        for conn in connections {
            let size = random.pick(&SIZES);
            let mut port = port.borrow_mut();
            let _ = match random.below(2) {
                0 => port.raise_receive_size(conn, size),
                _ => port.request_receive_size(conn, size),
            };
        }
    }
}

/// Mounts, and creates a directory and files that no other client uses.
async fn prepare(
    shared: &Shared,
    rpc: &Counted,
    nfs: &Nfs3<Counted>,
) -> Option<(FileHandle, Vec<(u64, FileHandle)>)> {
    let mountd = Mount3::new(rpc.clone());
    let args = MountArgs {
        path: MountPath::from(EXPORT.as_bytes()),
    };
    let root = insist(rpc, || mountd.mount(&args)).await?.handle;
    let name = shared.history.borrow_mut().number();
    let mkdir = MkdirArgs {
        place: place(root, &format!("dir{name}")),
        attributes: SetAttributes::default(),
    };
    let looked_up = DirOpArgs {
        what: mkdir.place.clone(),
    };
    // A repetition may find the object that the first attempt created.
    let dir = insist(rpc, async || match nfs.mkdir(&mkdir).await? {
        Ok(made) if made.object.is_some() => Ok(Ok(made.object)),
        _ => Ok(nfs
            .lookup(&looked_up)
            .await?
            .map(|found| Some(found.object))),
    })
    .await??;
    let mut files = Vec::new();
    for _ in 0..FILES {
        let number = shared.history.borrow_mut().number();
        let create = CreateArgs {
            place: place(dir, &format!("file{number}")),
            how: CreateHow::Unchecked(SetAttributes::default()),
        };
        let made = insist(rpc, || nfs.create(&create)).await?;
        let file = made.object?;
        files.push((number, file));
        shared.files.borrow_mut().push(File { number, dir: name });
    }
    Some((dir, files))
}

/// Repeats a call until it succeeds. Returns `None` if it never does.
async fn insist<T, F, R>(rpc: &Counted, call: impl Fn() -> R) -> Option<T>
where
    R: Future<Output = Result<NfsResult<T, F>, CallError>>,
{
    for _ in 0..TRIES {
        match call().await {
            Ok(Ok(done)) => return Some(done),
            // That does not change.
            Ok(Err(failed)) if failed.status == Status::STALE => return None,
            _ => rpc.sleep(PAUSE).await,
        }
    }
    None
}

pub(crate) fn place(dir: FileHandle, name: &str) -> DirOp {
    DirOp {
        dir,
        name: Name::from(name.as_bytes()),
    }
}

impl Worker<'_> {
    async fn work(mut self) {
        for _ in 0..self.shared.plan.calls {
            if self.shared.plan.takes_callbacks() && self.random.below(4) == 0 {
                self.callbacks().await;
            }
            match self.random.below(16) {
                0..=4 => self.write().await,
                5..=7 => self.read().await,
                8 => self.commit().await,
                9 => self.getattr().await,
                10 | 11 => self.echo().await,
                12 => self.names().await,
                13 => self.list().await,
                _ => self.rest().await,
            }
        }
        self.settle().await;
    }

    fn violation(&self, what: String) {
        let now = self.nfs.rpc().now();
        self.shared.journal.borrow_mut().violation(now, what);
    }

    fn note(&self, what: std::fmt::Arguments<'_>) {
        let now = self.nfs.rpc().now();
        let line = format_args!("worker {}: {what}", self.number);
        self.shared.journal.borrow_mut().line(now, line);
    }

    /// Makes the server call this client.
    async fn callbacks(&mut self) {
        let plan = &self.shared.plan;
        let patience = match plan.is_calm() {
            true => FOR_EVER,
            false => Duration::from_micros(self.random.between(500, 300_000)),
        };
        let order = Order {
            count: self.random.between(1, 12) as u32,
            at_a_time: self.random.between(1, 8) as u32,
            call_len: self.random.pick(&CALLBACK_LENGTHS),
            reply_len: self.random.pick(&CALLBACK_LENGTHS),
            limit: patience,
        };
        let number = self.shared.history.borrow_mut().number();
        let ticket = u32::try_from(number).unwrap_or(u32::MAX);
        let result = run(self.client, ticket, order).await;
        self.note(format_args!("{order:?}: {result:?}"));
        let seen = self.answers.seen();
        // A restarted server would start the order again.
        let lives = self.shared.history.borrow().lives;
        if seen.wrong > 0 || (lives == 1 && seen.repeated() > 0) {
            let (wrong, repeated) = (seen.wrong, seen.repeated());
            self.violation(format!("{wrong} callbacks came wrong, {repeated} again"));
        }
        let Ok(tally) = result else {
            return;
        };
        if tally.ended() != tally.made || tally.wrong > 0 {
            self.violation(format!("an order was carried out badly: {tally:?}"));
        }
        let short = order.call_len.max(order.reply_len) <= ALWAYS_INLINE;
        let taken = plan.callback_credits() > 0;
        if plan.is_calm() && taken && short && tally.answered < order.count {
            self.violation(format!("callbacks failed although nothing had: {tally:?}"));
        }
        if !taken && tally.answered > 0 {
            self.violation(format!(
                "a client that takes no calls answered some: {tally:?}"
            ));
        }
    }

    /// Returns one of this worker's own slots that is not in doubt: the file's handle, the slot,
    /// and the file's number.
    fn slot(&mut self) -> Option<(FileHandle, SlotId, u64)> {
        let (number, file) = self.files[self.random.below(FILES as u64) as usize];
        let own = self.random.below(SLOTS as u64) as usize;
        let slot = own * self.shared.plan.workers + self.number;
        let id = (number, slot);
        let offset = slot as u64 * self.shared.plan.slot as u64;
        (!self.shared.history.borrow().is_doubtful(id)).then_some((file, id, offset))
    }

    async fn write(&mut self) {
        let stable = match self.random.below(3) {
            0 => Stable::FileSync,
            1 => Stable::DataSync,
            _ => Stable::Unstable,
        };
        if let Some((file, id, offset)) = self.slot() {
            self.write_slot(file, id, offset, stable).await;
        }
    }

    async fn write_slot(&self, file: FileHandle, id: SlotId, offset: u64, stable: Stable) {
        let len = self.shared.plan.slot;
        let (number, losses) = {
            let mut history = self.shared.history.borrow_mut();
            (history.write(id), history.losses)
        };
        self.note(format_args!("WRITE {number} to {id:?}, {stable:?}"));
        let args = WriteArgs {
            file,
            offset,
            count: len as u32,
            stable,
            data: pattern::content(number, len).into(),
        };
        let result = self.nfs.write(&args).await;
        self.note(format_args!("WRITE {number}: {}", outcome(&result)));
        match result {
            Ok(Ok(ok)) => {
                if ok.count as usize != len {
                    self.violation(format!("WRITE {number} wrote {} of {len} bytes", ok.count));
                }
                if (ok.committed as u32) < stable as u32 {
                    self.violation(format!(
                        "WRITE {number} asked for {stable:?}, and was {:?}",
                        ok.committed
                    ));
                }
                let mut history = self.shared.history.borrow_mut();
                history.written(id, ok.committed, ok.verifier, losses);
            }
            Ok(Err(failed)) => self.refused("WRITE", failed.status),
            // The slot stays in doubt: the call may still be executed.
            Err(error) => self.failed("WRITE", &error),
        }
    }

    /// Checks a failed call: a call of a client that never gives up must end with results, whatever
    /// happens to connections and servers, unless there is no memory for it.
    fn failed(&self, what: &str, error: &CallError) {
        if self.shared.plan.is_patient() {
            self.violation(format!(
                "{what} failed on a client that is patient: {error}"
            ));
        }
    }

    /// Checks an error status: only JUKEBOX is allowed, from a server that is short of memory, and
    /// STALE if the handle key was replaced.
    fn refused(&self, what: &str, status: Status) {
        let other_key = self.shared.exports.served.borrow().key != self.key;
        if status != Status::JUKEBOX && !(status == Status::STALE && other_key) {
            self.violation(format!("{what} failed with {status}"));
        }
    }

    async fn read(&mut self) {
        let Some((file, id, offset)) = self.slot() else {
            return;
        };
        let len = self.shared.plan.slot;
        let losses = self.shared.history.borrow().losses;
        let args = ReadArgs {
            file,
            offset,
            count: len as u32,
        };
        let result = self.nfs.read(&args).await;
        self.note(format_args!("READ of {id:?}: {}", outcome(&result)));
        match result {
            Ok(Ok(ok)) => {
                let got = pattern::number(&ok.data.0.to_bytes(), len);
                let checked = self.shared.history.borrow_mut().read(id, got, losses);
                if let Err(what) = checked {
                    self.violation(what);
                }
            }
            Ok(Err(failed)) => self.refused("READ", failed.status),
            Err(error) => self.failed("READ", &error),
        }
    }

    async fn commit(&mut self) {
        let (number, file) = self.files[self.random.below(FILES as u64) as usize];
        self.commit_file(number, file).await;
    }

    async fn commit_file(&self, number: u64, file: FileHandle) {
        let began = self.shared.history.borrow().told();
        let args = CommitArgs {
            file,
            offset: 0,
            count: 0,
        };
        let result = self.nfs.commit(&args).await;
        self.note(format_args!("COMMIT of {number}: {}", outcome(&result)));
        match result {
            Ok(Ok(ok)) => {
                let mut history = self.shared.history.borrow_mut();
                history.committed(number, ok.verifier, began);
            }
            Ok(Err(failed)) => self.refused("COMMIT", failed.status),
            Err(error) => self.failed("COMMIT", &error),
        }
    }

    async fn getattr(&mut self) {
        let (number, object) = self.files[self.random.below(FILES as u64) as usize];
        let result = self.nfs.getattr(&HandleArgs { object }).await;
        self.note(format_args!("GETATTR of {number}: {}", outcome(&result)));
        match result {
            Ok(Ok(_)) => {}
            Ok(Err(failed)) => self.refused("GETATTR", failed.status),
            Err(error) => self.failed("GETATTR", &error),
        }
    }

    async fn echo(&mut self) {
        let short = |random: &mut Random| match random.below(4) {
            0 => random.pick(&[1, 4, 8, 100]),
            _ => 0,
        };
        let lengths = [0, 1, 60, 500, 900, 3000, 4000, 10_000];
        let echo = Echo {
            call: self.random.pick(&lengths),
            payload: self.random.pick(&lengths),
            item: self.random.pick(&[0, 0, 7, 900, 5000, 30_000]),
            short_payload: short(&mut self.random),
            short_item: short(&mut self.random),
        };
        let result = self.nfs.rpc().call(echo.call()).await;
        let how = match &result {
            Ok(_) => "answered".to_owned(),
            Err(error) => error.to_string(),
        };
        self.note(format_args!("{echo:?}: {how}"));
        match result {
            Ok(reply) if echo.is_answered(&reply) => {}
            Ok(_) => self.violation(format!("{echo:?} was answered with something else")),
            Err(CallError::Refused(denial)) => {
                self.violation(format!("{echo:?} was refused: {denial}"));
            }
            Err(CallError::Chunk(_)) if !echo.is_short() && self.shared.plan.is_calm() => {
                self.violation(format!(
                    "{echo:?} has room enough, and its reply did not fit"
                ));
            }
            Err(CallError::Protocol(error)) => {
                self.violation(format!("{echo:?} ended with a protocol error: {error}"));
            }
            Err(_) => {}
        }
    }

    /// Creates, renames and removes a name. These calls are not idempotent, so a second execution
    /// is detected, unless the server lost its memory in between.
    async fn names(&mut self) {
        let number = self.shared.history.borrow_mut().number();
        let old = place(self.dir, &format!("name{number}"));
        let new = place(self.dir, &format!("name{number}b"));
        let args = CreateArgs {
            place: old.clone(),
            how: CreateHow::Guarded(SetAttributes::default()),
        };
        let lives = self.shared.history.borrow().lives;
        let created = self.nfs.create(&args).await;
        if !self.once("CREATE", number, created, Status::EXIST, lives) {
            return;
        }
        let args = RenameArgs {
            from: old,
            to: new.clone(),
        };
        let lives = self.shared.history.borrow().lives;
        let renamed = self.nfs.rename(&args).await;
        if !self.once("RENAME", number, renamed, Status::NOENT, lives) {
            return;
        }
        let lives = self.shared.history.borrow().lives;
        let removed = self.nfs.remove(&DirOpArgs { what: new }).await;
        self.once("REMOVE", number, removed, Status::NOENT, lives);
    }

    /// Checks a non-idempotent call. `again` is the status that a second execution would return.
    fn once<T, F>(
        &self,
        what: &str,
        number: u64,
        result: Result<NfsResult<T, F>, CallError>,
        again: Status,
        lives: u64,
    ) -> bool {
        self.note(format_args!(
            "{what} of name {number}: {}",
            outcome(&result)
        ));
        match result {
            Ok(Ok(_)) => true,
            Ok(Err(failed)) if failed.status == again => {
                if self.shared.history.borrow().lives == lives {
                    self.violation(format!("{what} of name {number} was executed twice"));
                }
                true
            }
            Ok(Err(failed)) => {
                self.refused(what, failed.status);
                false
            }
            Err(error) => {
                self.failed(what, &error);
                false
            }
        }
    }

    async fn list(&mut self) {
        let args = ReaddirplusArgs {
            dir: self.dir,
            cookie: 0,
            verifier: [0; 8],
            dir_count: 4096,
            max_count: self.random.pick(&[2048, 8192, 32_768]),
        };
        let result = self.nfs.readdirplus(&args).await;
        self.note(format_args!("READDIRPLUS: {}", outcome(&result)));
        match result {
            Ok(Ok(ok)) => {
                let listed = |number: &u64| {
                    let name = Name::from(format!("file{number}").as_bytes());
                    ok.entries.iter().any(|entry| entry.name == name)
                };
                if ok.eof && !self.files.iter().all(|(number, _)| listed(number)) {
                    self.violation("READDIRPLUS does not list a file that is there".to_owned());
                }
            }
            Ok(Err(failed)) => self.refused("READDIRPLUS", failed.status),
            // The chunk for a long listing may need more segments than a header can hold.
            Err(CallError::TooLarge(_)) => {}
            Err(error) => self.failed("READDIRPLUS", &error),
        }
    }

    async fn rest(&mut self) {
        let rest = self.random.duration(Duration::from_millis(2));
        self.nfs.rpc().sleep(rest).await;
    }

    /// Commits all files, as a client does before it reports success.
    async fn settle(&self) {
        for &(number, file) in self.files {
            self.commit_file(number, file).await;
        }
        for &(number, file) in self.files {
            for own in 0..SLOTS {
                let slot = own * self.shared.plan.workers + self.number;
                let id = (number, slot);
                let offset = slot as u64 * self.shared.plan.slot as u64;
                let again = {
                    let history = self.shared.history.borrow();
                    !history.is_stable(id) && !history.is_doubtful(id)
                };
                if again {
                    self.write_slot(file, id, offset, Stable::FileSync).await;
                }
            }
        }
    }
}

fn outcome<T, F>(result: &Result<NfsResult<T, F>, CallError>) -> String {
    match result {
        Ok(Ok(_)) => "done".to_owned(),
        Ok(Err(failed)) => failed.status.to_string(),
        Err(error) => error.to_string(),
    }
}
