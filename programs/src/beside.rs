//! A service with further programs.

use onc_rpc::Message;
use rpc_transport::{ProgramVersions, ReducedArguments, Request, Service, ServiceOutcome};

/// A service that adds programs to another service. Calls of a program that several of them
/// implement go to the first one.
pub struct Beside<S> {
    service: S,
    others: Vec<Box<dyn Service>>,
    programs: Vec<ProgramVersions>,
}

impl<S: Service> Beside<S> {
    /// Adds `others` to `service`.
    #[must_use]
    pub fn new(service: S, others: Vec<Box<dyn Service>>) -> Self {
        let all = others.iter().flat_map(|other| other.programs());
        let programs = service.programs().iter().chain(all).copied().collect();
        Self {
            service,
            others,
            programs,
        }
    }

    /// Returns the position of the added service that implements a program, or `None` if that is
    /// the service to which they were added.
    fn other(&self, prog: u32) -> Option<usize> {
        let has = |service: &dyn Service| service.programs().iter().any(|has| has.prog == prog);
        match self.others.is_empty() || has(&self.service) {
            true => None,
            false => self.others.iter().position(|other| has(&**other)),
        }
    }
}

impl<S: Service> Service for Beside<S> {
    fn programs(&self) -> &[ProgramVersions] {
        &self.programs
    }

    fn call(&mut self, request: Request) -> ServiceOutcome {
        match self.other(request.prog) {
            Some(at) => self.others[at].call(request),
            None => self.service.call(request),
        }
    }

    fn remember_reply(&self, prog: u32, vers: u32, proc: u32) -> bool {
        match self.other(prog) {
            Some(at) => self.others[at].remember_reply(prog, vers, proc),
            None => self.service.remember_reply(prog, vers, proc),
        }
    }

    /// Returns those of the service to which others were added. The limits have one function for all
    /// programs, which says nothing of the others.
    fn reduced_arguments(&self) -> ReducedArguments {
        self.service.reduced_arguments()
    }

    fn has_changed(&self, prog: u32, vers: u32, proc: u32, results: &Message) -> bool {
        match self.other(prog) {
            Some(at) => self.others[at].has_changed(prog, vers, proc, results),
            None => self.service.has_changed(prog, vers, proc, results),
        }
    }
}
