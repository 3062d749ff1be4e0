//! The capabilities of a device, and the registration strategies that follow from them.

use std::collections::HashMap;
use std::io;

use super::Registration;
use super::context::Context;
use rdma_core_sys::{self as sys, Libraries};

/// `RXE_VENDOR_ID` of the kernel's `rdma_rxe`.
const VENDOR_RXE: u32 = 0x00ff_ffff;
/// `SIW_VENDOR_ID` of the kernel's `siw`: "bmt".
const VENDOR_SIW: u32 = 0x0062_6d74;

/// The kind of a device, as far as this crate treats kinds differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Soft RoCE: `rdma_rxe`.
    Rxe,
    /// Soft iWARP: `siw`.
    Siw,
    /// An RDMA NIC that implements iWARP.
    Iwarp,
    /// A channel adapter: InfiniBand or RoCE.
    Adapter,
}

impl Kind {
    /// Returns a description of the kind.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rxe => "rxe (soft RoCE)",
            Self::Siw => "siw (soft iWARP)",
            Self::Iwarp => "iWARP",
            Self::Adapter => "InfiniBand or RoCE",
        }
    }

    /// Returns whether its connections are TCP connections.
    #[must_use]
    pub const fn is_iwarp(self) -> bool {
        matches!(self, Self::Siw | Self::Iwarp)
    }
}

/// The limits and capabilities of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Kind of the device.
    pub kind: Kind,
    /// Maximum number of outstanding work requests of a queue.
    pub max_qp_wr: u32,
    /// Maximum number of queue pairs.
    pub max_qp: u32,
    /// Maximum number of entries of a completion queue.
    pub max_cqe: u32,
    /// Maximum number of elements of a gather or scatter list.
    pub max_sge: u32,
    /// Maximum number of elements of the sink of an RDMA Read.
    pub max_sge_rd: u32,
    /// Maximum number of memory registrations.
    pub max_mr: u32,
    /// Maximum length in bytes of a registration.
    pub max_mr_size: u64,
    /// Maximum number of memory windows.
    pub max_mw: u32,
    /// Maximum number of RDMA Reads that a peer may have outstanding (IRD).
    pub max_inbound_reads: u32,
    /// Maximum number of RDMA Reads that this side may have outstanding (ORD).
    pub max_outbound_reads: u32,
    /// Maximum number of shared receive queues; zero if the device has none.
    pub max_srq: u32,
    /// Maximum number of outstanding receives of a shared receive queue.
    pub max_srq_wr: u32,
    /// Maximum number of elements of a receive in a shared receive queue.
    pub max_srq_sge: u32,
    /// Maximum length in bytes of a message on the first port.
    pub max_message: u32,
    /// Whether the device supports memory windows of type 2B, associated with queue pair and
    /// protection domain.
    pub windows_2b: bool,
    /// Whether the device supports memory windows of type 2A, associated with the queue pair alone.
    pub windows_2a: bool,
    /// Whether its queue pairs support local invalidation and Send With Invalidate.
    pub invalidation: bool,
}

impl Capabilities {
    /// Returns whether the device supports a registration strategy.
    #[must_use]
    pub const fn can(&self, registration: Registration) -> bool {
        match registration {
            Registration::Windows => (self.windows_2b || self.windows_2a) && self.invalidation,
            Registration::PerCall | Registration::PersistentUnsafe => true,
        }
    }

    /// Returns the supported registration strategies, the best first.
    pub fn registrations(&self) -> impl Iterator<Item = Registration> + '_ {
        let all = Registration::ALL.into_iter();
        all.filter(|&registration| self.can(registration))
    }

    /// Returns the default registration strategy.
    #[must_use]
    pub const fn best(&self) -> Registration {
        if self.can(Registration::Windows) {
            Registration::Windows
        } else {
            Registration::PerCall
        }
    }

    /// Returns whether the device has shared receive queues.
    #[must_use]
    pub const fn shares_receives(&self) -> bool {
        self.max_srq > 0 && self.max_srq_wr > 0 && self.max_srq_sge > 0
    }

    /// Returns whether a peer's Send With Invalidate can invalidate a registration of this
    /// strategy, *and* the completion reports it to this side.
    ///
    /// That is not so for a plain memory registration: rxe and adapters refuse to invalidate one
    /// that was made by a process, and end the connection; siw invalidates it, but its library does
    /// not report which one it was.
    #[must_use]
    pub const fn remote_invalidation(&self, registration: Registration) -> bool {
        matches!(registration, Registration::Windows) && self.can(registration)
    }
}

/// Queries the capabilities of an open device.
pub(super) fn query(context: &Context) -> io::Result<Capabilities> {
    let (attr, port) = context.query()?;
    let count = |n: i32| u32::try_from(n).unwrap_or(0);
    let has = |flag| attr.device_cap_flags & flag != 0;
    let kind = match (context.is_iwarp(), attr.vendor_id) {
        (true, VENDOR_SIW) => Kind::Siw,
        (true, _) => Kind::Iwarp,
        (false, VENDOR_RXE) => Kind::Rxe,
        (false, _) => Kind::Adapter,
    };
    Ok(Capabilities {
        kind,
        max_qp_wr: count(attr.max_qp_wr),
        max_qp: count(attr.max_qp),
        max_cqe: count(attr.max_cqe),
        max_sge: count(attr.max_sge),
        max_sge_rd: count(attr.max_sge_rd),
        max_mr: count(attr.max_mr),
        max_mr_size: attr.max_mr_size,
        max_mw: count(attr.max_mw),
        max_inbound_reads: count(attr.max_qp_rd_atom),
        max_outbound_reads: count(attr.max_qp_init_rd_atom),
        max_srq: count(attr.max_srq),
        max_srq_wr: count(attr.max_srq_wr),
        max_srq_sge: count(attr.max_srq_sge),
        max_message: port.max_msg_sz,
        windows_2b: has(sys::IBV_DEVICE_MEM_WINDOW_TYPE_2B),
        windows_2a: has(sys::IBV_DEVICE_MEM_WINDOW_TYPE_2A),
        invalidation: has(sys::IBV_DEVICE_MEM_MGT_EXTENSIONS),
    })
}

/// Returns the capabilities of all devices for which the library has a provider, by name.
pub(super) fn of_all(
    libraries: &'static Libraries,
) -> HashMap<String, Result<Capabilities, String>> {
    let all = Context::open_all(libraries).unwrap_or_default().into_iter();
    let all = all.map(|(name, context)| {
        let found = match &context {
            Some(context) => query(context).map_err(|error| error.to_string()),
            None => Err("it cannot be opened (is its node in /dev/infiniband yours?)".to_owned()),
        };
        (name, found)
    });
    all.collect()
}
