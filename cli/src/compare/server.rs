//! `compare-server`, and how `compare --server` finds it.

use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};

use rpcrdma_compare::{REMOTE_PORT, RemoteServer, serve_remote};
use rpcrdma_setup::device::DeviceChoice;
use rpcrdma_setup::{Context, Failure};

use crate::args::{CHILD, CompareServerArgs};
use crate::output;

/// Serves comparisons of other hosts until a signal.
///
/// # Errors
/// The address or the device cannot be used.
pub(crate) fn run(args: &CompareServerArgs) -> Result<(), Failure> {
    let choice = DeviceChoice {
        name: args.device.clone(),
        registration: args.registration,
        address: Some(args.listen).filter(|ip| !ip.is_unspecified()),
        ..DeviceChoice::default()
    };
    choice.check()?;
    // A device that is missing is said now, and not when the other host measures.
    drop(choice.open(None, false, None)?);
    let address = SocketAddr::new(args.listen, args.port);
    let what = format_args!("cannot listen on {address}");
    let listener = TcpListener::bind(address).context(what)?;
    let address = listener.local_addr().context(what)?;
    output::line(format_args!("listening compare {address} {}", args.device))?;
    let server = RemoteServer {
        device: args.device.clone(),
        registration: args.registration,
        commit: option_env!("RPCRDMA_COMMIT").map(str::to_owned),
        child: vec![CHILD.to_owned()],
    };
    let admits = |ip: IpAddr| {
        args.clients.is_empty() || args.clients.iter().any(|network| network.contains(ip))
    };
    serve_remote(&listener, &server, &admits, &|peer, failure| {
        output::complain(format_args!("{peer}: {failure}"));
    })
}

/// Returns the address of `compare-server` for `--server`.
///
/// # Errors
/// The text has no address.
pub(super) fn address(text: &str) -> Result<SocketAddr, Failure> {
    if let Ok(ip) = text.parse() {
        return Ok(SocketAddr::new(ip, REMOTE_PORT));
    }
    let found = match text.contains(':') {
        true => text.to_socket_addrs(),
        false => (text, REMOTE_PORT).to_socket_addrs(),
    };
    let mut found = found.context(format_args!("--server {text}"))?;
    let none = || Failure::Work(format!("--server {text}: it has no address"));
    found.next().ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_a_port_of_its_own_or_the_usual_one() {
        for (text, expected) in [
            ("10.9.0.2", "10.9.0.2:20047"),
            ("10.9.0.2:7", "10.9.0.2:7"),
            ("fd00::2", "[fd00::2]:20047"),
            ("[fd00::2]:7", "[fd00::2]:7"),
        ] {
            assert_eq!(address(text).unwrap().to_string(), expected);
        }
        for wrong in ["10.9.0.2:x", "a b", ""] {
            let failure = address(wrong).unwrap_err().to_string();
            assert!(failure.contains("--server"), "{failure}");
        }
    }
}
