//! Runs the C program, with pipes for requests and answers (`c/main.c` describes the format).

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;

use bytes::Bytes;

use crate::xdr::Specification;

/// The request that flushes pending answers.
const FLUSH: u32 = u32::MAX;
/// The maximum length of an answer, bytes.
const LONGEST: u32 = 1 << 24;

/// The C program's answer about some bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether they are a valid value.
    pub accepted: bool,
    /// The number of bytes consumed.
    pub used: usize,
    /// The value, encoded again.
    pub again: Vec<u8>,
    /// The value by the names of its fields, as JSON.
    pub json: String,
}

/// A running program.
#[derive(Debug)]
pub struct Program {
    child: Child,
    to: BufWriter<ChildStdin>,
    from: BufReader<ChildStdout>,
    types: Vec<String>,
}

fn other(what: impl Into<String>) -> io::Error {
    io::Error::other(what.into())
}

fn word(from: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes)?;
    Ok(u32::from_ne_bytes(bytes))
}

fn block(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let len = word(from)?;
    if len > LONGEST {
        return Err(other(format!("an answer of {len} bytes")));
    }
    let mut bytes = vec![0; len as usize];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl Program {
    /// Starts the program, and checks that it was built from the same XDR files as this crate.
    ///
    /// # Errors
    /// The program cannot be started, or was built from other files.
    pub fn start(path: &Path, all: &Specification) -> io::Result<Self> {
        let start = Command::new(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = start.map_err(|error| {
            other(format!(
                "{}: {error} (drafts/build makes it)",
                path.display()
            ))
        })?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(other("a program without pipes"));
        };
        let mut from = BufReader::new(from);
        let mut types = Vec::new();
        for _ in 0..word(&mut from)? {
            let mut name = Vec::new();
            io::BufRead::read_until(&mut from, 0, &mut name)?;
            name.pop();
            types.push(String::from_utf8(name).map_err(|_| other("a name that is no text"))?);
        }
        if !types.iter().eq(all.types.iter().map(|(name, _)| name)) {
            return Err(other(format!(
                "{} was made of other XDR files",
                path.display()
            )));
        }
        let to = BufWriter::new(to);
        Ok(Self {
            child,
            to,
            from,
            types,
        })
    }

    /// Returns the number of a type.
    ///
    /// # Errors
    /// The type does not exist.
    pub fn number(&self, name: &str) -> io::Result<u32> {
        let place = self.types.iter().position(|known| known == name);
        // A linear search suffices for about sixty types.
        place
            .map(|place| place as u32)
            .ok_or_else(|| other(format!("no XDR type {name}")))
    }

    /// Asks the program about encoded values, which may be invalid, of a type.
    ///
    /// # Errors
    /// The program ended, or sent an invalid answer.
    pub fn ask(&mut self, number: u32, values: &[Bytes]) -> io::Result<Vec<Answer>> {
        let Self { to, from, .. } = self;
        // Requests are written by another thread, because the program may block on either pipe.
        thread::scope(|scope| {
            let asked = scope.spawn(move || -> io::Result<()> {
                for value in values {
                    to.write_all(&number.to_ne_bytes())?;
                    to.write_all(&(value.len() as u32).to_ne_bytes())?;
                    to.write_all(value)?;
                }
                to.write_all(&FLUSH.to_ne_bytes())?;
                to.flush()
            });
            let answers = values.iter().map(|_| answer(from)).collect();
            match asked.join() {
                Ok(Ok(())) => answers,
                Ok(Err(error)) => Err(error),
                Err(_) => Err(other("the thread that asks panicked")),
            }
        })
    }
}

fn answer(from: &mut impl Read) -> io::Result<Answer> {
    Ok(Answer {
        accepted: word(from)? != 0,
        used: word(from)? as usize,
        again: block(from)?,
        json: String::from_utf8(block(from)?).map_err(|_| other("JSON that is no text"))?,
    })
}

impl Drop for Program {
    fn drop(&mut self) {
        // The program normally ends when its input does. A broken one must not block.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
