//! The receives of a driver's connections: their own, or those that all share.

use rdma::{Device, DeviceError, Failed, PoolExhausted, QpId, Scatter, SharedReceivesId, Success};
use rpcrdma_connection::{Config, ReceiveStructure};
use rpcrdma_host::Account;

use super::super::own_receives::{OwnReceives, alloc_all};
use super::super::receive_pool::{ReceivePool, shares_receives};
use super::super::receives::Receives;
use super::super::shared_use::SharedUse;
use super::super::slow_senders;
use super::super::timers::Timer;
use super::{CallEvent, Driver, Link};

/// The number of receives that the peer of a connection may use: at present, and at most so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Receivable {
    now: u32,
    /// The most that there were at a time.
    most: u32,
}

impl Receivable {
    pub(super) fn add(&mut self, count: u32) {
        self.now = self.now.saturating_add(count);
        self.most = self.most.max(self.now);
    }

    pub(super) fn subtract(&mut self, count: u32) {
        self.now = self.now.saturating_sub(count);
    }
}

impl Link {
    /// Returns the number of receives that the connection has for itself, and their bytes.
    pub(in crate::rdma) fn own_receives(&self) -> (u64, u64) {
        let Receives::Own(own) = &self.queue.receives else {
            return (0, 0);
        };
        let count = u64::from(self.receivable.now);
        (count, count.saturating_mul(own.structure().size() as u64))
    }
}

impl<E: CallEvent> Driver<E> {
    /// Returns whether connections share receives.
    pub(in crate::rdma) fn shares_receives(&self) -> bool {
        shares_receives(self.device.attributes())
    }

    /// Returns the shared receive queue for a new connection, or `None` if connections have
    /// receives of their own. Shared receives have this structure, and all together take at most
    /// `limit` bytes.
    ///
    /// # Errors
    /// There is no memory for receives, or the device refuses the queue.
    pub(in crate::rdma) fn shared_receives(
        &mut self,
        structure: impl FnOnce() -> ReceiveStructure,
        limit: usize,
    ) -> Result<Option<SharedReceivesId>, DeviceError> {
        match &mut self.pool {
            Some(pool) => pool.set_limit(&*self.device, limit),
            None if shares_receives(self.device.attributes()) => {
                self.pool = Some(ReceivePool::new(&mut *self.device, structure(), limit)?);
            }
            None => {}
        }
        Ok(self.pool.as_ref().map(ReceivePool::id))
    }

    /// Allocates the first receives of a new connection, or none where connections share receives
    /// ([`Driver::shared_receives`], which is called before).
    ///
    /// # Errors
    /// There is no memory for all of them.
    pub(in crate::rdma) fn first_receives(
        &self,
        config: &Config,
    ) -> Result<Vec<Scatter>, PoolExhausted> {
        let count = match &self.pool {
            Some(_) => 0,
            None => config.first_receives() as usize,
        };
        alloc_all(self.device.pool(), &config.receives, count)
    }

    /// Returns the receive state of a new queue pair. `structure` is what its peer is told, and
    /// `prepared` what [`Driver::first_receives`] returned, or nothing. With an account (at a server), the
    /// messages of the connection are limited to its share of shared receives and of the account's budget.
    pub(in crate::rdma) fn receives(
        &self,
        qp: QpId,
        structure: &ReceiveStructure,
        prepared: Vec<Scatter>,
        account: Option<&Account>,
    ) -> Receives {
        let structure = structure.clone();
        match &self.pool {
            Some(pool) => Receives::Shared(SharedUse::new(structure, pool.longest(), account)),
            None => Receives::Own(OwnReceives::new(qp, structure, prepared)),
        }
    }

    /// Returns the bytes of the receives of all connections if their peers use all that they ever could
    /// at a time.
    pub(in crate::rdma) fn receive_memory(&self) -> u64 {
        let links = self.links.values();
        links
            .map(|link| {
                let each = match (&link.queue.receives, &self.pool) {
                    (Receives::Own(own), _) => own.structure().size(),
                    (Receives::Shared(_), Some(pool)) => pool.structure().size(),
                    (Receives::Shared(_), None) => 0,
                };
                u64::from(link.receivable.most).saturating_mul(each as u64)
            })
            .sum()
    }

    /// Returns the number of shared receives that are posted.
    pub(in crate::rdma) fn shared_receives_now(&self) -> u64 {
        let pool = self.pool.as_ref();
        pool.map_or(0, |it| self.device.posted_shared_receives(it.id()) as u64)
    }

    /// Returns the bytes of shared receives, posted or with messages that are in use.
    pub(in crate::rdma) fn shared_receive_bytes(&self) -> u64 {
        self.pool.as_ref().map_or(0, |it| it.held() as u64)
    }

    /// Returns the most bytes that receives took at a time. Where connections have receives of their own,
    /// these are those of the present connections.
    pub(in crate::rdma) fn receives_taken(&self) -> u64 {
        if !self.shares_receives() {
            return self.receive_memory();
        }
        let now = self.pool.as_ref().map_or(0, ReceivePool::taken);
        now.max(self.taken) as u64
    }

    /// Handles [`rdma::Event::SharedReceivesLow`].
    pub(in crate::rdma) fn receives_low(&mut self) {
        if let Some(pool) = &mut self.pool {
            pool.note_low();
        }
    }

    /// Posts shared receives that could not be posted before, and considers their number.
    pub(in crate::rdma) fn check_receives(&mut self) {
        if let Some(pool) = &mut self.pool {
            let freed = pool.check(&mut *self.device, self.now);
            self.note_freed(freed);
            self.check_slow_senders();
            self.plan_receives();
        }
    }

    /// Ends connections whose message in progress takes too long while others may need receives.
    fn check_slow_senders(&mut self) {
        let Some(pool) = &self.pool else { return };
        if !pool.is_tight() {
            return self.slow_senders.clear();
        }
        if !self.slow_senders.is_due(self.now) {
            return;
        }
        let mut receiving = Vec::new();
        self.device.receiving(pool.id(), &mut receiving);
        let links = &mut self.links;
        let begun = receiving.into_iter().filter_map(|qp| {
            let link = links.get(&qp).filter(|link| !link.phase.is_closing())?;
            Some((qp, link.queue.receives.arrived()))
        });
        let slow = self.slow_senders.check(self.now, begun);
        for qp in slow {
            if let Some(link) = links.get_mut(&qp) {
                let limit = slow_senders::LIMIT;
                let reason = format!("a message not complete within {limit:?}, in others' way");
                link.fail(&mut *self.device, reason);
            }
        }
    }

    fn plan_receives(&mut self) {
        if let Some(pool) = &mut self.pool
            && let Some(at) = pool.plan(self.now)
        {
            self.timers.set(at, Timer::Receives);
        }
    }

    /// Posts receives in place of consumed ones whose messages have been handled.
    #[inline]
    pub(super) fn repost(&mut self) {
        if self.pool.as_ref().is_some_and(ReceivePool::wants_fill) {
            self.fill();
        }
        if !self.reposting.is_empty() {
            self.repost_own();
        }
    }

    /// Posts shared receives, or frees all if there is no connection left.
    pub(super) fn fill(&mut self) {
        let Some(pool) = &mut self.pool else { return };
        if self.links.is_empty() {
            match pool.close(&mut *self.device) {
                Ok(()) => {
                    self.copied += pool.copied();
                    self.taken = self.taken.max(pool.taken());
                    self.pool = None;
                    return;
                }
                Err(error) => tracing::debug!(%error, "shared receives not freed"),
            }
        }
        debug_assert_eq!(
            pool.promised(),
            (self.links.values())
                .map(|link| link.queue.receives.promised() as usize)
                .sum(),
            "what is promised to all connections"
        );
        pool.fill(&mut *self.device);
        if self.links.is_empty() {
            // Tried again at the next event.
            pool.connection_ended();
        }
        self.plan_receives();
    }

    fn repost_own(&mut self) {
        let Self {
            reposting,
            links,
            device,
            ..
        } = self;
        reposting.retain(|qp| {
            let link = links.get_mut(qp);
            let receives = link.map(|link| &mut link.queue.receives);
            let Some(Receives::Own(own)) = receives else {
                return false;
            };
            own.repost(&mut **device);
            own.has_to_repost()
        });
    }
}

/// Returns the receive of an unhandled completion to the pool. Receives of a queue pair's own are
/// dropped.
#[cold]
pub(super) fn ignore(
    device: &mut dyn Device,
    pool: Option<&mut ReceivePool>,
    result: Result<Success, Failed>,
) {
    let receive = match result {
        Ok(Success::Receive { buf, .. }) => Some(buf),
        Ok(_) => None,
        Err(failed) => failed.buf,
    };
    if let (Some(pool), Some(receive)) = (pool, receive) {
        pool.ignore(device, receive);
    }
}
