//! The exchange of characteristics, and messages with placed data, in version 2 of 2016.

use super::play::{Event, Play, deviation};
use super::server::Failed;
use crate::characteristics::{Characteristics, Needed};
use crate::expect::Received;
use crate::wire::v1::ERROR;
use crate::wire::{Reader, v2};

impl Play<'_> {
    /// Waits for the server's characteristics.
    pub(super) fn characteristics(&mut self, needed: &Needed) -> Result<(), Failed> {
        let is_told =
            |message: &[u8]| v2::parse(message).is_some_and(|it| it.opttype == v2::INITXCH);
        self.within()?;
        let message = loop {
            if let Some(message) = self.passed.take(is_told) {
                break message;
            }
            match self.hear(&mut || true)? {
                None => {}
                Some(Event::Silence) => return Err(deviation("ROPT_INITXCH did not come in time")),
                Some(Event::Ended(what)) => return Err(deviation(what)),
                Some(Event::Message(received, message)) => {
                    return Err(self.no_exchange(&received, &message));
                }
            }
        };
        let told = v2::parse(&message).and_then(|it| Characteristics::of(&it.info));
        let Some(told) = told else {
            let text =
                "ROPT_INITXCH with characteristics that cannot be decoded (xcharext-02, 2.1)";
            return Err(deviation(text));
        };
        self.ends.server = told;
        match told.lack(needed) {
            Some(lack) => Err(Failed::NotApplicable(lack)),
            None => Ok(()),
        }
    }

    /// Returns why no characteristics are exchanged with a server that sends this instead: it does not support that
    /// (xcharext-02, section 4), or deviates.
    fn no_exchange(&self, received: &Received, message: &[u8]) -> Failed {
        let mut from = Reader(message);
        let words: Vec<u32> = std::iter::from_fn(|| from.word()).collect();
        match words[..] {
            [_, v2::VERSION, _, ERROR, v2::ERR_INVAL_OPTION] => Failed::NotApplicable(
                "the server does not support ROPT_INITXCH: an RDMA2_ERROR of ERR_INVAL_OPTION"
                    .into(),
            ),
            _ => {
                let what = received.brief(self.dialect);
                deviation(format!("received {what}, not ROPT_INITXCH"))
            }
        }
    }

    /// Sends a message with this data in the first segment for bulk data of the server's receive.
    pub(super) fn send_placed(&mut self, message: &[u8], data: &[u8]) -> Result<(), Failed> {
        let Some(offset) = self.ends.server.place(message.len(), data.len()) else {
            return Err(Failed::NotApplicable(format!(
                "no segment of the server's receives takes {} bytes of data behind {} bytes (rtrext-00, 8.3)",
                data.len(),
                message.len()
            )));
        };
        let mut whole = message.to_vec();
        // Padding is zero, whatever a receiver does with it.
        whole.resize(offset, 0);
        whole.extend_from_slice(data);
        self.send(&whole)
    }
}
