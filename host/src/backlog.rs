//! The backlog of listening TCP sockets.

use std::os::fd::AsFd;

/// Maximum number of connections that wait to be accepted. `net.core.somaxconn` may allow fewer (4,096 by
/// default).
const BACKLOG: i32 = 1024;

/// Lets up to 1,024 connections wait to be accepted at a listening TCP socket. The standard library and
/// `mio` ask for 128, and the system drops what arrives beyond that: when all clients of a server that was
/// restarted connect at once, the rest try again only a second later, or after several.
///
/// An error is logged and ignored, because the socket listens all the same.
pub fn lengthen_backlog(socket: impl AsFd) {
    // Sets the backlog anew if the socket listens already.
    if let Err(error) = rustix::net::listen(socket, BACKLOG) {
        tracing::debug!(%error, "the backlog of a listening socket is short");
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "opens sockets")]
    fn many_connect_before_any_is_accepted() {
        // On other systems than Linux it is unknown, and often 128.
        let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap_or_default();
        if !most.trim().parse().is_ok_and(|most: u32| most >= 300) {
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        lengthen_backlog(&listener);
        let address = listener.local_addr().unwrap();
        // Without room, the first attempt is dropped, and the next one made after a second.
        let limit = Duration::from_millis(900);
        let connected = (0..200).map(|_| TcpStream::connect_timeout(&address, limit));
        let connected = connected.collect::<Result<Vec<_>, _>>().unwrap();
        assert_eq!(connected.len(), 200);
    }
}
