//! Limits of the state that a reader of captures keeps, so that no file takes more memory.

/// Longest block of a capture file, in bytes: a packet of 64 KiB and more, with options.
pub const MAX_BLOCK: usize = 16 << 20;
/// Maximum number of TCP connections and queue pairs whose state is kept. Beyond that, packets of new
/// ones are skipped.
pub const MAX_STREAMS: usize = 16_384;
/// Maximum number of interfaces of a pcapng section.
pub const MAX_INTERFACES: usize = 4096;
/// Maximum number of bytes per direction of a TCP connection that wait for bytes before them.
pub const MAX_OUT_OF_ORDER: usize = 4 << 20;
/// Maximum number of TCP segments per direction that wait for bytes before them.
pub const MAX_SEGMENTS_OUT_OF_ORDER: usize = 8192;
/// Longest hole in a TCP stream, in bytes, after which a reader tries to stay in step: that of the
/// longest FPDU, with its length field, padding and CRC.
pub const MAX_HOLE: u64 = 2 + 65_535 + 3 + 4;
/// Maximum number of bytes of such holes that a direction of a TCP connection keeps, as zeros: enough
/// for many packets whose ends were not captured, which arrived after one that was late.
pub const MAX_HOLES: u64 = 1 << 20;
/// Bytes of a TCP stream in which an FPDU is looked for before a connection is given up.
pub const MAX_SEARCH: usize = 256 << 10;
/// Longest Send that is put together, in bytes.
pub const MAX_SEND: usize = 4 << 20;
/// Maximum number of calls of one end that are outstanding.
pub const MAX_CALLS: usize = 65_536;
/// Maximum number of RDMA Reads of one end that wait for their data.
pub const MAX_READS: usize = 4096;
/// Maximum number of messages and of RDMA operations that a call keeps; others are counted only.
pub const MAX_LISTED: usize = 4096;
/// Bytes of an RPC message that are kept: its header.
pub const HEAD: usize = 256;
/// Maximum number of parts of one message.
pub const MAX_PARTS: usize = 8192;
