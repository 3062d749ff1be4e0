//! What clients and servers have in common.

use std::net::SocketAddr;

use bytes::Bytes;
use rdma::{Device, Event as DeviceEvent, QpId, Scatter, Time};
use rpcrdma_connection::{BEYOND_CREDITS, Config, Connection, Options};
use rpcrdma_host::Account;

use super::driver::{CallEvent, Driver, Link};
use super::queue_pair::QueuePair;
use super::timers::Timer;
use crate::ConnectionId;

/// A client or a server, which drives its connections alike.
pub(super) trait End {
    /// What the end reports to its owner.
    type Event: CallEvent;

    /// Returns the driver of the connections.
    fn driver(&mut self) -> &mut Driver<Self::Event>;

    /// Executes the actions of a connection, and handles its notices.
    fn run(&mut self, qp: QpId);

    /// Executes the actions of a connection for which the owner has just done something: at the end of the
    /// owner's turn, which is the next poll (at a client also a flush), if `together`, that is if several calls or
    /// replies can leave in one message ([`Connection::sends_together`]), and at once otherwise.
    #[inline]
    fn run_in_turn(&mut self, qp: QpId, together: bool) {
        match together {
            true => self.driver().wait_for_turn(qp),
            false => self.run(qp),
        }
    }

    /// Executes the actions that waited for the end of the owner's turn.
    #[cold]
    fn end_turn(&mut self) {
        while let Some(qp) = self.driver().next_of_turn() {
            self.run(qp);
        }
    }

    /// Handles every event except completions. It is a separate cold function, so that the code
    /// path of a call is short: after a system call little of it is in the L1 instruction cache.
    fn connection_changed(&mut self, event: DeviceEvent);

    /// Retries what waits for memory.
    fn retry(&mut self);

    /// Handles what the device has to report, and what is due. Returns whether there are events for
    /// the owner.
    fn progress(&mut self, now: Time) -> bool {
        if self.driver().is_in_turn() {
            self.driver().now = now;
            self.end_turn();
        }
        self.driver().poll(now);
        while let Some(event) = self.driver().next_device_event() {
            match event {
                DeviceEvent::Completion(completion) => {
                    if let Some(qp) = self.driver().completed(completion) {
                        self.run(qp);
                    }
                }
                other => self.connection_changed(other),
            }
        }
        while let Some(timer) = self.driver().expired() {
            match timer {
                Timer::Memory => self.retry(),
                Timer::GiveBack => self.driver().give_back(),
                Timer::Receives => self.driver().check_receives(),
                Timer::Progress => self.driver().check_progress(),
                Timer::Connection(qp) => {
                    self.driver().timed_out(qp);
                    self.run(qp);
                }
                Timer::Linger(qp) => self.driver().lingered(qp),
            }
        }
        // Also because of what was handled above.
        if self.driver().asked.any() {
            for qp in self.driver().ask_policies_again() {
                self.run(qp);
            }
        }
        !self.driver().events.is_empty()
    }
}

impl<E: CallEvent> Driver<E> {
    /// Returns the state of a connection over a queue pair that was made for it. `prepared` is
    /// memory for its first receives, if connections do not share receives.
    pub(super) fn link(
        &self,
        (conn, qp, peer): (ConnectionId, QpId, SocketAddr),
        mut config: Config,
        prepared: Vec<Scatter>,
        account: Option<Account>,
    ) -> Link {
        config.ask_again = Some(self.asked.handle(qp));
        let receives = self.receives(qp, &config.receives, prepared, account.as_ref());
        let capacity = self.device.attributes().max_send_wr;
        let queue = QueuePair::new(qp, capacity, receives, config.pool.clone());
        let mut link = Link::new(conn, peer, queue, Connection::new(config));
        link.account = account;
        link
    }

    /// Returns the maximum number of receives of one queue pair that are left for credits, after
    /// those that are posted beyond the credits ([`BEYOND_CREDITS`]).
    pub(super) fn most_receives(&self) -> u32 {
        let most = self.device.attributes().max_recv_wr;
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        most.saturating_sub(BEYOND_CREDITS)
    }
}

/// Returns the private data that an end sends (RFC 8797), or no bytes if it sends none.
pub(super) fn private_data(options: &Options) -> Bytes {
    let ours = options.private_data();
    ours.map_or_else(Bytes::new, |data| Bytes::copy_from_slice(&data.encode()))
}

/// The functions by which both ends tell what they do.
macro_rules! observed {
    () => {
        /// Returns the device.
        #[must_use]
        pub fn device(&self) -> &dyn rdma::Device {
            &*self.driver.device
        }

        /// Returns the counters of the device. `copied_bytes` includes [`Self::copied_bytes`].
        #[must_use]
        pub fn counters(&self) -> rdma::Counters {
            let mut counters = self.driver.device.counters();
            counters.copied_bytes += self.copied_bytes();
            counters
        }

        /// Returns the number of messages that only granted credits, sent on the connections that
        /// exist now (version-two-07, section 6.3.2). They are Sends as well.
        #[must_use]
        pub fn grants_sent(&self) -> u64 {
            self.driver.grants_sent()
        }

        /// Returns the number of bytes of receives that the present connections would use if each
        /// peer used all of its credits. Rounding by the pool is not included. Where connections
        /// share receives, less is posted while there is less traffic.
        #[must_use]
        pub fn receive_memory(&self) -> u64 {
            self.driver.receive_memory()
        }

        /// Returns the most bytes that receives have taken at a time, posted or with messages that were
        /// in use. It follows traffic where connections share receives; elsewhere it is
        /// [`Self::receive_memory`].
        #[must_use]
        pub fn receives_taken(&self) -> u64 {
            self.driver.receives_taken()
        }

        /// Returns the number of bytes that the transport has copied, without those that the device
        /// counts ([`rdma::Counters::copied_bytes`]). The number never decreases.
        #[must_use]
        pub fn copied_bytes(&self) -> u64 {
            self.driver.copied_bytes()
        }

        /// Returns how many of these bytes were copied to send a message, such as a long one that
        /// was assembled in memory that can be registered, on the connections that exist now. The
        /// others were copied out of receives.
        #[must_use]
        pub fn assembled_bytes(&self) -> u64 {
            self.driver.assembled_bytes()
        }
    };
}

pub(super) use observed;
