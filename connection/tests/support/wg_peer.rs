//! A peer in version 2 of the working group (version-two-07) whose messages a test writes itself.

use bytes::{Bytes, BytesMut};
use onc_rpc::Message;
use rdma::Stag;
use rpcrdma_connection::flow::MessageCounts;
use rpcrdma_connection::{Config, Options};
use rpcrdma_negotiation::{Choice, Version, Versions};
use rpcrdma_v1::PrivateData;
use rpcrdma_v2_wg::{Body, Chunks, Direction, ErrorBody, Header, Prefix, Properties, Property};

use super::{Endpoint, bytes};

/// The XID of the peer's properties.
const PROPERTIES_XID: u32 = 0xffff_0000;

/// A message that the end under test has sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The header.
    pub header: Header,
    /// The bytes behind the header.
    pub payload: Bytes,
    /// The handle that the Send invalidates.
    pub invalidate: Option<Stag>,
}

/// An end of a connection under test, and the peer that the test plays.
pub struct WgPeer {
    /// The end under test.
    pub end: Endpoint,
    /// The peer's flow control.
    pub flow: MessageCounts,
    /// The number of messages that the peer advertises.
    pub advertised: u32,
    /// The number of messages of the end that were counted.
    seen: usize,
    inbox: Vec<Sent>,
}

impl WgPeer {
    /// Returns a server that has not received anything.
    pub fn listening(change: impl FnOnce(&mut Options)) -> Self {
        let mut options = Options::server(rpcrdma_protocols::base());
        change(&mut options);
        Self::new(super::server(Versions::only(Version::TWO_WG), options))
    }

    /// Returns a server that has exchanged properties with its client.
    pub fn server(change: impl FnOnce(&mut Options)) -> Self {
        Self::listening(change).exchanged(&Properties::default())
    }

    /// Returns a client that has exchanged properties with its server.
    pub fn client(change: impl FnOnce(&mut Options)) -> Self {
        Self::client_of(&Properties::default(), change)
    }

    /// Returns a client that has exchanged properties with a server that announces these.
    pub fn client_of(properties: &Properties, change: impl FnOnce(&mut Options)) -> Self {
        let mut options = Options::client(rpcrdma_protocols::base());
        change(&mut options);
        Self::new(super::client(Choice::Only(Version::TWO_WG), options)).exchanged(properties)
    }

    /// Returns a client whose server has sent this set of properties.
    pub fn client_announced(set: &[Property], change: impl FnOnce(&mut Options)) -> Self {
        let mut options = Options::client(rpcrdma_protocols::base());
        change(&mut options);
        let mut peer = Self::new(super::client(Choice::Only(Version::TWO_WG), options));
        peer.properties(set.to_vec(), true);
        let _ = peer.take();
        peer
    }

    /// Returns the properties that a server announces.
    pub fn announced_by_server(change: impl FnOnce(&mut Options)) -> Vec<Property> {
        let mut server = Self::listening(change);
        server.properties(Properties::default().encode(), true);
        match server.taken().remove(0) {
            Body::Properties { properties, .. } => properties,
            other => panic!("{other:?}"),
        }
    }

    /// Counts messages of the end that are none of the base protocol, up to this number.
    pub fn skip(&mut self, messages: usize) {
        for (message, _) in &self.end.sent[self.seen..messages] {
            let credit = Prefix::peek(message).unwrap().credit;
            self.flow.take_received(credit, false).unwrap();
        }
        self.seen = messages;
    }

    /// Returns an established end that has not received anything.
    pub fn new(config: Config) -> Self {
        let mut end = Endpoint::new(config);
        // In version 2 of the working group, private data means nothing.
        end.establish(Some(PrivateData::new(1024, 1024, false)));
        Self {
            end,
            flow: MessageCounts::new(),
            advertised: 100,
            seen: 0,
            inbox: Vec::new(),
        }
    }

    /// Sends all properties of the peer, and takes those of the end.
    #[must_use]
    pub fn exchanged(mut self, properties: &Properties) -> Self {
        self.properties(properties.encode(), true);
        let sent = self.taken();
        assert!(matches!(sent[..], [Body::Properties { last: true, .. }]));
        self
    }

    /// Sends properties of the peer.
    pub fn properties(&mut self, properties: Vec<Property>, last: bool) {
        self.send(PROPERTIES_XID, Body::Properties { last, properties }, &[]);
    }

    /// Sends a message of the peer.
    pub fn send(&mut self, xid: u32, body: Body, payload: &[u8]) {
        self.send_invalidating(xid, body, payload, None);
    }

    /// Sends a message of the peer that invalidates a handle.
    pub fn send_invalidating(
        &mut self,
        xid: u32,
        body: Body,
        payload: &[u8],
        invalidate: Option<Stag>,
    ) {
        // The messages that the end has sent tell up to which count the peer may send.
        self.count();
        let sent = match body {
            Body::Grant => self.flow.take_grant(),
            _ => self.flow.take_send(),
        };
        assert!(sent, "the peer has no credit for {body:?}");
        let credit = self.flow.credit(self.advertised);
        let message = encoded(&Header { xid, credit, body }, payload);
        let received = self.end.receive(&message, invalidate);
        received.expect("the peer invalidates a handle that is not valid");
        self.end.run();
    }

    /// Sends bytes as they are.
    pub fn send_bytes(&mut self, message: &Bytes) {
        self.count();
        let _ = self.flow.take_send();
        self.end.receive(message, None).unwrap();
        self.end.run();
    }

    /// Sends an RPC message in one part.
    pub fn send_rpc(&mut self, body: Body, message: &Message) {
        let payload = bytes(message);
        let xid = u32::from_be_bytes(payload[..4].try_into().unwrap());
        self.send(xid, body, &payload);
    }

    /// Sends an error about a message of the end.
    pub fn send_error(&mut self, xid: u32, error: ErrorBody) {
        self.send(xid, Body::Error(error), &[]);
    }

    /// Sends a middle part of a message.
    pub fn send_middle(&mut self, direction: Direction, xid: u32, part: &[u8], remaining: usize) {
        let remaining = remaining as u32;
        let body = Body::Middle {
            direction,
            remaining,
        };
        self.send(xid, body, part);
    }

    /// Makes a reply of the upper layer to the oldest call that was delivered.
    pub fn reply(&mut self, message: Option<Message>) {
        let (id, _) = self.end.delivered.pop_front().expect("no call");
        self.end.reply(id, message);
        self.end.run();
    }

    /// Decodes and counts the messages that the end has sent since the last time.
    fn count(&mut self) {
        self.end.run();
        for (message, invalidate) in &self.end.sent[self.seen..] {
            let (header, at) = Header::decode(message).unwrap();
            let is_grant = matches!(header.body, Body::Grant);
            self.flow.take_received(header.credit, is_grant).unwrap();
            self.inbox.push(Sent {
                header,
                payload: message.slice(at..),
                invalidate: *invalidate,
            });
        }
        self.seen = self.end.sent.len();
    }

    /// Returns the messages of the end that the test has not looked at.
    pub fn take(&mut self) -> Vec<Sent> {
        self.count();
        std::mem::take(&mut self.inbox)
    }

    /// Returns the contents of the messages of the end that the test has not looked at.
    pub fn taken(&mut self) -> Vec<Body> {
        self.take()
            .into_iter()
            .map(|sent| sent.header.body)
            .collect()
    }

    /// Returns the errors that the test has not looked at, with their XIDs. Nothing else is sent.
    #[track_caller]
    pub fn errors(&mut self) -> Vec<(u32, ErrorBody)> {
        let error = |sent: Sent| match sent.header.body {
            Body::Error(error) => (sent.header.xid, error),
            other => panic!("not an error: {other:?}"),
        };
        self.take().into_iter().map(error).collect()
    }
}

/// Returns a message of this header and these bytes behind it.
pub fn encoded(header: &Header, payload: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    header.encode_into(&mut out);
    out.extend_from_slice(payload);
    out.freeze()
}

/// Returns the header of a call with these chunks.
pub fn inline_call(chunks: Chunks) -> Body {
    Body::Call {
        external: false,
        inv_handle: 0,
        chunks,
    }
}

/// Returns the header of a reply with these chunks.
pub fn inline_reply(chunks: Chunks) -> Body {
    Body::Reply {
        external: false,
        chunks,
    }
}
