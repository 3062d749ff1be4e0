//! The properties of the working group's version 2: those that this end announces, and those of the peer.

use rpcrdma_chunks::Direction;
use rpcrdma_extension::Property as Announced;
use rpcrdma_v2_wg::{Answer, ErrorBody, Prefix, Property};

use super::super::Incoming;
use super::errors::bad_message;
use super::{WgSession, heard};

impl WgSession {
    /// Tells the extensions that the connection begins, at a server with the message with this prefix.
    pub(super) fn begin_with(&mut self, first: Option<Prefix>) {
        if self.extensions.has_begun() {
            return;
        }
        let announced = self.extensions.properties();
        (self.extensions).with_version_outbox(|out| self.base.announce(&announced, out));
        let opened_by = first.map(|first| heard(first, None));
        self.extensions.connected(opened_by);
    }

    /// Takes the properties of a message, of the base protocol and of extensions.
    pub(super) fn properties_received(
        &mut self,
        xid: u32,
        last: bool,
        properties: Vec<Property>,
    ) -> Incoming {
        if self.part_in_progress().is_some() {
            self.lost_properties(last);
            let answer = Answer::new(xid, ErrorBody::InvalidContinuation);
            return bad_message(
                Direction::Call,
                Some(answer),
                "properties between the parts of a message",
            );
        }
        let all_valid = properties.iter().all(|Property { id, value }| {
            let (id, value) = (*id, value.clone());
            self.extensions.is_valid(&Announced { id, value })
        });
        let is_open = self.base.peer().is_none();
        let base = &mut self.base;
        let taken = self.extensions.with_version_outbox(|out| {
            if all_valid || !is_open {
                return base.take_properties(last, properties, out);
            }
            base.lost_properties(last, false, out);
            // Nothing of the message has been applied (section 7.2.2).
            Err(ErrorBody::BadPropertyValue)
        });
        match taken {
            Err(error) => {
                if is_open {
                    self.extensions.peer_properties_refused();
                }
                bad_message(Direction::Call, Some(Answer::new(xid, error)), error)
            }
            Ok(()) => Incoming::Handled(Direction::Call, None),
        }
    }
}
