//! A program whose server lets urgent calls pass others, if it is told which those are.

use std::thread;
use std::time::Duration;

use onc_rpc::{AcceptStatus, Encoder};
use rpc_transport::{
    Call, ErrorReply, Procedures, ProgramVersions, Reply, ReplyRoom, Request, Service,
    ServiceOutcome,
};
use rpcrdma_programs::workload::{Calls, Failed, Prepare, Server, Workload};

use crate::Hint;

/// The hint of an urgent call.
pub const URGENT: Hint = Hint(1);
/// The number is from the range that needs no assignment (RFC 5531, section 8.3).
const PROGRAM: ProgramVersions = ProgramVersions::only(0x2000_00b0, 1);
/// The number of its procedure: waits as long as the argument says, in microseconds, and returns the
/// hint that the service saw.
const WAIT: u32 = 1;
/// The time that each third call waits, and the longest one. The others are urgent, and wait for nothing
/// but their turn.
const LONG: u32 = 100;

/// Calls of which two in three are urgent.
#[derive(Clone, Copy, Debug)]
pub struct Queue;

impl Workload for Queue {
    fn name(&self) -> &'static str {
        "queue"
    }

    fn service(&self) -> Option<Box<dyn Service>> {
        Some(Box::new(Procedures::new(PROGRAM, wait)))
    }

    fn prepare<'a>(&'a self, _: Server<'a>) -> Prepare<'a> {
        Box::pin(async { Ok(Box::new(*self) as Box<dyn Calls>) })
    }
}

impl Calls for Queue {
    fn name(&self) -> &'static str {
        "WAIT"
    }

    fn call(&self, number: u64) -> Call {
        let is_urgent = !number.is_multiple_of(3);
        let mut args = Encoder::new();
        args.u32(if is_urgent { 0 } else { LONG });
        let call = Call::new(PROGRAM, WAIT, args.finish(), ReplyRoom::new(4, []));
        match is_urgent {
            true => call.with_extra(URGENT),
            false => call,
        }
    }

    fn check(&self, _: u64, reply: &Reply) -> Result<(), Failed> {
        let seen = reply.results().u32();
        seen.map(drop).map_err(|error| Failed::new("WAIT", error))
    }
}

/// Executes the procedure: an urgent call at once, any other when workers have begun those before it.
fn wait(request: &Request) -> Result<ServiceOutcome, ErrorReply> {
    if request.proc != WAIT {
        return Err(ErrorReply::Accepted(AcceptStatus::ProcUnavail));
    }
    let time = request.args().u32()?;
    if time > LONG {
        return Err(ErrorReply::Accepted(AcceptStatus::GarbageArgs));
    }
    let hint = *request.extra().unwrap_or(&Hint::default());
    let mut seen = Encoder::new();
    seen.u32(hint.0);
    let seen = Ok(seen.finish());
    if hint == URGENT {
        return Ok(ServiceOutcome::Done(seen));
    }
    Ok(ServiceOutcome::Later(Box::new(move || {
        thread::sleep(Duration::from_micros(u64::from(time)));
        seen
    })))
}
