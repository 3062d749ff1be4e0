//! Things that come from the server.

use super::play::{Event, Play, deviation};
use super::server::Failed;
use crate::dialect::Dialect;
use crate::expect::Received;
use crate::peer::Heard;
use crate::stream::{Gone, Meanwhile};

impl Play<'_> {
    /// Takes the next thing that comes. Returns `None` if it is nothing that the script has to look at.
    pub(super) fn hear(&mut self, meanwhile: Meanwhile<'_>) -> Result<Option<Event>, Failed> {
        let heard = self.peer()?.hear(meanwhile);
        for placed in self.peer()?.placed() {
            self.exchange.text(format!(
                "RDMA Write: {} bytes to {:#x}",
                placed.bytes.len(),
                placed.stag
            ));
            self.memory.write(&placed).map_err(deviation)?;
        }
        match heard {
            Ok(Heard::Read(request)) => {
                self.exchange.text(format!(
                    "RDMA Read: {} bytes of {:#x}",
                    request.length, request.source
                ));
                if self.memory.is_unreadable(request.source) {
                    // An adapter ends the connection, as such memory cannot be registered.
                    self.peer()?.end();
                    let text =
                        "the connection is ended for an RDMA Read of memory that there cannot be";
                    self.exchange.text(text.into());
                    return Ok(Some(Event::Ended(text.into())));
                }
                let bytes = self.memory.read(&request).map_err(deviation)?.to_vec();
                self.peer()?.respond(&request, &bytes);
                Ok(None)
            }
            Ok(Heard::Message { bytes, invalidate }) => {
                self.exchange.message("received", &bytes);
                if let Some(handle) = invalidate {
                    self.exchange.text(format!("which invalidates {handle:#x}"));
                }
                match self.dialect {
                    Dialect::One => {
                        self.invalidated(invalidate)?;
                        Ok(Some(Event::Message(Received::of_first(&bytes), bytes)))
                    }
                    Dialect::Two => {
                        if invalidate.is_some() {
                            let text = "a Send With Invalidate, which this client has not asked for (xcharext-02, 3.2)";
                            return Err(deviation(text));
                        }
                        let longest = self.ends.own.receive;
                        if bytes.len() > longest {
                            return Err(deviation(format!(
                                "a message of {} bytes, and this client receives {longest} (version-two-01, 2.3; xcharext-02, 3.1)",
                                bytes.len()
                            )));
                        }
                        let taken = Received::of_second(&bytes);
                        Ok(self.taken(taken, bytes))
                    }
                    Dialect::Wg => {
                        let taken = self.wg.take(&bytes, invalidate).map_err(deviation)?;
                        Ok(self.taken(taken, bytes))
                    }
                }
            }
            Ok(Heard::Response { .. }) => Err(deviation("an RDMA Read Response to no request")),
            Ok(Heard::Terminate(code)) => {
                let text = format!("the connection is terminated: {code:x?}");
                self.exchange.text(text.clone());
                Ok(Some(Event::Ended(text)))
            }
            // An RDMA Read of memory that there cannot be.
            Err(Gone::Refused(what)) if !self.memory.has_unreadable() => {
                let text = format!("the device of this end has ended the connection: {what}");
                Err(deviation(text))
            }
            Err(
                gone @ (Gone::Closed
                | Gone::Reset
                | Gone::CutShort
                | Gone::Terminated(_)
                | Gone::Refused(_)),
            ) => {
                let text = format!("the connection ended: {gone}");
                self.exchange.text(text.clone());
                Ok(Some(Event::Ended(text)))
            }
            Err(Gone::Late) => Ok(Some(Event::Silence)),
            Err(Gone::Nonsense(what)) => Err(deviation(what)),
        }
    }

    /// Returns a message for the script, or keeps it for a script that names it.
    fn taken(&mut self, taken: Option<Received>, bytes: Vec<u8>) -> Option<Event> {
        if let Some(received) = taken {
            return Some(Event::Message(received, bytes));
        }
        self.passed.push(self.dialect, bytes);
        None
    }

    /// Checks the handle that a message invalidates (RFC 8797, section 4.1).
    fn invalidated(&mut self, handle: Option<u32>) -> Result<(), Failed> {
        let Some(handle) = handle else {
            return Ok(());
        };
        if !self.invalidates {
            let text = "a Send With Invalidate, which this client does not support (RFC 8797, 4.1)";
            return Err(deviation(text));
        }
        match self.named.contains(&handle) {
            true => Ok(()),
            false => Err(deviation(format!(
                "handle {handle:#x} is invalidated, which was not offered (RFC 8797, 4.1)"
            ))),
        }
    }
}
