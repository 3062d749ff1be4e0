//! Options about traces, of the commands that make or serve calls.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};
use rpcrdma_setup::units;

/// The default maximum length of a trace.
const SIZE: u64 = 1 << 30;

/// Options for writing a trace file.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TraceArgs {
    /// Write a timeline of all calls to FILE, a new file for Perfetto's viewer: what each call waited for, and
    /// how long (docs/trace.md)
    ///
    /// The parts of a call are waiting for a connection, a credit, memory or the send queue, registration and
    /// invalidation of memory, the network with the other end, and at a server RDMA Reads, waiting for a
    /// worker thread, and the service. A summary of them is printed at the end. The files of a client and a
    /// server on one machine can be joined with cat(1).
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(file))]
    pub(crate) trace: Option<PathBuf>,

    /// Stop tracing when the file would become longer than this. Default: 1G
    #[arg(long, value_name = "SIZE", requires = "trace", value_parser = units::size)]
    pub(crate) trace_size: Option<u64>,
}

impl TraceArgs {
    /// Returns the maximum length of the file, bytes.
    pub(crate) fn size(&self) -> u64 {
        self.trace_size.unwrap_or(SIZE)
    }
}

fn file(path: PathBuf) -> Result<PathBuf, &'static str> {
    match path.as_os_str() == "-" {
        true => Err("a trace goes to a file; for one of that name, write ./-"),
        false => Ok(path),
    }
}
