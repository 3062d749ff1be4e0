//! Decoding of messages on the wire.

use bytes::Bytes;
use rpcrdma_chunks::Chunks;
use rpcrdma_v2::Direction;

/// A decoded message on the wire.
#[derive(Clone, Debug)]
pub struct Seen {
    pub version: u32,
    pub xid: u32,
    pub credits: u32,
    /// The chunk lists; `None` for errors and operations.
    pub chunks: Option<Chunks>,
    /// Whether the message is an error.
    pub error: bool,
    /// The direction in the header, in version 2 only.
    pub direction: Option<Direction>,
    /// Whether the message is an operation of an extension.
    pub optional: bool,
    /// The offset of the payload, in bytes.
    pub payload_at: usize,
}

impl Seen {
    /// Decodes a message that a connection sent. Returns `None` for an error in another version
    /// than the connection speaks.
    #[track_caller]
    pub fn new(bytes: &Bytes) -> Option<Self> {
        let version = u32::from_be_bytes(bytes[4..8].try_into().unwrap());
        if version == 1 {
            let decoded = rpcrdma_v1::Header::decode(bytes);
            // RDMA2_ERR_VERS_MISMATCH has the version of the message that it answers.
            if decoded.is_err() && bytes[12..20] == [0, 0, 0, 4, 0, 0, 0, 11] {
                return None;
            }
            let (header, payload_at) = decoded.unwrap();
            let error = matches!(header.body, rpcrdma_v1::Body::Error(_));
            return Some(Self {
                version,
                xid: header.xid,
                credits: header.credits,
                chunks: match header.body {
                    rpcrdma_v1::Body::Msg(chunks) | rpcrdma_v1::Body::NoMsg(chunks) => Some(chunks),
                    rpcrdma_v1::Body::Error(_) => None,
                },
                error,
                direction: None,
                optional: false,
                payload_at,
            });
        }
        let header_type = u32::from_be_bytes(bytes[12..16].try_into().unwrap());
        // Both versions 2 have errors with the same header type, and the codes of one of 2016 are
        // fewer.
        let only_wg = || rpcrdma_v2::Header::decode(bytes).is_err();
        let is_wg = match header_type {
            4 => only_wg(),
            5 => bytes.len() < 28,
            _ => header_type > 5,
        };
        if version != 2 {
            return None;
        }
        if rpcrdma_v2_wg::EXPERIMENTAL.contains(&header_type) {
            let prefix = rpcrdma_v2_wg::Prefix::peek(bytes).unwrap();
            return Some(Self {
                version,
                xid: prefix.xid,
                credits: prefix.credit,
                chunks: None,
                error: false,
                direction: None,
                optional: true,
                payload_at: rpcrdma_v2_wg::limits::PREFIX_LEN,
            });
        }
        if is_wg {
            let (header, payload_at) = rpcrdma_v2_wg::Header::decode(bytes).unwrap();
            return Some(Self {
                version,
                xid: header.xid,
                credits: header.credit,
                chunks: header.body.chunks().cloned(),
                error: matches!(header.body, rpcrdma_v2_wg::Body::Error(_)),
                direction: header.body.direction(),
                optional: false,
                payload_at,
            });
        }
        let (header, payload_at) = rpcrdma_v2::Header::decode(bytes).unwrap();
        Some(Self {
            version,
            xid: header.xid,
            credits: header.credits,
            chunks: header.chunks().cloned(),
            error: matches!(header.body, rpcrdma_v2::Body::Error(_)),
            direction: Some(header.direction()),
            optional: matches!(header.body, rpcrdma_v2::Body::Optional(_)),
            payload_at,
        })
    }
}
