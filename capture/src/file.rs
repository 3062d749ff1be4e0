//! The file: pcapng blocks, its bounds, and its end.
//!
//! `pcap-parser` builds and parses the blocks. It is a maintained crate of the Rusticata project in
//! pure Rust, and its dependencies are in no other version here. (`pcap-file`, which is used more
//! for writing, was last released in 2023 and needs second versions of `syn` and `thiserror`.)
//!
//! Blocks are written whole, many at once. A file that cannot grow is cut behind its last whole
//! block, so it can be read whatever happened.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use pcap_parser::{
    EnhancedPacketBlock, InterfaceDescriptionBlock, Linktype, OptionCode, PcapNGOption,
    SectionHeaderBlock, ToVec,
};
use rdma::Time;

use crate::packet::LONGEST_HEADERS;

/// Number of bytes of blocks that are written at once.
const BUFFER: usize = 256 << 10;
/// Permissions of the file: what passes over connections is for nobody else.
const MODE: u32 = 0o600;
/// Number of nanoseconds in a power of ten: the value of `if_tsresol` for nanoseconds.
const NANOSECONDS: u8 = 9;

/// The smallest useful [`Limits::snap`]: the headers of every packet, and the beginning of an FPDU.
pub const LEAST_SNAP: usize = LONGEST_HEADERS + 16;
/// The largest [`Limits::snap`], which keeps everything: the limit of Wireshark and tcpdump.
pub const WHOLE: usize = 256 << 10;
/// The smallest useful [`Limits::size`], which has room for the beginning of the file.
pub const LEAST_SIZE: u64 = 4096;

/// The limits of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum length of the file in bytes. Packets that would exceed it are not captured, nor are
    /// any after them.
    pub size: u64,
    /// Number of bytes that are kept of each packet, headers included.
    pub snap: usize,
}

impl Default for Limits {
    /// One GiB of whole packets.
    fn default() -> Self {
        Self {
            size: 1 << 30,
            snap: WHOLE,
        }
    }
}

/// The reason why a capture ended before the program did.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Stopped {
    /// The next packet would exceed [`Limits::size`].
    #[error("it has reached its maximum of {0} bytes; nothing more is captured")]
    Full(u64),
    /// The file cannot be written. It ends with the last packet that could be.
    #[error("it cannot be written ({0}); nothing more is captured")]
    Failed(io::Error),
}

/// The origin of the bytes of a device's connections, which the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The device shows its TCP streams.
    Stream,
    /// The device shows its messages, which no wire carries.
    Messages,
    /// The messages are derived from work requests and completions, and from registered memory.
    Reconstructed,
}

/// A description of the packets of an [`Origin`], for comments in the file.
pub(crate) type Comment = &'static str;

const STREAM: Comment = "\
The bytes of the TCP streams are those that the device sent and received. Ethernet, IP and TCP \
headers, handshakes and acknowledgements are reconstructed.";

const MESSAGES: Comment = "\
The device is simulated. Its messages are shown as the FPDUs that an iWARP device would send; \
handles of the sinks of RDMA Reads, client ports, and Ethernet, IP and TCP headers are made up. \
Times are those of the virtual clock.";

const RECONSTRUCTED: Comment = "\
These frames are reconstructed from work requests, completions and registered memory: the device \
does not show what it sends and receives. RDMA operations of the peer appear right before the \
reply to their call, and the segments that carried them are not known. FPDUs, handles of the sinks \
of RDMA Reads, client ports, and all lower headers are made up.";

/// The comment of every file.
const FILE: Comment = "\
Made by rpcrdma: traffic of RDMA devices as iWARP over TCP. Where the bytes come from is said by \
the description of each interface, and by a comment on the first packet of each connection.";

impl Origin {
    pub(crate) fn comment(self) -> Comment {
        match self {
            Self::Stream => STREAM,
            Self::Messages => MESSAGES,
            Self::Reconstructed => RECONSTRUCTED,
        }
    }
}

/// The file, and what is not written yet.
pub(crate) struct State {
    file: File,
    pub(crate) limits: Limits,
    /// Nanoseconds from 1970 to the zero of the devices' clock.
    epoch: u64,
    /// Whole blocks that are not written yet.
    buffer: Vec<u8>,
    /// Bytes that are written.
    written: u64,
    pub(crate) interfaces: u32,
    pub(crate) connections: u32,
    /// The packets in the file, or in the buffer.
    pub(crate) packets: u64,
    ports: u16,
    pub(crate) stopped: bool,
    pub(crate) on_stop: Option<OnStop>,
}

/// Called when a capture stops early.
pub type OnStop = Box<dyn FnOnce(&Stopped) + Send>;

impl Drop for State {
    fn drop(&mut self) {
        self.flush_or_stop();
    }
}

impl State {
    /// Creates the file and writes its first block; see `Capture::create`.
    pub(crate) fn create(
        path: &Path,
        limits: Limits,
        epoch: u64,
        on_stop: OnStop,
    ) -> io::Result<Self> {
        let mut create = OpenOptions::new();
        create.write(true).create_new(true).mode(MODE);
        let file = create.open(path)?;
        let mut state = State {
            file,
            limits: Limits {
                snap: limits.snap.clamp(LEAST_SNAP, WHOLE),
                ..limits
            },
            epoch,
            buffer: Vec::new(),
            written: 0,
            interfaces: 0,
            connections: 0,
            packets: 0,
            ports: 0,
            stopped: false,
            on_stop: None,
        };
        state.add(&section()?);
        state.flush()?;
        state.on_stop = Some(on_stop);
        Ok(state)
    }

    /// Adds a whole block, or stops at the limit.
    pub(crate) fn add(&mut self, block: &[u8]) {
        if self.stopped {
            return;
        }
        let length = self.written + (self.buffer.len() + block.len()) as u64;
        if length > self.limits.size {
            self.flush_or_stop();
            return self.stop(&Stopped::Full(self.limits.size));
        }
        self.buffer.extend_from_slice(block);
        if self.buffer.len() >= BUFFER {
            self.flush_or_stop();
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.file.write_all(&self.buffer);
        match &result {
            Ok(()) => self.written += self.buffer.len() as u64,
            // A part may have been written, which ends within a block. If even this fails, the file
            // is damaged, and the error that is reported says why.
            Err(_) => drop(self.file.set_len(self.written)),
        }
        self.buffer.clear();
        result
    }

    pub(crate) fn flush_or_stop(&mut self) {
        if self.stopped || self.buffer.is_empty() {
            return;
        }
        if let Err(error) = self.flush() {
            self.stop(&Stopped::Failed(error));
        }
    }

    fn stop(&mut self, why: &Stopped) {
        if !std::mem::replace(&mut self.stopped, true)
            && let Some(on_stop) = self.on_stop.take()
        {
            on_stop(why);
        }
    }
}

/// The file, locked to add packets of one interface.
pub(crate) struct Sink<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) interface: u32,
}

impl Sink<'_> {
    /// Returns the number of bytes of a packet that are kept.
    pub(crate) fn keeps(&self) -> usize {
        self.state.limits.snap
    }

    /// Returns the maximum length of the file in bytes.
    pub(crate) fn most(&self) -> u64 {
        self.state.limits.size
    }

    /// Returns a number that no other connection of the file has.
    pub(crate) fn next_connection(&mut self) -> u32 {
        self.state.connections = self.state.connections.wrapping_add(1);
        self.state.connections
    }

    /// Returns a port for the initiator of a connection whose port is not known: each of the range
    /// for such use in turn (RFC 6335, section 6).
    pub(crate) fn next_port(&mut self) -> u16 {
        const FIRST: u16 = 49152;
        let port = FIRST + self.state.ports;
        self.state.ports = (self.state.ports + 1) % (u16::MAX - FIRST);
        port
    }

    /// Adds a packet: its headers, and the kept bytes of its payload of `len` bytes.
    pub(crate) fn packet(
        &mut self,
        at: Time,
        mut packet: Vec<u8>,
        payload: &[u8],
        len: usize,
        comment: Option<Comment>,
    ) {
        let snap = self.state.limits.snap;
        let whole = packet.len() + len;
        let room = snap.saturating_sub(packet.len()).min(payload.len());
        packet.extend_from_slice(&payload[..room]);
        let kept = packet.len();
        let nanos = self.state.epoch.wrapping_add(at.as_nanos());
        let mut block = EnhancedPacketBlock {
            block_type: 0,
            block_len1: 0,
            if_id: self.interface,
            ts_high: (nanos >> 32) as u32,
            ts_low: nanos as u32,
            // Both below 64 KiB and the headers.
            caplen: kept as u32,
            origlen: whole as u32,
            data: &packet,
            options: Vec::from_iter(
                comment.map(|text| option(OptionCode::Comment, text.as_bytes())),
            ),
            block_len2: 0,
        };
        // Blocks are built in memory, which does not fail.
        if let Ok(block) = block.to_vec() {
            self.state.add(&block);
            self.state.packets += u64::from(!self.state.stopped);
        }
    }
}

fn option(code: OptionCode, value: &[u8]) -> PcapNGOption<'_> {
    PcapNGOption {
        code,
        // Names and comments of this crate are short; what is longer is not written.
        len: u16::try_from(value.len()).unwrap_or(0),
        value: Cow::Borrowed(value),
    }
}

fn section() -> io::Result<Vec<u8>> {
    let application = concat!("rpcrdma ", env!("CARGO_PKG_VERSION"));
    let mut block = SectionHeaderBlock {
        block_type: 0,
        block_len1: 0,
        bom: 0,
        major_version: 0,
        minor_version: 0,
        // Not said, as the section grows.
        section_len: -1,
        options: vec![
            option(OptionCode::Comment, FILE.as_bytes()),
            option(OptionCode::ShbUserAppl, application.as_bytes()),
        ],
        block_len2: 0,
    };
    block.to_vec().map_err(io::Error::other)
}

pub(crate) fn interface(name: &str, origin: Origin, snap: usize) -> io::Result<Vec<u8>> {
    let name = name.get(..name.len().min(255)).unwrap_or_default();
    let mut block = InterfaceDescriptionBlock {
        block_type: 0,
        block_len1: 0,
        linktype: Linktype::ETHERNET,
        reserved: 0,
        snaplen: snap as u32,
        options: vec![
            option(OptionCode::IfName, name.as_bytes()),
            option(OptionCode::IfDescription, origin.comment().as_bytes()),
            option(OptionCode::IfTsresol, &[NANOSECONDS]),
        ],
        block_len2: 0,
        if_tsresol: NANOSECONDS,
        if_tsoffset: 0,
    };
    block.to_vec().map_err(io::Error::other)
}
