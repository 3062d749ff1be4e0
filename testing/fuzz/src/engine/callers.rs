//! The upper layers of both ends, which make and answer calls, and checks of the end of each call.

use super::*;

impl Run {
    pub(super) fn submit(&mut self, words: u8, items: &[Length], room: &Room) {
        let xid = self.made.len() as u32 + 1;
        if xid > MAX_CALLS {
            return;
        }
        let words = usize::from(words);
        let lengths = items.iter().filter_map(|length| length.bytes());
        let items: Vec<Bytes> = lengths.map(|len| vec![xid as u8; len].into()).collect();
        let payload = (12 + 4 * words + 4 * items.len()) as u32;
        let right = ReplyRoom {
            payload: payload.saturating_sub(REPLY_HEADER),
            items: items.iter().map(|item| item.len() as u32).collect(),
            idempotent: xid.is_multiple_of(2),
        };
        let message = message(xid, CALL, words, &items);
        let (room, right) = match room {
            Room::Right => (right, true),
            Room::Small => (ReplyRoom::default(), false),
            Room::Other { words, item } => {
                let (payload, item) = (4 * u32::from(*words), u32::from(*item));
                let items = right.items.iter().map(|_| item).collect();
                let room = ReplyRoom {
                    payload,
                    items,
                    ..right
                };
                (room, false)
            }
        };
        let may_fail = !right || message.stream_len() > u64::from(MAX_MESSAGE) - 512;
        let called = self.client.call(xid, message, &room);
        assert!(called.is_ok(), "a client's calls are taken in every phase");
        let (ended, cancelled) = (false, false);
        self.made.insert(
            xid,
            Made {
                words,
                items,
                room,
                ended,
                cancelled,
                may_fail,
            },
        );
    }

    pub(super) fn cancel(&mut self, which: u8) {
        let live = self
            .made
            .iter_mut()
            .filter(|(_, made)| !made.ended && !made.cancelled);
        let mut live: Vec<_> = live.collect();
        let at = usize::from(which).checked_rem(live.len());
        if let Some((xid, made)) = at.map(|at| live.swap_remove(at)) {
            made.cancelled = true;
            self.client.cancel(*xid);
        }
    }

    pub(super) fn ended(&mut self, xid: u32, result: Result<Message, CallError>) {
        let lies = self.lies();
        let made = self.made.get_mut(&xid).expect("a call that was made");
        assert!(!made.ended, "call {xid} ended twice");
        assert!(!made.cancelled, "call {xid} ended after it was cancelled");
        made.ended = true;
        let offered = self.offered.get(&xid).into_iter().flat_map(Chunks::handles);
        for handle in offered {
            assert!(
                !self.memory.contains_key(&handle),
                "call {xid} ended, its memory in reach"
            );
        }
        let reply = match result {
            Ok(reply) => reply,
            Err(error) => {
                assert!(made.may_fail || lies, "call {xid} failed: {error}");
                return;
            }
        };
        // A reply brings no more than there was room for.
        assert_eq!(onc_rpc::peek_xid(&reply), Some(xid));
        // An item that is missing leaves its chunk to the next one (RFC 8166, section 4.3.2.2).
        let mut longest = 0;
        let mut rooms = made.room.items.clone();
        for room in rooms.iter_mut().rev() {
            longest = longest.max(*room);
            *room = longest;
        }
        assert!(reply.items().len() <= rooms.len());
        for (item, room) in reply.items().iter().zip(rooms) {
            assert!(item.data.len() as u64 <= u64::from(room));
        }
        let room = u64::from(made.room.payload) + 64 + INLINE;
        assert!(reply.payload_len() <= room, "a reply longer than its room");
        if !lies && !made.may_fail {
            assert!(
                is_message(&reply, xid, REPLY, made.words, &made.items),
                "another's reply"
            );
        }
    }

    pub(super) fn answer(&mut self, id: CallId, call: &Message, how: &Answer) {
        let xid = onc_rpc::peek_xid(call).expect("a call that is delivered has an XID");
        let echo = |made: &Made| message(xid, REPLY, made.words, &made.items);
        let honest = !self.lies();
        let made = self.made.get_mut(&xid).filter(|_| honest);
        if let Some(made) = &made {
            assert!(
                is_message(call, xid, CALL, made.words, &made.items),
                "a call changed on its way"
            );
        }
        let reply = match (how, made) {
            (Answer::Echo, Some(made)) => Some(echo(made)),
            (Answer::Echo | Answer::Nothing, None) => Some(message(xid, REPLY, 1, &[])),
            (Answer::Nothing, Some(made)) => {
                // No reply ever: its caller gives up.
                if !made.ended && !made.cancelled {
                    made.cancelled = true;
                    self.client.cancel(xid);
                }
                None
            }
            (Answer::Longer(words), made) => {
                let (have, items) = made.map_or((0, Vec::new()), |made| {
                    made.may_fail = true;
                    (made.words, made.items.clone())
                });
                Some(message(xid, REPLY, have + usize::from(*words), &items))
            }
            (Answer::Unasked(len), made) => {
                if let Some(made) = made {
                    made.may_fail = true;
                }
                Some(message(
                    xid,
                    REPLY,
                    0,
                    &[vec![1; usize::from(*len % 5000)].into()],
                ))
            }
        };
        self.server.reply(NOW, id, reply);
    }
}
