//! The state of a shared receive queue in a device that is software.
//!
//! Devices differ in how a connection waits; which receive it gets, and when, is the same for all
//! and is decided here: receives are taken in the order in which they were posted, by connections
//! in the order in which they began to wait.

use std::collections::VecDeque;

use crate::{PostError, QpId, Scatter, WrId};

/// The receives of a shared receive queue, and the queue pairs that wait for one. For devices; a
/// program uses [`Device::create_shared_receives`](crate::Device::create_shared_receives).
#[derive(Debug)]
pub struct SharedReceiveQueue {
    max: usize,
    max_scatter: usize,
    /// Lengths of the buffers of every receive, once one was posted.
    structure: Option<Box<[usize]>>,
    posted: VecDeque<(WrId, Scatter)>,
    /// Queue pairs whose next message found no receive, in the order in which that happened.
    waiting: VecDeque<QpId>,
    /// Number of receives below which the owner is to be told; zero if it did not ask.
    limit: usize,
}

impl SharedReceiveQueue {
    /// Creates a queue of at most `max` receives with at most `max_scatter` buffers each.
    #[must_use]
    pub fn new(max: usize, max_scatter: usize) -> Self {
        Self {
            max,
            max_scatter,
            structure: None,
            posted: VecDeque::new(),
            waiting: VecDeque::new(),
            limit: 0,
        }
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// Returns the memory with a [`PostError`] if the queue is full, or if the receive has too many
    /// buffers or another structure than those before it.
    pub fn post(&mut self, id: WrId, receive: Scatter) -> Result<(), (PostError, Scatter)> {
        if self.posted.len() >= self.max {
            return Err((PostError::QueueFull, receive));
        }
        if receive.count() > self.max_scatter {
            return Err((PostError::TooManyElements, receive));
        }
        let same = {
            let lengths = || receive.pieces().map(|piece| piece.len());
            let structure = self.structure.get_or_insert_with(|| lengths().collect());
            lengths().eq(structure.iter().copied())
        };
        if !same {
            return Err((PostError::Structure, receive));
        }
        self.posted.push_back((id, receive));
        Ok(())
    }

    /// Takes the first receive for a message that begins on `qp`. If there is none, or if other
    /// queue pairs wait for it, returns `None`, and `qp` waits from now on. A queue pair that waits
    /// may call this only when [`SharedReceiveQueue::next`] returns it.
    #[inline]
    pub fn take(&mut self, qp: QpId) -> Option<(WrId, Scatter)> {
        match self.waiting.front() {
            None if self.posted.is_empty() => {}
            None => return self.posted.pop_front(),
            Some(first) if *first == qp && !self.posted.is_empty() => {
                self.waiting.pop_front();
                return self.posted.pop_front();
            }
            Some(_) => {}
        }
        self.waiting.push_back(qp);
        None
    }

    /// Returns the receive that the next message of any queue pair would take, unless some wait. A
    /// device may receive into it before it takes it: its content is undefined until then.
    #[inline]
    pub fn front_mut(&mut self) -> Option<&mut Scatter> {
        let none_waits = self.waiting.is_empty();
        let front = self.posted.front_mut().filter(|_| none_waits);
        front.map(|(_, receive)| receive)
    }

    /// Returns the receives that the next messages would take if all arrive on one queue pair, in order, as
    /// [`SharedReceiveQueue::front_mut`] does for one. A device that has received into them moves out
    /// what it does not deliver before it does anything else with the queue.
    pub fn upcoming(&mut self) -> impl Iterator<Item = &mut Scatter> {
        let posted = match self.waiting.is_empty() {
            true => self.posted.len(),
            false => 0,
        };
        self.posted
            .iter_mut()
            .take(posted)
            .map(|(_, receive)| receive)
    }

    /// Removes and returns the receive that was posted last, unless it is the first one as well: a
    /// device may be receiving into that ([`SharedReceiveQueue::front_mut`]).
    pub fn withdraw(&mut self) -> Option<(WrId, Scatter)> {
        let several = self.posted.len() > 1;
        several.then(|| self.posted.pop_back()).flatten()
    }

    /// Returns the queue pair that has waited longest, if there is a receive for it.
    #[must_use]
    pub fn next(&self) -> Option<QpId> {
        self.waiting.front().filter(|_| !self.is_empty()).copied()
    }

    /// Removes a queue pair from those that wait, because its connection has ended.
    pub fn leave(&mut self, qp: QpId) {
        self.waiting.retain(|waiting| *waiting != qp);
    }

    /// Requests that [`SharedReceiveQueue::take_low`] returns true once, as soon as fewer than
    /// `below` receives are posted. Replaces an earlier request.
    pub fn arm(&mut self, below: usize) {
        self.limit = below;
    }

    /// Returns whether the owner must be told now that the queue is low. Returns true once for each
    /// [`SharedReceiveQueue::arm`].
    #[must_use]
    pub fn take_low(&mut self) -> bool {
        let low = self.posted.len() < self.limit;
        if low {
            self.limit = 0;
        }
        low
    }

    /// Returns the number of receives that are posted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.posted.len()
    }

    /// Returns whether no receive is posted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.posted.is_empty()
    }

    /// Returns the length in bytes of the first buffer of every receive if each has several, as
    /// [`Scatter::head`] does; `None` if that is not so or not known yet.
    #[must_use]
    pub fn head(&self) -> Option<usize> {
        match self.structure.as_deref() {
            Some([first, _, ..]) => Some(*first),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pool;

    const ONE: QpId = QpId(1);
    const TWO: QpId = QpId(2);

    fn receive(pool: &Pool, lengths: &[usize]) -> Scatter {
        let mut pieces: Vec<_> = lengths
            .iter()
            .map(|&len| pool.alloc(len).unwrap())
            .collect();
        let first = pieces.remove(0);
        Scatter::new(first, pieces)
    }

    fn id((id, _): (WrId, Scatter)) -> u64 {
        id.0
    }

    #[test]
    fn the_first_receive_fixes_the_structure_and_the_number_is_limited() {
        let pool = Pool::new(1 << 20);
        let mut queue = SharedReceiveQueue::new(2, 3);
        assert_eq!(queue.head(), None);
        let refused = |error: Result<(), (PostError, Scatter)>| error.unwrap_err().0;
        let many = receive(&pool, &[1; 4]);
        assert_eq!(
            refused(queue.post(WrId(0), many)),
            PostError::TooManyElements
        );
        queue.post(WrId(1), receive(&pool, &[100, 200])).unwrap();
        assert_eq!(queue.head(), Some(100));
        for other in [&[100, 201][..], &[101, 200], &[100], &[100, 200, 1], &[300]] {
            let other = receive(&pool, other);
            assert_eq!(refused(queue.post(WrId(2), other)), PostError::Structure);
        }
        queue.post(WrId(2), receive(&pool, &[100, 200])).unwrap();
        let third = receive(&pool, &[100, 200]);
        assert_eq!(refused(queue.post(WrId(3), third)), PostError::QueueFull);
        // The structure stays when all receives have been taken.
        assert_eq!(queue.take(ONE).map(id), Some(1));
        assert_eq!(queue.take(ONE).map(id), Some(2));
        let other = receive(&pool, &[100]);
        assert_eq!(refused(queue.post(WrId(4), other)), PostError::Structure);
    }

    #[test]
    fn queue_pairs_take_receives_in_the_order_in_which_they_began_to_wait() {
        let pool = Pool::new(1 << 20);
        let mut queue = SharedReceiveQueue::new(8, 1);
        assert!(queue.front_mut().is_none());
        queue.post(WrId(0), receive(&pool, &[8])).unwrap();
        assert_eq!(queue.front_mut().map(|front| front.len()), Some(8));
        assert_eq!(queue.take(QpId(4)).map(id), Some(0));
        assert!(queue.take(ONE).is_none());
        assert!(queue.take(TWO).is_none());
        assert_eq!(queue.next(), None, "there is no receive");
        for number in 1..=3 {
            queue.post(WrId(number), receive(&pool, &[8])).unwrap();
        }
        assert!(queue.front_mut().is_none(), "it is for those that wait");
        // A third one must not overtake those that wait.
        assert!(queue.take(QpId(3)).is_none());
        assert_eq!(queue.next(), Some(ONE));
        assert_eq!(queue.take(ONE).map(id), Some(1));
        // The next message of the first one is behind the others.
        assert!(queue.take(ONE).is_none());
        queue.leave(TWO);
        assert_eq!(queue.next(), Some(QpId(3)));
        assert_eq!(queue.take(QpId(3)).map(id), Some(2));
        assert_eq!(queue.take(ONE).map(id), Some(3));
        assert_eq!((queue.len(), queue.next()), (0, None));
    }

    #[test]
    fn the_last_receives_can_be_withdrawn_and_the_first_never() {
        let pool = Pool::new(1 << 20);
        let mut queue = SharedReceiveQueue::new(8, 1);
        assert!(queue.withdraw().is_none());
        for number in 1..=3 {
            queue.post(WrId(number), receive(&pool, &[8])).unwrap();
        }
        assert_eq!(queue.withdraw().map(id), Some(3));
        assert_eq!(queue.withdraw().map(id), Some(2));
        assert!(queue.withdraw().is_none());
        assert_eq!((queue.len(), pool.in_use()), (1, Pool::block_size(8)));
        assert_eq!(queue.take(ONE).map(id), Some(1));
    }

    #[test]
    fn the_queue_is_low_once_for_each_request() {
        let pool = Pool::new(1 << 20);
        let mut queue = SharedReceiveQueue::new(8, 1);
        assert!(!queue.take_low(), "nobody asked");
        for number in 1..=3 {
            queue.post(WrId(number), receive(&pool, &[9])).unwrap();
        }
        queue.arm(2);
        let _ = queue.take(ONE);
        assert!(!queue.take_low(), "there are two");
        let _ = queue.take(ONE);
        assert!(queue.take_low());
        let _ = queue.take(ONE);
        assert!(!queue.take_low(), "it was told");
        queue.arm(1);
        assert!(queue.take_low(), "there is none");
    }
}
