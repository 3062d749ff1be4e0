//! A server's driver and the requester of its backward direction.

use std::collections::VecDeque;

use onc_rpc::Message;
use rdma::Device;
use rpcrdma_v2::extension::Backward;

use crate::rdma::driver::act_on_memory;
use crate::rdma::requester::RequesterAction;
use crate::rdma::server::{Connection, close};
use crate::{CallError, ConnId, ReplyRoom, ServerEvent};

/// Takes a call to a client.
///
/// # Errors
/// It ends with this at once: the client takes none, or there is no memory for receives.
pub(in crate::rdma) fn submit(
    device: &mut dyn Device,
    connection: &mut Connection,
    xid: u32,
    message: Message,
    room: &ReplyRoom,
) -> Result<(), CallError> {
    let none = |why: &str| Err(CallError::NoCallbacks(why.to_owned()));
    let taken = connection.talk.takes_calls();
    let Connection { link, talk, .. } = connection;
    let (Some(taken), Some(requester)) = (taken, &mut talk.backward) else {
        return none("nothing has come from it yet, or this server makes none");
    };
    if taken == Backward::None {
        return none("it says so");
    }
    // Before the first of them, receives for the replies to all that will be outstanding (RFC 8167,
    // section 4.3.2).
    while connection.callback_receives < requester.requested() {
        if let Err(error) = link.post_receives(device, 1) {
            let reason = format!("no memory for the receives of replies: {error}");
            return Err(CallError::TooLarge(reason));
        }
        connection.callback_receives += 1;
    }
    requester.allow_chunks(taken == Backward::General);
    // What the forward direction has to send goes first, and takes room.
    requester.set_room(0);
    requester.submit(xid, message, room);
    Ok(())
}

/// Does what the requester of the backward direction wants done. Returns whether there was anything.
#[inline(never)]
pub(in crate::rdma) fn run_caller(
    device: &mut dyn Device,
    conn: ConnId,
    connection: &mut Connection,
    events: &mut VecDeque<ServerEvent>,
) -> bool {
    let mut any = false;
    while connection.closed.is_none() {
        let expected = connection.expected();
        let Connection { link, talk, .. } = &mut *connection;
        let Some(requester) = &mut talk.backward else {
            return any;
        };
        requester.set_room(link.room());
        let Some(action) = requester.next_action() else {
            return any;
        };
        any = true;
        match action {
            RequesterAction::Send { gather } => {
                debug_assert!(
                    link.can_receive(expected),
                    "every call that is granted, and every callback's reply, finds a receive"
                );
                if let Err(error) = link.send(device, gather, None) {
                    close(device, connection, format!("callback not sent: {error}"));
                }
            }
            RequesterAction::Deliver { xid, message } => {
                events.push_back(ServerEvent::Reply { conn, xid, message });
            }
            RequesterAction::Fail { xid, error } => {
                events.push_back(ServerEvent::Failed { conn, xid, error });
            }
            other => act_on_memory(device, link, requester, other),
        }
    }
    any
}
