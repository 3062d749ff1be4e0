//! A service from a function.

use onc_rpc::Message;

use crate::{ErrorReply, ProgramVersions, Request, Service, ServiceOutcome};

/// A [`Service`] of one program, whose procedures a function executes. It has procedure 0, which does
/// nothing (RFC 5531, section 12.1), itself.
///
/// ```
/// use onc_rpc::Encoder;
/// use rpc_transport::{ErrorReply, Procedures, ProgramVersions, ServiceOutcome};
///
/// let program = ProgramVersions::only(0x4000_1234, 1);
/// let doubling = Procedures::new(program, |request| {
///     let number = request.args().u32()?;
///     let mut results = Encoder::new();
///     results.u32(number.wrapping_mul(2));
///     Ok(ServiceOutcome::Done(Ok(results.finish())))
/// });
/// # drop(doubling);
/// ```
pub struct Procedures<F> {
    program: [ProgramVersions; 1],
    remembered: &'static [u32],
    execute: F,
}

impl<F> Procedures<F>
where
    F: FnMut(&Request) -> Result<ServiceOutcome, ErrorReply>,
{
    /// Creates the service of `program`. An error of `execute` is the reply.
    pub fn new(program: ProgramVersions, execute: F) -> Self {
        Self {
            program: [program],
            remembered: &[],
            execute,
        }
    }

    /// Sets the procedures that must not be executed twice for one call
    /// ([`Service::remember_reply`]).
    #[must_use]
    pub fn remembering(self, procedures: &'static [u32]) -> Self {
        Self {
            remembered: procedures,
            ..self
        }
    }
}

impl<F> Service for Procedures<F>
where
    F: FnMut(&Request) -> Result<ServiceOutcome, ErrorReply>,
{
    fn programs(&self) -> &[ProgramVersions] {
        &self.program
    }

    fn call(&mut self, request: Request) -> ServiceOutcome {
        if request.proc == 0 {
            return ServiceOutcome::Done(Ok(Message::default()));
        }
        let executed = (self.execute)(&request);
        executed.unwrap_or_else(|error| ServiceOutcome::Done(Err(error)))
    }

    fn remember_reply(&self, _: u32, _: u32, proc: u32) -> bool {
        self.remembered.contains(&proc)
    }
}
