//! Finding and opening the device.

use std::net::SocketAddr;
use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::field::display;

use super::caps::{self, Capabilities, Kind};
use super::cm::{EventChannel, Id};
use super::context::{Context, set_nonblocking};
use super::device::{Parts, RdmaCore};
use super::memory::{Arenas, Domain, memory_hint};
use super::objects::{Channel, Pd};
use super::random::Keys;
use super::regions::Policy;
use super::report::memlock;
use super::siblings::Membership;
use super::{OpenError, Options, Registration, sys};
use rdma::{Attributes, ClassCosts, Pool, SharedReceives, WhenEmpty};
use rpcrdma_host::LoopSeat;

/// Number of entries of a send queue: the program's requests, and as many window bindings.
const SEND_WR: u32 = 256;
const SEND_QUEUE: u32 = 2 * SEND_WR;
const RECV_WR: u32 = 512;
const GATHER: u32 = 16;
/// Maximum number of elements of a receive.
const SCATTER: u32 = 32;
/// Maximum number of receives of a shared receive queue. Memory for all of them is set aside when
/// the queue is created, in the device and in its completion queue: 4 MiB on rxe, where a receive
/// takes 512 bytes. Devices round up to a power of two, some of them after adding one.
const SHARED_WR: u32 = 8191;
/// Maximum length in bytes of a region, whatever the device allows.
const REGION: u64 = 1 << 30;
/// Maximum length in bytes of private data in a connection request. InfiniBand's CM has 92
/// bytes, of which rdma_cm takes 36. iWARP has 508, but the interface has 8 bits for the length.
const PRIVATE_DATA_IB: usize = 56;
const PRIVATE_DATA_IWARP: usize = 255;
/// Length in bytes of a first registration, for a test.
const TRIAL: usize = 4096;

/// Opens a device.
///
/// # Errors
/// [`OpenError`], which says what is missing: the libraries, the device, a requested capability, or
/// locked memory.
pub fn open(options: &Options) -> Result<RdmaCore, OpenError> {
    let libraries = sys::library()?;
    let cm = Arc::new(EventChannel::new(libraries).map_err(OpenError::Cm)?);
    let context = Arc::new(find(libraries, &cm, options)?);
    let device = context.name();
    let system = |what| {
        let device = device.clone();
        move |source| OpenError::System {
            device,
            what,
            source,
        }
    };
    let capabilities = caps::query(&context).map_err(system("cannot ask what it can do"))?;
    let registration = options.registration.unwrap_or(capabilities.best());
    if !capabilities.can(registration) {
        return Err(OpenError::Unsupported {
            device,
            what: format!("registration by {registration}"),
        });
    }
    set_nonblocking(context.async_fd()).map_err(system("its events cannot be waited for"))?;
    let membership = Membership::join(&context, &cm, options.seat.clone());
    let membership = membership.map_err(system("no descriptor for events"))?;
    raise_memlock();
    let seat = options.seat.as_ref();
    let channel = Channel::new(&context, seat.map_or(0, LoopSeat::index))
        .map_err(system("no completion channel"))?;
    // A window is bound to a queue pair. Other registrations are protected by separate protection
    // domains.
    let shares = registration == Registration::Windows && capabilities.kind != Kind::Iwarp;
    let domain = || Pd::new(&context).map(Domain::new);
    let shared = match shares {
        true => Some(Arc::new(domain().map_err(system("no protection domain"))?)),
        false => None,
    };
    let access = match registration {
        Registration::Windows => sys::IBV_ACCESS_LOCAL_WRITE | sys::IBV_ACCESS_MW_BIND,
        _ => sys::IBV_ACCESS_LOCAL_WRITE,
    };
    let arenas = Arc::new(Arenas::new(shared.clone(), access));
    let pool = Pool::with_registrar(options.memory, arenas.clone());
    // Registration fails now, and not when the first call needs memory, if memory cannot be
    // registered.
    let trial = pool.alloc(TRIAL);
    let refused = arenas.refused();
    let result = match (&trial, refused) {
        (_, Some(error)) => Err(error),
        (Ok(buf), None) if !shares => {
            let domain = domain().map_err(system("no protection domain"))?;
            let key = arenas.key(&domain, buf.as_ptr(), TRIAL);
            arenas.leave(&domain);
            key.map(drop)
        }
        _ => Ok(()),
    };
    if let Err(source) = result {
        return Err(OpenError::Memory {
            device,
            len: TRIAL,
            hint: memory_hint(&source),
            source,
        });
    }
    drop(trial);
    let attributes = attributes(&device, &capabilities, registration);
    Ok(RdmaCore::new(Parts {
        policy: Policy {
            registration,
            invalidate_by_request: capabilities.kind != Kind::Rxe,
            exact_windows: capabilities.kind == Kind::Rxe,
            arenas,
            pool,
            keys: Keys::new(),
            max_region: attributes.max_region,
        },
        send_queue: SEND_QUEUE.min(capabilities.max_qp_wr).max(2),
        options: options.clone(),
        context,
        membership,
        cm,
        channel: Arc::new(channel),
        domain: shared,
        capabilities,
        attributes,
    }))
}

fn attributes(device: &str, can: &Capabilities, registration: Registration) -> Attributes {
    let count = |n: u32| n as usize;
    let shares =
        can.shares_receives() && (can.kind != Kind::Rxe || registration == Registration::Windows);
    // One limit for both kinds of receive queues, because the device model has only one.
    let scatter = match shares {
        true => SCATTER.min(can.max_srq_sge),
        false => SCATTER,
    };
    let longest = REGION.min(can.max_mr_size).min(u64::from(can.max_message));
    Attributes {
        name: format!("verbs:{device} ({}, {registration})", can.kind.name()),
        max_send_wr: count(SEND_WR.min(can.max_qp_wr / 2).max(1)),
        max_recv_wr: count(RECV_WR.min(can.max_qp_wr).max(1)),
        max_gather: count(GATHER.min(can.max_sge).max(1)),
        max_scatter: count(scatter.min(can.max_sge).max(1)),
        max_region: usize::try_from(longest).unwrap_or(usize::MAX),
        max_inbound_reads: can.max_inbound_reads.min(254),
        max_outbound_reads: can.max_outbound_reads.min(254),
        max_private_data: match can.kind.is_iwarp() {
            true => PRIVATE_DATA_IWARP,
            false => PRIVATE_DATA_IB,
        },
        remote_invalidation: can.remote_invalidation(registration),
        // rxe needs one protection domain for all connections of a shared receive queue
        // (`shared.rs`), which without windows would let each reach the memory of the others.
        shared_receives: shares.then(|| SharedReceives {
            max_wr: count(SHARED_WR.min(can.max_srq_wr).min(can.max_cqe).max(1)),
            when_empty: match can.kind {
                Kind::Siw | Kind::Iwarp => WhenEmpty::EndsConnection,
                Kind::Rxe => WhenEmpty::MayEndConnection,
                Kind::Adapter => WhenEmpty::Waits,
            },
        }),
        // Linux refuses writes to the connection manager's file (EACCES) unless the thread has the
        // credentials object with which it was opened (`ucma_write`). Each change installs another one,
        // and changing back does not bring the first one back.
        keeps_credentials: true,
        costs: match can.kind {
            Kind::Rxe | Kind::Siw => ClassCosts::software(),
            Kind::Iwarp | Kind::Adapter => ClassCosts::default(),
        },
    }
}

/// Finds the requested device.
fn find(
    libraries: &'static sys::Libraries,
    cm: &Arc<EventChannel>,
    options: &Options,
) -> Result<Context, OpenError> {
    let search = |wanted: &mut dyn FnMut(&Context) -> bool| {
        Context::find(libraries, wanted).map_err(OpenError::Cm)
    };
    let mut names = Vec::new();
    let found = if let Some(name) = &options.device {
        search(&mut |context| {
            names.push(context.name());
            context.name() == *name
        })?
    } else if let Some(address) = options.address {
        let id = Id::new(cm).map_err(OpenError::Cm)?;
        let bound = id.bind(SocketAddr::new(address, 0));
        if let Err(error) = bound {
            return Err(OpenError::NoDevice(format!(
                " has address {address}: {error}"
            )));
        }
        search(&mut |context| context.raw() == id.context())?
    } else {
        search(&mut |context| {
            names.push(context.name());
            let port = context.query().map(|(_, port)| port.state);
            port.is_ok_and(|state| state == sys::IBV_PORT_ACTIVE)
        })?
    };
    found.ok_or_else(|| {
        let asked = match (&options.device, options.address) {
            (Some(name), _) => format!(" named {name}"),
            (None, Some(address)) => format!(" has address {address}"),
            (None, None) if names.is_empty() => String::new(),
            (None, None) => " has an active port".to_owned(),
        };
        let there = match names.is_empty() {
            true => String::new(),
            false => format!("; there is {}", names.join(", ")),
        };
        OpenError::NoDevice(asked + &there)
    })
}

/// Raises the limit on locked memory as far as the process may, because devices need much locked
/// memory.
fn raise_memlock() {
    let limit = getrlimit(Resource::Memlock);
    if limit.current != limit.maximum {
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        let result = setrlimit(Resource::Memlock, raised);
        let error = result.err().map(display);
        let soft = memlock().soft;
        tracing::debug!(error, soft, "raised the limit on locked memory");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn able(kind: Kind) -> Capabilities {
        Capabilities {
            kind,
            max_qp_wr: 1 << 15,
            max_qp: 1 << 10,
            max_cqe: 1 << 12,
            max_sge: 64,
            max_sge_rd: 1,
            max_mr: 1 << 10,
            max_mr_size: u64::MAX,
            max_mw: 1 << 10,
            max_inbound_reads: 16,
            max_outbound_reads: 16,
            max_srq: 8,
            max_srq_wr: 1 << 20,
            max_srq_sge: 27,
            max_message: 1 << 31,
            windows_2b: true,
            windows_2a: false,
            invalidation: true,
        }
    }

    #[test]
    fn what_an_empty_shared_receive_queue_does_depends_on_the_transport() {
        let empty = |kind| {
            let found = attributes("one", &able(kind), Registration::Windows);
            found.shared_receives.map(|shared| shared.when_empty)
        };
        assert_eq!(empty(Kind::Adapter), Some(WhenEmpty::Waits));
        assert_eq!(empty(Kind::Rxe), Some(WhenEmpty::MayEndConnection));
        assert_eq!(empty(Kind::Siw), Some(WhenEmpty::EndsConnection));
        assert_eq!(empty(Kind::Iwarp), Some(WhenEmpty::EndsConnection));
    }

    #[test]
    fn shared_receive_queues_keep_within_every_limit_of_the_device() {
        let found = attributes("one", &able(Kind::Adapter), Registration::PerCall);
        // That of the completion queue, which must hold a completion for each receive.
        assert_eq!(found.shared_receives.unwrap().max_wr, 1 << 12);
        assert_eq!(found.max_scatter, 27);
        let none = Capabilities {
            max_srq: 0,
            ..able(Kind::Adapter)
        };
        let found = attributes("one", &none, Registration::PerCall);
        assert_eq!((found.shared_receives, found.max_scatter), (None, 32));
    }

    #[test]
    fn connections_of_rxe_do_not_share_a_domain_without_windows() {
        let shared = |registration| {
            let found = attributes("one", &able(Kind::Rxe), registration);
            found.shared_receives
        };
        assert!(shared(Registration::Windows).is_some());
        assert_eq!(shared(Registration::PerCall), None);
        assert_eq!(shared(Registration::PersistentUnsafe), None);
    }
}
