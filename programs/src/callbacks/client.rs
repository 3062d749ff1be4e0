//! Sends an order, and waits until it has been carried out.

use std::time::Duration;

use bytes::Bytes;
use onc_rpc::{DecodeError, Encoder, Message};
use rpc_transport::{Call, CallError, CallFuture, Client, ReplyRoom};

use super::wire::{MAX_LEN, Order, Tally};
use super::{ECHO, FORWARD, NULL, ORDER, STATE};

/// The first and the longest pause between two queries. The pause doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(50);

fn call(client: &Client, proc: u32, args: Message, payload: u32) -> CallFuture {
    client.call(Call {
        prog: FORWARD.prog,
        vers: FORWARD.low,
        proc,
        args,
        reply: ReplyRoom {
            payload,
            ..ReplyRoom::default()
        },
    })
}

/// Calls NULL of the forward program.
///
/// # Errors
/// See [`CallError`].
pub async fn null(client: &Client) -> Result<(), CallError> {
    call(client, NULL, Message::default(), 0).await?;
    Ok(())
}

/// Sends data to the forward program, which returns it.
///
/// # Errors
/// See [`CallError`].
pub async fn echo(client: &Client, data: Bytes) -> Result<Bytes, CallError> {
    let mut args = Encoder::new();
    let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
    args.bulk(data);
    let call = client.call(Call {
        prog: FORWARD.prog,
        vers: FORWARD.low,
        proc: ECHO,
        args: args.finish(),
        reply: ReplyRoom {
            payload: 4,
            items: [len].into_iter().collect(),
            idempotent: false,
        },
    });
    let reply = call.await?;
    let data = reply.results().bulk(MAX_LEN).map_err(malformed)?;
    Ok(data.to_bytes())
}

/// Makes the server carry out an order, and waits until it has. No other order at this server may
/// have the same `ticket`.
///
/// # Errors
/// See [`CallError`]: failures of the order itself. The results of the callbacks are in the tally.
pub async fn run(client: &Client, ticket: u32, order: Order) -> Result<Tally, CallError> {
    call(client, ORDER, order.encode(ticket), 0).await?;
    let mut pause = FIRST_PAUSE;
    loop {
        let mut args = Encoder::new();
        args.u32(ticket);
        let reply = call(client, STATE, args.finish(), 20).await?;
        let tally = Tally::decode(&mut reply.results()).map_err(malformed)?;
        if tally.done {
            return Ok(tally);
        }
        client.runtime().sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

fn malformed(error: DecodeError) -> CallError {
    CallError::Protocol(error.to_string())
}
