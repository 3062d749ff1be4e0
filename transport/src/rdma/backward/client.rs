//! A client's driver and the responder of its backward direction.

use std::collections::VecDeque;

use rdma::{Device, SendWr};

use crate::ClientEvent;
use crate::rdma::client::Connection;
use crate::rdma::driver::Mark;
use crate::rdma::responder::ResponderAction;

/// Does what the responder of the backward direction wants done. Returns whether there was anything.
#[inline(never)]
pub(in crate::rdma) fn run_callee(
    device: &mut dyn Device,
    connection: &mut Connection,
    events: &mut VecDeque<ClientEvent>,
) -> bool {
    let (conn, expected) = (connection.id, connection.expected());
    let Connection { link, talk, .. } = connection;
    let Some(responder) = &mut talk.backward else {
        return false;
    };
    let mut any = false;
    while let Some(action) = responder.next_action() {
        any = true;
        match action {
            ResponderAction::Read {
                id,
                sink,
                stag,
                offset,
            } => {
                let wr = SendWr::Read { sink, stag, offset };
                link.post(device, wr, Some(Mark::Read(id)));
            }
            ResponderAction::Write {
                gather,
                stag,
                offset,
            } => link.write(device, gather, stag, offset),
            ResponderAction::Send {
                gather,
                invalidate,
                more,
            } => {
                debug_assert!(
                    link.can_receive(expected),
                    "every reply, and every callback that is granted, finds a receive"
                );
                if let Err(error) = link.send_part(device, gather, invalidate, more) {
                    // The requester must learn that a reply was lost (RFC 8166, 4.5.4).
                    tracing::warn!(%error, "reply to a callback not sent, closing the connection");
                    device.abort(link.qp());
                }
            }
            _ if connection.closing => {}
            ResponderAction::Deliver { token, message } => events.push_back(ClientEvent::Call {
                conn,
                token,
                message,
            }),
            ResponderAction::Close { reason } => {
                tracing::warn!(reason, "the server breaks a rule, closing the connection");
                device.abort(link.qp());
            }
        }
    }
    any
}
