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
    /// Adds `count` receives for the peer. A queue pair's own receives are posted now, all or none; returns
    /// whether there was memory for them. Shared receives are promised: returns true, and `pool` decides when
    /// to post them.
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

    /// Takes `count` receives back from the peer: the next consumed ones are not reposted, or, if receives are
    /// shared, fewer are promised.
    pub(super) fn release(&mut self, pool: Option<&mut ReceivePool>, count: u32) {
        match self {
            Self::Own(own) => own.release(count),
            Self::Shared(shared) => {
                shared.withdraw(count);
                if let Some(pool) = pool {
                    pool.promise_fewer(count);
                }
            }
        }
    }

    /// Returns the number of messages that the peer may send at a time into shared receives.
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

    /// Returns whether `messages` will not be lost: enough receives are posted, or receives are shared (then
    /// senders wait for them), or the connection is ending anyway.
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

    /// Returns the number of bytes copied out of a queue pair's own receives. Copies out of shared receives are
    /// counted by the pool ([`ReceivePool::copied`]), and this returns 0.
    pub(super) fn copied(&self) -> u64 {
        match self {
            Self::Own(own) => own.copied(),
            Self::Shared(_) => 0,
        }
    }
}
