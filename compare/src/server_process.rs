//! The server in most processes that `compare` starts.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::process;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use nfs_binding::fs::MemoryFs;
use nfs_binding::proto::{NFS_PROGRAM, nfs};
use nfs_binding::server::{Export, ExportOptions, HandleKey, NfsServer, Squash};
use onc_rpc::Message;
use rdma::Pool;
use rpc_transport::rdma::{RdmaServer, RdmaServerOptions, Version, Versions};
use rpc_transport::{
    ProgramVersions, ReducedArguments, Request, Server, ServerOptions, Service, ServiceOutcome,
    TcpServer,
};
use rpcrdma_programs::{Beside, Probe};
use rpcrdma_setup::access::LinkOptions;
use rpcrdma_setup::catalog::{Catalog, Tuning};
use rpcrdma_setup::costs::CostsArg;
use rpcrdma_setup::device::{AnyDevice, DeviceChoice, Resources};
use rpcrdma_setup::{Context, Failure};

use crate::orders::{Order, Question, read_orders, serve_between_questions};
use crate::processor;
use crate::served::{Listening, Served, answer, congestion};
use crate::tcp_baseline;
use crate::usage::Usage;
use crate::variant::{Serves, Variant};

/// The path of the in-memory export.
const MEMORY_PATH: &str = "/memory";
/// The maximum size of the in-memory file system, in bytes.
const MEMORY: u64 = 1 << 30;

/// Runs the service that `args` describes until standard input ends, with the programs of
/// the catalog's workloads.
///
/// # Errors
/// `args` are invalid, or the work fails.
pub(crate) fn serve(args: &Served, catalog: &Catalog) -> Result<(), Failure> {
    let serves = Serves::parse(catalog, &args.serves);
    let unknown = || Failure::Usage(format!("{}: nothing that can be served", args.serves));
    let serves = serves.ok_or_else(unknown)?;
    if let Some(number) = args.processor {
        processor::pin(number)?;
    }
    let any_port = SocketAddr::new(args.listen, 0);
    let what = format_args!("cannot listen on {}", args.listen);
    let congestion = congestion(args.congestion.as_ref())?;
    let Serves::Nfs(variant) = serves else {
        let listener = TcpListener::bind(any_port).context(what)?;
        if let Some(congestion) = &congestion {
            congestion.set(&listener).context(what)?;
        }
        let address = listener.local_addr().context("cannot listen")?;
        thread::spawn(|| {
            read_orders(|order| {
                if order == Order::End {
                    process::exit(0);
                }
            });
        });
        answer(&Listening { address })?;
        return tcp_baseline::serve(&listener).context("the raw TCP server");
    };

    let link = LinkOptions {
        delay: args.delay,
        rate: args.rate,
        busy_poll: args.busy_poll,
        crc: args.crc,
        congestion,
    };
    let options = ServerOptions {
        busy_poll: args.busy_poll,
        ..ServerOptions::default()
    };
    let calls = Rc::new(RefCell::new(BTreeMap::new()));
    let others = catalog.workloads().iter();
    let others = others.filter_map(|workload| workload.service());
    let service = memory_service(MEMORY, Rc::clone(&calls), others.collect())?;
    let mut server = Server::new(service, options).context("cannot start the server")?;
    let (address, usage): (SocketAddr, Box<dyn Fn(u64) -> Usage>) = match variant.version() {
        Some(version) => {
            let (device, options) = rdma_parts(args, (variant, version), catalog, &link, None)?;
            let mut port = RdmaServer::new(device, options);
            let address = port.listen(any_port).context(what)?;
            let port = Rc::new(RefCell::new(port));
            server
                .add_transport(Rc::clone(&port) as Rc<RefCell<_>>)
                .context("cannot listen")?;
            let usage = move |waits| {
                let port = port.borrow();
                Usage {
                    receive_memory: port.receive_memory(),
                    receives_taken: port.receives_taken(),
                    ..Usage::now(&port.counters(), port.grants_sent(), waits)
                }
            };
            (address, Box::new(usage))
        }
        None => {
            let port = TcpServer::bind(any_port, link.tcp()).context(what)?;
            let address = port.local_addr();
            let port = Rc::new(RefCell::new(port));
            server
                .add_transport(Rc::clone(&port) as Rc<RefCell<_>>)
                .context("cannot listen")?;
            (
                address,
                Box::new(move |waits| Usage::now(&port.borrow().counters().as_device(), 0, waits)),
            )
        }
    };

    // It is not asked while it runs.
    let server = RefCell::new(server);
    serve_between_questions(
        address,
        |stop| server.borrow_mut().run(stop),
        |question| match question {
            Question::Usage => answer(&usage(server.borrow().system_calls())),
            Question::Procedures => answer(&*calls.borrow()),
            // Only gateways count them.
            Question::Trips => answer(&()),
        },
    )
}

/// Returns the device and the options of the responder that `args` describe, which speaks one version. `pool`: memory
/// that other transports have as well, if it is an iwarp device.
///
/// # Errors
/// A word of `args` is none of its option, or the device cannot be opened.
pub(crate) fn rdma_parts(
    args: &Served,
    (variant, version): (Variant, Version),
    catalog: &Catalog,
    link: &LinkOptions,
    pool: Option<Pool>,
) -> Result<(AnyDevice, RdmaServerOptions), Failure> {
    let odd = |error: String| Failure::Usage(format!("{}: {error}", args.serves));
    let device = link
        .device(&DeviceChoice {
            name: args.device.parse().map_err(odd)?,
            registration: args.registration.parse().map_err(odd)?,
            address: Some(args.listen),
            resources: Resources::default(),
            pool,
            // The client's side shows the same bytes, so there is no capture here.
            ..DeviceChoice::default()
        })?
        .device;
    let mut options = RdmaServerOptions {
        versions: Versions::only(version),
        ..RdmaServerOptions::new(rpcrdma_protocols::base())
    };
    let costs = args.costs.as_deref().map(CostsArg::parse).transpose();
    let costs = CostsArg::load(costs.map_err(odd)?.as_ref())?;
    let tuning = Tuning::parse(catalog.clone(), &args.tuning)?;
    variant.configure(&mut options.common, args.receives, &tuning);
    tuning.settings.apply_to_server(&mut options);
    let class = &device.attributes().costs;
    options.common.costs = costs.or_of(class).model();
    Ok((device, options))
}

/// Returns a service for measurements: NFS with one in-memory file system of at most `limit` bytes,
/// a program for calls of any length, and `others`. It neither squashes root nor requires reserved ports,
/// because its clients are started together with it, and those on verbs devices look like clients
/// on another host.
///
/// # Errors
/// The operating system provides no random numbers.
fn memory_service(
    limit: u64,
    calls: Calls,
    others: Vec<Box<dyn Service>>,
) -> Result<Box<dyn Service>, Failure> {
    let key = HandleKey::random().map_err(Failure::work)?;
    let options = ExportOptions {
        squash: Squash::None,
        secure: false,
        ..ExportOptions::default()
    };
    let fs = MemoryFs::new(limit).context("cannot make a file system in memory")?;
    let export = Export {
        path: MEMORY_PATH.to_owned(),
        backend: Arc::new(fs),
        options,
    };
    let service = NfsServer::new(vec![export], key).map_err(Failure::work)?;
    Ok(Box::new(Counted {
        service: Probe::new(Beside::new(service, others)),
        calls,
    }))
}

/// The number of calls of each procedure of NFS that has been called.
type Calls = Rc<RefCell<BTreeMap<&'static str, u64>>>;

/// A service whose NFS calls are counted.
struct Counted<S> {
    service: S,
    calls: Calls,
}

impl<S: Service> Service for Counted<S> {
    fn programs(&self) -> &[ProgramVersions] {
        self.service.programs()
    }

    fn call(&mut self, request: Request) -> ServiceOutcome {
        if request.prog == NFS_PROGRAM
            && let Some(name) = nfs::NAMES.get(request.proc as usize)
        {
            *self.calls.borrow_mut().entry(name).or_default() += 1;
        }
        self.service.call(request)
    }

    fn remember_reply(&self, prog: u32, vers: u32, proc: u32) -> bool {
        self.service.remember_reply(prog, vers, proc)
    }

    fn reduced_arguments(&self) -> ReducedArguments {
        self.service.reduced_arguments()
    }

    fn has_changed(&self, prog: u32, vers: u32, proc: u32, results: &Message) -> bool {
        self.service.has_changed(prog, vers, proc, results)
    }
}
