//! Errors that one end reports to the other, in terms that all versions share.

/// An error that an end reports about a message that it received. A version encodes each as its own
/// error, or as the nearest one that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// ERR_VERS, RDMA2_ERR_VERS: the peer speaks only these versions.
    #[error("versions {low} to {high} alone are spoken")]
    Version {
        /// The lowest version.
        low: u32,
        /// The highest version.
        high: u32,
    },
    /// ERR_CHUNK, RDMA2_ERR_BAD_HEADER: the peer could not use the header or a chunk, or the reply
    /// did not fit.
    #[error("the header or a chunk cannot be used")]
    Chunk,
    /// RDMA2_ERR_INVAL_OPTION, RDMA2_ERR_INVAL_HTYPE: the peer does not support the optional
    /// operation or the header type.
    #[error("messages of this type are not supported")]
    UnsupportedType,
    /// RDMA2_ERR_INVAL_CONT: the message does not belong where it stands among the parts of
    /// messages.
    #[error("the message does not belong among the parts of messages around it")]
    Continuation,
    /// RDMA2_ERR_BAD_PROPVAL: the peer could not read the value of a property.
    #[error("the value of a property cannot be read")]
    PropertyValue,
    /// RDMA2_ERR_READ_CHUNKS: the call has more read chunks than the peer can fetch.
    #[error("more than {max} read chunks")]
    ReadChunks {
        /// The maximum number of read chunks.
        max: u32,
    },
    /// RDMA2_ERR_WRITE_CHUNKS: the call has more write chunks than the peer can fill.
    #[error("more than {max} write chunks")]
    WriteChunks {
        /// The maximum number of write chunks.
        max: u32,
    },
    /// RDMA2_ERR_SEGMENTS: the call has more segments than the peer supports.
    #[error("more than {max} segments")]
    Segments {
        /// The maximum number of segments.
        max: u32,
    },
    /// RDMA2_ERR_WRITE_RESOURCE: a result does not fit its write chunk.
    #[error("write chunk {chunk} needs {needed} bytes")]
    WriteResource {
        /// The number of the write chunk, from 1; 0 if it is not known.
        chunk: u32,
        /// The length in bytes that the chunk needs.
        needed: u32,
    },
    /// RDMA2_ERR_REPLY_RESOURCE: the reply does not fit the reply chunk.
    #[error("the reply chunk needs {needed} bytes")]
    ReplyResource {
        /// The length in bytes that the reply chunk needs; 0 if it is not known.
        needed: u32,
    },
    /// RDMA2_ERR_VERS_MISMATCH: the message has another version than the connection.
    #[error("another version than that of the connection")]
    VersionMismatch,
    /// RDMA2_ERR_SYSTEM: the peer has a problem that no other error describes.
    #[error("a problem that no other error describes")]
    System,
}
