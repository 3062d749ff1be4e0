//! The end of a server's connection while its client has not answered a call of the server.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use rpcrdma_gateway::RelayOptions;

use crate::listener;
use crate::support::{Gateway, Over, Raw, call, reply};

/// The XID of the call of the server.
const BACKWARD: u32 = 7;
/// The room for a reply that fits into a Send with its header, bytes.
const INLINE: u32 = 400;
/// The time in which a client is let go that nothing keeps.
const AT_ONCE: Duration = Duration::from_secs(5);

/// Two gateways whose client has not answered a call of the server.
struct Open {
    client: Raw,
    server: Raw,
    gateways: [Gateway; 2],
    _listener: TcpListener,
}

impl Open {
    /// Connects through gateways that wait this long for what is left, and makes the call. In version 1, each gateway
    /// offers a reply chunk for a reply that may be longer than a Send.
    fn new(between: Over, max_reply: Option<u32>, linger: Duration) -> Self {
        let (listener, address) = listener();
        let options = |server| {
            let mut options = RelayOptions::new(server);
            options.linger = linger;
            options.reducer.max_reply = max_reply.unwrap_or(options.reducer.max_reply);
            options
        };
        let last = Gateway::start_with(between, Over::Tcp, options(address));
        let first = Gateway::start_with(Over::Tcp, between, options(last.address));
        let mut client = Raw::connect(first.address);
        client.send(&call(1, 0));
        let mut server = Raw::accept(&listener);
        server.expect(&call(1, 0));
        server.send(&reply(1, 0));
        client.expect(&reply(1, 0));
        server.send(&call(BACKWARD, 16));
        client.expect(&call(BACKWARD, 16));
        Self {
            client,
            server,
            gateways: [first, last],
            _listener: listener,
        }
    }

    /// Ends the server, lets the client answer after a while if it does, and returns how long its connection lives.
    fn end(self, answer: Option<(Duration, Vec<u8>)>) -> Duration {
        let Self {
            mut client,
            server,
            gateways,
            ..
        } = self;
        let begun = Instant::now();
        drop(server);
        if let Some((after, answer)) = answer {
            std::thread::sleep(after);
            client.send(&answer);
        }
        assert_eq!(client.receive(), None);
        let lived = begun.elapsed();
        drop(client);
        for gateway in gateways {
            let rest = gateway.end();
            assert_eq!((rest.pairs, rest.in_use), (0, 0), "{rest:?}");
        }
        lived
    }
}

/// The client may connect again at once, although it has left a call of the server open.
#[test]
fn an_open_call_of_the_server_without_chunks_does_not_keep_the_client() {
    for between in Over::all_rdma() {
        let lived = Open::new(between, Some(INLINE), 2 * AT_ONCE).end(None);
        assert!(lived < AT_ONCE, "{between:?}: {lived:?}");
    }
}

/// The client may still write to the memory that the call has offered: until it answers, or for the linger time.
#[test]
fn an_open_call_of_the_server_with_a_reply_chunk_keeps_the_client_until_its_answer() {
    let version_one = Over::all_rdma()[0];
    let linger = Duration::from_secs(1);
    let lived = Open::new(version_one, None, linger).end(None);
    assert!(lived >= linger, "{lived:?}");
    let after = Duration::from_millis(300);
    let answer = Some((after, reply(BACKWARD, 5000)));
    let lived = Open::new(version_one, None, 2 * AT_ONCE).end(answer);
    assert!(after <= lived && lived < AT_ONCE, "{lived:?}");
}
