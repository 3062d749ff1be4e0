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
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .without_time()
        .with_target(false)
        .init();
}
