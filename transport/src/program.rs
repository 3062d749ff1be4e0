//! RPC programs by their numbers.

/// A program and the range of its versions that a service implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramVersions {
    /// Program number.
    pub prog: u32,
    /// The lowest version.
    pub low: u32,
    /// The highest version.
    pub high: u32,
}

impl ProgramVersions {
    /// Returns a program with one version.
    #[must_use]
    pub const fn only(prog: u32, vers: u32) -> Self {
        Self {
            prog,
            low: vers,
            high: vers,
        }
    }
}
