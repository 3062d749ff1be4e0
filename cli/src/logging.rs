//! Diagnostics on standard error.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

/// Sends `tracing` events to standard error: warnings, more with `verbose`, and what RUST_LOG asks
/// for when it is set.
pub(crate) fn start(verbose: u8) {
    let default = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let asked = std::env::var(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    let asked = (!asked.is_empty()).then(|| asked.parse::<EnvFilter>().map_err(|why| (asked, why)));
    let (filter, misread) = match asked {
        Some(Ok(filter)) => (filter, None),
        Some(Err(misread)) => (EnvFilter::new(default), Some(misread)),
        None => (EnvFilter::new(default), None),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .without_time()
        .with_target(false)
        .init();
    if let Some((asked, why)) = misread {
        tracing::warn!(asked, %why, "RUST_LOG is not understood, and has no effect");
    }
}
