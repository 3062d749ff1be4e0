//! What the hostile peer says, put together byte by byte from the documents' figures.
//!
//! Nothing here comes from the product: an error in one of its codecs would only be repeated. Every
//! field that a lie may be about can be set, and what is set goes on the wire as it is.

pub mod ddp;
pub mod mpa;
pub mod rpc;
pub mod v1;
pub mod v2;

/// XDR under construction (RFC 4506).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Xdr(Vec<u8>);

impl Xdr {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An unsigned integer.
    #[must_use]
    pub fn word(self, value: u32) -> Self {
        self.raw(&value.to_be_bytes())
    }

    /// Several of them.
    #[must_use]
    pub fn words(self, values: &[u32]) -> Self {
        values.iter().fold(self, |out, value| out.word(*value))
    }

    /// An unsigned hyper integer.
    #[must_use]
    pub fn long(self, value: u64) -> Self {
        self.raw(&value.to_be_bytes())
    }

    /// Bytes as they are.
    #[must_use]
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Variable-length opaque data: length, bytes, round-up.
    #[must_use]
    pub fn opaque(self, bytes: &[u8]) -> Self {
        let pad = bytes.len().wrapping_neg() % 4;
        let out = self.word(bytes.len() as u32).raw(bytes);
        out.raw(&[0; 3][..pad])
    }

    /// The bytes.
    #[must_use]
    pub fn done(self) -> Vec<u8> {
        self.0
    }
}

/// XDR being read.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// An unsigned integer, if there is one.
    pub fn word(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*word))
    }

    /// An unsigned hyper integer, if there is one.
    pub fn long(&mut self) -> Option<u64> {
        let (long, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*long))
    }

    /// That many bytes, if there are.
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }
}
