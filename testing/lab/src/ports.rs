//! TCP ports of the host's loopback interface.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

use crate::error::Error;

/// The state of a listening socket in `/proc/net/tcp` (TCP_LISTEN in the kernel's tcp_states.h).
const LISTEN: &str = "0A";

/// The ports that [`free`] has returned.
static GIVEN_OUT: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// Returns `count` ports that are not in use now and were not returned before, because several
/// lanes may ask for ports before any of them uses its own. Other processes could take them before
/// they are used, but the kernel prefers other ports.
///
/// # Errors
/// [`Error::System`] if there are none.
pub fn free(count: usize) -> Result<Vec<u16>, Error> {
    let mut given_out = GIVEN_OUT.lock().unwrap_or_else(PoisonError::into_inner);
    let mut ports = Vec::with_capacity(count);
    // All sockets are held until the last one exists, so that the ports differ.
    let mut held = Vec::with_capacity(count);
    while ports.len() < count {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = listener.map_err(Error::system("a free port"))?;
        let address = listener.local_addr();
        let port = address.map_err(Error::system("a free port"))?.port();
        if given_out.insert(port) {
            ports.push(port);
        }
        held.push(listener);
    }
    Ok(ports)
}

/// Returns the ports that something listens on, from the kernel's tables. Connecting to find out
/// would create a connection that the listener has to handle.
#[must_use]
pub fn listening() -> BTreeSet<u16> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let tables = tables
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok());
    tables.flat_map(|table| parse(&table)).collect()
}

fn parse(table: &str) -> Vec<u16> {
    let port = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (local, _, state) = (words.next()?, words.next()?, words.next()?);
        let (_, port) = local.rsplit_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        (state == LISTEN).then_some(port)
    };
    table.lines().skip(1).filter_map(port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listeners_listen() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n\
             0: 0100007F:4E51 00000000:0000 0A 00000000:00000000 00:00000000\n\
             1: 0100007F:4E52 0100007F:1F90 01 00000000:00000000 00:00000000\n";
        assert_eq!(parse(table), [0x4e51]);
    }

    #[test]
    fn a_listener_of_this_process_is_seen() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listening().contains(&port));
    }

    #[test]
    fn free_ports_differ() {
        // No port is in use when the next ones are chosen.
        let mut seen = BTreeSet::new();
        for _ in 0..100 {
            for port in free(8).unwrap() {
                assert!(seen.insert(port), "{port} was given out twice");
            }
        }
    }
}
