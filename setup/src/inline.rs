//! The lengths of the longest messages without chunks that an end sends and receives.
//!
//! One option stands for both versions of RPC-over-RDMA. In version 1, the lengths are those that
//! the private data of RFC 8797 announces, so its bounds and its unit hold for all.

use std::fmt;
use std::str::FromStr;

use rpc_transport::rdma::RdmaOptions;

use crate::units;

/// The unit of lengths (RFC 8797, section 4.2), in bytes.
const UNIT: u64 = 1024;
/// The longest length that private data can express, in bytes (RFC 8797, section 4.2).
const MOST: u64 = 256 * UNIT;

/// The inline thresholds of one end, in bytes: `64k`, or `SEND:RECEIVE` as in `64k:4k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlineSizes {
    /// The longest message without chunks that this end sends.
    pub send: u32,
    /// The longest message without chunks that this end receives, and the length of its receives.
    pub receive: u32,
}

impl InlineSizes {
    /// Returns the same length for both directions.
    #[must_use]
    pub fn both(size: u32) -> Self {
        Self {
            send: size,
            receive: size,
        }
    }

    /// Sets the lengths of an end. Its receives then have exactly the length that was asked for, as
    /// far as the version and placement allow: no memory is set aside for longer ones that a peer
    /// of version 2 could ask for.
    pub fn apply(self, options: &mut RdmaOptions) {
        options.inline_send = self.send;
        options.inline_receive = self.receive;
        options.max_receive_size = self.receive;
    }
}

impl Default for InlineSizes {
    fn default() -> Self {
        Self::both(RdmaOptions::DEFAULT_INLINE)
    }
}

impl FromStr for InlineSizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some((send, receive)) => Ok(Self {
                send: length(send)?,
                receive: length(receive)?,
            }),
            None => length(text).map(Self::both),
        }
    }
}

/// Parses one length.
fn length(text: &str) -> Result<u32, String> {
    let size = units::size(text)?;
    match u32::try_from(size) {
        Ok(length) if (UNIT..=MOST).contains(&size) && size.is_multiple_of(UNIT) => Ok(length),
        _ => Err(format!(
            "`{text}` is not from 1k to 256k in steps of 1k, the lengths that version 1 can announce"
        )),
    }
}

impl fmt::Display for InlineSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = |length: u32| u64::from(length) / UNIT;
        write!(f, "{}k", units(self.send))?;
        match self.send == self.receive {
            true => Ok(()),
            false => write!(f, ":{}k", units(self.receive)),
        }
    }
}

#[cfg(test)]
mod tests {
    use rpc_transport::rdma::Version;

    use super::*;

    #[test]
    fn one_length_is_for_both_directions_and_two_are_for_sending_and_receiving() {
        for (text, send, receive) in [
            ("4096", 4096, 4096),
            ("1k", 1024, 1024),
            ("256k", 262_144, 262_144),
            ("64k:4k", 65_536, 4096),
        ] {
            let sizes: InlineSizes = text.parse().unwrap();
            assert_eq!(sizes, InlineSizes { send, receive });
            assert_eq!(sizes.to_string().parse(), Ok(sizes));
        }
        assert_eq!(InlineSizes::default().to_string(), "4k");
        assert_eq!(InlineSizes::both(8192).to_string(), "8k");
    }

    #[test]
    fn lengths_that_version_1_cannot_announce_are_refused() {
        for text in [
            "0", "1023", "1025", "257k", "1M", "4k:512", "4k:", ":4k", "4k:4k:4k", "x",
        ] {
            let said = text.parse::<InlineSizes>().unwrap_err();
            assert!(
                said.contains("1k to 256k") || said.contains("not a size"),
                "{said}"
            );
        }
    }

    #[test]
    fn receives_have_the_length_that_was_asked_for() {
        let mut options = RdmaOptions::server(rpcrdma_protocols::base());
        InlineSizes {
            send: 65_536,
            receive: 8192,
        }
        .apply(&mut options);
        assert_eq!(
            (options.inline_send, options.inline_receive),
            (65_536, 8192)
        );
        for version in [Version::ONE, Version::TWO] {
            let receives = options.longest_receives(|allowed| allowed == version);
            assert_eq!(receives.size(), 8192);
        }
    }
}
