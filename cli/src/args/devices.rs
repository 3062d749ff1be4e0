//! Options of `devices`.

use clap::Args;

/// List RDMA devices, what each can do, and what is missing for those of this machine.
///
/// The iwarp device is in this program and always there. Verbs devices are those that
/// `libibverbs` and `librdmacm` offer, which are loaded when they are needed: RDMA cards, and
/// rxe and siw, which make one of an Ethernet interface.
#[derive(Debug, Args)]
pub(crate) struct DevicesArgs {
    /// Print JSON: what was looked at, and what was found
    #[arg(long)]
    pub(crate) json: bool,
}
