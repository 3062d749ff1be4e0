-- The rules whose violation the dissector marks: name, severity, group and text.
--
-- Each becomes an expert item `PROTOCOL.rule.NAME` that can be filtered. testing/wire-check
-- provokes each one, and fails if one is never seen.

local ERROR, WARN, NOTE = "ERROR", "WARN", "NOTE"

return {
  -- The form of a message.
  { "form", ERROR, "MALFORMED", "The message does not match the XDR definition" },
  { "boolean", ERROR, "MALFORMED", "A boolean is neither 0 nor 1 (RFC 4506, 4.4)" },
  { "round_up", ERROR, "MALFORMED",
    "Bytes that fill opaque data up are not zero (RFC 4506, 4.10)" },
  { "short", ERROR, "MALFORMED", "The header is shorter than any valid one (RFC 8166, 4.5)" },
  { "version", ERROR, "PROTOCOL", "The version is not known (RFC 8166, 4.2.2)" },
  { "retired", ERROR, "PROTOCOL", "The message type is retired (RFC 8166, 4.6)" },
  { "too_long", ERROR, "PROTOCOL",
    "The Send is longer than the receiver's buffer (RFC 8166, 3.3.2)" },
  -- Calls, replies and credits.
  { "credits_exceeded", ERROR, "SEQUENCE",
    "More calls are outstanding than credits were granted (RFC 8166, 3.3.1)" },
  { "zero_credits", WARN, "PROTOCOL", "Zero credits are requested or granted (RFC 8166, 3.3.1)" },
  { "duplicate_xid", WARN, "SEQUENCE", "A call with this XID is outstanding (RFC 8166, 4.2.1)" },
  { "unmatched", WARN, "SEQUENCE", "The reply answers no outstanding call" },
  { "xid", ERROR, "PROTOCOL", "The XIDs of header and RPC message differ (RFC 8166, 4.2.1)" },
  { "direction", ERROR, "PROTOCOL", "The message has the wrong direction" },
  { "error_reported", NOTE, "RESPONSE_CODE", "The peer reports an error" },
  -- Chunks and memory.
  { "unknown_handle", ERROR, "SEQUENCE", "The handle is not offered to this peer" },
  { "out_of_bounds", ERROR, "SEQUENCE", "The access is not within the memory that was offered" },
  { "wrong_access", ERROR, "SEQUENCE", "The memory was offered for the other direction" },
  { "unrequested", ERROR, "SEQUENCE", "The RDMA Read Response answers no request" },
  { "position", ERROR, "PROTOCOL", "The position of a read chunk is invalid (RFC 8166, 3.4.5)" },
  { "no_payload", ERROR, "PROTOCOL", "The message has no RPC message (RFC 8166, 3.5.2)" },
  { "segment_wraps", ERROR, "PROTOCOL", "The segment's end exceeds 64 bits" },
  { "reply_reads", ERROR, "PROTOCOL", "A reply has a read list (RFC 8166, 4.3.2)" },
  { "returned_chunks", ERROR, "PROTOCOL",
    "Other chunks are returned than were offered (RFC 8166, 4.4.2)" },
  { "wrong_length", ERROR, "PROTOCOL", "The length is not that of the memory or of the data" },
  { "invalidated", ERROR, "PROTOCOL",
    "The invalidated handle is not one of the call's (RFC 8166, 4.4.1)" },
  { "no_invalidation", ERROR, "PROTOCOL", "The requester does not support remote invalidation" },
  -- Characteristics (xcharext-02).
  { "initxch", ERROR, "SEQUENCE",
    "ROPT_INITXCH must be the first message and be sent once (xcharext-02)" },
  { "unknown_operation", NOTE, "UNDECODED", "The operation is not known to the dissector" },
  { "unknown_property", NOTE, "UNDECODED", "The characteristic is not known to the dissector" },
  { "duplicate_property", ERROR, "PROTOCOL", "A characteristic occurs twice (xcharext-02)" },
  { "buffer_structure", ERROR, "PROTOCOL",
    "The segments are not as long as the receive buffer (rtrext-00, 6.2)" },
  { "unsupported", ERROR, "PROTOCOL",
    "The receiver has not announced support for the operation (rtrext-00)" },
  -- Placement and continuation (rtrext-00).
  { "group_count", ERROR, "PROTOCOL", "A group has at least one transmission (rtrext-00, 9.2)" },
  { "interrupted", ERROR, "SEQUENCE",
    "The message interrupts a group of transmissions (rtrext-00, 4.2)" },
  { "no_group", ERROR, "SEQUENCE", "The transmission continues no group (OPTXERR_BADCONT)" },
  { "sequence", ERROR, "SEQUENCE", "The transmission's number is not the next (OPTXERR_BADSEQ)" },
  { "group_type", ERROR, "PROTOCOL",
    "The operation that began the group is another (OPTXERR_BADOMT)" },
  { "group_xid", ERROR, "SEQUENCE", "The group's XID is another (OPTXERR_BADXID)" },
  { "payload_length", ERROR, "PROTOCOL", "The payload exceeds the transmission (OPTXERR_BADPL)" },
  { "segment_number", ERROR, "PROTOCOL",
    "The receiver has no such buffer segment (OPTXERR_BADTBSN)" },
  { "segment_offset", ERROR, "PROTOCOL",
    "The offset in the buffer segment is invalid (OPTXERR_BADOFF)" },
  { "not_placed", ERROR, "PROTOCOL", "The transmission ends before the placed data does" },
  -- The example extension (examples/batch).
  { "batch_lengths", ERROR, "PROTOCOL", "The messages do not fill the transmission" },
  { "batch_count", ERROR, "PROTOCOL", "The receiver takes fewer messages in one transmission" },
}
