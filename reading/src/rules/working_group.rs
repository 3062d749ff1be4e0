//! The working group's version 2.

super::rules! {
    LIMIT_EXCEEDED = Error "limit_exceeded", "version-two-07, 4.2.1", "More messages were sent than the peer allowed";
    CREDIT_RANGE = Error "credit_range", "version-two-07, 4.2.1", "The credits are less than the messages sent, or 2^31 - 1 or more ahead";
    FIRST_TOO_LONG = Error "first_too_long", "version-two-07, 4.3", "A client's first message has more than 1024 bytes";
    SEND_SIZE = Error "send_size", "version-two-07, 5.2.1", "The message exceeds the maximum that its sender announced";
    GRANT_XID = Error "grant_xid", "version-two-07, 6.3.2", "The XID of a grant is not zero";
    PART_INTERRUPTED = Error "part_interrupted", "version-two-07, 6.3.6 and 6.3.9", "A message stands between the parts of another";
    REMAINING = Error "remaining", "version-two-07, 6.3.6 and 6.3.9", "rdma_remaining does not count the bytes that follow";
    PROPERTY_VALUE = Error "property_value", "version-two-07, 7.2.2", "The value of a property is invalid";
    PROPERTIES_AGAIN = Error "properties_again", "version-two-07, 6.3.4", "The sender has sent its last properties before";
    PROPERTIES_INTERRUPTED = Error "properties_interrupted", "version-two-07, 6.3.3", "A message stands between those with properties";
    REVERSE = Error "reverse", "version-two-07, 5.2.5", "The client has not announced that it takes such calls";
    SEGMENT_SIZE = Warning "segment_size", "version-two-07, 5.2.3", "A segment exceeds the maximum that its receiver announced";
    SEGMENT_COUNT = Warning "segment_count", "version-two-07, 5.2.4", "The header has more segments than its receiver takes";
}
