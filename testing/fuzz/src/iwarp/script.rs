//! A script: the actions of the program, the peer and TCP, in order.

use arbitrary::Arbitrary;

/// The input of one run.
#[derive(Arbitrary, Debug)]
pub struct Script {
    pub(super) crc: bool,
    pub(super) wait_for_peer: bool,
    pub(super) empty_rtr: bool,
    pub(super) reads: u8,
    pub(super) max_ulpdu: u8,
    pub(super) events: Vec<Event>,
}

#[derive(Arbitrary, Debug)]
pub(super) enum Event {
    /// The program posts a receive of this length.
    Receive(u8),
    Register {
        writable: bool,
        len: u8,
    },
    Send {
        len: u8,
        invalidate: Option<u8>,
    },
    Write {
        len: u8,
    },
    Read {
        len: u8,
    },
    Invalidate(u8),
    Reclaim(u8),
    /// The peer sends a frame.
    Frame(Frame),
    Raw([u8; 6]),
    /// TCP delivers this number of bytes.
    Arrive(u16),
    Leave(u16),
    MaxUlpdu(u8),
}

#[derive(Arbitrary, Debug)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    /// Half the length of the payload, in bytes.
    pub(super) len: u8,
    pub(super) more: bool,
    /// The number of the bit to flip; 0 flips none.
    pub(super) flip: u16,
}

#[derive(Arbitrary, Debug)]
pub(super) enum Kind {
    Send {
        how: u8,
        wrong_offset: u8,
        wrong_msn: u8,
        invalidate: u8,
    },
    Write {
        region: u8,
        at: u8,
        wrong_at: u8,
    },
    Request {
        region: u8,
        at: u8,
        read: u16,
        wrong_msn: u8,
    },
    Response {
        wrong_stag: u8,
        wrong_offset: u8,
        wrong_last: bool,
    },
    Terminate([u8; 4]),
    Any {
        control: u8,
        ulp: u8,
        words: [u32; 4],
    },
    Empty,
}
