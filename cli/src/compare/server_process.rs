//! What runs in the processes that `compare` starts.

use std::cell::RefCell;
use std::io::{self, BufRead};
use std::net::{SocketAddr, TcpListener};
use std::process;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rdma::Counters;
use rpc_transport::rdma::{RdmaServer, RdmaServerOptions, Versions};
use rpc_transport::{Server, ServerOptions, Stop, TcpServer};
use serde::{Deserialize, Serialize};

use crate::args::{ChildArgs, Serves};
use crate::compare::floor;
use crate::compare::processor;
use crate::compare::usage::Usage;
use crate::output;
use crate::serve;
use rpcrdma_setup::access::{LinkOptions, tcp_counters};
use rpcrdma_setup::costs::CostsArg;
use rpcrdma_setup::device::{DeviceChoice, Resources};
use rpcrdma_setup::{Context, Failure};

/// What asks for a [`Usage`] over the control channel.
pub(crate) const USAGE: &str = "usage";
/// Bytes that the file system in memory may hold.
const MEMORY: u64 = 1 << 30;

/// The first line of a child.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Listening {
    /// Where.
    pub(crate) address: SocketAddr,
}

/// What the parent wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Usage,
    End,
}

/// Between the thread that reads orders and the one that serves. An order interrupts serving; the
/// parent sends none before it has the last one's answer.
#[derive(Clone, Default)]
struct Control {
    shared: Arc<Mutex<(Stop, Option<Order>)>>,
}

impl Control {
    fn give(&self, order: Order) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.1 = Some(order);
        shared.0.stop();
    }

    /// The order that ended serving, and what the next one will end it with.
    fn take(&self) -> (Option<Order>, Stop) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let order = shared.1.take();
        shared.0 = Stop::new();
        (order, shared.0.clone())
    }
}

/// Serves until standard input ends.
///
/// # Errors
/// What is to be served cannot be.
pub(crate) fn run(args: &ChildArgs) -> Result<(), Failure> {
    if let Some(number) = args.processor {
        processor::pin(number)?;
    }
    let any_port = SocketAddr::new(args.listen, 0);
    let what = format_args!("cannot listen on {}", args.listen);
    let Serves::Nfs(conveyance) = args.serves else {
        let listener = TcpListener::bind(any_port).context(what)?;
        let address = listener.local_addr().context("cannot listen")?;
        thread::spawn(|| {
            read_orders(|order| {
                if order == Order::End {
                    process::exit(0);
                }
            });
        });
        answer(&Listening { address })?;
        return floor::serve(&listener).context("the raw TCP server");
    };

    let link = LinkOptions {
        delay: args.delay.0,
        rate: args.rate.map(|rate| rate.0),
        busy_poll: args.busy_poll,
        crc: args.crc.is_on(),
    };
    let options = ServerOptions {
        busy_poll: args.busy_poll,
        ..ServerOptions::default()
    };
    let service = serve::memory_service(MEMORY)?;
    let mut server = Server::new(service, options).context("cannot start the server")?;
    let (address, counters): (SocketAddr, Box<dyn Fn() -> Counters>) = match conveyance.version() {
        Some(version) => {
            let device = link
                .device(&DeviceChoice {
                    name: args.device.clone(),
                    registration: args.registration,
                    address: Some(args.listen),
                    resources: Resources::default(),
                })?
                .device;
            let mut options = RdmaServerOptions {
                versions: Versions::only(version),
                ..RdmaServerOptions::default()
            };
            conveyance.configure(&mut options.common, args.inline);
            options.common.costs = CostsArg::load(args.costs.as_ref())?.model();
            let mut port = RdmaServer::new(device, options);
            let address = port.listen(any_port).context(what)?;
            let port = Rc::new(RefCell::new(port));
            server
                .add_port(Rc::clone(&port) as Rc<RefCell<_>>)
                .context("cannot listen")?;
            (address, Box::new(move || port.borrow().counters()))
        }
        None => {
            let port = TcpServer::bind(any_port, link.tcp()).context(what)?;
            let address = port.local_addr();
            let port = Rc::new(RefCell::new(port));
            server
                .add_port(Rc::clone(&port) as Rc<RefCell<_>>)
                .context("cannot listen")?;
            (
                address,
                Box::new(move || tcp_counters(&port.borrow().counters())),
            )
        }
    };

    let control = Control::default();
    let (_, mut stop) = control.take();
    let orders = control.clone();
    thread::spawn(move || read_orders(|order| orders.give(order)));
    answer(&Listening { address })?;
    loop {
        server.run(&stop).map_err(Failure::work)?;
        // The next Stop is in place before the answer lets the parent send another order.
        let (order, next) = control.take();
        stop = next;
        match order {
            Some(Order::Usage) => answer(&Usage::now(&counters()))?,
            Some(Order::End) => return Ok(()),
            None => {}
        }
    }
}

fn answer(value: &impl Serialize) -> Result<(), Failure> {
    output::line(serde_json::to_string(value).map_err(Failure::work)?)
}

/// Hands on orders until there are no more: a parent that dies is an order to end.
fn read_orders(give: impl Fn(Order)) {
    for line in io::stdin().lock().lines() {
        match line.as_deref() {
            Ok(USAGE) => give(Order::Usage),
            Ok(other) => tracing::warn!(other, "unknown order"),
            Err(_) => break,
        }
    }
    give(Order::End);
}
