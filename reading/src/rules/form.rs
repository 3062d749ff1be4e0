//! The form of a header.

super::rules! {
    FORM = Error "form", "RFC 8166, 4.5.2", "The header does not match its XDR definition";
    SHORT = Error "short", "RFC 8166, 4.5", "The message is shorter than any header";
    VERSION = Error "version", "RFC 8166, 4.2.2", "The version is not known";
    VERSION_CHANGED = Error "version_changed", "version-two-07, 4.3.3", "The connection had another version before";
    RETIRED = Error "retired", "RFC 8166, 4.6", "The message type is retired";
    HEADER_TYPE = Error "header_type", "version-two-07, 6.1", "The header type is not known";
    ROUND_UP = Error "round_up", "RFC 4506, 4.10", "Bytes that fill opaque data up are not zero";
    TOO_LONG = Error "too_long", "RFC 8166, 3.3.2", "The message is longer than its receiver takes";
    ERROR_REPORTED = Note "error_reported", "RFC 8166, 4.5", "An end reports an error";
    UNKNOWN_OPERATION = Note "unknown_operation", "version-two-01, 3.1", "An optional operation is not known here";
    UNKNOWN_PROPERTY = Note "unknown_property", "xcharext-02, 2.1", "A property is not known here";
}
