//! The headings of options in help and manual pages, and the options that `-h` leaves out.

use clap::{Arg, Command};

/// Options under one heading, by their names in this program.
struct Section {
    heading: &'static str,
    options: &'static [&'static str],
    /// Further ones, which `--help` shows and `-h` does not.
    more: &'static [&'static str],
}

/// The heading of the options that all commands have.
const GENERAL: &str = "General options";

const OBSERVED: Section = Section {
    heading: "Captures, traces and counters",
    options: &["capture", "trace", "metrics"],
    more: &["capture_size", "snap", "trace_size"],
};

/// The sections of commands that reach a server by mount options.
const CLIENT: &[Section] = &[
    OBSERVED,
    Section {
        heading: "Connection",
        options: &["options"],
        more: &[
            "features",
            "credits",
            "settings",
            "costs",
            "delay",
            "rate",
            "congestion",
            "busy_poll",
        ],
    },
];

/// The sections of `serve`.
const SERVER: &[Section] = &[
    Section {
        heading: "Exports",
        options: &["exports", "memory"],
        more: &["handle_key", "direct_io", "trusted"],
    },
    Section {
        heading: "Addresses and ports",
        options: &["listen", "port", "tcp_port"],
        more: &["rpcbind"],
    },
    Section {
        heading: "RPC-over-RDMA",
        options: &["device", "rpcrdma"],
        more: &[
            "features",
            "inline",
            "registration",
            "credits",
            "settings",
            "costs",
            "crc",
        ],
    },
    Section {
        heading: "Memory, connections and threads",
        options: &["memory_limit", "connections", "threads"],
        more: &["receive_memory", "workers", "drain", "busy_poll"],
    },
    Section {
        heading: "Link",
        options: &[],
        more: &["delay", "rate", "congestion"],
    },
    OBSERVED,
    Section {
        heading: "Further programs",
        options: &["programs"],
        more: &["callbacks"],
    },
];

/// The help of `-o` of `mount`, which has options that other commands ignore.
const OF_MOUNT: &str = "Mount options, as in nfs(5), separated by commas: proto=rdma|tcp, port=N, rpcrdma=VERSION, ro, \
                        sync, actimeo=N, nocto, allow_other, ... (rpcrdma-mount-options(7) has all)";

/// Long help of the mount options, for `--help`.
const OF_MOUNT_LONG: &str = "\
Mount options, as in nfs(5) and mount(8), separated by commas: proto=rdma|tcp, port=N, rpcrdma=1|2|2wg|auto, \
features=none|ddp|cont|ddp+cont, device=iwarp|verbs|verbs:NAME, rsize=SIZE, wsize=SIZE, nconnect=N, hard or soft, \
timeo=N, retrans=N, ro, nosuid, nodev, noexec; actimeo=N, acregmin=N, noac, nocto and lookupcache= (how long what the \
server said is trusted), sync (writes reach the server before they return), allow_other and default_permissions (who \
may use the mount), remount (changes a mount). rpcrdma-mount-options(7) has all of them with their meaning. Of two \
contradictory options the last one applies, and a note says so";

/// Returns the command line with its options under headings.
pub(super) fn arranged(command: Command) -> Command {
    let general = |arg: Arg| match arg.get_id().as_str() {
        "verbose" | "quiet" | "color" => arg.help_heading(GENERAL),
        _ => arg,
    };
    command.mut_args(general).mut_subcommands(|sub| {
        let is_mount = sub.get_name() == "mount";
        let sections = match sub.get_name() {
            "serve" => SERVER,
            // Its `-o` is for one of several servers.
            "load" => return sub,
            _ if sub.get_arguments().any(|arg| arg.get_id() == "options") => CLIENT,
            _ => return sub,
        };
        sub.mut_args(|arg| {
            let arg = match is_mount && arg.get_id() == "options" {
                true => arg.help(OF_MOUNT).long_help(OF_MOUNT_LONG),
                false => arg,
            };
            arrange(arg, sections)
        })
    })
}

/// Returns the option under its heading.
fn arrange(arg: Arg, sections: &[Section]) -> Arg {
    for section in sections {
        let at = |names: &[&str]| names.iter().position(|name| arg.get_id() == *name);
        let (options, more) = (at(section.options), at(section.more));
        let order = options.or(more.map(|at| section.options.len() + at));
        if let Some(order) = order {
            return arg
                .help_heading(section.heading)
                .display_order(order)
                .hide_short_help(more.is_some());
        }
    }
    arg
}
