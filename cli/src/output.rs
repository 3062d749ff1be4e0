//! Writing to standard output and standard error without panics: a closed pipe is an error value.

use std::fmt;
use std::io::{self, Write};

use nfs_binding::escape::escape_lines;
use rpcrdma_setup::Failure;

/// Escapes control characters in text for people. Names from a server are escaped earlier, because
/// a line feed in one must not begin a line; this is a second line of defence.
pub(crate) fn shown(text: impl fmt::Display) -> String {
    escape_lines(&text.to_string()).to_string()
}

/// Writes one line to standard output and flushes it.
pub(crate) fn line(text: impl fmt::Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", shown(text))
        .and_then(|()| out.flush())
        .map_err(|error| Failure::output(&error))
}

/// Writes bytes to standard output.
pub(crate) fn bytes(data: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(data)
        .and_then(|()| out.flush())
        .map_err(|error| Failure::output(&error))
}

/// Writes an error message to standard error. A failure to do so is ignored.
pub(crate) fn complain(text: impl fmt::Display) {
    drop(writeln!(io::stderr(), "rpcrdma: {}", shown(text)));
}

/// Writes one line to standard error without a prefix: progress and remarks.
pub(crate) fn note(text: impl fmt::Display) {
    drop(writeln!(io::stderr(), "{}", shown(text)));
}
