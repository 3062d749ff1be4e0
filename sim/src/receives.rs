//! An independent check of shared receives: each is taken by one message, and comes back once, to the
//! connection whose message took it.
//!
//! Receives are told apart by their `wr_id`. Those of connections with receives of their own are not
//! checked here: they have no events of their own.

use std::collections::BTreeSet;

use rdma::{Completion, SharedReceivesId, Success, WrId};
use rdma_sim::{End, NodeId};

/// All shared receives that exist.
#[derive(Debug, Default)]
pub(crate) struct Receives {
    posted: BTreeSet<(NodeId, SharedReceivesId, u64)>,
    /// Receives that a message has taken and that have not come back.
    taken: BTreeSet<(End, u64)>,
    /// Ends that take shared receives.
    sharing: BTreeSet<End>,
}

impl Receives {
    /// Records that a receive was posted.
    pub(crate) fn posted(
        &mut self,
        node: NodeId,
        queue: SharedReceivesId,
        id: WrId,
    ) -> Option<String> {
        let new = self.posted.insert((node, queue, id.0));
        (!new).then(|| format!("{node} posts receive {:#x} while it is posted", id.0))
    }

    /// Records that a receive was taken back by its owner.
    pub(crate) fn withdrawn(&mut self, node: NodeId, queue: SharedReceivesId, id: WrId) {
        self.posted.remove(&(node, queue, id.0));
    }

    /// Records that a message has taken a receive.
    pub(crate) fn taken(&mut self, end: End, queue: SharedReceivesId, id: WrId) -> Option<String> {
        let was_posted = self.posted.remove(&(end.node, queue, id.0));
        self.taken.insert((end, id.0));
        self.sharing.insert(end);
        (!was_posted).then(|| {
            format!(
                "{end} takes receive {:#x}, which is not posted: another message has it",
                id.0
            )
        })
    }

    /// Records a completion that the owner has taken.
    pub(crate) fn completed(&mut self, end: End, completion: &Completion) -> Option<String> {
        let id = completion.id.0;
        let came_back = self.taken.remove(&(end, id));
        let is_receive = matches!(completion.result, Ok(Success::Receive { .. }));
        (is_receive && !came_back && self.sharing.contains(&end))
            .then(|| format!("{end} gets receive {id:#x} back, which its messages did not take"))
    }

    /// Records that the owner was told of the end of a connection. Its receive must have come back
    /// before.
    pub(crate) fn over(&mut self, end: End) -> Option<String> {
        self.sharing.remove(&end);
        let lost: Vec<_> = self
            .taken
            .range((end, 0)..=(end, u64::MAX))
            .copied()
            .collect();
        for receive in &lost {
            self.taken.remove(receive);
        }
        let (_, id) = lost.first()?;
        Some(format!(
            "{end} has ended, and receive {id:#x} has not come back"
        ))
    }

    /// Records that a host crashed. Nothing of it is left.
    pub(crate) fn crashed(&mut self, node: NodeId) {
        self.posted.retain(|(of, ..)| *of != node);
        self.taken.retain(|(end, _)| end.node != node);
        self.sharing.retain(|end| end.node != node);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use rdma::{Pool, QpId};

    use super::*;

    const NODE: NodeId = NodeId(0);
    const QUEUE: SharedReceivesId = SharedReceivesId(1);
    const ONE: End = End {
        node: NODE,
        qp: QpId(1),
    };
    const TWO: End = End {
        node: NODE,
        qp: QpId(2),
    };

    fn received(end: End, id: u64) -> Completion {
        let buf = Pool::new(1 << 16).alloc(1).unwrap().into();
        Completion {
            qp: end.qp,
            id: WrId(id),
            result: Ok(Success::Receive {
                buf,
                invalidated: None,
            }),
        }
    }

    fn with_one_taken() -> Receives {
        let mut receives = Receives::default();
        for id in [7, 8] {
            assert_eq!(receives.posted(NODE, QUEUE, WrId(id)), None);
        }
        assert_eq!(receives.taken(ONE, QUEUE, WrId(7)), None);
        receives
    }

    #[test]
    fn a_receive_comes_back_once_to_the_connection_that_took_it() {
        let mut receives = with_one_taken();
        assert_eq!(receives.completed(ONE, &received(ONE, 7)), None);
        assert_eq!(receives.over(ONE), None);
        assert_eq!(receives.posted(NODE, QUEUE, WrId(7)), None);
        receives.withdrawn(NODE, QUEUE, WrId(7));
        assert_eq!(receives.posted(NODE, QUEUE, WrId(7)), None);
        assert_eq!(receives.taken(TWO, QUEUE, WrId(8)), None);
        assert!(receives.completed(TWO, &received(TWO, 7)).is_some());
        receives.crashed(NODE);
        assert_eq!(receives.over(TWO), None);
    }

    #[test]
    fn what_two_messages_have_and_what_none_has_any_more_is_found() {
        assert!(with_one_taken().taken(TWO, QUEUE, WrId(7)).is_some());
        assert!(with_one_taken().posted(NODE, QUEUE, WrId(8)).is_some());
        assert!(with_one_taken().over(ONE).is_some());
        // Connections with receives of their own post no shared ones.
        assert_eq!(with_one_taken().completed(TWO, &received(TWO, 9)), None);
    }
}
