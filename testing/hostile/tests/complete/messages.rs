//! The messages that hostile ends send and receive in a case, independent of its name.

use hostile::cases::Case;
use hostile::client;
use hostile::server::{self, Ask, Call, LEN, response};
use hostile::wire::v2::{self, CALL, XMTCONT, XMTERR, XMTRESP};

/// The XID of calls of clients under attack.
pub(crate) const XID: u32 = 0x0ca1;

/// The information of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) opttype: u32,
    pub(crate) info: Vec<u32>,
}

/// The operations of a case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Messages {
    pub(crate) said: Vec<Operation>,
    pub(crate) heard: Vec<Operation>,
    /// Pairs of the correct operation and the one that was sent instead.
    pub(crate) instead: Vec<(Operation, Operation)>,
    /// Whether the other end rejected what was sent.
    refused: bool,
    /// Whether a report that was sent was acted upon.
    acted_upon: bool,
}

impl Messages {
    pub(crate) fn of(case: &Case) -> Self {
        let mut messages = Self::default();
        match case {
            Case::Client(case) => messages.client(&case.script),
            Case::Server(case) => {
                if case.said != v2::everything() {
                    messages.say_info(v2::INITXCH, case.said.clone());
                }
                messages.server(case.ask, &case.script);
            }
        }
        messages
    }

    /// Returns the messages of a case that sends these operations.
    pub(crate) fn saying(said: Vec<Operation>) -> Self {
        Self {
            said,
            ..Self::default()
        }
    }

    /// Returns whether the sent operations were correct.
    pub(crate) fn are_right(&self) -> bool {
        match self.said.iter().any(|said| said.opttype == XMTERR) {
            // An invalid report is not answered.
            true => self.acted_upon,
            false => !self.refused,
        }
    }

    fn say(&mut self, message: &[u8]) {
        if let Some(operation) = v2::parse(message) {
            self.say_info(operation.opttype, operation.info);
        }
    }

    fn say_info(&mut self, opttype: u32, info: Vec<u32>) {
        self.said.push(Operation { opttype, info });
    }

    fn hear(&mut self, message: &[u32]) {
        match message {
            [_, _, _, 5, _, opttype, len, info @ ..] => {
                let (opttype, len) = (*opttype, *len as usize / 4);
                let info = info[..len.min(info.len())].to_vec();
                self.refused |= opttype == XMTERR;
                self.heard.push(Operation { opttype, info });
            }
            [_, _, _, procedure, ..] => {
                self.refused |= *procedure == 4;
                self.acted_upon |= *procedure == 4;
            }
            _ => {}
        }
    }

    /// Records that ROPT_XMTERR with these words was received.
    fn hear_report(&mut self, number: u32, fault: &[u32]) {
        let info = [&[XID, CALL, number, 0], fault].concat();
        self.refused = true;
        self.heard.push(Operation {
            opttype: XMTERR,
            info,
        });
    }

    fn client(&mut self, steps: &[client::Step]) {
        for step in steps {
            match step {
                client::Step::Send(message) => self.say(message),
                client::Step::HearWords(message, _) => self.hear(message),
                client::Step::Repeat(_, steps) => self.client(steps),
                _ => {}
            }
        }
    }

    fn server(&mut self, ask: Ask, steps: &[server::Step]) {
        for step in steps {
            match step {
                server::Step::Say(message) => self.say(message),
                server::Step::Send(message) => self.say(&message(&Call::null(XID))),
                server::Step::HearWords(message) => self.hear(message),
                server::Step::HearReport(number, _, fault) => self.hear_report(*number, fault),
                server::Step::HearBadXid(number) => self.hear_report(*number, &[5, XID, XID]),
                server::Step::Settled => self.acted_upon = true,
                server::Step::Reject(words) => {
                    self.say_info(XMTERR, [&[XID, CALL], &words[..]].concat());
                }
                server::Step::Patched(patches) => {
                    let right = transmissions(ask);
                    let mut all = right.clone();
                    for (part, word, value) in patches {
                        all[*part].info[*word] = *value;
                    }
                    self.instead.extend(right.into_iter().zip(all.clone()));
                    self.said.extend(all);
                }
                server::Step::Transmissions(_) => self.said.extend(transmissions(ask)),
                _ => {}
            }
        }
    }
}

/// Returns the correct reply to a READ whose data is placed.
pub(crate) fn transmissions(ask: Ask) -> Vec<Operation> {
    let len = match ask {
        Ask::LongRead(len) => len,
        _ => LEN,
    };
    let fields = response(len as usize);
    let info: Vec<u32> = fields.iter().map(|(_, value)| *value).collect();
    let count = info[info.len() - 2];
    let next = |number| Operation {
        opttype: XMTCONT,
        info: vec![number, XMTRESP, 0],
    };
    let first = Operation {
        opttype: XMTRESP,
        info,
    };
    std::iter::once(first).chain((1..count).map(next)).collect()
}
