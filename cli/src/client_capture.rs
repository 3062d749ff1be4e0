//! The capture of a command that is a client (`--capture`).

use rpcrdma_setup::Failure;
use rpcrdma_setup::access::Access;
use rpcrdma_setup::mount_options::Proto;

use crate::args::CaptureArgs;
use crate::capture::{self, Clock};
use crate::interrupt;

/// Creates the file for the device of a client.
///
/// # Errors
/// See [`capture::open`]. NFS over TCP has no such device.
pub(crate) fn open(access: &mut Access, args: &CaptureArgs) -> Result<(), Failure> {
    if args.capture.is_some() && access.mount.proto == Proto::Tcp {
        let text = "--capture: only for NFS over RDMA, not with proto=tcp (tcpdump(8) shows that)";
        return Err(Failure::usage(text));
    }
    access.device.capture = capture::open(args, Clock::Real)?;
    if access.device.capture.is_some() {
        interrupt::handle()?;
    }
    Ok(())
}
