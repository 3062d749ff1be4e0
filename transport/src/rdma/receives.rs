//! Where the receives of a queue pair come from.

use rdma::Device;
use rpcrdma_connection::ReceiveStructure;

use super::own_receives::OwnReceives;
use super::receive_pool::ReceivePool;
use super::shared_use::SharedUse;

/// Where the receives of a queue pair come from.
#[derive(Debug)]
pub(super) enum Receives {
    /// The queue pair has its own.
    Own(OwnReceives),
    /// All connections of the driver share one pool.
    Shared(SharedUse),
}

impl Receives {
    /// Posts `count` further receives, or none. Returns whether there was memory for all. So many more of
    /// the receives in `pool` are promised, if they are shared; it decides when to post them.
    pub(super) fn post(
        &mut self,
        device: &mut dyn Device,
        pool: Option<&mut ReceivePool>,
        count: u32,
    ) -> bool {
        match self {
            Self::Own(own) => own.post(device, count),
            Self::Shared(shared) => {
                shared.promise(count);
                if let Some(pool) = pool {
                    pool.promise(device, count);
                }
                true
            }
        }
    }

    /// Stops the reposting of the next `count` consumed receives, or promises fewer of those in `pool`.
    pub(super) fn release(&mut self, pool: Option<&mut ReceivePool>, count: u32) {
        match self {
            Self::Own(own) => own.release(count),
            Self::Shared(shared) => {
                shared.withdraw(count);
                if let Some(pool) = pool {
                    pool.withdraw(count);
                }
            }
        }
    }

    /// Returns the number of shared receives that are promised to the peer.
    pub(super) fn promised(&self) -> u32 {
        match self {
            Self::Own(_) => 0,
            Self::Shared(shared) => shared.promised(),
        }
    }

    /// Replaces receives by those of another structure.
    pub(super) fn set(&mut self, structure: ReceiveStructure) {
        match self {
            Self::Own(own) => own.set(structure),
            Self::Shared(shared) => shared.set(structure),
        }
    }

    /// Returns the structure given to [`Receives::set`], once, as soon as no posted receive has an
    /// older one.
    pub(super) fn replaced(&mut self) -> Option<ReceiveStructure> {
        match self {
            Self::Own(own) => own.replaced(),
            Self::Shared(shared) => shared.replaced(),
        }
    }

    /// Returns whether `messages` find receives, wait for them, or the connection is ending anyway.
    pub(super) fn can_take(&self, messages: u32) -> bool {
        match self {
            Self::Own(own) => own.can_receive(messages),
            Self::Shared(_) => true,
        }
    }

    /// Returns the number of messages that have arrived completely in shared receives.
    pub(super) fn arrived(&self) -> u64 {
        match self {
            Self::Own(_) => 0,
            Self::Shared(shared) => shared.received(),
        }
    }

    /// Returns whether messages of this queue pair were copied out of shared receives, and hold memory
    /// that others wait for.
    pub(super) fn blocks_others(&self) -> bool {
        match self {
            Self::Own(_) => false,
            Self::Shared(shared) => shared.blocks_others(),
        }
    }

    /// Returns the number of bytes copied out of receives of this queue pair. Shared receives count
    /// them together.
    pub(super) fn copied(&self) -> u64 {
        match self {
            Self::Own(own) => own.copied(),
            Self::Shared(_) => 0,
        }
    }
}
