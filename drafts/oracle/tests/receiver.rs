//! The vectors of calls of the working group's version 2, held against a server's connection: it
//! takes what they accept, and refuses what they reject.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use onc_rpc::Segments;
use rdma::{Pool, Time};
use rpcrdma_connection::{Action, Config, Connection, Event, Version};
use rpcrdma_v2_wg::{Body, ErrorBody, Header, header_type};
use serde_json::Value;

/// The length of the pieces of payload behind a header, bytes.
const PIECE: usize = 64 << 20;
/// The number of pieces: more payload than any position.
const PIECES: usize = 65;

/// Returns a server's connection that has exchanged properties with its client.
fn server() -> Connection {
    let mut config =
        Config::server(Pool::new(1 << 20), rpcrdma_protocols::base()).with_version(Version::TWO_WG);
    // Lengths are no matter of the header.
    config.options.max_message = u32::MAX;
    let mut server = Connection::new(config);
    let Some(Action::PostReceives { id, .. }) = server.poll_action(usize::MAX) else {
        panic!("receives come first");
    };
    server.handle(Time::ZERO, Event::ReceivesPosted { id, posted: true });
    server.handle(Time::ZERO, Event::Established { peer: None });
    let properties = Header {
        xid: 1,
        credit: 100,
        body: Body::Properties {
            last: true,
            properties: Vec::new(),
        },
    };
    receive(&mut server, [properties.encode()]);
    while server.poll_action(usize::MAX).is_some() {}
    server
}

fn receive(server: &mut Connection, message: impl IntoIterator<Item = Bytes>) {
    let event = Event::Received {
        message: message.into_iter().collect::<Segments>(),
        invalidated: None,
    };
    server.handle(Time::ZERO, event);
}

/// Returns whether a server takes the header of a call. It may have no memory for the call.
fn is_taken(message: Vec<Bytes>) -> bool {
    let mut server = server();
    receive(&mut server, message);
    let mut taken = server.waits_for_memory();
    while let Some(action) = server.poll_action(usize::MAX) {
        match action {
            Action::Read { .. } | Action::Deliver { .. } => taken = true,
            Action::Send { gather, .. } => {
                // An error has the version of the message that it answers.
                let header = Header::decode(&gather[0]);
                let system = Body::Error(ErrorBody::System);
                taken |= header.is_ok_and(|(header, _)| header.body == system);
            }
            Action::Close { .. } => return false,
            _ => {}
        }
    }
    taken
}

/// Returns an inline call with a payload that starts as it must and reaches every position.
fn with_payload(bytes: &Bytes) -> Vec<Bytes> {
    let header = bytes.slice(..bytes.len().saturating_sub(4));
    let start = [&bytes[..bytes.len().min(4)], &[0; 4]].concat();
    let zeroes = Bytes::from(vec![0; PIECE]);
    let rest = std::iter::repeat_n(zeroes, PIECES);
    [header, start.into()].into_iter().chain(rest).collect()
}

#[test]
fn a_server_takes_the_calls_that_the_vectors_accept() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors");
    let mut seen = [0, 0];
    for kind in ["wg-call-inline", "wg-call-external"] {
        let text = fs::read_to_string(folder.join(kind).with_extension("json"));
        let file: Value = serde_json::from_str(&text.expect("vectors")).expect("JSON");
        for vector in file["vectors"].as_array().expect("a list") {
            let digits = vector["bytes"].as_str().expect("bytes");
            let byte =
                |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal");
            let mut bytes: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
            if let Some(credit) = bytes.get_mut(8..12) {
                // Every credit value is valid, but the server needs a credit for its answer.
                credit.copy_from_slice(&[0, 0, 1, 0]);
            }
            let bytes = Bytes::from(bytes);
            let htype = bytes.get(12..16).map(|word| u32::from(word[3]));
            let accept = vector["accept"] == true;
            let message = match htype {
                // A truncated header gets no payload, which would complete it.
                Some(header_type::CALL_INLINE) if vector["reason"] != "form" => {
                    with_payload(&bytes)
                }
                Some(header_type::CALL_EXTERNAL) => vec![bytes.clone()],
                // The damage has made a valid message of another type, which a server does not
                // accept as a call.
                _ if accept => continue,
                _ => vec![bytes.clone()],
            };
            seen[usize::from(accept)] += 1;
            assert_eq!(is_taken(message), accept, "{kind}: {vector}");
        }
    }
    assert!(seen.iter().all(|count| *count > 20), "{seen:?}");
}
