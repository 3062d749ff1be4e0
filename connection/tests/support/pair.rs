//! A client's and a server's connection, joined in memory.

use onc_rpc::Message;
use rpcrdma_connection::{CallError, Config, ReplyRoom};

use super::{Endpoint, Posted, open, reply};

/// A function that returns the reply to a call.
pub type Answer = Box<dyn FnMut(&Message) -> Option<Message>>;

/// The maximum number of rounds in which two ends exchange everything that they have to say.
const MAX_STEPS: usize = 10_000;

/// A client and a server whose work requests take effect on each other.
pub struct Pair {
    pub client: Endpoint,
    pub server: Endpoint,
    /// The function that answers the client's calls. Without it, calls stay in
    /// [`Endpoint::delivered`].
    pub answer: Option<Answer>,
    /// The function that answers the server's calls.
    pub answer_back: Option<Answer>,
}

impl Pair {
    /// Returns an established connection whose ends have exchanged their first messages.
    pub fn new((client, server): (Config, Config)) -> Self {
        let said = [&client, &server].map(|config| config.options.private_data());
        let (mut client, mut server) = (Endpoint::new(client), Endpoint::new(server));
        server.establish(said[0]);
        client.establish(said[1]);
        let mut pair = Self {
            client,
            server,
            answer: None,
            answer_back: None,
        };
        pair.settle();
        pair
    }

    /// Returns an established connection whose server answers calls with their own content.
    pub fn echoing(configs: (Config, Config)) -> Self {
        let mut pair = Self::new(configs);
        pair.answer = Some(Box::new(echo));
        pair
    }

    /// Sets the function that answers the client's calls.
    pub fn answer_with(&mut self, answer: impl FnMut(&Message) -> Option<Message> + 'static) {
        self.answer = Some(Box::new(answer));
    }

    /// Executes all actions and work requests in order, until there are none.
    #[track_caller]
    pub fn settle(&mut self) {
        let steps = (0..MAX_STEPS).take_while(|_| self.step()).count();
        if steps == MAX_STEPS {
            let last = |end: &Endpoint| end.sent[end.sent.len().saturating_sub(6)..].to_vec();
            panic!("no end: {:x?}", (last(&self.client), last(&self.server)));
        }
    }

    fn step(&mut self) -> bool {
        self.client.run();
        self.server.run();
        let answered = answer(&mut self.server, &mut self.answer)
            | answer(&mut self.client, &mut self.answer_back);
        carry(&mut self.client, &mut self.server)
            | carry(&mut self.server, &mut self.client)
            | answered
    }

    /// Makes a call of the client, and returns its outcome.
    #[track_caller]
    pub fn call(&mut self, call: Message, room: &ReplyRoom) -> Result<Message, CallError> {
        let (xid, ..) = open(&call);
        self.client.call(call, room);
        self.settle();
        let closed = (&self.client.closed, &self.server.closed);
        let at = self.client.finished.iter();
        let at = at
            .clone()
            .position(|(ended, _)| *ended == xid)
            .unwrap_or_else(|| panic!("call {xid} did not end: {closed:?}"));
        self.client.finished.remove(at).1
    }
}

/// Returns a reply with the content of a call.
pub fn echo(call: &Message) -> Option<Message> {
    let (xid, words, items) = open(call);
    Some(reply(xid, words, &items))
}

fn answer(end: &mut Endpoint, answer: &mut Option<Answer>) -> bool {
    let Some(answer) = answer else {
        return false;
    };
    let mut any = false;
    while let Some((id, call)) = end.delivered.pop_front() {
        any = true;
        let message = answer(&call);
        end.reply(id, message);
    }
    any
}

/// Executes the work requests of one end at the other.
fn carry(from: &mut Endpoint, to: &mut Endpoint) -> bool {
    let mut any = false;
    for mut read in std::mem::take(&mut from.reads) {
        any = true;
        let len = read.sink.len();
        let read_at = to.remote_read(read.stag, read.offset, len);
        read.sink
            .copy_from_slice(&read_at.expect("an RDMA Read of memory that is not there"));
        from.read_done(read);
    }
    while let Some(posted) = from.posted.pop_front() {
        any = true;
        match posted {
            Posted::Send(bytes, invalidate) => {
                let received = to.receive(&bytes, invalidate);
                received.expect("a Send invalidates a handle that is not valid");
            }
            Posted::Write(bytes, stag, offset) => {
                let written = to.remote_write(stag, offset, &bytes);
                written.expect("an RDMA Write to memory that is not there");
            }
        }
    }
    any
}
