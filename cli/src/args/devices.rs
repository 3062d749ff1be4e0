//! Options of `devices`.

use clap::Args;

/// List RDMA devices, their capabilities, and what those of this machine lack.
///
/// The iwarp device is part of this program and always available. Verbs devices are those of
/// `libibverbs` and `librdmacm`, which are loaded when needed: RDMA cards, and rxe and siw, which
/// make one of an Ethernet interface.
#[derive(Debug, Args)]
pub(crate) struct DevicesArgs {
    /// Print JSON: what was checked, and what was found
    #[arg(long)]
    pub(crate) json: bool,
}
