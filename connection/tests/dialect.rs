//! A dialect of a program's own: version 1 with another number and a word more in each header. The
//! engine carries it without knowing it, chunks included.

use bytes::{Buf as _, Bytes, BytesMut};
use conveyance::ChunkCounts;
use onc_rpc::{BulkItem, Message, Position, Segments};
use rdma::{Pool, RemoteSegment, Stag, Time};
use rpcrdma_chunks::Chunks;
use rpcrdma_connection::dialect::{
    BadMessage, BadReply, Dialect, ErrorMessage, Incoming, Outgoing, Plain, Receiver, VersionOne,
};
use rpcrdma_connection::{Action, Config, Connection, Event, Extended, ReplyRoom, Role};
use rpcrdma_negotiation::{Choice, Version, Versions};
use rpcrdma_v2::Direction;

/// The number of the version, and the word that each of its headers has after the fixed ones.
const NUMBER: u32 = 9;
const WORD: u32 = 0x6f6d_6f74;
/// Where that word is, bytes.
const WORD_AT: usize = 16;

#[derive(Debug)]
struct Nine;

/// Returns a header of version 1 as one of this version.
fn ours(header: &[u8]) -> Bytes {
    let mut out = BytesMut::from(&header[..WORD_AT]);
    out[4..8].copy_from_slice(&NUMBER.to_be_bytes());
    out.extend_from_slice(&WORD.to_be_bytes());
    out.extend_from_slice(&header[WORD_AT..]);
    out.freeze()
}

impl Dialect for Nine {
    fn version(&self) -> Version {
        Version::Other(NUMBER)
    }

    fn header_len(&self) -> fn(&ChunkCounts) -> u64 {
        |chunks| VersionOne.header_len()(chunks) + 4
    }

    fn encode_plain(&self, out: &mut BytesMut, direction: Direction, header: Plain) {
        let mut one = BytesMut::new();
        VersionOne.encode_plain(&mut one, direction, header);
        out.extend_from_slice(&ours(&one));
    }

    fn encode(&self, out: &mut BytesMut, header: Outgoing) -> Chunks {
        let mut one = BytesMut::new();
        let chunks = VersionOne.encode(&mut one, header);
        out.extend_from_slice(&ours(&one));
        chunks
    }

    fn encode_error(&self, error: &ErrorMessage, credits: u32) -> Bytes {
        ours(&VersionOne.encode_error(error, credits))
    }

    fn decode(&self, mut message: Segments, to: &Receiver, _: Option<&mut Extended>) -> Incoming {
        let first = &mut message[0];
        let word = |at: usize| first.get(at..at + 4).map(|mut word| word.get_u32());
        if word(4) != Some(NUMBER) || word(WORD_AT) != Some(WORD) {
            let (answer, reason) = (None, "not of this version".to_owned());
            return Incoming::Bad(Direction::Call, BadMessage { answer, reason });
        }
        let mut one = BytesMut::from(&first[..WORD_AT]);
        one[4..8].copy_from_slice(&1_u32.to_be_bytes());
        one.extend_from_slice(&first[WORD_AT + 4..]);
        *first = one.freeze();
        VersionOne.decode(message, to, None)
    }

    fn check_payload(&self, xid: u32, to: Direction, message: &Message) -> Result<(), BadReply> {
        VersionOne.check_payload(xid, to, message)
    }
}

fn connections(pool: &Pool) -> [Connection; 2] {
    let dialects: &[&dyn Dialect] = &[&VersionOne, &Nine];
    let (mut client, mut server) = (Config::client(pool.clone()), Config::server(pool.clone()));
    if let Role::Client { versions, .. } = &mut client.role {
        *versions = Choice::Only(Version::Other(NUMBER));
    }
    let versions = Versions::only(Version::Other(NUMBER));
    server.role = Role::Server { versions };
    [client, server].map(|mut config| {
        config.dialects = dialects;
        let mut connection = Connection::new(config);
        connection.handle(Time::ZERO, Event::Established { peer: None });
        connection
    })
}

#[test]
fn a_dialect_of_the_programs_own_carries_a_call_with_a_chunk() {
    let pool = Pool::new(1 << 20);
    let mut ends = connections(&pool);
    let header = Bytes::from([7, onc_rpc::CALL, 2, 1].map(u32::to_be_bytes).concat());
    let item = BulkItem {
        position: Position::At(16),
        data: Bytes::from(vec![5; 8192]).into(),
    };
    let call = Message::new(Segments::from_iter([header]), [item]);
    ends[0].call(7, call, &ReplyRoom::default()).unwrap();

    let (mut registered, mut reply) = (None, None);
    for (at, peer) in [(0, 1), (1, 0)].into_iter().cycle().take(8) {
        while let Some(action) = ends[at].poll_action(16) {
            let (to, event) = match action {
                Action::Send {
                    gather: message, ..
                } => {
                    let (header, invalidated) = (message.concat(), None);
                    assert_eq!(header[4..8], NUMBER.to_be_bytes());
                    (
                        peer,
                        Event::Received {
                            message,
                            invalidated,
                        },
                    )
                }
                Action::Register { id, region } => {
                    let (stag, length, offset) = (Stag(1), region.len() as u32, 0);
                    registered = Some(region);
                    let result = Ok(RemoteSegment {
                        stag,
                        length,
                        offset,
                    });
                    (at, Event::Registered { id, result })
                }
                Action::Read { id, mut sink, .. } => {
                    sink.fill(5);
                    (at, Event::ReadDone { id, sink })
                }
                Action::Invalidate { id, .. } => {
                    let region = registered.take().unwrap();
                    (at, Event::Reclaimed { id, region })
                }
                Action::Deliver { id, message } => {
                    assert_eq!(message.items()[0].data, [5; 8192][..]);
                    let words = [7, onc_rpc::REPLY, 0, 0, 0, 0].map(u32::to_be_bytes);
                    let reply = Message::from_payload(Bytes::from(words.concat()));
                    ends[at].reply(id, Some(reply));
                    continue;
                }
                Action::Finished { result, .. } => {
                    reply = Some(result.unwrap());
                    continue;
                }
                _ => continue,
            };
            ends[to].handle(Time::ZERO, event);
        }
    }
    assert_eq!(reply.map(|reply| reply.payload_len()), Some(24));
    assert!(
        registered.is_none(),
        "its memory is back before it is finished"
    );
}
