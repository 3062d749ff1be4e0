//! A gateway in a process that `compare --gateway` starts: what `rpcrdma gateway` is, with the settings of a row.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use rdma::{Counters, Pool};
use rdma_capture::Capture;
use rpc_transport::limits::{self, Limits};
use rpc_transport::rdma::{RdmaServer, Version};
use rpc_transport::{ServerTransport, TcpClient, TcpOptions, TcpServer};
use rpcrdma_gateway::{Outgoing, Relay, RelayOptions};
use rpcrdma_setup::access::{CALLBACKS, LinkOptions};
use rpcrdma_setup::catalog::{Catalog, Tuning};
use rpcrdma_setup::costs::CostsArg;
use rpcrdma_setup::{Context, Failure};

use super::count::Captured;
use crate::options::Options;
use crate::orders::{Question, serve_between_questions};
use crate::processor;
use crate::served::{PairEnd, Relayed, Served, answer, congestion};
use crate::server_process::rdma_parts;
use crate::targets;
use crate::usage::Usage;
use crate::variant::{Receives, Serves, Variant};

/// The memory for receives, as `rpcrdma gateway` has it.
const RECEIVE_MEMORY: usize = 512 << 20;
/// The number of connections that memory is divided for: more than a comparison makes.
const CONNECTIONS: usize = 64;

/// Bytes of a pool, and their division.
struct Memory {
    limits: Limits,
    pool: Pool,
}

/// The counters of a transport that clients connect to.
type CountersOf = Box<dyn Fn() -> Counters>;

/// Passes messages on as `relayed` says until standard input ends.
///
/// # Errors
/// The settings are invalid, an address cannot be used, or a device cannot be opened.
pub(crate) fn serve_relay(relayed: &Relayed, catalog: &Catalog) -> Result<(), Failure> {
    let between = &relayed.between;
    let unknown = || Failure::Usage(format!("{}: not between gateways", between.serves));
    let Some(Serves::Nfs(variant)) = Serves::parse(catalog, &between.serves) else {
        return Err(unknown());
    };
    let version = variant.version().ok_or_else(unknown)?;
    if let Some(number) = between.processor {
        processor::pin(number)?;
    }
    let limits = Limits::without_reply_cache(limits::default_memory(), RECEIVE_MEMORY, CONNECTIONS);
    let memory = Memory {
        pool: Pool::keeping(limits.budget.limit() + limits.receives, limits.kept),
        limits,
    };
    let mut captured = match relayed.counts_trips {
        true => Some(Captured::new()?),
        false => None,
    };
    let (outgoing, incoming, counters, address) = match relayed.end {
        PairEnd::First => {
            let capture = captured.as_ref().map(|it| it.capture.clone());
            // The memory is that from which the device sends without a copy.
            let (outgoing, pool) = rdma_outgoing(relayed, variant, catalog, &memory, capture)?;
            let (incoming, counters, address) = tcp_incoming(between, &memory, pool)?;
            (outgoing, incoming, counters, address)
        }
        PairEnd::Last => {
            let tcp = TcpClient::new(tcp(between, &memory, memory.pool.clone())?);
            let (incoming, counters, address) =
                rdma_incoming(between, (variant, version), catalog, &memory)?;
            let outgoing: Rc<RefCell<dyn Outgoing>> = Rc::new(RefCell::new(tcp));
            (outgoing, incoming, counters, address)
        }
    };
    let options = RelayOptions {
        // The server of a comparison takes any port, and whoever measures may have none that is reserved.
        reserved_ports: false,
        ..RelayOptions::new(relayed.to)
    };
    let relay = Relay::new(options, Rc::clone(&outgoing));
    let mut relay = relay.context("cannot set up polling")?;
    relay.listen(incoming).context("cannot set up polling")?;

    let relay = RefCell::new(relay);
    serve_between_questions(
        address,
        |stop| relay.borrow_mut().run(stop),
        |question| match question {
            Question::Usage => {
                let device: Counters = [counters(), outgoing.borrow().counters()].into_iter().sum();
                answer(&Usage::now(&device, 0, relay.borrow().system_calls()))
            }
            Question::Trips => {
                let trips = captured.take().map(Captured::round_trips).transpose()?;
                answer(&trips.unwrap_or_default())
            }
            // It knows no procedures.
            Question::Procedures => answer(&()),
        },
    )
}

/// Returns the options of the side with TCP, which nothing delays: its peer is on the same host.
fn tcp(between: &Served, memory: &Memory, pool: Pool) -> Result<TcpOptions, Failure> {
    Ok(TcpOptions {
        pool,
        budget: memory.limits.budget.clone(),
        callbacks: true,
        congestion: congestion(between.congestion.as_ref())?,
        ..TcpOptions::default()
    })
}

/// A transport that clients connect to, its counters, and its address.
type Incoming = (Rc<RefCell<dyn ServerTransport>>, CountersOf, SocketAddr);

fn tcp_incoming(between: &Served, memory: &Memory, pool: Pool) -> Result<Incoming, Failure> {
    let any_port = SocketAddr::new(between.listen, 0);
    let port = TcpServer::bind(any_port, tcp(between, memory, pool)?);
    let port = port.context(format_args!("cannot listen on {}", between.listen))?;
    let address = port.local_addr();
    let port = Rc::new(RefCell::new(port));
    let counted = Rc::clone(&port);
    let counters = move || counted.borrow().counters().as_device();
    Ok((port, Box::new(counters), address))
}

fn rdma_incoming(
    between: &Served,
    spoken: (Variant, Version),
    catalog: &Catalog,
    memory: &Memory,
) -> Result<Incoming, Failure> {
    let link = link(between)?;
    let pool = Some(memory.pool.clone());
    let (device, mut options) = rdma_parts(between, spoken, catalog, &link, pool)?;
    options.common.callbacks = CALLBACKS;
    options.budget = memory.limits.budget.clone();
    options.max_receive_memory = memory.limits.receives;
    let mut port = RdmaServer::new(device, options);
    let address = port.listen(SocketAddr::new(between.listen, 0));
    let address = address.context(format_args!("cannot listen on {}", between.listen))?;
    let port = Rc::new(RefCell::new(port));
    let counted = Rc::clone(&port);
    let counters = move || counted.borrow().counters();
    Ok((port, Box::new(counters), address))
}

/// Returns the link between the gateways.
fn link(between: &Served) -> Result<LinkOptions, Failure> {
    Ok(LinkOptions {
        delay: between.delay,
        rate: between.rate,
        busy_poll: between.busy_poll,
        crc: between.crc,
        congestion: congestion(between.congestion.as_ref())?,
    })
}

/// Returns the transport to the last gateway, and the memory from which it sends.
fn rdma_outgoing(
    relayed: &Relayed,
    variant: Variant,
    catalog: &Catalog,
    memory: &Memory,
    capture: Option<Capture>,
) -> Result<(Rc<RefCell<dyn Outgoing>>, Pool), Failure> {
    let between = &relayed.between;
    let LinkOptions {
        rate,
        crc,
        congestion,
        ..
    } = link(between)?;
    let costs = between.costs.as_deref().map(CostsArg::parse).transpose();
    let (inline, receives) = match between.receives {
        Receives::Usual(inline) => (inline.into(), Vec::new()),
        Receives::Equal(length) => (Options::default().inline, vec![length]),
    };
    let options = Options {
        device: between.device.parse().map_err(Failure::Usage)?,
        registration: between.registration.parse().map_err(Failure::Usage)?,
        costs: costs.map_err(Failure::Usage)?,
        tuning: Tuning::parse(catalog.clone(), &between.tuning)?,
        rate,
        inline,
        receives,
        crc,
        congestion,
        capture,
        ..Options::default()
    };
    let mut access = targets::access(&options, variant, between.delay, between.busy_poll)?;
    access.rdma.max_receive_memory = memory.limits.receives;
    let rdma = access.rdma_transport(relayed.to, Some(memory.pool.clone()))?;
    let pool = rdma.device().pool().clone();
    Ok((Rc::new(RefCell::new(rdma)), pool))
}
