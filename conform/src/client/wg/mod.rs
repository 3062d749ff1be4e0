//! The state of a server of version-two-07, the rules that it looks at, and its messages.

mod answer;
mod arrival;
mod chunks;
mod counts;
mod properties;
mod strays;
#[cfg(test)]
mod tests;

pub(super) use answer::{Answers, answers};
pub(super) use arrival::{Taken, Wg};
pub(super) use chunks::form;
pub(super) use strays::{message as stray, report};
