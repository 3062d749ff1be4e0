//! Writing to standard output and standard error without panics: a closed pipe is an error value.

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use anstream::{AutoStream, ColorChoice};
use clap::builder::styling::{AnsiColor, Style, Styles};
use nfs_binding::escape::escape_lines;
use rpcrdma_setup::Failure;
use serde_json::Value;

/// Whether there are only results and errors.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Leaves out notes, progress and summaries from now on (`--quiet`).
pub(crate) fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Returns whether notes, progress and summaries are left out.
pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

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

/// Writes JSON to standard output.
pub(crate) fn json(value: &Value) -> Result<(), Failure> {
    line(serde_json::to_string_pretty(value).map_err(Failure::work)?)
}

/// Writes bytes to standard output.
pub(crate) fn bytes(data: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(data)
        .and_then(|()| out.flush())
        .map_err(|error| Failure::output(&error))
}

/// Returns how a command ends whose work ended with `work`, and the output about it with `printed`. A reader that
/// has gone (`| head`) does not hide that the work failed. Of two failures, the first one is printed here.
pub(crate) fn ended(
    work: Result<(), Failure>,
    printed: Result<(), Failure>,
) -> Result<(), Failure> {
    match (work, printed) {
        (Err(failure), Ok(()) | Err(Failure::OutputClosed)) => Err(failure),
        (work, printed) => {
            if let Err(earlier) = work {
                complain(earlier);
            }
            printed
        }
    }
}

/// Writes an error message to standard error. A failure to do so is ignored.
pub(crate) fn complain(text: impl fmt::Display) {
    tell_marked(*Styles::styled().get_error(), "rpcrdma:", text);
}

/// Writes one line to standard error that begins with `mark`, which is colored where clap's own errors are.
fn tell_marked(style: Style, mark: &str, text: impl fmt::Display) {
    let mut out = io::stderr();
    let text = shown(text);
    // What is wrong with standard error cannot be told there.
    drop(match AutoStream::choice(&out) {
        ColorChoice::Never => writeln!(out, "{mark} {text}"),
        _ => writeln!(out, "{style}{mark}{style:#} {text}"),
    });
}

/// Writes one line to standard error without a prefix that belongs to an error.
pub(crate) fn tell(text: impl fmt::Display) {
    drop(writeln!(io::stderr(), "{}", shown(text)));
}

/// Writes one line to standard error without a prefix, unless the user wants it quiet: progress and remarks.
pub(crate) fn note(text: impl fmt::Display) {
    if !is_quiet() {
        tell(text);
    }
}

/// Writes a note about the command line to standard error, unless the user wants it quiet.
pub(crate) fn remark(text: impl fmt::Display) {
    if !is_quiet() {
        let style = AnsiColor::Cyan.on_default().bold();
        tell_marked(style, "rpcrdma: note:", text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_output_does_not_hide_that_the_work_failed() {
        let status = |work, printed| ended(work, printed).map_err(|failure| failure.exit_status());
        let failed = || Err(Failure::work("violations"));
        let closed = || Err(Failure::OutputClosed);
        assert_eq!(status(Ok(()), Ok(())), Ok(()));
        assert_eq!(status(Ok(()), closed()), Err(0));
        assert_eq!(status(failed(), closed()), Err(1));
        assert_eq!(status(failed(), Ok(())), Err(1));
        let full = || Err(Failure::work("cannot write to standard output"));
        assert_eq!(status(Ok(()), full()), Err(1));
        let both = ended(failed(), full()).unwrap_err();
        assert!(both.to_string().contains("cannot write"), "{both}");
    }
}
