//! The `explain` command: shows how operations would be transferred, and why.

use nfs_binding::client::AttachOptions;
use rpc_transport::rdma::{ConsideredMode, CostModel};
use rpcrdma_ladder::{Ladder, Picture, Style, TextOptions, svg, text};
use rpcrdma_programs::workload::{Op, Workload};
use rpcrdma_protocols::RoundTripFeatures;
use rpcrdma_setup::access::Access;
use rpcrdma_setup::catalog::{Catalog, Features, Tuning};
use rpcrdma_setup::costs::Costs;
use rpcrdma_setup::inline::InlineSizes;
use rpcrdma_setup::mount_options::{MountOptions, Proto};
use rpcrdma_setup::units::show_size;
use rpcrdma_setup::{Context, Failure};
use rpcrdma_sim::{Setting, consider, ladder};

use crate::args::{ExplainArgs, LadderForm};
use crate::output;

/// Explains each operation.
///
/// # Errors
/// An option cannot be used here, or an operation cannot be transferred.
pub(crate) fn run(args: &ExplainArgs, catalog: &Catalog) -> Result<(), Failure> {
    if args.mount.trace.trace.is_some() {
        return Err(Failure::usage("--trace: explain makes no calls"));
    }
    let access = args.mount.planned(catalog)?;
    let tuning = args.mount.tuning.tuning(catalog)?;
    let (setting, costs) = setting(args, &access, &tuning)?;
    let limited = |asked: Op| asked.limited(access.mount.attach.rsize, access.mount.attach.wsize);
    if args.ladder == Some(LadderForm::Svg) {
        let picture = picture(&setting, &costs, args.ops.iter().map(|op| limited(*op)))?;
        return output::line(svg(&picture, Style::Screen).trim_end());
    }
    output::line(costs.table())?;
    for (index, &asked) in args.ops.iter().enumerate() {
        let op = limited(asked);
        let ways = consider(&setting, &op).context(op)?;
        if index > 0 {
            output::line("")?;
        }
        let version = setting.version;
        let has_features = setting
            .requester
            .protocols
            .has_extensions(|known| known == version);
        let version = match has_features {
            true => format!(
                "version {version} of RPC-over-RDMA, features {} here and {} at the server",
                setting.requester.protocols, setting.responder.protocols
            ),
            false => format!("version {version} of RPC-over-RDMA"),
        };
        let part = match (asked.size(), op.size()) {
            (Some(asked), Some(size)) if asked > size => {
                let (calls, all) = (asked.div_ceil(size), show_size(asked.into()));
                format!(", the first of {calls} calls for {all}")
            }
            _ => String::new(),
        };
        output::line(format_args!("{op}{part}, {version}:"))?;
        for line in lines(&ways) {
            output::line(line)?;
        }
    }
    if args.ladder.is_some() {
        let picture = picture(&setting, &costs, args.ops.iter().map(|op| limited(*op)))?;
        output::line("")?;
        output::line(text(&picture, &TextOptions::default()).trim_end())?;
    }
    Ok(())
}

/// Performs the operations in a simulation with these costs, and draws them side by side.
fn picture(
    setting: &Setting,
    costs: &Costs,
    ops: impl Iterator<Item = Op>,
) -> Result<Picture, Failure> {
    let setting = setting.priced(&costs.model());
    let mut ladders = Vec::new();
    for op in ops {
        let (_, drawn) = ladder(&setting, &op).context(op)?;
        ladders.push(Ladder {
            name: op.to_string(),
            ..drawn
        });
    }
    Ok(Picture {
        title: format!("Version {} of RPC-over-RDMA", setting.version),
        ladders,
        notes: vec![
            "A simulation with the costs of `explain`, one call at a time. Time runs downwards, until the \
             client has the results."
                .to_owned(),
        ],
    })
}

/// Returns the simulated client and server with these options. The server supports all features
/// unless options say less.
fn setting(
    args: &ExplainArgs,
    access: &Access,
    tuning: &Tuning,
) -> Result<(Setting, Costs), Failure> {
    if access.mount.proto == Proto::Tcp {
        let text = "over TCP there is one way only: explain is about NFS over RDMA";
        return Err(Failure::usage(text));
    }
    only_what_matters(args, &access.mount)?;
    let versions = access.rdma.common.protocols.known();
    let Some(version) = versions.first(access.rdma.version) else {
        let text = format!("version {} is not implemented", access.rdma.version);
        return Err(Failure::Usage(text));
    };
    let version = version.version();
    let mut setting = Setting {
        version,
        requester: access.rdma.common.clone(),
        ..Setting::default()
    };
    let leaves_out = !setting
        .requester
        .protocols
        .has_extensions(|known| known == version);
    let offered = args.server_features.as_ref();
    if leaves_out && offered.is_some_and(|features| !features.is_none()) {
        let text = "--server-features: of version 2, which rpcrdma=1 leaves out";
        return Err(Failure::usage(text));
    }
    let all = || Features::from(RoundTripFeatures::ALL);
    let offered = offered.cloned().unwrap_or_else(all);
    setting.responder.protocols = tuning.protocols(&offered);
    if args.inline != InlineSizes::default() {
        tuning.check_beside_inline("--inline")?;
    }
    args.inline.apply(&mut setting.responder);
    access
        .mount
        .inline
        .unwrap_or(args.inline)
        .apply(&mut setting.requester);
    for end in [&mut setting.requester, &mut setting.responder] {
        tuning.apply(end);
    }
    // These are the costs that a real client with these options would use. The simulation's own
    // times do not matter.
    let costs = match access.device.class_costs() {
        Ok(class) => access.costs.clone().or_of(&class),
        // The table says where each cost comes from, and another machine may have the device.
        Err(failure) => {
            output::remark(format_args!("default costs are shown: {failure}"));
            access.costs.clone()
        }
    };
    setting.chosen_by = Some(costs.model());
    Ok((setting, costs))
}

/// Checks that no option is given that cannot affect how an operation is transferred, because the
/// user would expect an effect. (Options of nfs(5) that this program ignores are accepted.)
fn only_what_matters(args: &ExplainArgs, mount: &MountOptions) -> Result<(), Failure> {
    // All fields are listed, so that a new one cannot be forgotten here.
    let MountOptions {
        proto: _,
        rpcrdma: _,
        features: _,
        inline: _,
        attach:
            AttachOptions {
                rsize,
                wsize,
                readdirplus,
                read_only,
            },
        port,
        mount_port,
        ipv6,
        mount_ipv6,
        mount_proto,
        mount_host,
        device,
        registration,
        client_address,
        nconnect,
        threads,
        timeo,
        retrans,
        hard,
        // Only `nosuid` and `nodev` are refused below. The rest are ignored, as a line of fstab has
        // them.
        mounted,
        // Every command but `mount` has already refused it.
        remount: _,
    } = mount;
    let sizes = [
        (
            "rsize=",
            rsize.is_some() && !args.ops.iter().any(|op| matches!(op, Op::Read(_))),
            "no operation here is a READ, which alone it limits",
        ),
        (
            "wsize=",
            wsize.is_some() && !args.ops.iter().any(|op| matches!(op, Op::Write(_))),
            "no operation here is a WRITE, which alone it limits",
        ),
    ];
    if let Some((name, _, reason)) = sizes.into_iter().find(|(_, idle, _)| *idle) {
        return Err(Failure::Usage(format!("{name}: {reason}")));
    }
    let usual = MountOptions::default();
    let given = [
        ("port=", port.is_some()),
        ("mountport=", mount_port.is_some()),
        ("mountproto=", mount_proto.is_some() || *mount_ipv6),
        ("mounthost=", mount_host.is_some()),
        ("proto=rdma6", *ipv6),
        ("device=", device.is_some()),
        ("registration=", registration.is_some()),
        ("clientaddr=", client_address.is_some()),
        ("nconnect=", *nconnect != usual.nconnect),
        ("threads=", *threads != usual.threads),
        ("timeo=", *timeo != usual.timeo),
        ("retrans=", *retrans != usual.retrans),
        ("soft", *hard != usual.hard),
        ("nordirplus", *readdirplus != usual.attach.readdirplus),
        ("ro", *read_only != usual.attach.read_only),
        ("nosuid", mounted.set_id == Some(false)),
        ("nodev", mounted.devices == Some(false)),
        ("--busy-poll", args.mount.busy_poll),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        Some((name, _)) => Err(Failure::Usage(format!(
            "{name}: changes nothing in how an operation is carried; what does are rpcrdma=, features=, \
             inline=, rsize=, wsize=, --inline, --server-features, --credits, --set, --delay, --rate and --costs"
        ))),
        None => Ok(()),
    }
}

/// Formats the transfer modes and marks the chosen one. Where that is not the cheapest, a line says why.
fn lines(ways: &[ConsideredMode]) -> Vec<String> {
    let mut lines = Vec::new();
    let cheapest = ways.iter().min_by_key(|way| way.cost);
    for way in ways {
        let mark = if way.chosen { "->" } else { "  " };
        let cost = way.cost.as_secs_f64() * 1e6;
        lines.push(format!("{mark} {cost:>10.3} µs  {}", way.effort));
        lines.push(format!("                   {}", way.plan));
        if let Some(cheapest) = cheapest.filter(|it| way.chosen && it.cost < way.cost) {
            let fewer = match way.effort.registrations < cheapest.effort.registrations {
                true => "registrations",
                false => "bytes to copy",
            };
            let percent = 100 / CostModel::ALIKE;
            lines.push(format!(
                "                   within {percent} % of the cheapest, with fewer {fewer}"
            ));
        }
    }
    lines
}
