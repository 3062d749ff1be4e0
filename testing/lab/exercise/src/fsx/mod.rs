//! Random operations on one file, each checked against a model, as fsx does on local file systems.
//!
//! The operations are reads and writes, both also with `O_DIRECT`, truncation down and up, reads
//! and writes through a mapping, fsync, closing and reopening, and dropping cached pages so that
//! the next read asks the server. Every read is compared with the model, the size is checked after
//! each operation, and the whole content at the end.

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

/// The number of preceding operations that a failure shows.
const SHOWN: usize = 30;

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// The seed of all choices.
    pub seed: u64,
    /// The number of operations.
    pub count: u64,
    /// The maximum size of the file, bytes.
    pub max_size: usize,
    /// The maximum length of a read or write, bytes.
    pub max_len: usize,
    /// Whether some reads and writes use `O_DIRECT`.
    pub direct: bool,
}

/// A file to operate on. The model defines the expected results.
pub trait Subject {
    /// Reads at most `len` bytes from `offset`, up to the end of the file.
    ///
    /// # Errors
    /// Any error fails the exercise.
    fn read(&mut self, kind: Kind, offset: usize, len: usize) -> io::Result<Vec<u8>>;

    /// Writes all bytes at `offset`, and extends the file if necessary.
    ///
    /// # Errors
    /// Any error fails the exercise.
    fn write(&mut self, kind: Kind, offset: usize, bytes: &[u8]) -> io::Result<()>;

    /// Truncates the file, or extends it with zeroes.
    ///
    /// # Errors
    /// Any error fails the exercise.
    fn truncate(&mut self, len: usize) -> io::Result<()>;

    /// Performs an operation that changes neither content nor size: [`Kind::Sync`],
    /// [`Kind::Reopen`], [`Kind::Forget`].
    ///
    /// # Errors
    /// Any error fails the exercise.
    fn settle(&mut self, kind: Kind) -> io::Result<()>;

    /// Returns the size of the file, bytes.
    ///
    /// # Errors
    /// Any error fails the exercise.
    fn size(&mut self) -> io::Result<u64>;
}

/// Performs all operations. Returns the expected content of the file.
///
/// # Errors
/// The first operation that fails or differs from the model, with the preceding operations.
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
