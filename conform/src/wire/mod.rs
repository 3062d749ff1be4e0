//! Encoders for scripted peers, written from the figures of the specifications.
//!
//! Nothing here is shared with the product, because an error in one of its codecs would be
//! repeated. Every field that a case may change can be set, and is sent unchanged.

pub mod ddp;
pub mod mpa;
pub mod rpc;
pub mod v1;
pub mod v2;
pub mod wg;

/// An XDR encoder (RFC 4506).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Xdr(Vec<u8>);

impl Xdr {
    /// Creates an empty encoder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends an unsigned integer.
    #[must_use]
    pub fn word(self, value: u32) -> Self {
        self.raw(&value.to_be_bytes())
    }

    /// Appends several unsigned integers.
    #[must_use]
    pub fn words(self, values: &[u32]) -> Self {
        values.iter().fold(self, |out, value| out.word(*value))
    }

    /// Appends an unsigned hyper integer.
    #[must_use]
    pub fn long(self, value: u64) -> Self {
        self.raw(&value.to_be_bytes())
    }

    /// Appends raw bytes.
    #[must_use]
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Appends variable-length opaque data: length, bytes, round-up padding.
    #[must_use]
    pub fn opaque(self, bytes: &[u8]) -> Self {
        let pad = bytes.len().wrapping_neg() % 4;
        let out = self.word(bytes.len() as u32).raw(bytes);
        out.raw(&[0; 3][..pad])
    }

    /// Returns the encoded bytes.
    #[must_use]
    pub fn done(self) -> Vec<u8> {
        self.0
    }
}

/// An XDR decoder.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// Reads an unsigned integer, if there is one.
    pub fn word(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*word))
    }

    /// Reads an unsigned hyper integer, if there is one.
    pub fn long(&mut self) -> Option<u64> {
        let (long, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*long))
    }

    /// Reads `len` bytes, if there are as many.
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }
}
