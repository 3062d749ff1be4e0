//! The state that the messages of one pair of connections set for later ones: the limits of sessions,
//! and the program numbers of callbacks.

use std::collections::VecDeque;

use onc_rpc::{DecodeError, Decoder};

/// The maximum number of sessions of which the limits are remembered. A client has one, or one for
/// each of its users of a server; without its limits, a session's calls get the room for any reply.
const MAX_SESSIONS: usize = 16;
/// The maximum number of callback programs that are remembered.
const MAX_PROGRAMS: usize = 16;

/// The identifier of a session (`sessionid4`).
pub(crate) type SessionId = [u8; 16];

/// The limits of replies in one direction of a session (`channel_attrs4`), in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Channel {
    /// `ca_maxresponsesize`.
    pub(crate) max_response: u32,
    /// `ca_maxresponsesize_cached`.
    pub(crate) max_cached: u32,
}

impl Channel {
    /// Decodes a `channel_attrs4`.
    pub(crate) fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        from.skip(8)?;
        let channel = Self {
            max_response: from.u32()?,
            max_cached: from.u32()?,
        };
        from.skip(8)?;
        let words = from.u32()?;
        from.skip(4 * u64::from(words))?;
        Ok(channel)
    }

    /// Returns the maximum length of a reply, RPC header included, that is kept for retries or not.
    pub(crate) fn longest(&self, cached: bool) -> u32 {
        match cached {
            true => self.max_response.min(self.max_cached),
            false => self.max_response,
        }
    }
}

/// Both channels of a session: fore and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Channels {
    pub(crate) fore: Channel,
    pub(crate) back: Channel,
}

/// The sessions and callback programs of one pair of connections. The oldest are forgotten first.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    sessions: VecDeque<(SessionId, Channels)>,
    programs: VecDeque<u32>,
}

impl Sessions {
    /// Remembers a session that was created.
    pub(crate) fn insert(&mut self, id: SessionId, channels: Channels) {
        self.remove(&id);
        if self.sessions.len() == MAX_SESSIONS {
            self.sessions.pop_front();
        }
        self.sessions.push_back((id, channels));
    }

    /// Forgets a session.
    pub(crate) fn remove(&mut self, id: &SessionId) {
        self.sessions.retain(|(known, _)| known != id);
    }

    /// Returns the limits of a session, if they are known.
    pub(crate) fn get(&self, id: &SessionId) -> Option<&Channels> {
        let mut known = self.sessions.iter();
        known
            .find(|(known, _)| known == id)
            .map(|(_, channels)| channels)
    }

    /// Remembers that callbacks have this program number.
    pub(crate) fn insert_program(&mut self, number: u32) {
        if self.is_callback(number) {
            return;
        }
        if self.programs.len() == MAX_PROGRAMS {
            self.programs.pop_front();
        }
        self.programs.push_back(number);
    }

    /// Returns whether a program is known to be one of callbacks.
    pub(crate) fn is_callback(&self, program: u32) -> bool {
        self.programs.contains(&program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_sessions_and_programs_are_remembered() {
        let channel = |max_response| Channel {
            max_response,
            max_cached: 100,
        };
        let channels = |limit| Channels {
            fore: channel(limit),
            back: channel(limit + 1),
        };
        let mut sessions = Sessions::default();
        for number in 0..100 {
            sessions.insert([number; 16], channels(u32::from(number)));
            sessions.insert([number; 16], channels(1000 + u32::from(number)));
            sessions.insert_program(u32::from(number));
            sessions.insert_program(u32::from(number));
        }
        for number in 0..100 {
            let kept = usize::from(number) >= 100 - MAX_SESSIONS;
            let known = sessions
                .get(&[number; 16])
                .map(|known| known.fore.max_response);
            assert_eq!(known, kept.then_some(1000 + u32::from(number)));
            assert_eq!(sessions.is_callback(u32::from(number)), kept);
        }
        sessions.remove(&[99; 16]);
        assert_eq!(sessions.get(&[99; 16]), None);
        assert_eq!(channel(1000).longest(false), 1000);
        assert_eq!(channel(1000).longest(true), 100);
    }
}
