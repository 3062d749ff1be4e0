//! Diagnostics on standard error.

use std::fmt::Write;
use std::io;

use anstream::{AutoStream, ColorChoice};
use nfs_binding::escape::Escaping;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format;

use crate::output;

/// Formats the fields of an event, `message` first and without its name. Values may come from a
/// peer, so they are escaped.
fn fields() -> impl for<'w> FormatFields<'w> {
    format::debug_fn(|writer, field, value| match field.name() {
        "message" => write!(Escaping(writer), "{value:?}"),
        name => {
            write!(writer, "{name}=")?;
            write!(Escaping(writer), "{value:?}")
        }
    })
    .delimited(" ")
}

/// Sends `tracing` events to standard error: warnings by default, more with `verbose`, errors alone if the user
/// wants it quiet, or as RUST_LOG says if it is set. With `timed`, each line begins with the time.
pub(crate) fn start(verbose: u8, timed: bool) {
    let default = match verbose {
        0 if output::is_quiet() => "error,fuser=off",
        // `fuser` logs errors when somebody else has unmounted, and when the kernel has given up a request.
        // Neither matters here; real errors are returned. `mio` logs at trace level only.
        0 => "warn,fuser=off",
        1 => "info,fuser=off",
        2 => "debug,fuser=off",
        _ => "trace,fuser=off,mio=off",
    };
    let asked = std::env::var(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    let asked = (!asked.is_empty()).then(|| asked.parse::<EnvFilter>().map_err(|why| (asked, why)));
    let (filter, misread) = match asked {
        Some(Ok(filter)) => (filter, None),
        Some(Err(misread)) => (EnvFilter::new(default), Some(misread)),
        None => (EnvFilter::new(default), None),
    };
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(AutoStream::choice(&io::stderr()) != ColorChoice::Never)
        .with_target(false)
        // By default, tracing reports a failed write to stderr with eprintln!, which panics if stderr is what
        // failed.
        .log_internal_errors(false)
        .fmt_fields(fields());
    // A program that runs a command may have a subscriber of its own, or have run another command before.
    // That subscriber stays.
    let _ = match timed {
        true => subscriber.try_init(),
        false => subscriber.without_time().try_init(),
    };
    if let Some((asked, why)) = misread {
        tracing::warn!(asked, %why, "RUST_LOG is invalid and has no effect");
    }
}
