//! A recorder of the simulated wire, which writes down what each end of each connection sends.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;

use bytes::Bytes;
use rdma::{Event, SendWr, Success, Time};
use rdma_sim::{End, FabricEvent, NodeId, Observer};

use crate::show::{digest, message, words};

/// The records of one end of a connection during a step, in order.
#[derive(Debug, Default)]
struct Sent {
    lines: Vec<String>,
    /// The indexes of the lines of RDMA Reads whose data has not arrived.
    reading: VecDeque<usize>,
}

/// A part of the exchange that ends before the next one begins.
#[derive(Debug)]
struct Step {
    name: String,
    /// The records, by the number of the connection and whether the server is the sender.
    sent: BTreeMap<(usize, bool), Sent>,
}

/// Records the messages between one client and one server.
#[derive(Debug)]
pub(crate) struct WireRecorder {
    server: NodeId,
    steps: Vec<Step>,
    /// The ends of connections, which are numbered from 1 in the order of their creation.
    clients: Vec<End>,
    servers: Vec<End>,
}

impl WireRecorder {
    pub(crate) fn new(server: NodeId) -> Self {
        Self {
            server,
            steps: Vec::new(),
            clients: Vec::new(),
            servers: Vec::new(),
        }
    }

    /// Begins a step.
    pub(crate) fn step(&mut self, name: &str) {
        self.steps.push(Step {
            name: name.to_owned(),
            sent: BTreeMap::new(),
        });
    }

    /// Returns the whole record. Within a step, it groups what each end sent, because the order
    /// between the two directions depends on time and not on bytes.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for step in &self.steps {
            // Writing to a String does not fail.
            let _ = writeln!(text, "\n## {}", step.name);
            for (&(number, from_server), sent) in &step.sent {
                let who = if from_server { "server" } else { "client" };
                for line in &sent.lines {
                    let _ = writeln!(text, "{number} {who} {line}");
                }
            }
        }
        text
    }

    /// Returns the number of the connection with this end.
    fn number(&mut self, end: End) -> usize {
        let known = match end.node == self.server {
            true => &mut self.servers,
            false => &mut self.clients,
        };
        let at = known.iter().position(|&at| at == end);
        let at = at.unwrap_or_else(|| {
            known.push(end);
            known.len() - 1
        });
        at + 1
    }

    fn sent(&mut self, end: End) -> Option<&mut Sent> {
        let number = self.number(end);
        let from_server = end.node == self.server;
        let step = self.steps.last_mut()?;
        Some(step.sent.entry((number, from_server)).or_default())
    }

    fn line(&mut self, end: End, line: String) {
        if let Some(sent) = self.sent(end) {
            sent.lines.push(line);
        }
    }

    fn posted(&mut self, end: End, wr: &SendWr) {
        match wr {
            SendWr::Send { gather, invalidate } => {
                let bytes: Bytes = gather.iter().flatten().copied().collect();
                let invalidates = invalidate.map(|stag| format!(" invalidates {stag}"));
                let invalidates = invalidates.unwrap_or_default();
                let (len, text) = (bytes.len(), message(&bytes));
                self.line(end, format!("send {len}{invalidates} {text}"));
            }
            SendWr::Write {
                gather,
                stag,
                offset,
            } => {
                let bytes: Bytes = gather.iter().flatten().copied().collect();
                let (len, digest) = (bytes.len(), digest(&bytes));
                self.line(
                    end,
                    format!("write {len} to {stag}+{offset:#x} {digest:016x}"),
                );
            }
            SendWr::Read { sink, stag, offset } => {
                let line = format!("read {} at {stag}+{offset:#x}", sink.len());
                if let Some(sent) = self.sent(end) {
                    sent.reading.push_back(sent.lines.len());
                    sent.lines.push(line);
                }
            }
            // A local invalidation sends nothing.
            SendWr::Invalidate { .. } => {}
        }
    }

    /// Completes the oldest RDMA Read of a connection: they complete in order.
    fn fetched(&mut self, end: End, bytes: &[u8]) {
        let digest = digest(bytes);
        if let Some(sent) = self.sent(end)
            && let Some(at) = sent.reading.pop_front()
        {
            let _ = write!(sent.lines[at], " {digest:016x}");
        }
    }
}

impl Observer for WireRecorder {
    fn event(&mut self, _: Time, what: &FabricEvent<'_>) {
        match what {
            FabricEvent::Connecting(end, private_data) => {
                self.line(*end, format!("connect{}", words(private_data)));
            }
            FabricEvent::Taken(end, Event::Established { private_data, .. }) => {
                let number = self.number(*end);
                // The private data that the server sent with its acceptance.
                if end.node != self.server
                    && let Some(step) = self.steps.last_mut()
                {
                    let sent = step.sent.entry((number, true)).or_default();
                    sent.lines.push(format!("accept{}", words(private_data)));
                }
            }
            FabricEvent::Posted(end, wr) => self.posted(*end, wr),
            FabricEvent::Taken(end, Event::Completion(completion)) => {
                if let Ok(Success::Read { sink }) = &completion.result {
                    self.fetched(*end, sink);
                }
            }
            FabricEvent::Closed(end) => self.line(*end, "close".to_owned()),
            FabricEvent::Aborted(end) => self.line(*end, "abort".to_owned()),
            _ => {}
        }
    }
}
