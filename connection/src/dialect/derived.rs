//! Versions that are like another one.

use bytes::{Bytes, BytesMut};
use onc_rpc::{Message, Position, Segments};
use rpcrdma_chunks::{Chunks, Direction, FIXED_LEN, Fixed, Side, proc};
use rpcrdma_extension::{
    AgreedFeatures, ConnectionLimits, DuplicateNumber, EndConfig, Extension, Extensions, Property,
};
use rpcrdma_negotiation::Negotiable;
use smallvec::SmallVec;
use transfer_plan::ChunkCounts;

use super::{
    BadMessage, BadReply, Dialect, ErrorMessage, ExtensionHeader, Incoming, Modes, Outgoing,
    PeerError, Plain, Receiver, Session,
};
use crate::flow::{Accounting, CreditFields, ReceivedCredit};

/// The bytes of a message that are copied to change its number: as many as most headers have. Longer
/// headers are decoded from several pieces.
const COPIED: usize = 256;

/// A version that is another one with its own number, except for what it does itself. It is a
/// [`Dialect`].
///
/// Each received message costs an allocation, and a copy of its first 256 bytes, in which the number of
/// the other version is written for it. Sent messages cost nothing. If the other version counts messages
/// ([`Accounting::Messages`]), each message, sent or received, costs another allocation, and a copy of 16 bytes.
///
/// ```
/// use rpcrdma_connection::dialect::{Derived, Dialect, Negotiable, VersionTwo};
/// use rpcrdma_negotiation::Version;
///
/// /// Version 2 of 2016 with the number 7.
/// #[derive(Clone, Debug)]
/// struct Seven;
///
/// impl Negotiable for Seven {
///     fn version(&self) -> Version {
///         Version::new(7, "seven")
///     }
/// }
///
/// impl Derived for Seven {
///     fn base(&self) -> &'static dyn Dialect {
///         &VersionTwo
///     }
/// }
///
/// let protocols = rpcrdma_protocols::base().preferring(&Seven);
/// # drop(protocols);
/// ```
pub trait Derived: Negotiable + Clone + 'static {
    /// Returns the version whose headers this one has. The version number of each of its headers is
    /// their second word.
    fn base(&self) -> &'static dyn Dialect;

    /// Returns the extensions that belong to the version, at one end of a connection.
    fn own_extensions(&self, end: &EndConfig<'_>) -> Vec<Box<dyn Extension>> {
        let _ = end;
        Vec::new()
    }

    /// Appends the header of a message of an extension ([`Dialect::encode_extension`]).
    fn encode_own(&self, out: &mut BytesMut, header: ExtensionHeader) {
        self.base().encode_extension(out, header);
    }

    /// Reads a message, if it has a header that the other version does not know. `message` still has
    /// the number of this version. `session` is the other version's.
    fn decode_own(&self, session: &mut dyn Session, message: &Segments) -> Option<Incoming> {
        let _ = (session, message);
        None
    }
}

/// Gives a header that begins at `at` the number of a version.
fn number(out: &mut [u8], at: usize, number: u32) {
    if let Some(word) = out.get_mut(at + 4..at + 8) {
        word.copy_from_slice(&number.to_be_bytes());
    }
}

impl<D: Derived> Dialect for D {
    fn header_len(&self) -> fn(&ChunkCounts) -> u64 {
        self.base().header_len()
    }

    fn has_call_chunk(&self) -> bool {
        self.base().has_call_chunk()
    }

    fn encode_plain(&self, out: &mut BytesMut, direction: Direction, header: Plain) {
        let at = out.len();
        self.base().encode_plain(out, direction, header);
        number(out, at, self.version().number());
    }

    fn encode(&self, out: &mut BytesMut, header: Outgoing) -> Chunks {
        let at = out.len();
        let chunks = self.base().encode(out, header);
        number(out, at, self.version().number());
        chunks
    }

    fn encode_error(&self, error: &ErrorMessage, credits: u32) -> Bytes {
        // That a version is not the right one is said in the version of the message that it answers.
        let is_of_version = matches!(
            error.error,
            PeerError::Version { .. } | PeerError::VersionMismatch
        );
        let version = match error.version == self.base().version().number() && !is_of_version {
            true => self.version().number(),
            false => error.version,
        };
        let error = ErrorMessage { version, ..*error };
        self.base().encode_error(&error, credits)
    }

    fn version_error(&self, received: u32, own: u32) -> PeerError {
        self.base().version_error(received, own)
    }

    fn error_name(&self, error: PeerError) -> String {
        self.base().error_name(error)
    }

    fn too_many_reduced(&self, max: u32) -> Option<PeerError> {
        self.base().too_many_reduced(max)
    }

    fn session(
        &self,
        end: &EndConfig<'_>,
        extensions: Vec<Box<dyn Extension>>,
        first_xid: u32,
    ) -> Result<Box<dyn Session>, DuplicateNumber> {
        let mut all = self.own_extensions(end);
        all.extend(extensions);
        let base = self.base().session(end, all, first_xid)?;
        Ok(Box::new(DerivedSession {
            version: self.clone(),
            base,
            copied: 0,
        }))
    }

    fn has_extensions(&self) -> bool {
        self.base().has_extensions()
    }

    fn encode_extension(&self, out: &mut BytesMut, header: ExtensionHeader) {
        let at = out.len();
        self.encode_own(out, header);
        number(out, at, self.version().number());
    }

    fn check_payload(
        &self,
        xid: u32,
        direction: Direction,
        message: &Message,
    ) -> Result<(), BadReply> {
        self.base().check_payload(xid, direction, message)
    }

    fn result_position(&self) -> Position {
        self.base().result_position()
    }

    fn bad_replies_end_calls(&self) -> bool {
        self.base().bad_replies_end_calls()
    }

    fn sends_again(&self, first_type: u32, error: PeerError) -> bool {
        self.base().sends_again(first_type, error)
    }

    fn refuses_by_type_alone(&self, first_type: u32) -> bool {
        self.base().refuses_by_type_alone(first_type)
    }

    fn complete_returned(&self, returned: &mut Chunks, offered: &Chunks) {
        self.base().complete_returned(returned, offered);
    }

    fn accounting(&self) -> Accounting<'_> {
        match self.base().accounting() {
            Accounting::Calls => Accounting::Calls,
            Accounting::Messages(_) => Accounting::Messages(self),
        }
    }

    fn extensions_carry_callbacks(&self) -> bool {
        self.base().extensions_carry_callbacks()
    }

    fn calls_offer_handles(&self) -> bool {
        self.base().calls_offer_handles()
    }
}

/// The credits of a version whose base counts messages: those of the base in messages with its number.
impl<D: Derived> CreditFields for D {
    fn credit(&self, message: &Segments) -> Option<ReceivedCredit> {
        let base = base_fields(self)?;
        let beginning = beginning(message);
        let fixed = Fixed::peek(&beginning)?;
        let own = fixed.version == self.version().number();
        own.then(|| base.credit(&beginning_as_base(self, beginning)))?
    }

    fn encode_grant(&self, credit: u32) -> Bytes {
        let grant = base_fields(self).map(|base| base.encode_grant(credit));
        with_number(self, &grant.unwrap_or_default())
    }

    fn xid_and_type(&self, message: &Segments) -> Option<(u32, u32)> {
        base_fields(self)?.xid_and_type(&beginning_as_base(self, beginning(message)))
    }

    fn with_credit(&self, message: &Bytes, credit: u32) -> Option<(Bytes, usize)> {
        // It has the message's number, which is another version's if it answers a message of that one.
        base_fields(self)?.with_credit(message, credit)
    }
}

/// Returns the credit fields of the other version, if it counts messages.
fn base_fields(version: &impl Derived) -> Option<&'static dyn CreditFields> {
    match version.base().accounting() {
        Accounting::Calls => None,
        Accounting::Messages(fields) => Some(fields),
    }
}

/// Returns a copy of a header with the number of this version.
fn with_number(version: &impl Derived, header: &Bytes) -> Bytes {
    let mut header = BytesMut::from(&header[..]);
    number(&mut header, 0, version.version().number());
    header.freeze()
}

/// Returns the beginning of a message of another version. (The other version refuses a message that is
/// too short to have a number.)
fn of_another(version: &impl Derived, message: &Segments) -> Option<Fixed> {
    let fixed = message.first().and_then(|first| Fixed::peek(first));
    fixed.filter(|fixed| fixed.version != version.version().number())
}

/// Returns a message with the number of the other version, without a copy of what follows its header, and
/// how many bytes were copied.
fn as_base(version: &impl Derived, mut message: Segments) -> (Segments, usize) {
    let Some(first) = message.first_mut() else {
        return (message, 0);
    };
    let rest = first.split_off(first.len().min(COPIED));
    let copied = first.len();
    let mut head = BytesMut::from(&first[..]);
    number(&mut head, 0, version.base().version().number());
    *first = head.freeze();
    if !rest.is_empty() {
        message.insert(1, rest);
    }
    (message, copied)
}

/// The beginning of a message, which has its credits.
type Beginning = SmallVec<[u8; FIXED_LEN]>;

/// Returns the beginning of a message, wherever its pieces end.
fn beginning(message: &Segments) -> Beginning {
    let bytes = message.iter().flat_map(|piece| piece.iter());
    bytes.take(FIXED_LEN).copied().collect()
}

/// Returns the beginning of a message, with the number of the other version.
fn beginning_as_base(version: &impl Derived, mut beginning: Beginning) -> Segments {
    number(&mut beginning, 0, version.base().version().number());
    [Bytes::copy_from_slice(&beginning)].into_iter().collect()
}

/// The state of a derived version at one end of a connection.
#[derive(Debug)]
struct DerivedSession<D> {
    version: D,
    /// The state of the other version.
    base: Box<dyn Session>,
    /// The bytes of messages that were copied to change their number.
    copied: u64,
}

impl<D: Derived> DerivedSession<D> {
    /// Refuses a message of another version.
    fn refuse(&self, fixed: Fixed, receiver: &Receiver) -> Incoming {
        let own = self.version.version().number();
        let direction = match receiver.side {
            Side::Server => Direction::Call,
            Side::Client => Direction::Reply,
        };
        // Errors are sent to clients alone, and never answer an error: an end like this one would
        // answer the answer.
        let answers = receiver.side == Side::Server && fixed.procedure != proc::ERROR;
        let answer = answers.then_some(ErrorMessage {
            xid: fixed.xid,
            version: fixed.version,
            error: self.version.version_error(fixed.version, own),
        });
        let reason = format!("a message of version {}", fixed.version);
        Incoming::Bad(direction, BadMessage { answer, reason })
    }

    /// Gives a message the number of the other version.
    fn as_base(&mut self, message: Segments) -> Segments {
        let (message, copied) = as_base(&self.version, message);
        self.copied += copied as u64;
        message
    }
}

impl<D: Derived> Session for DerivedSession<D> {
    fn decode(&mut self, message: Segments, receiver: &Receiver) -> Incoming {
        if let Some(fixed) = of_another(&self.version, &message) {
            return self.refuse(fixed, receiver);
        }
        if let Some(incoming) = self.version.decode_own(&mut *self.base, &message) {
            return incoming;
        }
        let message = self.as_base(message);
        self.base.decode(message, receiver)
    }

    fn begin(&mut self) {
        self.base.begin();
    }

    fn refuse_truncated(&mut self, beginning: &Segments) -> bool {
        if of_another(&self.version, beginning).is_some() {
            return false;
        }
        let beginning = self.as_base(beginning.clone());
        self.base.refuse_truncated(&beginning)
    }

    fn refuse_parts(&mut self) -> bool {
        self.base.refuse_parts()
    }

    fn extensions(&self) -> Option<&Extensions> {
        self.base.extensions()
    }

    fn extensions_mut(&mut self) -> Option<&mut Extensions> {
        self.base.extensions_mut()
    }

    fn modes(&mut self) -> Modes<'_> {
        self.base.modes()
    }

    fn limits(&self) -> Option<ConnectionLimits> {
        self.base.limits()
    }

    fn agreed(&self, agreed: &mut AgreedFeatures) {
        self.base.agreed(agreed);
    }

    fn in_progress(&self) -> Option<usize> {
        self.base.in_progress()
    }

    fn copied_parts(&self) -> usize {
        self.base.copied_parts()
    }

    fn given_up(&self) -> u64 {
        self.base.given_up()
    }

    fn announced(&self) -> Option<(Vec<Property>, Option<Vec<Property>>)> {
        self.base.announced()
    }

    fn copied_bytes(&self) -> u64 {
        self.base.copied_bytes() + self.copied
    }

    fn closed(&mut self) {
        self.base.closed();
    }
}

#[cfg(test)]
mod tests {
    use rdma::Pool;
    use rpcrdma_negotiation::Version;

    use super::*;
    use crate::dialect::{VersionTwo, VersionTwoWg};
    use crate::{Config, Protocols};

    #[derive(Clone, Debug)]
    struct Third(&'static dyn Dialect);

    const BASES: [&dyn Dialect; 2] = [&VersionTwo, &VersionTwoWg];

    impl Negotiable for Third {
        fn version(&self) -> Version {
            Version::new(3, "third")
        }
    }

    impl Derived for Third {
        fn base(&self) -> &'static dyn Dialect {
            self.0
        }
    }

    fn session(base: &'static dyn Dialect) -> Box<dyn Session> {
        let config = Config::server(Pool::new(1 << 20), Protocols::default());
        let session = Third(base).session(&config.end(), Vec::new(), 9);
        session.unwrap_or_else(|_| panic!("no two extensions have the same number"))
    }

    const SERVER: Receiver = Receiver {
        side: Side::Server,
        takes_calls: true,
        makes_calls: false,
        max_call: 1 << 20,
    };

    /// A call of NULL with this many bytes of arguments.
    fn call(version: u32, args: usize) -> Segments {
        let mut out = BytesMut::new();
        let plain = Plain { xid: 7, credits: 3 };
        Third(&VersionTwo).encode_plain(&mut out, Direction::Call, plain);
        number(&mut out, 0, version);
        out.extend_from_slice(&[7_u32, 0].map(u32::to_be_bytes).concat());
        out.extend_from_slice(&vec![5; args]);
        [out.freeze()].into_iter().collect()
    }

    /// Returns the answer to a message that cannot be used.
    fn refused(base: &'static dyn Dialect, message: Segments) -> Option<ErrorMessage> {
        let incoming = session(base).decode(message, &SERVER);
        let Incoming::Bad(Direction::Call, BadMessage { answer, .. }) = incoming else {
            panic!("{incoming:?}");
        };
        answer
    }

    #[test]
    fn messages_of_other_versions_are_refused() {
        for (base, version) in BASES
            .into_iter()
            .flat_map(|base| [1, 2, 4].map(|it| (base, it)))
        {
            let answer = refused(base, call(version, 8)).unwrap();
            // Version-two-07, section 7.1.2, is about versions that this end speaks on other connections.
            let error = match base.version() == Version::TWO_WG && version < 3 {
                true => PeerError::VersionMismatch,
                false => PeerError::Version { low: 3, high: 3 },
            };
            assert_eq!((answer.xid, answer.error), (7, error), "{base:?}");
            let sent = Third(base).encode_error(&answer, 1);
            assert_eq!(sent[4..8], version.to_be_bytes(), "{base:?}");
        }
    }

    /// Two ends of different versions would answer each other for ever.
    #[test]
    fn errors_of_other_versions_are_not_answered() {
        for (base, version) in BASES
            .into_iter()
            .flat_map(|base| [1, 2, 4].map(|it| (base, it)))
        {
            let error = [7, version, 0, proc::ERROR].map(u32::to_be_bytes).concat();
            let answer = refused(base, [error.into()].into_iter().collect());
            assert!(answer.is_none(), "{base:?}, {version}: {answer:?}");
        }
    }

    #[test]
    fn errors_have_its_number() {
        let version = Version::TWO.number();
        let error = PeerError::Chunk;
        let xid = 7;
        let sent = Third(&VersionTwo).encode_error(
            &ErrorMessage {
                xid,
                version,
                error,
            },
            1,
        );
        assert_eq!(sent[4..8], 3_u32.to_be_bytes());
    }

    /// One about another version has that one's number, also if it had to wait.
    #[test]
    fn waiting_messages_keep_their_number() {
        let third = Third(&VersionTwoWg);
        for (version, error) in [
            (1, PeerError::VersionMismatch),
            (4, PeerError::Version { low: 3, high: 3 }),
            (Version::TWO.number(), PeerError::Chunk),
        ] {
            let xid = 7;
            let error = ErrorMessage {
                xid,
                version,
                error,
            };
            let sent = third.encode_error(&error, 1);
            let (start, replaced) = third.with_credit(&sent, 5).unwrap();
            assert_eq!(start.len(), replaced);
            assert_eq!((&start[..8], &start[12..]), (&sent[..8], &sent[12..16]));
            assert_eq!(start[8..12], 5_u32.to_be_bytes());
        }
    }

    /// Wherever its pieces end.
    #[test]
    fn credits_are_those_of_the_other_version() {
        let third = Third(&VersionTwoWg);
        let mut grant = third.encode_grant(5);
        grant = [&grant[..], &[0; 300]].concat().into();
        for at in [0, 4, 7, 8, 15, 16, 17, 300] {
            let whole = &[grant.slice(..at), grant.slice(at..)];
            let message: Segments = whole.iter().filter(|it| !it.is_empty()).cloned().collect();
            let received = third.credit(&message).unwrap();
            assert_eq!((received.credit, received.only_grants), (5, true), "{at}");
            let (xid, _) = third.xid_and_type(&message).unwrap();
            assert_eq!(xid, 0);
            assert!(third.credit(&call(2, 8)).is_none(), "of another version");
        }
        assert!(third.credit(&Segments::new()).is_none());
    }

    #[test]
    fn credits_are_in_messages_with_its_number() {
        let third = Third(&VersionTwoWg);
        let Accounting::Messages(fields) = third.accounting() else {
            panic!("it counts messages");
        };
        let credit = |message: Bytes| fields.credit(&[message].into_iter().collect());
        let granted = |credit| {
            let only_grants = true;
            Some(ReceivedCredit {
                credit,
                only_grants,
            })
        };
        let grant = fields.encode_grant(9);
        assert_eq!(grant[4..8], 3_u32.to_be_bytes());
        assert_eq!(credit(grant.clone()), granted(9));
        assert_eq!(credit(VersionTwoWg.encode_grant(9)), None);
        let (renewed, _) = fields.with_credit(&grant, 11).unwrap();
        assert_eq!(credit(renewed), granted(11));
        let grant = [grant].into_iter().collect();
        let incoming = session(&VersionTwoWg).decode(grant, &SERVER);
        assert!(matches!(incoming, Incoming::Handled(..)), "{incoming:?}");
    }

    #[test]
    fn only_the_header_is_copied() {
        let mut session = session(&VersionTwo);
        let message = call(3, 4096);
        let end = message[0].as_ptr_range().end;
        let Incoming::Plain(Direction::Call, plain, payload) = session.decode(message, &SERVER)
        else {
            panic!("not a call");
        };
        assert_eq!((plain.xid, plain.credits), (7, 3));
        assert_eq!(payload.iter().map(Bytes::len).sum::<usize>(), 4096 + 8);
        assert_eq!(payload.last().map(|it| it.as_ptr_range().end), Some(end));
        assert_eq!(session.copied_bytes(), COPIED as u64);
    }
}
