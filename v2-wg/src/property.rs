//! Transport properties (version-two-07, section 5).

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use rpcrdma_chunks::{Malformed, Reader};

use crate::limits::DEFAULT_INLINE;

/// Numbers of properties (`rpcrdma2_propid`, section 5.2, table 1).
pub mod property_id {
    /// RDMA2_PROPID_SBSIZ: maximum send size.
    pub const SEND_SIZE: u32 = 1;
    /// RDMA2_PROPID_RBSIZ: receive buffer size.
    pub const RECEIVE_SIZE: u32 = 2;
    /// RDMA2_PROPID_RSSIZ: maximum segment size.
    pub const SEGMENT_SIZE: u32 = 3;
    /// RDMA2_PROPID_RCSIZ: maximum segment count.
    pub const SEGMENT_COUNT: u32 = 4;
    /// RDMA2_PROPID_BRS: reverse-direction support.
    pub const REVERSE: u32 = 5;
    /// RDMA2_PROPID_HOSTAUTH: host authentication message.
    pub const HOST_AUTH: u32 = 6;
}

/// `rpcrdma2_propval`: one property as it is sent (section 5.1). Its type, and so the meaning of its
/// value, follows from the number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// `rdma_which`: number of the property.
    pub id: u32,
    /// `rdma_data`: the value as XDR; empty for the default value.
    pub value: Bytes,
}

/// Levels of support for reverse-direction calls (section 5.2.5), from none to all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReverseSupport {
    /// RDMA2_RVRSDIR_NONE: no reverse-direction calls.
    #[default]
    None,
    /// RDMA2_RVRSDIR_SIMPLE: messages in the simple format, without chunks.
    Simple,
    /// RDMA2_RVRSDIR_CONT: messages in the simple or the continued format, without chunks.
    Continued,
    /// RDMA2_RVRSDIR_GENL: the same messages as in the forward direction.
    General,
}

impl ReverseSupport {
    /// Returns the value of the property.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Simple => 1,
            Self::Continued => 2,
            Self::General => 3,
        }
    }

    /// Returns the level with this number, or `None` if there is none.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::None),
            1 => Some(Self::Simple),
            2 => Some(Self::Continued),
            3 => Some(Self::General),
            _ => None,
        }
    }
}

/// The value of a known property that cannot be decoded. The receiver answers the message with
/// RDMA2_ERR_BAD_PROPVAL and applies none of its properties (section 7.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("value of property {id}: {reason}")]
pub struct BadProperty {
    /// Number of the property.
    pub id: u32,
    /// What is wrong with its value.
    pub reason: Malformed,
}

/// The properties of one end of a connection (section 5.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Maximum length in bytes of the messages that this end sends. The other end may post receives
    /// of this size.
    pub send_size: u32,
    /// Minimum length in bytes of this end's receives.
    pub receive_size: u32,
    /// Maximum length in bytes of each segment in a header.
    pub segment_size: u32,
    /// Maximum number of segments in the header of a call.
    pub segment_count: u32,
    /// Support of this end, if it is the client, for reverse-direction calls.
    pub reverse: ReverseSupport,
    /// Host authentication message; `None` if this end does not authenticate itself.
    pub host_auth: Option<Bytes>,
}

impl Default for Properties {
    /// Returns the properties to assume of an end that has announced none (section 5.2, table 1).
    fn default() -> Self {
        Self {
            send_size: DEFAULT_INLINE,
            receive_size: DEFAULT_INLINE,
            segment_size: 1 << 20,
            segment_count: 16,
            reverse: ReverseSupport::None,
            host_auth: None,
        }
    }
}

impl fmt::Display for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            send_size,
            receive_size,
            segment_size,
            segment_count,
            reverse,
            host_auth,
        } = self;
        let reverse = match reverse {
            ReverseSupport::None => "none",
            ReverseSupport::Simple => "of one message",
            ReverseSupport::Continued => "without chunks",
            ReverseSupport::General => "with chunks",
        };
        write!(
            f,
            "sends up to {send_size} bytes, receives up to {receive_size}, segments up to \
             {segment_size}, {segment_count} in a header, reverse-direction calls {reverse}, "
        )?;
        match host_auth {
            Some(message) => write!(f, "host authentication of {} bytes", message.len()),
            None => f.write_str("no host authentication"),
        }
    }
}

impl Properties {
    /// Takes over the properties in one message of the peer. An empty value stands for the default;
    /// a property that is not known is skipped; of a property that is listed twice the last value
    /// counts (section 5.1).
    ///
    /// # Errors
    /// [`BadProperty`] if a value is invalid. Nothing of the message has been taken over then.
    pub fn apply(&mut self, properties: &[Property]) -> Result<(), BadProperty> {
        let mut new = self.clone();
        for property in properties {
            new.set(property).map_err(|reason| BadProperty {
                id: property.id,
                reason,
            })?;
        }
        *self = new;
        Ok(())
    }

    fn set(&mut self, property: &Property) -> Result<(), Malformed> {
        let default = Self::default();
        let number = |default| match property.value.is_empty() {
            true => Ok(default),
            false => Reader::whole(&property.value, Reader::u32),
        };
        match property.id {
            property_id::SEND_SIZE => self.send_size = number(default.send_size)?,
            property_id::RECEIVE_SIZE => self.receive_size = number(default.receive_size)?,
            property_id::SEGMENT_SIZE => self.segment_size = number(default.segment_size)?,
            property_id::SEGMENT_COUNT => self.segment_count = number(default.segment_count)?,
            property_id::REVERSE => {
                let value = number(default.reverse.number())?;
                let unknown = Malformed::Enumeration("reverse-direction support", value);
                self.reverse = ReverseSupport::from_number(value).ok_or(unknown)?;
            }
            property_id::HOST_AUTH => {
                self.host_auth = match property.value.is_empty() {
                    true => default.host_auth,
                    false => {
                        let message = Reader::whole(&property.value, Reader::opaque)?;
                        Some(property.value.slice_ref(message))
                    }
                };
            }
            _ => {}
        }
        Ok(())
    }

    /// Encodes the properties, those with default values included. A host authentication message is
    /// listed only if there is one.
    #[must_use]
    pub fn encode(&self) -> Vec<Property> {
        let number = |id, value: u32| Property {
            id,
            value: Bytes::copy_from_slice(&value.to_be_bytes()),
        };
        let host_auth = self.host_auth.as_ref().map(|message| {
            let mut value = BytesMut::new();
            // The message fits a transport message, so its length is nowhere near 2^32.
            value.put_u32(message.len() as u32);
            value.put_slice(message);
            value.put_bytes(0, onc_rpc::pad(message.len() as u64) as usize);
            Property {
                id: property_id::HOST_AUTH,
                value: value.freeze(),
            }
        });
        let numbers = [
            number(property_id::SEND_SIZE, self.send_size),
            number(property_id::RECEIVE_SIZE, self.receive_size),
            number(property_id::SEGMENT_SIZE, self.segment_size),
            number(property_id::SEGMENT_COUNT, self.segment_count),
            number(property_id::REVERSE, self.reverse.number()),
        ];
        numbers.into_iter().chain(host_auth).collect()
    }
}
