//! `explain`: how operations would be carried, and why so.

use rpc_transport::rdma::{Choice, Considered, Version};
use rpcrdma_sim::{Setting, consider};

use crate::args::ExplainArgs;
use crate::compare::operation;
use crate::costs::{Costs, CostsArg};
use crate::failure::{Context, Failure};
use crate::output;
use crate::transport::Access;

/// Explains each operation.
///
/// # Errors
/// An option cannot be used here, or an operation not be carried.
pub(crate) fn run(args: &ExplainArgs) -> Result<(), Failure> {
    let (setting, costs) = setting(args)?;
    output::line(costs.table())?;
    for (index, &op) in args.ops.iter().enumerate() {
        let ways = consider(&setting, operation(op)).context(op)?;
        if index > 0 {
            output::line("")?;
        }
        let version = setting.version;
        output::line(format_args!("{op}, version {version} of RPC-over-RDMA:"))?;
        for line in lines(&ways) {
            output::line(line)?;
        }
    }
    Ok(())
}

/// Client and server with these options, the server with all that there is.
fn setting(args: &ExplainArgs) -> Result<(Setting, Costs), Failure> {
    let access = Access::new(&args.mount)?;
    if access.mount.proto == nfs_binding::client::Proto::Tcp {
        let text = "over TCP there is one way only: explain is about NFS over RDMA";
        return Err(Failure::usage(text));
    }
    let inline = crate::compare::inline(args.inline)?;
    let version = match access.rdma.version {
        Choice::Only(version) => version,
        Choice::Auto => Version::Two,
    };
    let mut setting = Setting {
        version,
        requester: access.rdma.common,
        ..Setting::default()
    };
    setting.responder.features = args.server_features;
    if version == Version::Two {
        for options in [&mut setting.requester, &mut setting.responder] {
            options.inline_send = inline;
            options.inline_receive = inline;
        }
    }
    // What a client with these options goes by. The simulation's own time is of no interest.
    let costs = CostsArg::load(args.mount.costs.as_ref())?;
    let rate = args.mount.rate.map(|rate| rate.0);
    let costs = costs.on_link(args.mount.delay.0, rate);
    setting.chosen_by = Some(costs.model());
    Ok((setting, costs))
}

/// The ways, the one that is taken marked.
fn lines(ways: &[Considered]) -> Vec<String> {
    let mut lines = Vec::new();
    for way in ways {
        let mark = if way.chosen { "->" } else { "  " };
        let cost = way.cost.as_secs_f64() * 1e6;
        lines.push(format!("{mark} {cost:>10.3} us  {}", way.effort));
        lines.push(format!("                   {}", way.plan));
    }
    lines
}
