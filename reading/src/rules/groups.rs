//! Continuation and placement: the extensions of 2016 (rtrext-00), and the placement extension of the
//! working group's version 2 (ext-wg-ddp).

super::rules! {
    UNSUPPORTED = Error "unsupported", "rtrext-00, 8.2; ext-wg-ddp", "The receiver has not announced support for the operation";
    BUFFER_STRUCTURE = Error "buffer_structure", "rtrext-00, 6.2; ext-wg-ddp", "The segments are not as long as the receive buffer";
    GROUP_COUNT = Error "group_count", "rtrext-00, 9.2", "A group has no transmission";
    INTERRUPTED = Error "interrupted", "rtrext-00, 4.2", "A message stands between the transmissions of a group";
    NO_GROUP = Error "no_group", "rtrext-00, 9.5", "A continuation continues no group";
    SEQUENCE = Error "sequence", "rtrext-00, 9.5", "The number of a transmission is not the next";
    GROUP_TYPE = Error "group_type", "rtrext-00, 9.5", "Another operation began the group";
    GROUP_XID = Error "group_xid", "rtrext-00, 9.5", "The group has another XID";
    PAYLOAD_LENGTH = Error "payload_length", "rtrext-00, 9.5; ext-wg-ddp", "The payload exceeds its transmission";
    SEGMENT_NUMBER = Error "segment_number", "rtrext-00, 9.5; ext-wg-ddp", "The receiver has no such buffer segment";
    SEGMENT_OFFSET = Error "segment_offset", "rtrext-00, 9.5; ext-wg-ddp", "The offset in a buffer segment is invalid";
    NOT_PLACED = Error "not_placed", "rtrext-00, 7.3; ext-wg-ddp", "A transmission ends before its placed data";
    PLACED_COUNT = Error "placed_count", "ext-wg-ddp", "rdma_messages does not count the messages that follow";
    PLACED_POSITION = Error "placed_position", "ext-wg-ddp", "A placed item is empty, overlaps another, or has an invalid position";
}
