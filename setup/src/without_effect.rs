//! Mount options of nfs(5) and mount(8) that are accepted and change nothing.

/// Options of nfs(5) and mount(8) that have no effect. Either what they ask for holds in any case
/// (the server keeps access times, and has changed a directory on stable storage before it
/// answers), or mount(8) itself implements them. They are accepted, so that a line of fstab can be
/// used unchanged. `=` marks those with a value.
pub const WITHOUT_EFFECT: &[&str] = &[
    "_netdev",
    "acl",
    "atime",
    "auto",
    "bg",
    "comment=",
    "defaults",
    "diratime",
    "dirsync",
    "fg",
    "fsc",
    "intr",
    "lazytime",
    "lock",
    "loud",
    "namlen=",
    "noacl",
    "noatime",
    "noauto",
    "nodiratime",
    "nofail",
    "nofsc",
    "nogroup",
    "nointr",
    "noiversion",
    "nolazytime",
    "nolock",
    "nomand",
    "noowner",
    "norelatime",
    "noresvport",
    "nosharecache",
    "nostrictatime",
    "nouser",
    "nousers",
    "relatime",
    "resvport",
    "retry=",
    "sharecache",
    "silent",
    "strictatime",
];

/// The note on locks. NFSv3 servers support locks only by another protocol, NLM.
const LOCKS: &str = "locks hold among the programs of this machine, and not against other clients";
/// The note on access times.
const ACCESS_TIMES: &str = "the server keeps access times, as its own file system does";

/// Options that are accepted but do something else than nfs(5) or mount(8) says, each with what
/// happens instead.
pub const DIFFERENT: &[(&str, &str)] = &[
    ("lock", LOCKS),
    ("local_lock=none", LOCKS),
    ("local_lock=flock", LOCKS),
    ("local_lock=posix", LOCKS),
    ("strictatime", ACCESS_TIMES),
    ("lazytime", ACCESS_TIMES),
    ("bg", "the mount is tried once, in the foreground"),
    ("resvport", "ports above 1023 are used"),
    ("fsc", "data is not cached on a disk"),
];

/// Returns whether an option is accepted and changes nothing.
pub(crate) fn changes_nothing(option: &str) -> bool {
    let name = option.split('=').next().unwrap_or(option);
    let known = |known: &&str| known.strip_suffix('=').unwrap_or(known) == name;
    name.starts_with("x-") || name == "local_lock" || WITHOUT_EFFECT.iter().any(known)
}

/// Returns the options in a list of options that have another effect than in nfs(5) or mount(8),
/// each with what happens.
pub fn different_here(text: &str) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
    let options = move |name: &str| text.split(',').any(|option| option == name);
    DIFFERENT
        .iter()
        .copied()
        .filter(move |(name, _)| options(name))
}
