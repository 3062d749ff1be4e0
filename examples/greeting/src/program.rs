//! A program of one procedure, which greets back.

use onc_rpc::{AcceptStatus, Encoder, Message};
use rpc_transport::{
    Call, ErrorReply, ProgramVersions, Reply, ReplyRoom, Request, Service, ServiceOutcome,
};
use rpcrdma_programs::workload::{Calls, Failed, Prepare, Server, Workload};

/// The number of the program, from the range that needs no assignment (RFC 5531, section 8.3).
const PROGRAM: u32 = 0x2000_00a0;
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
        Some(Box::new(*self))
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
        Call {
            prog: PROGRAM,
            vers: 1,
            proc: GREET,
            args: args.finish(),
            reply: ReplyRoom {
                payload: 4,
                ..ReplyRoom::default()
            },
        }
    }

    fn check(&self, number: u64, reply: &Reply) -> Result<(), Failed> {
        match reply.results().u32() {
            Ok(answer) if answer == (number as u32 & 0xffff) + 1 => Ok(()),
            other => Err(Failed::new("GREET", format!("{other:?} is no greeting"))),
        }
    }
}

impl Service for Greet {
    fn programs(&self) -> &[ProgramVersions] {
        &[ProgramVersions {
            prog: PROGRAM,
            low: 1,
            high: 1,
        }]
    }

    fn call(&mut self, request: Request) -> ServiceOutcome {
        ServiceOutcome::Done(match request.proc {
            // Every program has this procedure, which does nothing (RFC 5531, section 12.1).
            0 => Ok(Message::default()),
            GREET => greet(&request),
            _ => Err(ErrorReply::Accepted(AcceptStatus::ProcUnavail)),
        })
    }

    /// A greeting may be answered twice.
    fn remember_reply(&self, _: u32, _: u32, _: u32) -> bool {
        false
    }
}

/// Executes the procedure.
fn greet(request: &Request) -> Result<Message, ErrorReply> {
    let garbage = |_| ErrorReply::Accepted(AcceptStatus::GarbageArgs);
    let mut args = request.args();
    let number = args.u32().map_err(garbage)?;
    args.finish().map_err(garbage)?;
    let mut answer = Encoder::new();
    answer.u32(number.wrapping_add(1));
    Ok(answer.finish())
}
