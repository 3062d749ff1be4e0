//! A program of one procedure, which greets back.

use onc_rpc::{AcceptStatus, Encoder};
use rpc_transport::{
    Call, ErrorReply, Procedures, ProgramVersions, Reply, ReplyRoom, Request, Service,
    ServiceOutcome,
};
use rpcrdma_programs::workload::{Calls, Failed, Prepare, Server, Workload};

/// The number of the program is from the range that needs no assignment (RFC 5531, section 8.3).
const PROGRAM: ProgramVersions = ProgramVersions::only(0x2000_00a0, 1);
/// The number of its procedure.
const GREET: u32 = 1;

/// Calls that say a number, which comes back one higher.
#[derive(Clone, Copy, Debug)]
pub struct Greet;

impl Workload for Greet {
    fn name(&self) -> &'static str {
        "greet"
    }

    fn service(&self) -> Option<Box<dyn Service>> {
        Some(Box::new(Procedures::new(PROGRAM, greet)))
    }

    fn prepare<'a>(&'a self, _: Server<'a>) -> Prepare<'a> {
        Box::pin(async { Ok(Box::new(*self) as Box<dyn Calls>) })
    }
}

impl Calls for Greet {
    fn name(&self) -> &'static str {
        "GREET"
    }

    fn call(&self, number: u64) -> Call {
        let mut args = Encoder::new();
        args.u32(number as u32 & 0xffff);
        Call::new(PROGRAM, GREET, args.finish(), ReplyRoom::new(4, []))
    }

    fn check(&self, number: u64, reply: &Reply) -> Result<(), Failed> {
        match reply.results().u32() {
            Ok(answer) if answer == (number as u32 & 0xffff) + 1 => Ok(()),
            other => Err(Failed::new("GREET", format!("{other:?} is no greeting"))),
        }
    }
}

/// Executes the procedure.
fn greet(request: &Request) -> Result<ServiceOutcome, ErrorReply> {
    if request.proc != GREET {
        return Err(ErrorReply::Accepted(AcceptStatus::ProcUnavail));
    }
    let mut args = request.args();
    let number = args.u32()?;
    args.finish()?;
    let mut answer = Encoder::new();
    answer.u32(number.wrapping_add(1));
    Ok(ServiceOutcome::Done(Ok(answer.finish())))
}
