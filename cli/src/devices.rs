//! The `devices` command: lists RDMA devices, their capabilities, and what they lack.

use std::net::IpAddr;

use rdma_core::Registration;
use rdma_core::report::{self, DeviceReport, PortReport, Report};
use rpcrdma_setup::Failure;
use rpcrdma_setup::columns::Table;
use rpcrdma_setup::device::{DeviceChoice, DeviceName};
use serde_json::{Value, json};

use crate::args::DevicesArgs;
use crate::output;

/// The description of a device, for a table or JSON.
struct Entry {
    /// The name for `--device`.
    name: DeviceName,
    kind: String,
    interface: Option<String>,
    addresses: Vec<IpAddr>,
    ports: Vec<PortReport>,
    /// The supported registration methods, best first.
    registration: Vec<&'static str>,
    /// Whether the peer's Send With Invalidate can end registrations of the best method.
    remote_invalidation: bool,
    /// The maximum outstanding RDMA Reads as responder and as initiator.
    reads: Option<(u32, u32)>,
    /// The reason why the device cannot be used.
    problem: Option<String>,
}

/// Lists devices.
///
/// # Errors
/// Standard output cannot be written to. A missing device is not an error, but a result.
pub(crate) fn run(args: &DevicesArgs) -> Result<(), Failure> {
    let found = report::devices();
    let mut entries = vec![iwarp()?];
    entries.extend(found.devices.iter().map(|device| verbs(device, &found)));
    if args.json {
        return output::json(&as_json(&entries, &found));
    }
    output::line(table(&entries))?;
    let usable = entries
        .iter()
        .any(|entry| matches!(entry.name, DeviceName::Verbs(_)) && entry.problem.is_none());
    let problems = found.problems();
    let heading = match (usable, problems.is_empty()) {
        (true, true) => return Ok(()),
        (true, false) => "Some things could be better for verbs devices:",
        (false, _) => "No verbs device can be used here (iwarp needs none of this):",
    };
    output::line(heading)?;
    for problem in &problems {
        output::line(format_args!("  - {problem}"))?;
    }
    Ok(())
}

/// Describes the device in this program.
fn iwarp() -> Result<Entry, Failure> {
    let choice = DeviceChoice::default();
    let opened = choice.open(None, false, None)?;
    let limits = opened.device.attributes();
    Ok(Entry {
        name: choice.name,
        kind: "software iWARP, in this program".to_owned(),
        interface: None,
        addresses: Vec::new(),
        ports: Vec::new(),
        registration: vec![opened.registration.name()],
        remote_invalidation: true,
        reads: Some((limits.max_inbound_reads, limits.max_outbound_reads)),
        problem: None,
    })
}

fn verbs(device: &DeviceReport, found: &Report) -> Entry {
    let able = device.capabilities.as_ref();
    let inactive = || {
        let active = device.ports.iter().any(PortReport::is_active);
        (!active).then(|| "no port is active".to_owned())
    };
    let nodes = || {
        let node = found.nodes.iter().find(|node| node.usable.is_err())?;
        let reason = node.usable.as_ref().err()?;
        Some(format!("{}: {reason}", node.path.display()))
    };
    Entry {
        name: DeviceName::Verbs(Some(device.name.clone())),
        kind: able.map_or("?", |able| able.kind.name()).to_owned(),
        interface: device.interface.clone(),
        addresses: device.addresses.clone(),
        ports: device.ports.clone(),
        registration: able.map_or_else(
            |_| Vec::new(),
            |able| able.registrations().map(Registration::name).collect(),
        ),
        remote_invalidation: able.is_ok_and(|able| able.remote_invalidation(able.best())),
        reads: able
            .ok()
            .map(|able| (able.max_inbound_reads, able.max_outbound_reads)),
        problem: able.err().cloned().or_else(inactive).or_else(nodes),
    }
}

fn table(entries: &[Entry]) -> String {
    let mut table = Table::new(
        8,
        [
            "device",
            "kind",
            "interface",
            "addresses",
            "port",
            "registration",
            "reads in/out",
            "state",
        ],
    );
    for entry in entries {
        let own = matches!(entry.name, DeviceName::Iwarp);
        let several = |words: Vec<String>| match words.is_empty() {
            true if own => "any".to_owned(),
            true => "-".to_owned(),
            false => words.join(","),
        };
        let port = |port: &PortReport| format!("{} {}", port.link_layer, port.state);
        table.push([
            entry.name.to_string(),
            entry.kind.clone(),
            several(entry.interface.iter().cloned().collect()),
            several(entry.addresses.iter().map(IpAddr::to_string).collect()),
            several(entry.ports.iter().map(port).collect()),
            match entry.registration.is_empty() {
                true => "-".to_owned(),
                false => entry.registration.join(","),
            },
            entry.reads.map_or_else(
                || "-".to_owned(),
                |(inbound, outbound)| format!("{inbound}/{outbound}"),
            ),
            entry.problem.clone().unwrap_or_else(|| "ready".to_owned()),
        ]);
    }
    table.render()
}

fn as_json(entries: &[Entry], found: &Report) -> Value {
    let port = |port: &PortReport| {
        json!({
            "number": port.number,
            "state": port.state,
            "link_layer": port.link_layer,
            "rate": port.rate,
        })
    };
    let devices = entries.iter().map(|entry| {
        json!({
            "device": entry.name.to_string(),
            "kind": entry.kind,
            "interface": entry.interface,
            "addresses": entry.addresses,
            "ports": entry.ports.iter().map(port).collect::<Vec<_>>(),
            "registration": entry.registration,
            "remote_invalidation": entry.remote_invalidation,
            "max_inbound_reads": entry.reads.map(|reads| reads.0),
            "max_outbound_reads": entry.reads.map(|reads| reads.1),
            "usable": entry.problem.is_none(),
            "problem": entry.problem,
        })
    });
    let modules = found.modules.iter().map(
        |module| json!({"name": module.name, "needed": module.needed, "loaded": module.loaded}),
    );
    let nodes = found.nodes.iter().map(|node| {
        json!({
            "path": node.path.display().to_string(),
            "usable": node.usable.is_ok(),
            "problem": node.usable.as_ref().err(),
        })
    });
    json!({
        "devices": devices.collect::<Vec<_>>(),
        "libraries": {
            "loaded": found.libraries.is_ok(),
            "problem": found.libraries.as_ref().err().map(ToString::to_string),
        },
        "modules": modules.collect::<Vec<_>>(),
        "nodes": nodes.collect::<Vec<_>>(),
        "memlock_bytes": {"soft": found.memlock.soft, "hard": found.memlock.hard},
        "problems": found.problems(),
    })
}
