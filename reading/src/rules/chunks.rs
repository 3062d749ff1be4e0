//! Chunks, memory and RDMA operations.

super::rules! {
    UNKNOWN_HANDLE = Error "unknown_handle", "RFC 8166, 3.4.5", "An RDMA operation names a handle that is not offered";
    OUT_OF_BOUNDS = Error "out_of_bounds", "RFC 8166, 3.4.4", "An RDMA operation goes beyond the memory that is offered";
    WRONG_ACCESS = Error "wrong_access", "RFC 8166, 3.4.5", "The memory is offered for the other direction";
    UNREQUESTED = Error "unrequested", "RFC 5040, 5.2", "An RDMA Read Response answers no request";
    POSITION = Error "position", "RFC 8166, 3.4.5", "The position of a read chunk is invalid";
    NO_PAYLOAD = Error "no_payload", "RFC 8166, 3.5.2", "The message has no RPC message";
    TWO_PAYLOADS = Error "two_payloads", "RFC 8166, 4.3.1", "The message has two RPC messages: inline and in a chunk";
    SEGMENT_WRAPS = Error "segment_wraps", "RFC 8166, 3.4.3", "The end of a segment exceeds 64 bits";
    REPLY_READS = Error "reply_reads", "RFC 8166, 4.3.2", "A reply has a read list";
    RETURNED_CHUNKS = Error "returned_chunks", "RFC 8166, 4.4.2", "Other chunks are returned than were offered";
    WRONG_LENGTH = Error "wrong_length", "RFC 8166, 3.4.6", "A length is not that of the memory or of the data";
    INVALIDATED = Error "invalidated", "RFC 8166, 4.4.1", "The invalidated handle is not one of the call";
    NO_INVALIDATION = Error "no_invalidation", "RFC 8797, 4.1", "The requester does not support remote invalidation";
}
