//! Random operations on one file, each checked against a model: what fsx does on local file systems.
//!
//! Reads, writes, both past the cache (`O_DIRECT`), truncation down and up, reads and writes through
//! a mapping, fsync, closing and opening again, and giving up cached pages so that the next read
//! asks the server. Every read is compared, the size is looked at after each operation, and all of
//! the content at the end.

mod file;
mod model;
mod step;

use std::collections::VecDeque;
use std::io;

pub use file::MountedFile;
pub use model::Model;
pub use step::{Kind, Step};

use crate::Failure;
use crate::content::difference;

/// How many operations a failure shows of those before it.
const SHOWN: usize = 30;

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// What all choices are made from.
    pub seed: u64,
    /// Operations.
    pub count: u64,
    /// The longest that the file gets, bytes.
    pub max_size: usize,
    /// The longest read or write, bytes.
    pub max_len: usize,
    /// Whether some reads and writes go past the cache.
    pub direct: bool,
}

/// A file to work on. The model says what has to come of it.
pub trait Subject {
    /// Reads as many bytes as there are from `offset`, at most `len`.
    ///
    /// # Errors
    /// Any: the exercise fails.
    fn read(&mut self, kind: Kind, offset: usize, len: usize) -> io::Result<Vec<u8>>;

    /// Writes all of it at `offset`, making the file longer if need be.
    ///
    /// # Errors
    /// Any.
    fn write(&mut self, kind: Kind, offset: usize, bytes: &[u8]) -> io::Result<()>;

    /// Cuts, or lengthens with zeroes.
    ///
    /// # Errors
    /// Any.
    fn truncate(&mut self, len: usize) -> io::Result<()>;

    /// Does what changes neither content nor size: [`Kind::Sync`], [`Kind::Reopen`],
    /// [`Kind::Forget`].
    ///
    /// # Errors
    /// Any.
    fn settle(&mut self, kind: Kind) -> io::Result<()>;

    /// Its size, bytes.
    ///
    /// # Errors
    /// Any.
    fn size(&mut self) -> io::Result<u64>;
}

/// Does all of it. Returns what the file has to hold then.
///
/// # Errors
/// The first operation that fails or gives something else than the model, with the operations
/// before it.
pub fn run(order: &Order, subject: &mut impl Subject) -> Result<Model, Failure> {
    let mut rng = fastrand::Rng::with_seed(order.seed);
    let mut model = Model::default();
    let mut done = VecDeque::new();
    for number in 1..=order.count {
        let step = Step::choose(&mut rng, order, number, model.len());
        if let Err(problem) = perform(&step, subject, &mut model) {
            return Err(explain(order, &step, &done, problem));
        }
        if done.len() == SHOWN {
            done.pop_front();
        }
        done.push_back(step);
    }
    let all = subject
        .settle(Kind::Reopen)
        .and_then(|()| subject.read(Kind::Read, 0, order.max_size + 1))
        .map_err(|error| Failure::new(format!("at the end: {error}")))?;
    match difference(model.bytes(), &all) {
        None => Ok(model),
        Some((_, text)) => Err(Failure::new(format!("at the end: {text}"))),
    }
}

fn perform(step: &Step, subject: &mut impl Subject, model: &mut Model) -> Result<(), String> {
    let said = |error: io::Error| error.to_string();
    let (kind, offset, len) = (step.kind, step.offset, step.len);
    match kind {
        Kind::Read | Kind::DirectRead | Kind::MapRead => {
            let found = subject.read(kind, offset, len).map_err(said)?;
            if let Some((at, text)) = difference(model.read(offset, len), &found) {
                return Err(format!("{text}; that is {} of the file", offset + at));
            }
        }
        Kind::Write | Kind::DirectWrite | Kind::MapWrite => {
            let bytes = step.bytes();
            subject.write(kind, offset, &bytes).map_err(said)?;
            model.write(offset, &bytes);
        }
        Kind::Truncate => {
            subject.truncate(offset).map_err(said)?;
            model.truncate(offset);
        }
        Kind::Sync | Kind::Reopen | Kind::Forget => subject.settle(kind).map_err(said)?,
    }
    let size = subject.size().map_err(said)?;
    if size != model.len() as u64 {
        return Err(format!("the size is {size}, wanted {}", model.len()));
    }
    Ok(())
}

fn explain(order: &Order, step: &Step, done: &VecDeque<Step>, problem: String) -> Failure {
    let mut text = format!(
        "operation {} of seed {}, {step}: {problem}\nbefore it:\n",
        step.number, order.seed
    );
    for step in done {
        text.push_str(&format!("{:>7} {step}\n", step.number));
    }
    Failure::new(text)
}
