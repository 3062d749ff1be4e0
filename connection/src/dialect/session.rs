//! The state of a version on one connection.

use std::fmt;

use onc_rpc::Segments;
use rpcrdma_chunks::Direction;
use rpcrdma_extension::{
    AgreedFeatures, ConnectionLimits, Extensions, Property, ReceivedMessage, Refusal, TransferMode,
};

use super::{BadMessage, ErrorMessage, Incoming, Receiver};

/// The state of a version on one connection ([`Dialect::session`](super::Dialect::session)). It reads
/// the headers of received messages in the context of the earlier ones, and owns the extensions of the
/// connection.
///
/// A version without messages of extensions, such as version 1, implements
/// [`Session::decode`] alone. Its peers exchange properties by private data (RFC 8797).
///
/// With extensions, a connection learns the peer's properties from them and from the version:
/// [`Session::limits`] are those with which messages are planned, and private data has no effect.
pub trait Session: fmt::Debug + Send {
    /// Reads the header of a message that `receiver` received, and has the extensions handle what
    /// belongs to them.
    fn decode(&mut self, message: Segments, receiver: &Receiver) -> Incoming;

    /// Tells the extensions that the connection begins. Called before this end sends its first
    /// message, and after the first message of the peer. Later calls have no effect.
    fn begin(&mut self) {}

    /// Refuses the call that a truncated message begins or continues. `beginning` is all that is here
    /// of the message. Returns false if the call cannot be refused in such a way that the peer sends
    /// it again in another transfer mode; the connection is closed then.
    fn refuse_truncated(&mut self, beginning: &Segments) -> bool {
        let _ = beginning;
        false
    }

    /// Refuses the call of which parts are here, because there is no memory for the rest. Returns false if it cannot
    /// be refused in such a way that the peer sends it again in another transfer mode; the connection is closed then.
    fn refuse_parts(&mut self) -> bool {
        false
    }

    /// Returns the extensions, in a version that has messages of extensions.
    fn extensions(&self) -> Option<&Extensions> {
        None
    }

    /// Returns the extensions, in a version that has messages of extensions.
    fn extensions_mut(&mut self) -> Option<&mut Extensions> {
        None
    }

    /// Returns the transfer modes of the version's own that are no extension's, and the extensions.
    fn modes(&mut self) -> Modes<'_> {
        Modes {
            own: None,
            extensions: self.extensions_mut(),
        }
    }

    /// Returns the current limits, or `None` if private data says what they are.
    fn limits(&self) -> Option<ConnectionLimits> {
        self.extensions().map(Extensions::limits)
    }

    /// Lists the features that the version and its extensions have agreed on with the peer, with the
    /// reasons. `agreed` has those that follow from [`Session::limits`], or from private data.
    fn agreed(&self, agreed: &mut AgreedFeatures) {
        if let Some(extensions) = self.extensions() {
            extensions.agreed(agreed);
        }
    }

    /// Returns how many bytes of memory the parts take of a message whose rest has not arrived, or
    /// `None` if there is no such message.
    fn in_progress(&self) -> Option<usize> {
        let extensions = self.extensions()?;
        extensions.in_progress()?;
        Some(extensions.collected_bytes())
    }

    /// Returns how many of these bytes are copies that the version has made of parts. The others are
    /// memory of receives.
    fn copied_parts(&self) -> usize {
        0
    }

    /// Returns the number of messages that were given up after some of their parts had arrived. It never decreases. If
    /// it grows while a message is received, the parts held before belonged to another message than the one that now
    /// begins or completes.
    fn given_up(&self) -> u64 {
        self.extensions().map_or(0, Extensions::given_up)
    }

    /// Returns the properties that this end announces, and those of the peer once they are known, in a
    /// version that exchanges them by itself.
    fn announced(&self) -> Option<(Vec<Property>, Option<Vec<Property>>)> {
        None
    }

    /// Returns the number of bytes of messages that were copied. It never decreases.
    fn copied_bytes(&self) -> u64 {
        self.extensions().map_or(0, Extensions::copied_bytes)
    }

    /// Reports that the connection has ended.
    fn closed(&mut self) {
        if let Some(extensions) = self.extensions_mut() {
            extensions.closed();
        }
    }
}

/// The number of the transfer mode that belongs to the version itself. Those of extensions are
/// numbered by the indexes of the extensions.
const VERSIONS_OWN: usize = usize::MAX;

/// The transfer modes of a connection apart from base plans: one that belongs to the version, and
/// those of its extensions.
#[derive(Default)]
pub struct Modes<'a> {
    /// The transfer mode that belongs to the version, if it has one: continuation in the working
    /// group's version 2.
    pub own: Option<&'a mut dyn TransferMode>,
    /// The extensions, in a version that has messages of extensions.
    pub extensions: Option<&'a mut Extensions>,
}

impl<'a> Modes<'a> {
    /// Returns the transfer modes with their numbers, that of the version first.
    pub(crate) fn all(self) -> impl Iterator<Item = (usize, &'a mut dyn TransferMode)> {
        let own = self.own.map(|own| (VERSIONS_OWN, own));
        let extensions = self.extensions.map(Extensions::transfer_modes);
        own.into_iter().chain(extensions.into_iter().flatten())
    }

    /// Returns the transfer mode with this number.
    pub(crate) fn get(self, number: usize) -> Option<&'a mut dyn TransferMode> {
        match number {
            VERSIONS_OWN => self.own,
            number => self.extensions?.transfer_mode(number),
        }
    }
}

/// Returns what the connection has to do about a message of an extension, by the result of
/// [`Extensions::received`]. An error message that answers it has this `version` number.
#[must_use]
pub fn incoming_of_extension(
    message: &ReceivedMessage<'_>,
    done: Result<(), Refusal>,
    version: u32,
) -> Incoming {
    let refusal = match done {
        Ok(()) => return Incoming::Handled(message.direction, Some(message.credits)),
        Err(refusal) => refusal,
    };
    let (xid, reason) = (message.xid, refusal.to_string());
    // The call has been executed. Without its reply it can only fail, and must not be sent again.
    if let (Refusal::Unusable(_), Direction::Reply) = (refusal, message.direction) {
        return Incoming::Unusable { xid, reason };
    }
    let answer = refusal.answer().map(|error| ErrorMessage {
        xid,
        version,
        error,
    });
    Incoming::Bad(message.direction, BadMessage { answer, reason })
}
