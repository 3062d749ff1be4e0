//! The simulated server and clients of a measurement.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use nfs_binding::client::Mount3;
use nfs_binding::proto::{FileHandle, MountArgs, MountPath};
use rdma::trace::Trace;
use rdma::{Counters, Pool, Time};
use rdma_sim::{Fabric, Faults, Host, NodeId, Turn, attributes};
use rpc_transport::rdma::{
    Accounting, Choice, RdmaClientOptions, RdmaOptions, RdmaServer, RdmaServerOptions, Versions,
};
use rpc_transport::{Call, Client, ClientOptions, ClientTransport};
use rpcrdma_programs::workload::{Failed, Workload};

use super::grants::GrantCounter;
use super::setting::Setting;
use crate::client::{ClientHost, Counted, Desk, Tally, Work, credential};
use crate::disk::Disk;
use crate::exports::{EXPORT, Exports};
use crate::server::{Programs, ServerHost, Slice};

pub(super) const SERVER: NodeId = NodeId(0);
/// The memory of each device, bytes.
const MEMORY: usize = 64 << 20;
/// A pause that suffices for the work that an earlier call left.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// The limit of virtual time for the whole measurement.
const LIMIT: Time = Time::from_nanos(1_000_000_000_000);

/// The error of a call that could not be measured.
#[derive(Debug, thiserror::Error)]
#[error("cannot simulate {what}: {why}")]
pub struct CannotMeasure {
    pub(super) what: &'static str,
    pub(super) why: String,
}

pub(super) fn failed<E: ToString>(what: &'static str) -> impl Fn(E) -> CannotMeasure {
    move |error| CannotMeasure {
        what,
        why: error.to_string(),
    }
}

impl From<Failed> for CannotMeasure {
    fn from(Failed { what, why }: Failed) -> Self {
        Self { what, why }
    }
}

/// The server and its clients.
pub(super) struct Stage<'a> {
    setting: &'a Setting,
    pub(super) fabric: Fabric,
    server: ServerHost,
    clients: Vec<ClientHost<'a>>,
    grants: Option<Rc<RefCell<GrantCounter>>>,
}

/// The server and the network, as clients see them.
#[derive(Clone)]
pub(super) struct View {
    pub(super) fabric: Fabric,
    address: SocketAddr,
    pub(super) port: Rc<RefCell<RdmaServer>>,
    /// The number of calls whose bulk data arrived apart from the rest.
    pub(super) placed: Arc<AtomicU64>,
    /// The messages that only grant credits, in a version that has them.
    pub(super) grants: Option<Rc<RefCell<GrantCounter>>>,
    /// The observer of calls, if they are traced.
    trace: Option<Trace>,
}

/// A connection of a client, with an account of its calls.
pub(super) struct Connection {
    pub(super) rpc: Counted,
    pub(super) tally: Rc<Tally>,
}

/// Returns the address of a host.
fn address(host: usize) -> SocketAddr {
    (Ipv4Addr::new(10, 0, 0, host as u8 + 1), 20049).into()
}

impl<'a> Stage<'a> {
    /// Starts the server, which has the workload's program beside NFS. Other `programs` come from
    /// the caller.
    ///
    /// # Errors
    /// The options do not allow it.
    pub(super) fn new(
        setting: &'a Setting,
        workload: &dyn Workload,
        mut programs: Programs,
    ) -> Result<Self, CannotMeasure> {
        let fabric = Fabric::new(setting.seed, setting.costs.clone(), Faults::default());
        let protocols = &setting.responder.protocols;
        let grants = match protocols.accounting(setting.version) {
            Some(Accounting::Messages(fields)) => {
                let counter = Rc::new(RefCell::new(GrantCounter::new(fields)));
                fabric.watch(Rc::clone(&counter) as Rc<RefCell<_>>);
                Some(counter)
            }
            Some(Accounting::Calls) | None => None,
        };
        let disk = Disk::new(1, fabric.clock(), false, false);
        let exports = Exports::only(Arc::new(disk));
        let options = RdmaServerOptions {
            common: RdmaOptions {
                costs: setting.model(),
                ..setting.responder.clone()
            },
            // Receives are as long as this version needs them.
            versions: Versions::only(setting.version),
            ..RdmaServerOptions::new(rpcrdma_protocols::base())
        };
        programs.others.extend(workload.service());
        programs.trace.clone_from(&setting.trace);
        let server = ServerHost::start(
            &fabric,
            vec![host(setting, SERVER.0)],
            &options,
            &exports,
            None,
            programs,
            |device| Box::new(device),
        );
        Ok(Self {
            setting,
            server: server.map_err(failed("a server"))?,
            fabric,
            clients: Vec::new(),
            grants,
        })
    }

    pub(super) fn view(&self) -> View {
        View {
            fabric: self.fabric.clone(),
            address: address(SERVER.0),
            port: Rc::clone(&self.server.loops[0].port),
            placed: Arc::clone(&self.server.loops[0].placed),
            grants: self.grants.clone(),
            trace: self.setting.trace.clone(),
        }
    }

    /// Starts a client that does `work`.
    ///
    /// # Errors
    /// The options do not allow it.
    pub(super) fn client(
        &mut self,
        work: impl FnOnce(Desk) -> Work<'a>,
    ) -> Result<(), CannotMeasure> {
        let setting = self.setting;
        let options = RdmaClientOptions {
            common: RdmaOptions {
                costs: setting.model(),
                ..setting.requester.clone()
            },
            version: Choice::Only(setting.version),
            ..RdmaClientOptions::new(rpcrdma_protocols::base())
        };
        let number = self.clients.len() + 1;
        let host = host(setting, number);
        let seed = number as u64;
        let wrap = |device| Box::new(device) as Box<_>;
        let client = ClientHost::start(&self.fabric, host, options, seed, wrap, work);
        self.clients.push(client.map_err(failed("a client"))?);
        Ok(())
    }

    /// Runs all hosts until the clients have done their work, or nothing happens any more.
    pub(super) fn run(&mut self) {
        while !self.clients.iter().all(ClientHost::is_done)
            && let Some(turn) = self.fabric.next(LIMIT)
        {
            match turn {
                Turn::Host(SERVER) => {
                    let server = &mut self.server.loops[0];
                    // Workers take no time, but run what is left to them after the turn.
                    for _ in 0..server.turn(&self.fabric, Slice::default()) {
                        server.finish_job(&self.fabric);
                    }
                }
                Turn::Host(NodeId(client)) => self.clients[client - 1].turn(&self.fabric),
                Turn::Alarm(_) => {}
            }
        }
    }
}

fn host(setting: &Setting, number: usize) -> Host {
    Host {
        address: address(number),
        attributes: attributes(),
        pool: Pool::new(MEMORY),
        interrupt: setting.interrupt,
    }
}

/// Connects to the server.
///
/// # Errors
/// The connection is refused.
pub(super) async fn connect(desk: &Desk, view: &View) -> Result<Connection, CannotMeasure> {
    let port = Rc::clone(&desk.port) as Rc<RefCell<dyn ClientTransport>>;
    let trace = view.trace.clone();
    let options = ClientOptions {
        credential: credential(),
        trace: trace.map(|trace| trace.with_clock(desk.clock.clone())),
        ..ClientOptions::default()
    };
    let client = Client::connect(&desk.runtime, view.address, port, options).await;
    let client = client.map_err(failed("a connection"))?;
    let tally = Rc::new(Tally::default());
    let rpc = Counted::new(client, Rc::clone(&desk.under_way), Rc::clone(&tally));
    Ok(Connection { rpc, tally })
}

/// Returns the root of the export.
///
/// # Errors
/// The server refuses it.
pub(super) async fn root(rpc: &Counted) -> Result<FileHandle, CannotMeasure> {
    let path = MountPath::from(EXPORT.as_bytes());
    let mounted = Mount3::new(rpc).mount(&MountArgs { path }).await;
    let mounted = mounted.map_err(failed("MNT"))?;
    let mounted = mounted.map_err(|no| failed("MNT")(no.status))?;
    Ok(mounted.handle)
}

/// Returns the bytes of the bulk data of a call, and those that its reply may have.
pub(super) fn bulk(call: &Call) -> (u64, u64) {
    let items = call.args.items().iter().map(|item| item.data.len() as u64);
    let room = call.reply.items.iter().map(|&len| u64::from(len));
    (items.sum(), room.sum())
}

/// Returns what was counted in between.
pub(super) fn since(before: Counters, after: Counters) -> Counters {
    Counters {
        sends: after.sends - before.sends,
        sends_with_invalidate: after.sends_with_invalidate - before.sends_with_invalidate,
        rdma_reads: after.rdma_reads - before.rdma_reads,
        rdma_writes: after.rdma_writes - before.rdma_writes,
        receives: after.receives - before.receives,
        registrations: after.registrations - before.registrations,
        local_invalidations: after.local_invalidations - before.local_invalidations,
        remote_invalidations: after.remote_invalidations - before.remote_invalidations,
        interrupts: after.interrupts - before.interrupts,
        copied_bytes: after.copied_bytes - before.copied_bytes,
        wire_bytes_sent: after.wire_bytes_sent - before.wire_bytes_sent,
        wire_bytes_received: after.wire_bytes_received - before.wire_bytes_received,
        system_calls: after.system_calls - before.system_calls,
    }
}
