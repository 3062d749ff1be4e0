//! Processes and connections that are measured together: one rig for each conveyance.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use nfs_binding::client::NfsUrl;
use rpc_transport::rdma::{Choice, RdmaClientOptions};
use rpcrdma_setup::mount_options::{MountOptions, Proto};

use crate::args::{CompareArgs, Conveyance, Crc, Serves};
use crate::compare::child::ChildProcess;
use crate::compare::network::Network;
use crate::compare::op::Op;
use crate::compare::rig::Rig;
use crate::compare::rows::{Conditions, Mode};
use crate::compare::server_process::Listening;
use rpcrdma_setup::Failure;
use rpcrdma_setup::access::{Access, LinkOptions};
use rpcrdma_setup::costs::CostsArg;
use rpcrdma_setup::device::{DeviceChoice, DeviceName};

/// The export of a server process.
const EXPORT: &[u8] = b"/memory";
/// Sizes that receives can have in version 2, bytes: its least, and the most that private data can
/// say in version 1.
const INLINE: RangeInclusive<u32> = 4096..=262_144;
/// Hidden subcommand that children run.
pub(crate) const CHILD: &str = "internal-child";

/// Starts the floor's server; returns it and its address.
///
/// # Errors
/// It does not start.
pub(crate) fn floor(setting: &Setting<'_>) -> Result<(ChildProcess, SocketAddr), Failure> {
    let mut words = vec![CHILD.to_owned(), Serves::FLOOR.to_owned()];
    words.push(format!("--listen={}", setting.args.address));
    words.extend(
        setting
            .processors
            .map(|(_, server)| format!("--processor={server}")),
    );
    let mut child = ChildProcess::start("floor", &words)?;
    let listening: Listening = child.answer()?;
    Ok((child, listening.address))
}

/// What a set of rigs has in common.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    /// Device, link rate and checksums.
    pub(crate) args: &'a CompareArgs,
    /// Sleeping or spinning.
    pub(crate) mode: Mode,
    /// Delay of the link, each way, that this program adds.
    pub(crate) delay: Duration,
    /// What makes the delay, if that is not this program.
    pub(crate) network: Option<&'a Network>,
    /// What is performed, and needs to be there.
    pub(crate) ops: &'a [Op],
    /// The client's processor and the servers'.
    pub(crate) processors: Option<(usize, usize)>,
}

/// Bytes of receives, in version 2.
///
/// # Errors
/// They are asked for with another size than they can have.
pub(crate) fn inline(asked: u64) -> Result<u32, Failure> {
    match u32::try_from(asked) {
        Ok(size) if INLINE.contains(&size) => Ok(size),
        _ => {
            let (low, high) = (INLINE.start(), INLINE.end());
            let text = format!("--inline {asked}: not from {low} to {high}");
            Err(Failure::Usage(text))
        }
    }
}

/// Starts a server for each conveyance and connects to it.
///
/// # Errors
/// A server does not start, or cannot be reached.
pub(crate) fn rigs(setting: &Setting<'_>) -> Result<Vec<Rig>, Failure> {
    let via = setting.args.via.iter();
    via.map(|&conveyance| {
        let rig = rig(setting, conveyance)?;
        if setting.mode.is_busy() {
            // One at a time gets the processors, when its turn comes.
            rig.pause()?;
        }
        Ok(rig)
    })
    .collect()
}

fn rig(setting: &Setting<'_>, conveyance: Conveyance) -> Result<Rig, Failure> {
    let &Setting {
        args,
        mode,
        delay,
        ops,
        processors,
        ..
    } = setting;
    let proto = match conveyance.version() {
        Some(_) => Proto::Rdma,
        None => Proto::Tcp,
    };
    let inline = inline(args.inline)?;
    let mut rdma = RdmaClientOptions::default();
    if let Some(version) = conveyance.version() {
        rdma.version = Choice::Only(version);
        conveyance.configure(&mut rdma.common, inline);
        rdma.common.costs = CostsArg::load(args.costs.as_ref())?.model();
    }
    let name = conveyance.name();
    let mut words = vec![CHILD.to_owned(), name.to_owned()];
    let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
    option("--device", args.device.to_string());
    option("--registration", args.registration.to_string());
    option("--listen", args.address.to_string());
    option("--delay", format!("{}ns", delay.as_nanos()));
    option("--crc", args.crc.name().to_owned());
    option("--inline", inline.to_string());
    if let Some(rate) = args.rate {
        option("--rate", rate.to_string());
    }
    if let Some(costs) = &args.costs {
        option("--costs", costs.to_string());
    }
    words.extend(processors.map(|(_, server)| format!("--processor={server}")));
    if mode.is_busy() {
        words.push("--busy-poll".to_owned());
    }
    let mut child = ChildProcess::start(name, &words)?;
    let listening: Listening = child.answer()?;
    let access = Access {
        mount: MountOptions {
            proto,
            ..MountOptions::default()
        },
        rdma,
        device: DeviceChoice {
            name: args.device.clone(),
            registration: args.registration,
            address: None,
            ..DeviceChoice::default()
        },
        link: LinkOptions {
            delay,
            rate: args.rate.map(|rate| rate.0),
            busy_poll: mode.is_busy(),
            crc: args.crc == Crc::On,
        },
        answers: None,
    };
    let address = listening.address;
    let url = NfsUrl {
        server: address.ip().to_string(),
        port: Some(address.port()),
        path: EXPORT.to_vec(),
    };
    let mounted = access.mount(&url)?;
    let framed = conveyance.version().is_some() && args.device == DeviceName::Iwarp;
    let conditions = Conditions {
        inline_bytes: conveyance.receive_size(inline),
        rate_bits_per_s: args.rate.map(|rate| rate.0),
        crc: framed.then_some(args.crc.is_on()),
        registration: mounted.reached.registration(),
        processor_requester: processors.map(|(client, _)| client),
        processor_responder: processors.map(|(_, server)| server),
    };
    Rig::new(conveyance, &args.device, child, mounted, conditions, ops)
}
