//! Standard output and standard error without panics: a closed pipe is an error value.

use std::fmt;
use std::io::{self, Write};

use crate::failure::{Failure, output_failure};

/// Writes one line to standard output, at once.
pub(crate) fn line(text: impl fmt::Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(|error| output_failure(&error))
}

/// Writes bytes to standard output.
pub(crate) fn bytes(data: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(data)
        .and_then(|()| out.flush())
        .map_err(|error| output_failure(&error))
}

/// Writes one line to standard error. When nobody reads that, nothing can be said about it.
pub(crate) fn complain(text: impl fmt::Display) {
    drop(writeln!(io::stderr(), "rpcrdma: {text}"));
}

/// Writes one line to standard error as it is: progress and remarks.
pub(crate) fn note(text: impl fmt::Display) {
    drop(writeln!(io::stderr(), "{text}"));
}
