//! Calls, replies and credits.

super::rules! {
    CREDITS_EXCEEDED = Error "credits_exceeded", "RFC 8166, 3.3.1", "More calls are outstanding than credits were granted";
    ZERO_CREDITS = Warning "zero_credits", "RFC 8166, 3.3.1", "A header requests or grants no credits";
    DUPLICATE_XID = Warning "duplicate_xid", "RFC 8166, 4.2.1", "A call with this XID is outstanding";
    UNMATCHED = Warning "unmatched", "RFC 5531, 9", "A reply answers no outstanding call";
    XID = Error "xid", "RFC 8166, 4.2.1", "The XIDs of header and RPC message differ";
    DIRECTION = Error "direction", "version-two-01, 4.2.2", "Header and RPC message have different directions";
    INITXCH = Error "initxch", "xcharext-02, 4.1", "ROPT_INITXCH is not the first message, or comes again";
}
