//! Addresses that a server listens on, and the errors of those that it cannot.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use rdma::DeviceError;
use rpcrdma_setup::mount_options::Proto;
use rpcrdma_setup::{Context, Failure};

/// Returns the addresses of a host with a port. `what` is the option that names it, and `hint` follows in its error.
pub(crate) fn addresses(
    host: (&str, u16),
    what: fmt::Arguments<'_>,
    hint: &str,
) -> Result<Vec<SocketAddr>, Failure> {
    let what = format!("{what}: neither an address nor a name of one{hint}");
    Ok(host.to_socket_addrs().context(what)?.collect())
}

/// Returns the operating system's error without the device's description of the action, which
/// [`failure`] adds.
pub(crate) fn of_system(error: DeviceError) -> io::Error {
    match error {
        DeviceError::System { source, .. } => source,
        other => io::Error::other(other),
    }
}

/// Returns the error of an address that cannot be listened on, with advice for the common ones: `option` is what names
/// another port, and `rest` what else to give where another server has this one.
pub(crate) fn failure(
    address: SocketAddr,
    proto: Proto,
    error: &io::Error,
    option: &str,
    rest: &str,
) -> Failure {
    let name = match proto {
        Proto::Rdma => "RDMA",
        Proto::Tcp => "TCP",
    };
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("; another server has that port: use {option}{rest}")
        }
        io::ErrorKind::AddrNotAvailable => "; this machine does not have that address".to_owned(),
        io::ErrorKind::PermissionDenied => format!("; use {option} with 1024 or more"),
        _ => String::new(),
    };
    Failure::Work(format!(
        "cannot listen on {address} for {name}: {error}{advice}"
    ))
}
