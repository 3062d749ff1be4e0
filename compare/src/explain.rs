//! Captures transfer plans from the transport's log.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rpcrdma_programs::workload::Workload;
use rpcrdma_setup::Failure;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::targets::{self, Setting};

/// The field of a log event that contains a plan.
const PLAN: &str = "plan";
/// The message of the event for a call's plan.
const CALL: &str = "call";

/// Performs each of `ops` once and returns a line with its plan.
///
/// # Errors
/// An operation failed.
pub(crate) fn plans(
    setting: &Setting<'_>,
    ops: &[Arc<dyn Workload>],
) -> Result<Vec<String>, Failure> {
    let mut lines = Vec::new();
    for bench in &mut targets::start_targets(setting)? {
        for op in ops {
            let (performed, plan) = listen(|| bench.message_sizes(&**op));
            let (call, reply) = performed?;
            let plan = match plan {
                Some(plan) => plan,
                None => format!("call: {call} B, reply: {reply} B, in records"),
            };
            lines.push(format!("{op}, {}: {plan}", bench.variant.name()));
        }
    }
    Ok(lines)
}

/// Runs `work` and returns its result with the last plan of a call that was logged meanwhile.
pub(crate) fn listen<T>(work: impl FnOnce() -> T) -> (T, Option<String>) {
    let listener = Listener::default();
    let done = tracing::subscriber::with_default(listener.clone(), work);
    (done, listener.take())
}

/// A tracing subscriber that keeps the last plan of a call.
#[derive(Clone, Default)]
struct Listener {
    plan: Arc<Mutex<Option<String>>>,
}

impl Listener {
    fn take(&self) -> Option<String> {
        self.plan
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.fields().field(PLAN).is_some()
    }

    fn event(&self, event: &Event<'_>) {
        let mut found = Found::default();
        event.record(&mut found);
        // In a simulation, the server's plans of replies are logged as well.
        if found.plan.is_some() && found.of_call {
            *self.plan.lock().unwrap_or_else(PoisonError::into_inner) = found.plan;
        }
    }

    // Spans are not used, so they all have the same id.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Found {
    plan: Option<String>,
    of_call: bool,
}

impl Visit for Found {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            PLAN => self.plan = Some(format!("{value:?}")),
            "message" => self.of_call = format!("{value:?}") == CALL,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hears_plans_and_nothing_else() {
        let listener = Listener::default();
        tracing::subscriber::with_default(listener.clone(), || {
            let plan = format_args!("call: payload inline (40 B)");
            tracing::debug!(xid = 7, %plan, "call");
            tracing::debug!(xid = 7, plan = "reply: 4 B", "reply");
            tracing::debug!(xid = 8, "something else");
        });
        assert_eq!(
            listener.take().as_deref(),
            Some("call: payload inline (40 B)")
        );
        assert_eq!(listener.take(), None);
    }
}
