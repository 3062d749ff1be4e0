//! Rules of the transports below RPC-over-RDMA: MPA, DDP and RDMAP, and InfiniBand's transport.

super::rules! {
    CRC = Error "crc", "RFC 5044, 4.4", "The CRC of an FPDU is wrong";
    DDP_VERSION = Error "ddp_version", "RFC 5041, 4.1", "The version of DDP is not 1";
    RDMAP_CONTROL = Error "rdmap_control", "RFC 5040, 4.1", "RDMAP's version or opcode is not known, or stands in another queue";
    MESSAGE_NUMBER = Error "message_number", "RFC 5041, 5.3", "The number of a message is not the next of its queue";
    MESSAGE_OFFSET = Error "message_offset", "RFC 5041, 5.3", "A segment does not continue its message";
    TERMINATED = Warning "terminated", "RFC 5040, 4.8", "An end terminates the connection";
    NAK = Warning "nak", "InfiniBand 9.7.5.2.8", "A queue pair refuses a packet for good";
    RECEIVER_NOT_READY = Warning "receiver_not_ready", "InfiniBand 9.7.5.2.8", "A Send finds no receive posted";
}
