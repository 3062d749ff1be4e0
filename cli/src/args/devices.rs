//! Options of `devices`.

use clap::Args;

/// List RDMA devices and their capabilities, and report missing prerequisites.
///
/// The iwarp device is part of this program and always available. Verbs devices are those of
/// `libibverbs` and `librdmacm`, which are loaded when needed: RDMA adapters, and rxe and siw, which
/// make an RDMA device of an Ethernet interface.
#[derive(Debug, Args)]
pub(crate) struct DevicesArgs {
    /// Print JSON: what was checked, and what was found
    #[arg(long)]
    pub(crate) json: bool,
}
