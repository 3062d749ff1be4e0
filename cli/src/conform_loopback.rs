//! `conform --loopback`: no address but those of the loopback interface.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use rpcrdma_setup::Failure;
use rpcrdma_setup::mount_options::MountOptions;

/// The name that stands for the loopback interface (RFC 6761, section 6.3).
const LOCALHOST: &str = "localhost";

/// Checks the hosts that the judgement of a server connects to: that of the URL, and that of MOUNT.
///
/// # Errors
/// One of them is not of the loopback interface.
pub(crate) fn check_server(host: &str, options: &MountOptions) -> Result<(), Failure> {
    check_host("the server", host)?;
    match &options.mount_host {
        Some(host) => check_host("mounthost", host),
        None => Ok(()),
    }
}

/// Checks the address that the judgement of a client listens on.
///
/// # Errors
/// The address is not of the loopback interface.
pub(crate) fn check_listener(address: SocketAddr) -> Result<(), Failure> {
    match is_loopback(address.ip()) {
        true => Ok(()),
        false => Err(refused("--listen", &address.to_string())),
    }
}

/// Checks a host. A name other than `localhost` is refused without a lookup, which would ask a name server.
fn check_host(what: &str, host: &str) -> Result<(), Failure> {
    let is_allowed = match host.parse::<IpAddr>() {
        Ok(address) => is_loopback(address),
        Err(_) if host.eq_ignore_ascii_case(LOCALHOST) => {
            // The file of hosts can say otherwise. A name without an address is an error later.
            let found = (host, 0).to_socket_addrs();
            found.map_or(true, |mut all| all.all(|it| is_loopback(it.ip())))
        }
        Err(_) => false,
    };
    match is_allowed {
        true => Ok(()),
        false => Err(refused(what, host)),
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

fn refused(what: &str, host: &str) -> Failure {
    Failure::Usage(format!(
        "--loopback: {what} {host} is refused: it is no address of the loopback interface, and not localhost"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_hosts_are_refused() {
        let allows = |host: &str| check_host("the server", host).is_ok();
        for host in [
            "127.0.0.1",
            "127.9.8.7",
            "::1",
            "::ffff:127.0.0.1",
            "localhost",
        ] {
            assert!(allows(host), "{host}");
        }
        // The last one is no address, and would be looked up.
        for host in ["0.0.0.0", "::", "192.0.2.1", "fe80::1", "127.0.0.1.example"] {
            assert!(!allows(host), "{host}");
        }
    }

    #[test]
    fn the_host_of_mount_is_checked_as_well() {
        let options = |text| MountOptions::parse(text).unwrap();
        assert!(check_server("127.0.0.1", &options("mounthost=127.0.0.2")).is_ok());
        let refused = check_server("127.0.0.1", &options("mounthost=192.0.2.9")).unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("mounthost 192.0.2.9 is refused"),
            "{refused}"
        );
    }

    #[test]
    fn a_listener_on_all_addresses_is_refused() {
        let check = |address: &str| check_listener(address.parse().unwrap());
        assert!(check("127.0.0.1:0").is_ok());
        assert!(check("[::1]:20049").is_ok());
        let refused = check("0.0.0.0:20049").unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("--listen 0.0.0.0:20049 is refused"),
            "{refused}"
        );
    }
}
