//! The arguments that may be reduced: a responder's knowledge of Upper-Layer Bindings (RFC 8166,
//! section 6.1; version-two-07, appendix A.1).
//!
//! If a call has more Read chunks than its procedure has DDP-eligible arguments, the responder does
//! not fetch them. So a requester cannot make it spend memory and RDMA Reads on a call that is
//! refused in any case. If the payload of a call is itself in a chunk, the procedure is not known
//! before that chunk has been fetched; the call is refused if it has more Read chunks than any
//! procedure has such arguments, and otherwise fetched whole, in one round trip. It costs no more
//! than a call of the procedure that has the most then. The upper layer checks which procedure it
//! is; and of all calls positions, because they depend on the preceding arguments.

use std::fmt;

use onc_rpc::{CALL, Message, RPC_VERSION};

/// The number of bytes from the XID of a call to the number of its procedure.
const START: usize = 24;

/// Number of arguments of each procedure that are DDP-eligible, and so may be in read chunks ("reduced").
#[derive(Clone, Copy)]
pub struct ReducedArguments {
    most: fn(u32, u32, u32) -> Option<u32>,
    /// The most of any procedure.
    most_of_any: Option<u32>,
}

impl ReducedArguments {
    /// Arguments of every procedure may be reduced, and the upper layer refuses those that may not.
    pub const ANY: Self = Self::new(|_, _, _| None);

    /// Creates the limits that a function returns. Given a program, its version and a procedure,
    /// `most` returns how many arguments may be reduced, or `None` if it does not know the
    /// procedure.
    #[must_use]
    pub const fn new(most: fn(program: u32, version: u32, procedure: u32) -> Option<u32>) -> Self {
        Self {
            most,
            most_of_any: None,
        }
    }

    /// Adds the maximum that holds for all procedures. It limits the calls whose payload is in a
    /// chunk, of which the procedure is not known before the fetch, also those of a procedure that
    /// nobody knows.
    #[must_use]
    pub const fn with_most_of_any(self, most: u32) -> Self {
        Self {
            most_of_any: Some(most),
            ..self
        }
    }

    /// Returns the maximum number of reduced arguments of any procedure, or `None` if there is no
    /// limit.
    #[must_use]
    pub fn most_of_any(&self) -> Option<u32> {
        self.most_of_any
    }

    /// Returns the maximum number of reduced arguments of a procedure, or `None` if there is no
    /// limit.
    #[must_use]
    pub fn most(&self, program: u32, version: u32, procedure: u32) -> Option<u32> {
        (self.most)(program, version, procedure)
    }

    /// Returns the maximum number of reduced arguments of a call, whose payload begins with the RPC
    /// header. `None` if there is no limit, or if the payload begins with something else.
    pub(crate) fn most_of(&self, call: &Message) -> Option<u32> {
        let mut start = [0; START];
        let first = call.payload().first()?;
        match first.get(..START) {
            Some(bytes) => start.copy_from_slice(bytes),
            // A host may divide a message anywhere.
            None => {
                let mut bytes = call.payload().iter().flatten();
                for byte in &mut start {
                    *byte = *bytes.next()?;
                }
            }
        }
        let word = |at: usize| -> Option<u32> {
            let bytes = start.get(4 * at..)?.first_chunk()?;
            Some(u32::from_be_bytes(*bytes))
        };
        if (word(1)?, word(2)?) != (CALL, RPC_VERSION) {
            return None;
        }
        self.most(word(3)?, word(4)?, word(5)?)
    }
}

impl Default for ReducedArguments {
    fn default() -> Self {
        Self::ANY
    }
}

impl fmt::Debug for ReducedArguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReducedArguments")
    }
}
