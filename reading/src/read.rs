//! Reads a whole capture.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;

use crate::conversation::Out;
use crate::file::{self, Error, Packet};
use crate::iwarp;
use crate::limits::MAX_STREAMS;
use crate::link::{self, Parsed};
use crate::roce::{self, QueuePairs};
use crate::sink::Sink;

/// Counts of a capture that was read, beside the calls that its [`Sink`] has received.
#[derive(Debug, Default)]
pub struct Summary {
    /// Number of packets in the file.
    pub packets: u64,
    /// Number of connections that carry RPC-over-RDMA.
    pub connections: u32,
    /// Number of packets of another protocol, of a link type that is not known here, or beyond the limits
    /// of this crate.
    pub skipped: u64,
    /// Number of packets that repeat others.
    pub repeated: u64,
    /// The reason why the file could not be read to its end.
    pub ended: Option<Error>,
}

/// Reads a pcap or pcapng file and passes what it shows to `sink`.
///
/// # Errors
/// [`Error`]: no packet can be read. A file that is damaged after a packet is no error, and
/// [`Summary::ended`] has the reason.
pub fn read<R: io::Read + Send>(capture: R, sink: &mut dyn Sink) -> Result<Summary, Error> {
    let mut reader = Reader::new(sink);
    let mut packets = 0;
    let result = file::packets(capture, |packet| {
        packets = packet.at.packet;
        reader.packet(&packet);
        true
    });
    let mut summary = reader.finish();
    match result {
        Ok(all) => summary.packets = all,
        Err(error) if packets == 0 => return Err(error),
        Err(error) => {
            summary.packets = packets;
            summary.ended = Some(error);
        }
    }
    Ok(summary)
}

struct Reader<'a> {
    out: Out<'a>,
    /// TCP connections by their ends, the lesser one first.
    connections: HashMap<[SocketAddr; 2], iwarp::Connection>,
    queue_pairs: QueuePairs,
    skipped: u64,
    repeated: u64,
}

impl<'a> Reader<'a> {
    fn new(sink: &'a mut dyn Sink) -> Self {
        Self {
            out: Out {
                sink,
                connections: 0,
            },
            connections: HashMap::new(),
            queue_pairs: QueuePairs::default(),
            skipped: 0,
            repeated: 0,
        }
    }

    fn packet(&mut self, packet: &Packet<'_>) {
        match link::parse(packet.link, packet.bytes) {
            Parsed::Tcp(segment) => self.segment(&segment, packet),
            Parsed::Udp(datagram) if datagram.port == roce::PORT => {
                self.queue_pairs
                    .datagram(&datagram, packet.at, &mut self.out);
            }
            Parsed::Udp(_) | Parsed::Other => self.skipped += 1,
        }
    }

    fn segment(&mut self, segment: &link::Segment<'_>, packet: &Packet<'_>) {
        let (from, to) = (segment.from, segment.to);
        let key = if from <= to { [from, to] } else { [to, from] };
        let replaced = self
            .connections
            .get(&key)
            .is_some_and(|it| it.is_replaced_by(segment));
        if replaced && let Some(mut old) = self.connections.remove(&key) {
            old.finish(&mut self.out);
            self.repeated += old.repeated();
        }
        if !self.connections.contains_key(&key) && self.connections.len() >= MAX_STREAMS {
            // Those that have ended, or are of another protocol, make room.
            self.connections
                .retain(|_, connection| !connection.is_over());
            if self.connections.len() >= MAX_STREAMS {
                self.skipped += 1;
                return;
            }
        }
        let connection = self.connections.entry(key);
        let connection = connection.or_insert_with(|| iwarp::Connection::new(segment, packet.at));
        if connection.is_over() {
            self.skipped += 1;
        } else {
            connection.segment(segment, packet.at, &mut self.out);
        }
    }

    fn finish(mut self) -> Summary {
        let mut left: Vec<iwarp::Connection> = self.connections.into_values().collect();
        left.sort_by_key(iwarp::Connection::began);
        for connection in &mut left {
            connection.finish(&mut self.out);
            self.repeated += connection.repeated();
        }
        self.queue_pairs.finish(&mut self.out);
        Summary {
            packets: 0,
            connections: self.out.connections,
            skipped: self.skipped + self.queue_pairs.skipped,
            repeated: self.repeated + self.queue_pairs.repeated(),
            ended: None,
        }
    }
}
