//! Checks that a connection with the addresses and ports of an earlier one shares no state with it.

use std::path::Path;

use super::Wireshark;
use super::fields;
use super::frames::End::{Client, Server};
use super::frames::{Frames, Iwarp};
use super::hostile::{CALL, MSG, REPLY, rpc, v1, v2};
use crate::error::Error;

/// The XID of all calls.
const XID: u32 = 2;

/// Makes the check. A call of version 1 is outstanding when its connection ends; the later connection
/// has one with the same XID, of version 2. Returns how many messages there are, and what is wrong.
pub(super) fn check(wireshark: &Wireshark, folder: &Path) -> Result<(usize, Vec<String>), Error> {
    let mut frames = Frames::new();
    let mut earlier = Iwarp::open(&mut frames, 0, [&[], &[]]);
    let message = v1(XID, 1, MSG, &[0, 0, 0], &rpc(XID, CALL));
    earlier.send(&mut frames, Client, &message, None);
    let mut later = Iwarp::open_again(&mut frames, 0, [&[], &[]]);
    let message = v2(XID, CALL, &[0, 0, 0], &rpc(XID, CALL));
    later.send(&mut frames, Client, &message, None);
    let called = frames.last();
    let message = v2(XID, REPLY, &[0, 0, 0], &rpc(XID, REPLY));
    later.send(&mut frames, Server, &message, None);

    let file = folder.join("reused.pcap");
    frames.write(&file).map_err(Error::ours("a capture"))?;
    let layers = wireshark.layers(&file)?;
    let mut wrong = Vec::new();
    for layer in &layers {
        let rules = fields::rules(layer);
        if !rules.is_empty() {
            wrong.push(format!("packet {}: rules {rules:?}", layer.packet));
        }
    }
    let lines = layers.last().map(|layer| &layer.lines[..]);
    let mut lines = lines.unwrap_or_default().iter();
    let request = lines.find(|line| line.name.ends_with(".request_in"));
    let request = request.map(|line| line.show.as_str());
    if request != Some(called.to_string().as_str()) {
        wrong.push(format!("the reply's call is {request:?}, not {called}"));
    }
    if layers.len() != 3 {
        wrong.push(format!("{} messages are shown, not 3", layers.len()));
    }
    Ok((layers.len(), wrong))
}
