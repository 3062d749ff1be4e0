//! How simulated clients connect.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use onc_rpc::Credential;
use rpc_transport::{CallError, Client, ClientOptions, ClientTransport};
use rpcrdma_programs::callbacks::Answers;

use crate::client::{Desk, credential};
use crate::shared::{FOR_EVER, PAUSE, Shared, TRIES};

/// The maximum time until an honest client is connected, beside others that send only NULL or flood the
/// server, with the time of a restart of the server.
const GETS_IN: Duration = Duration::from_secs(1);
/// Clients arrive one after the other, with this part of [`crate::Hostile::arrival`] between them.
const ARRIVAL_PART: u32 = 8;

/// Connects an honest client, after it has arrived. With `answers`, it takes calls from its server.
pub(crate) async fn connect(
    shared: &Shared,
    desk: &Desk,
    answers: Option<&Answers>,
) -> Option<Client> {
    let hostile = shared.plan.hostile.as_ref();
    if let Some(most) = hostile.map(|hostile| hostile.arrival) {
        let arrived = shared.arrived.get() + 1;
        shared.arrived.set(arrived);
        desk.runtime.sleep(most * arrived / ARRIVAL_PART).await;
    }
    let began = desk.runtime.now();
    let client = connect_as(shared, desk, answers, credential(), shared.plan.nconnect).await;
    let took = desk.runtime.now() - began;
    if shared.plan.is_spared() && took > GETS_IN {
        let text = format!("a client got in only after {took:?}, beside others that do little");
        let now = desk.runtime.now();
        shared.journal.borrow_mut().violation(now, text);
    }
    client
}

/// Connects a client, as this user and with this number of connections.
pub(crate) async fn connect_as(
    shared: &Shared,
    desk: &Desk,
    answers: Option<&Answers>,
    credential: Credential,
    nconnect: usize,
) -> Option<Client> {
    let plan = &shared.plan;
    let answers = answers.filter(|_| plan.callbacks);
    let options = ClientOptions {
        credential,
        nconnect,
        timeout: plan.timeout,
        retry: plan.retry,
        give_up_after: FOR_EVER,
        first_reply_within: FOR_EVER,
        trace: (plan.trace.clone()).map(|trace| trace.with_clock(desk.clock.clone())),
        ..ClientOptions::default()
    };
    for _ in 0..TRIES {
        let port = Rc::clone(&desk.port) as Rc<RefCell<dyn ClientTransport>>;
        let (runtime, options) = (&desk.runtime, options.clone());
        let connected = match answers {
            None => Client::connect(runtime, shared.server, port, options).await,
            Some(answers) => {
                let service = Box::new(answers.clone());
                let server = shared.server;
                Client::connect_with_callbacks(runtime, server, port, options, service).await
            }
        };
        match connected {
            Ok(client) => return Some(client),
            Err(error) => {
                misled(shared, desk, &error);
                desk.runtime.sleep(PAUSE).await;
            }
        }
    }
    None
}

/// Checks that a client whose server has no room for it at the moment is not told that it asked for a
/// version that the server does not have. There always is a common one.
fn misled(shared: &Shared, desk: &Desk, error: &CallError) {
    let text = error.to_string();
    if text.contains("no version in common") {
        let now = desk.runtime.now();
        let text = format!("a client was told wrongly why it cannot connect: {text}");
        shared.journal.borrow_mut().violation(now, text);
    }
}
