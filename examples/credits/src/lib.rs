//! An example of a policy of granting credits that sees all connections: a server has credits for some
//! calls, and shares them among the clients that make calls. By default a server grants each client as
//! much as there are receives for, so that what is on its way to the server, and the memory for receives,
//! grow with the number of clients. With this policy they do not, because calls wait at their clients.
//!
//! - The clients are those that have made the last calls. How many calls are in progress says little: a
//!   server that answers at once has none, while many wait for its processor where no policy sees them.
//! - A client whose calls take long is told nothing by replies meanwhile. When another one has no calls
//!   left, and so the queue has room, the policy has that client's connection asked again ([`AskAgain`]):
//!   in a version with messages that only grant credits, it gets the room at once.
//!
//! The policy knows all connections, under one lock, and looks through them whenever a client has no
//! calls left: that is for some hundred clients. A server for more would keep the sums instead.
//!
//! A policy chooses within what is safe ([`GrantPolicy`]): one call of each connection is always granted,
//! or where messages are counted, three of them.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rpcrdma::{
    AskAgain, Demand, Effect, GrantEvent, GrantPolicy, MakeGrantPolicy, Setting, Side, Unit,
};

/// The number of calls by which a policy knows who makes some, as a multiple of those that it grants.
const REMEMBERED: usize = 4;

/// The calls that all clients of a server together are meant to have on their way.
pub static LENGTH: Setting = Setting {
    name: "queue",
    unit: Unit::Number,
    bounds: (1, 4096),
    step: 1,
    help: "Calls of all clients of a server that share it with --credits by-queue",
    effect: Effect::Own { default: 64 },
};

/// Shares the credits for some calls among the connections that make calls.
#[derive(Clone, Debug)]
pub struct ByQueue {
    /// The length of the queue: the calls that all clients together are meant to have on their way.
    length: u32,
    queue: Arc<Mutex<Queue>>,
}

/// The calls of all connections of a server.
#[derive(Debug, Default)]
struct Queue {
    /// The number of connections so far, by which they are told apart.
    made: u64,
    connections: BTreeMap<u64, Connection>,
    /// The connections of the last calls, oldest first.
    last: VecDeque<u64>,
    /// The number of connections that have made any of these.
    active: u32,
}

#[derive(Debug, Default)]
struct Connection {
    /// The number of the last calls that it has made.
    recent: u32,
    /// The number of its calls in progress.
    calls: u32,
    credits: u32,
    again: Option<AskAgain>,
}

impl Queue {
    /// Records a call, and forgets the oldest one.
    fn called(&mut self, connection: u64, remembered: usize) {
        self.last.push_back(connection);
        let own = self.connections.entry(connection).or_default();
        self.active += u32::from(own.recent == 0);
        own.recent += 1;
        if self.last.len() > remembered
            && let Some(oldest) = self.last.pop_front()
            && let Some(oldest) = self.connections.get_mut(&oldest)
        {
            oldest.recent -= 1;
            self.active -= u32::from(oldest.recent == 0);
        }
    }

    /// Returns the room in the queue for each connection that has calls in it.
    fn room(&self, length: u32) -> u32 {
        let busy = self.connections.values().filter(|of| of.calls > 0);
        let (count, calls) = busy.fold((0, 0), |(count, calls), of| (count + 1, calls + of.calls));
        length.saturating_sub(calls) / count.max(1)
    }

    /// Has those asked again that have used all of their credits, if there is room for twice as many:
    /// less is not worth a message.
    fn ask_again(&self, length: u32) {
        let room = self.room(length);
        let used = |of: &&Connection| of.calls > 0 && of.calls >= of.credits;
        let waiting = self.connections.values().filter(used);
        let waiting = waiting.filter(|of| room >= of.credits);
        let handles = waiting.filter_map(|of| of.again.as_ref());
        handles.for_each(AskAgain::ask);
    }
}

impl ByQueue {
    /// Returns a policy for the connections of one server, which have credits for so many calls together.
    #[must_use]
    pub fn new(length: u32) -> Self {
        let queue = Arc::default();
        Self { length, queue }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MakeGrantPolicy for ByQueue {
    fn make(&self, _: Side) -> Box<dyn GrantPolicy> {
        let mut queue = self.queue();
        let number = queue.made;
        queue.made += 1;
        queue.connections.insert(number, Connection::default());
        let all = self.clone();
        Box::new(Share { all, number })
    }

    fn for_another_end(&self) -> Option<Arc<dyn MakeGrantPolicy>> {
        Some(Arc::new(Self::new(self.length)))
    }
}

/// The policy of one connection.
#[derive(Debug)]
struct Share {
    all: ByQueue,
    number: u64,
}

impl GrantPolicy for Share {
    fn credits(&mut self, event: GrantEvent, demand: &Demand) -> u32 {
        let length = self.all.length;
        let queue = &mut *self.all.queue();
        if event == GrantEvent::CallBegan {
            queue.called(self.number, REMEMBERED * length as usize);
        }
        // Nobody has made a call yet when clients connect.
        let open = u32::try_from(queue.connections.len()).unwrap_or(u32::MAX);
        let sharing = match event {
            GrantEvent::Opened => queue.active.max(open),
            _ => queue.active,
        };
        let room = match event {
            // Its replies have told the client meanwhile if it has no calls left.
            GrantEvent::AskedAgain if demand.calls > 0 => queue.room(length),
            _ => 0,
        };
        let own = queue.connections.entry(self.number).or_default();
        let was_busy = own.calls > 0;
        own.calls = demand.calls;
        own.credits = match event {
            GrantEvent::AskedAgain => own.credits.max(own.calls + room),
            _ => length / sharing.max(1),
        };
        let credits = own.credits;
        if was_busy && demand.calls == 0 {
            queue.ask_again(length);
        }
        credits
    }

    fn set_ask_again(&mut self, again: AskAgain) {
        let queue = &mut *self.all.queue();
        queue.connections.entry(self.number).or_default().again = Some(again);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let queue = &mut *self.all.queue();
        if let Some(gone) = queue.connections.remove(&self.number) {
            queue.active -= u32::from(gone.recent > 0);
            queue.last.retain(|of| *of != self.number);
            queue.ask_again(self.all.length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma::Time;

    /// The calls that a driver has begun at some time, of a connection with receives for 32.
    fn demand(calls: u32) -> Demand {
        Demand::new(Time::ZERO, calls, 32)
    }

    /// A client that calls has the queue for itself, until another one calls as well.
    #[test]
    fn the_queue_is_shared_by_those_that_call() {
        let all = ByQueue::new(8);
        let [mut one, mut other] = [(); 2].map(|()| all.make(Side::Server));
        let opened = one.credits(GrantEvent::Opened, &demand(0));
        assert_eq!(opened, 4, "nobody has called");
        assert_eq!(one.credits(GrantEvent::CallBegan, &demand(1)), 8);
        assert_eq!(other.credits(GrantEvent::CallBegan, &demand(1)), 4);
        assert_eq!(one.credits(GrantEvent::CallEnded, &demand(0)), 4);
        drop(other);
        assert_eq!(one.credits(GrantEvent::CallBegan, &demand(1)), 8);
    }

    /// A client whose calls take long gets the room of another one that has no calls left.
    #[test]
    fn room_goes_to_those_that_have_used_their_credits() {
        let all = ByQueue::new(8);
        let [mut one, mut other] = [(); 2].map(|()| all.make(Side::Server));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let driver = Arc::new(move |connection| log.lock().unwrap().push(connection));
        one.set_ask_again(AskAgain::new(driver, 7));
        other.credits(GrantEvent::CallBegan, &demand(1));
        for calls in 1..=4 {
            one.credits(GrantEvent::CallBegan, &demand(calls));
        }
        assert_eq!(*asked.lock().unwrap(), [0; 0]);
        other.credits(GrantEvent::CallEnded, &demand(0));
        assert_eq!(*asked.lock().unwrap(), [7]);
        assert_eq!(one.credits(GrantEvent::AskedAgain, &demand(4)), 8);
    }
}
