//! The mount options that have an effect, with a sentence or two each, in the order of their manual
//! page. An option that is not listed here is none to the parser.

/// A mount option.
#[derive(Clone, Copy, Debug)]
pub struct MountOption {
    /// The name, before any `=`.
    pub name: &'static str,
    /// The values that it takes; words in capitals stand for what the user chooses. Empty: none.
    pub value: &'static str,
    /// Sentences on the effect.
    pub help: &'static str,
}

/// Mount options about one thing.
#[derive(Clone, Copy, Debug)]
pub struct OptionGroup {
    /// The subject of the options.
    pub heading: &'static str,
    /// Whether they are about mounted exports, and have no effect on commands that copy or list files.
    pub of_mounts: bool,
    /// The options.
    pub options: &'static [MountOption],
}

impl MountOption {
    /// Returns the option as messages list it: with the values if these are a few words, and else with
    /// `=` where it takes one.
    pub(crate) fn short(&self) -> String {
        let is_word = |c: char| !c.is_uppercase();
        match self.value {
            "" => self.name.to_owned(),
            value if value.chars().all(is_word) => format!("{}={value}", self.name),
            _ => format!("{}=", self.name),
        }
    }
}

/// Returns the option with this name, if it has an effect.
pub(crate) fn find(name: &str) -> Option<&'static MountOption> {
    let mut options = GROUPS.iter().flat_map(|group| group.options);
    options.find(|option| option.name == name)
}

const fn option(name: &'static str, value: &'static str, help: &'static str) -> MountOption {
    MountOption { name, value, help }
}

/// All options that have an effect.
pub const GROUPS: &[OptionGroup] = &[
    OptionGroup {
        heading: "Server and transport",
        of_mounts: false,
        options: &[
            option(
                "proto",
                "rdma|tcp|rdma6|tcp6",
                "The transport of NFS: RPC over RDMA (the default) or over TCP. With rdma6 and tcp6, only IPv6 \
                 addresses of the server are used.",
            ),
            option("rdma", "", "The same as proto=rdma."),
            option("tcp", "", "The same as proto=tcp."),
            option(
                "port",
                "PORT",
                "The server's port of NFS. A port in the URL comes before it. Default, and with 0: 20049 over \
                 RDMA, 2049 over TCP.",
            ),
            option(
                "mountport",
                "PORT",
                "The server's port of MOUNT. Default, and with 0: the port of NFS.",
            ),
            option(
                "mountproto",
                "rdma|tcp|rdma6|tcp6",
                "The transport of MOUNT. Default: that of NFS.",
            ),
            option(
                "mounthost",
                "HOST",
                "The host of MOUNT. Default: the host of NFS.",
            ),
            option("mountaddr", "HOST", "The same as mounthost."),
            option(
                "clientaddr",
                "ADDRESS",
                "The address of this host to connect from. It also chooses the verbs device.",
            ),
            option(
                "vers",
                "3",
                "The version of NFS. There is only version 3 here.",
            ),
            option("nfsvers", "3", "The same as vers."),
            option(
                "mountvers",
                "3",
                "The version of MOUNT. There is only version 3 here.",
            ),
            option(
                "sec",
                "sys",
                "How callers say who they are: by AUTH_SYS. No other flavor is supported.",
            ),
        ],
    },
    OptionGroup {
        heading: "RPC-over-RDMA",
        of_mounts: false,
        options: &[
            option(
                "rpcrdma",
                "VERSION",
                "The version of RPC-over-RDMA. Default, and with auto: the first of 2wg, 2 and 1 that the server \
                 speaks.",
            ),
            option(
                "features",
                "FEATURES",
                "The features of version 2 by which this end saves round trips: none, or ddp (bulk data placed by \
                 Sends) and cont (messages of several Sends), joined by +, each alone or with :send or :receive \
                 for one direction. Two different lists are an error. Default: ddp+cont.",
            ),
            option(
                "inline",
                "SIZE|SEND:RECEIVE",
                "The longest messages without chunks that this end sends and receives, in every version: 1k to \
                 256k in steps of 1k. The server's serve --inline has to allow them. Default: 4k.",
            ),
            option(
                "device",
                "DEVICE",
                "The RDMA device: iwarp (the default), verbs or verbs:NAME. rpcrdma devices lists them.",
            ),
            option(
                "registration",
                "auto|windows|per-call|persistent-unsafe",
                "How a verbs device registers memory for the server: the best way that it supports (auto, the \
                 default), by memory windows, by a registration for each call, or once for all, which lets the \
                 server access more than it is offered.",
            ),
        ],
    },
    OptionGroup {
        heading: "Calls",
        of_mounts: false,
        options: &[
            option(
                "rsize",
                "SIZE",
                "The most bytes of one READ, such as 64k or 1M: at least 1k, rounded down to a multiple of 1024. \
                 Default: what the server prefers.",
            ),
            option("wsize", "SIZE", "The same for WRITE."),
            option(
                "nconnect",
                "N",
                "Connections to the server, 1 to 16. Default: 1.",
            ),
            option(
                "threads",
                "N",
                "Threads that drive these connections, 1 to 16, at most one for each; over TCP and iwarp. \
                 Default: 1.",
            ),
            option(
                "hard",
                "",
                "Calls to a server that does not answer wait until it does (the default).",
            ),
            option(
                "soft",
                "",
                "Such calls fail after timeo and retrans; in a mount, with EIO.",
            ),
            option("softerr", "", "As soft, but with ETIMEDOUT in a mount."),
            option(
                "timeo",
                "N",
                "Tenths of a second until a call is repeated, 1 to 6000. Default: 600.",
            ),
            option(
                "retrans",
                "N",
                "Repetitions before a soft call fails, 0 to 100. Default: 2.",
            ),
            option(
                "rdirplus",
                "",
                "Directories are read together with the attributes of their entries (the default).",
            ),
            option(
                "nordirplus",
                "",
                "Directories are read without the attributes of their entries.",
            ),
        ],
    },
    OptionGroup {
        heading: "Rights",
        of_mounts: false,
        options: &[
            option("ro", "", "Nothing on the server is changed."),
            option("rw", "", "Files can be changed (the default)."),
            option(
                "suid",
                "",
                "Set-id bits have their effect in a mount, which only root may ask for; get and put copy them.",
            ),
            option(
                "nosuid",
                "",
                "Set-id bits have no effect in a mount (the default of rpcrdma mount), and are not copied.",
            ),
            option(
                "dev",
                "",
                "Devices can be used in a mount, which only root may ask for; get and put copy them.",
            ),
            option(
                "nodev",
                "",
                "Devices cannot be used in a mount (the default of rpcrdma mount), and are not copied.",
            ),
            option(
                "user",
                "",
                "Implies nosuid, nodev and noexec, as with mount(8).",
            ),
            option("users", "", "The same as user."),
            option("owner", "", "Implies nosuid and nodev, as with mount(8)."),
            option("group", "", "The same as owner."),
            option(
                "local_lock",
                "all|none|flock|posix",
                "Locks hold among the programs of this machine whatever it says. For all words but all, a note \
                 says so.",
            ),
        ],
    },
    OptionGroup {
        heading: "Mounted exports",
        of_mounts: true,
        options: &[
            option(
                "remount",
                "",
                "Changes a mount that is in use: ro, suid, dev, exec, symfollow, sync and their opposites. For \
                 root.",
            ),
            option(
                "acregmin",
                "SECONDS",
                "The least time for which attributes of files are cached. Default: 3.",
            ),
            option("acregmax", "SECONDS", "The most. Default: 60."),
            option(
                "acdirmin",
                "SECONDS",
                "The least time for which attributes of directories are cached. Default: 30.",
            ),
            option("acdirmax", "SECONDS", "The most. Default: 60."),
            option("actimeo", "SECONDS", "All four of these times."),
            option("ac", "", "Attributes are cached (the default)."),
            option(
                "noac",
                "",
                "Attributes are not cached, and writes are synchronous.",
            ),
            option(
                "lookupcache",
                "all|pos|none",
                "Which answers about names are cached: all (the default), those about names that exist, or none.",
            ),
            option(
                "cto",
                "",
                "Opening a file or directory asks the server for changes by others (the default).",
            ),
            option("nocto", "", "It does not."),
            option(
                "sync",
                "",
                "Each write waits until the server has the data on stable storage.",
            ),
            option("async", "", "Writes do not wait (the default)."),
            option("exec", "", "Programs can be executed (the default)."),
            option("noexec", "", "Programs cannot be executed."),
            option(
                "symfollow",
                "",
                "Symbolic links are followed (the default).",
            ),
            option(
                "nosymfollow",
                "",
                "Symbolic links are not followed, which only root may ask for.",
            ),
            option(
                "allow_other",
                "",
                "Other users may use the mount. The default for root. An ordinary user may say it where \
                 /etc/fuse.conf has user_allow_other.",
            ),
            option(
                "noallow_other",
                "",
                "Only the user who mounts may use the mount.",
            ),
            option(
                "default_permissions",
                "",
                "The kernel of this machine checks owner and mode as well, before the server does.",
            ),
        ],
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::mount_options::MountOptions;

    fn all() -> impl Iterator<Item = &'static MountOption> {
        GROUPS.iter().flat_map(|group| group.options)
    }

    /// Returns a value that the option takes.
    fn example(value: &str) -> &str {
        match value {
            "PORT" => "2049",
            "HOST" => "here",
            "ADDRESS" => "10.8.0.1",
            "VERSION" => "auto",
            "FEATURES" => "ddp+cont:send",
            "SIZE|SEND:RECEIVE" => "64k:8k",
            "DEVICE" => "verbs:mlx5_0",
            "SIZE" => "65536",
            "N" => "4",
            "SECONDS" => "30",
            words => words,
        }
    }

    #[test]
    fn each_listed_option_is_parsed_with_every_value_that_it_names() {
        for option in all() {
            if option.value.is_empty() {
                MountOptions::parse(option.name).unwrap();
                MountOptions::parse(&format!("{}=1", option.name)).unwrap_err();
                continue;
            }
            MountOptions::parse(option.name).unwrap_err();
            let values = match example(option.value) {
                words if words == option.value => words.split('|').collect(),
                value => vec![value],
            };
            for value in values {
                MountOptions::parse(&format!("{}={value}", option.name)).unwrap();
            }
        }
    }

    #[test]
    fn names_are_listed_once_and_explained_in_sentences() {
        let names: BTreeSet<_> = all().map(|option| option.name).collect();
        assert_eq!(names.len(), all().count());
        for option in all() {
            assert!(option.help.ends_with('.'), "{}", option.name);
        }
    }
}
