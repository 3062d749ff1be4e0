//! A server that calls its client back while it serves a call, over two connections in one process.
//!
//! [`End::run`] is the driver. Its device is a map of registered memory that both ends access; a
//! real driver posts work requests and waits for completions instead.
//!
//!     cargo run -p rpcrdma-connection --example callback -- 1
//!     cargo run -p rpcrdma-connection --example callback -- 2
#![expect(clippy::print_stdout, reason = "this is a program")]

use std::collections::{HashMap, VecDeque};
use std::error::Error;

use bytes::Bytes;
use onc_rpc::{BulkItem, Message, Position, Segments};
use rdma::{Pool, Region, RemoteSegment, Stag, Time};
use rpcrdma_connection::{
    Action, CallId, CallbackOptions, Config, Connection, Event, ReplyRoom, Version,
};

/// The registered memory of both ends, by handle.
type Memory = HashMap<Stag, Region>;

/// One end: its connection, the messages that it has sent to the other end, and the calls and
/// results for its user.
struct End {
    connection: Connection,
    sent: VecDeque<Event>,
    calls: VecDeque<(CallId, Message)>,
    replies: VecDeque<Message>,
}

impl End {
    fn new(config: Config) -> Self {
        Self {
            connection: Connection::new(config.with_callbacks(CallbackOptions {
                credits: 4,
                chunks: true,
            })),
            sent: VecDeque::new(),
            calls: VecDeque::new(),
            replies: VecDeque::new(),
        }
    }

    fn handle(&mut self, event: Event) {
        self.connection.handle(Time::ZERO, event);
    }

    /// Executes actions until there are none.
    fn run(&mut self, memory: &mut Memory) -> Result<(), Box<dyn Error>> {
        // The send queue of this device is never full.
        while let Some(action) = self.connection.poll_action(usize::MAX) {
            match action {
                // A device posts receives of `config.receives` here, before the connection is made.
                Action::PostReceives { id, .. } => {
                    self.handle(Event::ReceivesPosted { id, posted: true });
                }
                Action::ReplaceReceives(structure) => {
                    self.handle(Event::ReceivesReplaced(structure));
                }
                Action::Register { id, region } => {
                    let stag = Stag(u32::try_from(memory.len())? + 1);
                    let length = u32::try_from(region.len())?;
                    memory.insert(stag, region);
                    let result = Ok(RemoteSegment {
                        stag,
                        length,
                        offset: 0,
                    });
                    self.handle(Event::Registered { id, result });
                }
                Action::Invalidate { id, stag } | Action::Reclaim { id, stag } => {
                    let region = memory.remove(&stag).ok_or("a handle that is not valid")?;
                    self.handle(Event::Reclaimed { id, region });
                }
                Action::Read {
                    id,
                    mut sink,
                    stag,
                    offset,
                } => {
                    let Some(Region::RemoteRead(bytes)) = memory.get(&stag) else {
                        return Err("an RDMA Read of memory that is not offered".into());
                    };
                    let at = usize::try_from(offset)?;
                    let end = at + sink.len();
                    sink.copy_from_slice(&bytes[at..end]);
                    self.handle(Event::ReadDone { id, sink });
                }
                Action::Write {
                    gather,
                    stag,
                    offset,
                } => {
                    let Some(Region::RemoteWrite(buf)) = memory.get_mut(&stag) else {
                        return Err("an RDMA Write to memory that is not offered".into());
                    };
                    let (at, bytes) = (usize::try_from(offset)?, gather.concat());
                    buf[at..at + bytes.len()].copy_from_slice(&bytes);
                }
                Action::Send {
                    gather: message,
                    invalidate: invalidated,
                    ..
                } => self.sent.push_back(Event::Received {
                    message,
                    invalidated,
                }),
                Action::Deliver { id, message } => self.calls.push_back((id, message)),
                Action::Finished { result, .. } => self.replies.push_back(result?),
                Action::Decided(decision) => println!("{decision}"),
                Action::ReleaseReceives { .. } => {}
                Action::Misjudged | Action::Close { .. } => return Err("closed".into()),
            }
        }
        Ok(())
    }
}

/// Returns an RPC message of 24 bytes, and 8 KiB of data that may go in a chunk.
fn message(xid: u32, msg_type: u32) -> Message {
    let words = [xid, msg_type, 0, 0, 0, 0].map(u32::to_be_bytes);
    let item = BulkItem {
        position: Position::At(24),
        data: Bytes::from(vec![7; 8192]).into(),
    };
    Message::new(Segments::from_iter([Bytes::from(words.concat())]), [item])
}

fn main() -> Result<(), Box<dyn Error>> {
    let version = match std::env::args().nth(1).as_deref() {
        Some("1") => Version::ONE,
        _ => Version::TWO,
    };
    let (pool, mut memory) = (Pool::new(1 << 20), Memory::new());
    let client =
        End::new(Config::client(pool.clone(), rpcrdma_protocols::base()).with_version(version));
    let server = End::new(Config::server(pool, rpcrdma_protocols::base()).with_version(version));
    let mut ends = [client, server];
    for end in &mut ends {
        end.run(&mut memory)?;
        end.handle(Event::Established { peer: None });
    }
    // Replies of up to 8 KiB of data, for which memory is registered.
    let room = ReplyRoom {
        payload: 4,
        items: [8192].into_iter().collect(),
        idempotent: true,
    };
    ends[0]
        .connection
        .call(1, message(1, onc_rpc::CALL), &room)?;
    let mut waiting = None;
    for at in (0..2).cycle() {
        ends[at].run(&mut memory)?;
        while let Some(event) = ends[at].sent.pop_front() {
            ends[1 - at].handle(event);
        }
        if at == 0
            && let Some((id, callback)) = ends[0].calls.pop_front()
        {
            println!("callback: {} bytes", callback.stream_len());
            ends[0]
                .connection
                .reply(Time::ZERO, id, Some(message(1, onc_rpc::REPLY)));
        }
        if let Some((id, call)) = ends[1].calls.pop_front() {
            println!("call: {} bytes", call.stream_len());
            waiting = Some(id);
            // The XIDs of the server's calls are its own.
            ends[1]
                .connection
                .call(1, message(1, onc_rpc::CALL), &room)?;
        }
        if let (Some(_), Some(id)) = (ends[1].replies.pop_front(), waiting) {
            ends[1]
                .connection
                .reply(Time::ZERO, id, Some(message(1, onc_rpc::REPLY)));
        }
        if let Some(reply) = ends[0].replies.pop_front() {
            println!(
                "reply: {} bytes, {} handles left",
                reply.stream_len(),
                memory.len()
            );
            return Ok(());
        }
    }
    Ok(())
}
