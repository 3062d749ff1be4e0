//! Comparison of what comes with what a script expects.

use std::time::{Duration, Instant};

use super::play::{Event, Play, deviation};
use super::server::Failed;
use crate::expect::{Expect, Received, Reply};
use crate::stream::Gone;
use crate::wire::v1;

/// Time for which the server must stay silent.
const QUIET: Duration = Duration::from_millis(300);

impl Play<'_> {
    /// Waits like [`Play::expect`], but no longer than this time.
    pub(super) fn expect_within(
        &mut self,
        time: Duration,
        allowed: &[Expect],
    ) -> Result<(), Failed> {
        let patience = self.server.patience;
        self.peer()?.set_patience(time);
        self.peer()?.set_deadline(Instant::now() + time);
        let result = self.expect_before(allowed);
        self.peer()?.set_patience(patience);
        result.map_err(|failed| match failed {
            Failed::Deviation(what) => deviation(format!("within {time:?}: {what}")),
            other => other,
        })
    }

    pub(super) fn expect(&mut self, allowed: &[Expect]) -> Result<(), Failed> {
        self.within()?;
        self.expect_before(allowed)
    }

    /// Returns a message that scripts do not look at, if one of these names it.
    fn named(&mut self, allowed: &[Expect]) -> Option<Event> {
        let message = self.passed.take(|message| {
            allowed.iter().any(|expected| match expected {
                Expect::Fields(pattern) => pattern.is_of(message),
                _ => false,
            })
        })?;
        self.wg.looks_at_part(&message);
        Some(Event::Message(Received::Other(message.clone()), message))
    }

    /// Receives the next message, answers Read Requests before it, and compares it.
    fn expect_before(&mut self, allowed: &[Expect]) -> Result<(), Failed> {
        if allowed.is_empty() {
            let text = "the case has an expectation that nothing can meet";
            return Err(Failed::NotApplicable(text.into()));
        }
        let event = loop {
            if let Some(event) = self.named(allowed) {
                break event;
            }
            if let Some(event) = self.waiting.pop_front() {
                break event;
            }
            if let Some(event) = self.hear(&mut || true)? {
                break event;
            }
        };
        let (received, message) = match event {
            Event::Message(received, message) => (received, message),
            Event::Silence => return Err(deviation(Gone::Late)),
            Event::Ended(_) if allowed.contains(&Expect::Closed) => return Ok(()),
            Event::Ended(what) => return Err(deviation(what)),
        };
        if let Received::Rpc(header, _) = &received {
            self.last = Some(header.clone());
        }
        self.compare(&received, &message, allowed)
    }

    /// Compares a message with what may come. The first of that says what is wrong.
    fn compare(
        &self,
        received: &Received,
        message: &[u8],
        allowed: &[Expect],
    ) -> Result<(), Failed> {
        let mut first = None;
        for expected in allowed {
            match expected.check(received, message, self.dialect) {
                Ok(()) => return Ok(()),
                Err(what) => first = first.or(Some(what)),
            }
        }
        let what = first.unwrap_or_default();
        Err(deviation(format!("received {what}")))
    }

    /// Checks that nothing comes for a moment but one of these.
    pub(super) fn perhaps(&mut self, allowed: &[Expect]) -> Result<(), Failed> {
        match self.within_moment()? {
            None | Some(Event::Silence) => Ok(()),
            Some(Event::Ended(what)) => Err(deviation(what)),
            Some(Event::Message(received, message)) => self.compare(&received, &message, allowed),
        }
    }

    /// Returns what comes within the time of [`QUIET`].
    fn within_moment(&mut self) -> Result<Option<Event>, Failed> {
        self.within()?;
        let start = Instant::now();
        let mut event = self.waiting.pop_front();
        while event.is_none() && start.elapsed() < QUIET {
            event = self.hear(&mut || start.elapsed() < QUIET)?;
        }
        Ok(event)
    }

    /// Checks that nothing comes for a moment but credits and properties, and that no part of a reply has come that the
    /// script has not looked at.
    pub(super) fn quiet(&mut self) -> Result<(), Failed> {
        match self.within_moment()? {
            None | Some(Event::Silence) if self.wg.has_other_parts() => {
                Err(deviation("RDMA2_REPLY_MIDDLE came where nothing may come"))
            }
            None | Some(Event::Silence) => Ok(()),
            Some(Event::Ended(what)) => Err(deviation(what)),
            Some(Event::Message(received, _)) => Err(deviation(format!(
                "{} came where nothing may come",
                received.brief(self.dialect)
            ))),
        }
    }

    /// Waits for the last of the server's properties.
    pub(super) fn properties(&mut self) -> Result<(), Failed> {
        self.within()?;
        while !self.wg.has_properties() {
            match self.hear(&mut || true)? {
                None => {}
                Some(Event::Silence) => {
                    return Err(deviation("RDMA2_CONNPROP_FINAL did not come in time"));
                }
                Some(Event::Ended(what)) => return Err(deviation(what)),
                Some(event) => self.keep(event)?,
            }
        }
        Ok(())
    }

    /// Compares the Reply chunk of the last message, and what was written into its segments.
    pub(super) fn message(&self, handles: &[u32], reply: &Reply) -> Result<(), String> {
        let last = self.last.as_ref().ok_or("there is no reply")?;
        let returned = last.reply.as_ref();
        let returned = returned.ok_or("the reply returns no Reply chunk")?;
        let mut whole = Vec::new();
        if returned.len() != handles.len() {
            return Err(format!(
                "{} segments are returned of {}",
                returned.len(),
                handles.len()
            ));
        }
        for (handle, segment) in handles.iter().zip(returned) {
            let written = self.memory.written(*handle);
            if (segment.handle, segment.length as usize) != (*handle, written.len()) {
                return Err(format!(
                    "{} bytes at handle {:#x} are returned, and {} were written to {handle:#x}",
                    segment.length,
                    segment.handle,
                    written.len()
                ));
            }
            whole.extend(written);
        }
        match (last.procedure, whole.is_empty()) {
            (v1::NOMSG, _) => reply.check_payload(&whole),
            (_, true) => Ok(()),
            (_, false) => Err(format!(
                "a short reply, and {} bytes in its Reply chunk",
                whole.len()
            )),
        }
    }
}
