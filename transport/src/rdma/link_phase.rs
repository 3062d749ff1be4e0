//! The phases of a connection as its driver knows them. The phases of its protocol are in
//! [`rpcrdma_connection::Connection`].

/// The reason why this end ends a connection.
#[derive(Debug)]
pub(super) enum Closing {
    /// The user closed the connection.
    ByUser,
    /// The peer broke a rule, or cannot be answered.
    Failed(String),
}

/// The furthest that a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reached {
    /// The connection is being established.
    Connecting,
    /// The connection was established.
    Established,
    /// A reply has arrived on the connection.
    Replied,
}

/// The phase of a connection.
#[derive(Debug)]
pub(super) enum LinkPhase {
    /// This end uses the connection, or waits until it is established.
    Active(Reached),
    /// This end is closing the connection and waits for its end. Completions are ignored.
    Closing(Reached, Closing),
}

impl LinkPhase {
    /// Returns how far the connection has come, whether or not it is being closed.
    pub(super) fn reached(&self) -> Reached {
        match self {
            Self::Active(reached) | Self::Closing(reached, _) => *reached,
        }
    }

    /// Records that the connection has come this far.
    pub(super) fn reach(&mut self, now: Reached) {
        let (Self::Active(reached) | Self::Closing(reached, _)) = self;
        *reached = now.max(*reached);
    }

    /// Returns whether this end is closing the connection.
    pub(super) fn is_closing(&self) -> bool {
        matches!(self, Self::Closing(..))
    }

    /// Returns why this end is closing the connection, if it is.
    pub(super) fn closing(&self) -> Option<&Closing> {
        match self {
            Self::Active(_) => None,
            Self::Closing(_, reason) => Some(reason),
        }
    }

    /// Begins to close the connection. If it is being closed already, the first reason stays.
    pub(super) fn close(&mut self, reason: Closing) {
        if let Self::Active(reached) = *self {
            *self = Self::Closing(reached, reason);
        }
    }

    /// Begins to close the connection because its user asks for it, whatever it was being closed
    /// for.
    pub(super) fn close_by_user(&mut self) {
        *self = Self::Closing(self.reached(), Closing::ByUser);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_keeps_its_first_reason_and_how_far_the_connection_came() {
        let mut phase = LinkPhase::Active(Reached::Connecting);
        phase.reach(Reached::Replied);
        phase.reach(Reached::Established);
        assert_eq!(
            (phase.reached(), phase.is_closing()),
            (Reached::Replied, false)
        );
        phase.close(Closing::Failed("first".to_owned()));
        phase.close(Closing::ByUser);
        assert!(matches!(phase.closing(), Some(Closing::Failed(reason)) if reason == "first"));
        phase.close_by_user();
        assert!(matches!(phase.closing(), Some(Closing::ByUser)));
        assert_eq!(
            (phase.reached(), phase.is_closing()),
            (Reached::Replied, true)
        );
    }
}
