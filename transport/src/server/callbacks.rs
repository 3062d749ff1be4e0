//! Calls from this server to its clients (reverse direction, RFC 8167).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use onc_rpc::{Credential, Message};
use rdma::{IdMap, Time};

use super::Server;
use crate::backchannel::{CallbackResult, Completion, ConnKey, Mailbox, Submitted};
use crate::client_state::open_reply;
use crate::poll_loop::Wake;
use crate::{Backchannel, CallError};

/// A callback that has not ended.
struct Pending {
    done: Completion,
    started: Time,
    due: Time,
}

/// The outstanding callbacks of one connection.
#[derive(Default)]
struct Table {
    /// The XID of the latest callback. XIDs of the two directions are independent (section 2.4.1).
    last_xid: u32,
    pending: IdMap<u32, Pending>,
}

impl Table {
    /// Returns an XID that no outstanding callback has (section 5.1).
    fn next_xid(&mut self) -> u32 {
        loop {
            self.last_xid = self.last_xid.wrapping_add(1);
            if self.last_xid != 0 && !self.pending.contains_key(&self.last_xid) {
                return self.last_xid;
            }
        }
    }
}

/// The outstanding callbacks of a server.
pub(super) struct Callbacks {
    mailbox: Arc<Mailbox>,
    tables: HashMap<ConnKey, Table>,
    /// The time-outs of callbacks. The number distinguishes callbacks with the same deadline.
    due: BTreeMap<(Time, u64), (ConnKey, u32)>,
    serial: u64,
    pending: usize,
}

impl Callbacks {
    pub(super) fn new(wake: Arc<Wake>) -> Self {
        Self {
            mailbox: Arc::new(Mailbox::new(wake)),
            tables: HashMap::new(),
            due: BTreeMap::new(),
            serial: 0,
            pending: 0,
        }
    }

    /// Returns the number of outstanding callbacks.
    pub(super) fn pending(&self) -> usize {
        self.pending
    }

    /// Returns the earliest time-out.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    fn take(&mut self, place: ConnKey, xid: u32) -> Option<Pending> {
        let pending = self.tables.get_mut(&place)?.pending.remove(&xid)?;
        self.pending -= 1;
        // Other callbacks with the same deadline have other numbers.
        let mut same = self.due.range((pending.due, 0)..=(pending.due, u64::MAX));
        let key = same
            .find(|(_, call)| **call == (place, xid))
            .map(|(key, _)| *key);
        if let Some(key) = key {
            self.due.remove(&key);
        }
        Some(pending)
    }
}

impl Drop for Callbacks {
    fn drop(&mut self) {
        self.mailbox.close();
    }
}

impl Server {
    /// Creates the handle to a client that has just connected.
    pub(super) fn callee(&self, place: ConnKey, peer: std::net::SocketAddr) -> Option<Backchannel> {
        let callbacks = self.callbacks.as_ref()?;
        Some(Backchannel::new(&callbacks.mailbox, place, peer))
    }

    /// Sends the calls that were submitted since the last time.
    #[inline(never)]
    pub(super) fn start_callbacks(&mut self, now: Time) {
        // Calls in progress may wait for others' callbacks. No other callback may delay the end of this server.
        let ends = self.draining && self.has_answered();
        let Some(callbacks) = &self.callbacks else {
            return;
        };
        for submitted in callbacks.mailbox.take() {
            if ends {
                let reason = "this server is ending".to_owned();
                submitted.done.end(Err(CallError::Disconnected { reason }));
                continue;
            }
            self.start_callback(submitted, now);
        }
    }

    fn start_callback(&mut self, submitted: Submitted, now: Time) {
        let Submitted {
            place,
            call,
            limit,
            done,
        } = submitted;
        let (transport, conn) = place;
        let (Some(callbacks), Some(transport)) =
            (&mut self.callbacks, self.transports.get(transport))
        else {
            return;
        };
        if !transport.peers.contains_key(&conn) {
            let reason = "the connection has ended".to_owned();
            return done.end(Err(CallError::Disconnected { reason }));
        }
        let table = callbacks.tables.entry(place).or_default();
        let xid = table.next_xid();
        // The client knows the server by the connection that it established, so callbacks carry no
        // credential.
        let (message, room) = call.into_message(xid, Credential::None);
        self.stats.callbacks += 1;
        let sent = transport
            .transport
            .borrow_mut()
            .call(conn, xid, message, &room, now);
        match sent {
            Ok(()) => {
                let due = now + limit;
                let pending = Pending {
                    done,
                    started: now,
                    due,
                };
                table.pending.insert(xid, pending);
                callbacks.serial += 1;
                callbacks.due.insert((due, callbacks.serial), (place, xid));
                callbacks.pending += 1;
            }
            Err(error) => done.end(Err(error)),
        }
    }

    /// Ends a callback: the client replied, or the transport reports that no reply will come.
    #[inline(never)]
    pub(super) fn callback_ended(
        &mut self,
        place: ConnKey,
        xid: u32,
        ended: Result<Message, CallError>,
        now: Time,
    ) {
        let pending = self
            .callbacks
            .as_mut()
            .and_then(|callbacks| callbacks.take(place, xid));
        let Some(Pending { done, started, .. }) = pending else {
            tracing::debug!(xid, "dropped a reply to a callback that nobody waits for");
            return;
        };
        let ending = ended.and_then(|message| open_reply(message, now - started));
        self.tell(done, ending);
    }

    fn tell(&mut self, done: Completion, ending: CallbackResult) {
        match &ending {
            Ok(_) => self.stats.callback_replies += 1,
            Err(error) => tracing::debug!(%error, "callback ended"),
        }
        done.end(ending);
    }

    /// Ends callbacks that have timed out.
    #[inline(never)]
    pub(super) fn end_overdue(&mut self, now: Time) {
        while let Some(callbacks) = &mut self.callbacks
            && let Some((&(at, _), &(place, xid))) = callbacks.due.first_key_value()
            && at <= now
        {
            let Some(pending) = callbacks.take(place, xid) else {
                callbacks.due.pop_first();
                continue;
            };
            let (transport, conn) = place;
            let transport = &self.transports[transport];
            transport.transport.borrow_mut().cancel_call(conn, xid);
            let peer = transport
                .peers
                .get(&conn)
                .map(|peer| peer.address.to_string());
            let error = CallError::TimedOut {
                server: peer.unwrap_or_default(),
                after: now - pending.started,
            };
            self.tell(pending.done, Err(error));
        }
    }

    /// Ends all callbacks of a connection that has ended.
    pub(super) fn end_callbacks(&mut self, place: ConnKey, reason: &str) {
        let Some(callbacks) = &mut self.callbacks else {
            return;
        };
        let Some(table) = callbacks.tables.get(&place) else {
            return;
        };
        let mut xids: Vec<u32> = table.pending.keys().copied().collect();
        xids.sort_unstable();
        let ended: Vec<Pending> = xids
            .into_iter()
            .filter_map(|xid| callbacks.take(place, xid))
            .collect();
        callbacks.tables.remove(&place);
        for Pending { done, .. } in ended {
            let reason = reason.to_owned();
            self.tell(done, Err(CallError::Disconnected { reason }));
        }
    }
}
