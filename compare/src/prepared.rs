//! The workloads of a comparison, prepared on a server.

use std::cell::Cell;
use std::sync::Arc;

use rpc_transport::Client;
use rpcrdma_programs::workload::{Prepared, Server, Workload};
use rpcrdma_setup::Failure;
use rpcrdma_setup::access::Mounted;

/// The longest record that is read or written as one operation, bytes: by several calls in flight.
pub const MAX_RECORD: u32 = 16 << 20;

/// Workloads that are prepared for one client.
pub(crate) struct Target {
    client: Client,
    prepared: Vec<(Arc<dyn Workload>, Prepared)>,
    /// The number of operations so far.
    number: Cell<u64>,
}

/// One of these workloads.
#[derive(Clone, Copy)]
pub(crate) struct Ready<'a> {
    target: &'a Target,
    prepared: &'a Prepared,
}

impl Target {
    /// Prepares workloads in the root of an export, for the client with this number.
    ///
    /// # Errors
    /// The server refuses a call, or a READ does not return what was written.
    pub(crate) async fn create(
        mounted: &Mounted,
        workloads: &[Arc<dyn Workload>],
        number: u32,
    ) -> Result<Self, Failure> {
        let client = mounted.reached.client.clone();
        let mut prepared = Vec::new();
        for workload in workloads {
            let server = Server::new(&client, Some(mounted.mount.root()), number);
            let made = Prepared::new(&**workload, server).await;
            prepared.push((Arc::clone(workload), made.map_err(Failure::work)?));
        }
        Ok(Self {
            client,
            prepared,
            number: Cell::new(0),
        })
    }

    /// Returns one of the workloads.
    ///
    /// # Errors
    /// The workload was not prepared.
    pub(crate) fn ready(&self, workload: &dyn Workload) -> Result<Ready<'_>, Failure> {
        let names = |workload: &dyn Workload| (workload.name(), workload.size());
        let mut all = self.prepared.iter();
        let found = all.find(|(known, _)| names(&**known) == names(workload));
        let (_, prepared) =
            found.ok_or_else(|| Failure::Work(format!("{workload} was not prepared")))?;
        Ok(Ready {
            target: self,
            prepared,
        })
    }
}

impl Ready<'_> {
    /// Performs one operation and checks its result.
    ///
    /// # Errors
    /// The call failed, or the server refused it or moved fewer bytes.
    pub(crate) async fn perform(self) -> Result<(), Failure> {
        let number = self.target.number.get();
        self.target.number.set(number.wrapping_add(1));
        let performed = self.prepared.perform(&self.target.client, number).await;
        performed.map_err(Failure::work)
    }
}
