//! Mount options, as `mount -o` and nfs(5) have them, and this project's own: versions of
//! RPC-over-RDMA, their features, and devices.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use nfs_binding::client::{AttachOptions, MIN_IO};
use nfs_binding::overrides::{Overridden, Overrides};
use nfs_binding::proto::MAX_DATA;
use rpc_transport::rdma::{Choice, Version};

use crate::catalog::{Catalog, Features};
use crate::inline::InlineSizes;
use crate::mount_use::MountUse;
use crate::option_list;
use crate::remount;
use crate::units;

pub use crate::option_list::{GROUPS, MountOption, OptionGroup};
pub use crate::without_effect::{DIFFERENT, WITHOUT_EFFECT, different_here};

/// The port of NFS over RDMA (RFC 8267, section 9).
pub const RDMA_PORT: u16 = 20049;
/// Port of NFS over TCP.
pub const TCP_PORT: u16 = 2049;
/// The maximum time for which attributes are cached, seconds: a day.
const MAX_TRUST: u32 = 86_400;
/// The maximum number of connections to one server, as in nfs(5).
pub const MAX_NCONNECT: u32 = 16;

/// The transport that carries NFS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proto {
    /// RPC over RDMA.
    #[default]
    Rdma,
    /// RPC over TCP.
    Tcp,
}

/// Parsed mount options. They are plain data; [`Access`](crate::access::Access) applies them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// `proto=`: transport of NFS.
    pub proto: Proto,
    /// `port=`: the port of NFS.
    pub port: Option<u16>,
    /// `mountport=`: the port of MOUNT. `None`: the port of NFS.
    pub mount_port: Option<u16>,
    /// `proto=rdma6`, `proto=tcp6`: only IPv6 addresses of the server are of use (nfs(5)).
    pub ipv6: bool,
    /// `mountproto=rdma6`, `mountproto=tcp6`: only IPv6 addresses of the MOUNT server are of use.
    pub mount_ipv6: bool,
    /// `mountproto=`: the transport of MOUNT. `None`: the transport of NFS.
    pub mount_proto: Option<Proto>,
    /// `mounthost=`: the host of MOUNT, if it differs from the host of NFS.
    pub mount_host: Option<String>,
    /// `rpcrdma=`: the RPC-over-RDMA version. `None` or `auto`: the first of `2wg`, 2 and 1 that
    /// both sides support.
    pub rpcrdma: Option<Version>,
    /// `features=`: the features by which this end saves round trips, in version 2, and those that the
    /// program adds.
    pub features: Option<Features>,
    /// `inline=`: the longest messages without chunks that this end sends and receives, in every
    /// version of RPC-over-RDMA.
    pub inline: Option<InlineSizes>,
    /// `device=`: the RDMA device.
    pub device: Option<String>,
    /// `registration=`: the method by which the device registers memory for the server.
    pub registration: Option<String>,
    /// `clientaddr=`: the address of this host to connect from, which also selects the RDMA device.
    pub client_address: Option<IpAddr>,
    /// `nconnect=`: connections to the server.
    pub nconnect: u32,
    /// `threads=`: threads of this process that drive these connections. 1: the thread that makes the
    /// calls drives them.
    pub threads: u32,
    /// `timeo=`: the time until the first retransmission. The option's unit is a tenth of a second.
    pub timeo: Duration,
    /// `retrans=`: retransmissions after which a soft mount gives up.
    pub retrans: u32,
    /// `hard`: never give up; `soft`: give up after `retrans`.
    pub hard: bool,
    /// `rsize=`, `wsize=`, `rdirplus` and `ro`: how the export is used.
    pub attach: AttachOptions,
    /// The options that matter to a mounted export alone.
    pub mounted: MountUse,
    /// `remount`: whether an existing mount is changed (see [`crate::remount`]).
    pub remount: bool,
}

impl Default for MountOptions {
    /// Returns the defaults of nfs(5) for TCP and RDMA: hard, 60 seconds, 2 retransmissions, one
    /// connection.
    fn default() -> Self {
        Self {
            proto: Proto::default(),
            port: None,
            mount_port: None,
            ipv6: false,
            mount_ipv6: false,
            mount_proto: None,
            mount_host: None,
            rpcrdma: None,
            features: None,
            inline: None,
            device: None,
            registration: None,
            client_address: None,
            nconnect: 1,
            threads: 1,
            timeo: Duration::from_secs(60),
            retrans: 2,
            hard: true,
            attach: AttachOptions::default(),
            mounted: MountUse::default(),
            remount: false,
        }
    }
}

/// The reason why mount options are rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// The option is unknown.
    #[error("unknown mount option {option:?}{}; known are {known}, and others of rpcrdma-mount-options(7)", meant(.near))]
    Unknown {
        /// The option as given.
        option: String,
        /// The known option that was probably meant, if any.
        near: Option<String>,
        /// A list of all options that have an effect.
        known: String,
    },
    /// The option is one of nfs(5) or mount(8) that this program does not have.
    #[error("mount option {option:?} of nfs(5) or mount(8) is not supported here: leave it out")]
    Unsupported {
        /// The option as given.
        option: String,
    },
    /// A feature is given as a separate option, as in `features=ddp,cont`; features are joined by
    /// `+`.
    #[error("mount option {option:?} is a feature: write {meant}, with + between several")]
    Feature {
        /// The option as given.
        option: String,
        /// The option that was probably meant.
        meant: String,
    },
    /// `features=` is given twice with different values, so it is unclear whether both or only the
    /// last are meant.
    #[error(
        "mount option features={first} and again features={second}: write one, as features=ddp+cont"
    )]
    Twice {
        /// The features that the first option selects.
        first: Features,
        /// The features that the second option selects.
        second: Features,
    },
    /// The option has an invalid value.
    #[error("mount option {option}={value}: {wanted} is wanted")]
    Value {
        /// The option.
        option: String,
        /// The value as given.
        value: String,
        /// A description of the valid values.
        wanted: Cow<'static, str>,
    },
    /// A value is missing, or the option takes none but has one.
    #[error("mount option {option:?} {problem}")]
    Shape {
        /// The option as given.
        option: String,
        /// The error: a missing or superfluous value.
        problem: &'static str,
    },
}

fn meant(near: &Option<String>) -> String {
    near.as_ref()
        .map_or_else(String::new, |near| format!(": did you mean {near}?"))
}

/// Options of nfs(5) and mount(8) that would change what happens, and that this program does not
/// have.
pub const UNSUPPORTED: &[&str] = &[
    "addr",
    "bind",
    "context",
    "defcontext",
    "fscontext",
    "iversion",
    "loop",
    "mand",
    "max_connect",
    "migration",
    "minorversion",
    "move",
    "rbind",
    "rootcontext",
    "softreval",
    "trunkdiscovery",
    "write",
    "xprtsec",
];

/// The size that one below the minimum means, as in nfs(5).
const USUAL_IO: u64 = 4096;

/// The valid values of `inline=`, for messages.
const INLINE: &str = "1k to 256k in steps of 1k, or two such sizes as SEND:RECEIVE,";

impl MountOptions {
    /// Parses options separated by commas; the others have their defaults. Of contradicting options
    /// the last one applies, as with mount(8). The exception is `features=`, which is not in
    /// nfs(5): two different ones are an error, because the user may have meant both.
    ///
    /// # Errors
    /// An option is unknown, or its value is invalid.
    pub fn parse(text: &str) -> Result<Self, OptionError> {
        Self::parse_and_note(&Catalog::standard(), text).map(|(options, _)| options)
    }

    /// Parses options like [`MountOptions::parse`], in which names mean what the catalog says. Also
    /// returns those that have no effect because a later one contradicts them, for a note to the user.
    ///
    /// # Errors
    /// The errors of [`MountOptions::parse`].
    pub fn parse_and_note(
        catalog: &Catalog,
        text: &str,
    ) -> Result<(Self, Vec<Overridden>), OptionError> {
        let mut options = Self::default();
        let mut overrides = Overrides::default();
        for option in remount::without_table(text).filter(|option| !option.is_empty()) {
            options.apply(catalog, option)?;
            let name = option.split('=').next().unwrap_or(option);
            if matches!(name, "user" | "users" | "owner" | "group") {
                for setting in ["suid", "dev"] {
                    overrides.imply(setting, &options.value(setting), option);
                }
            } else if let Some(setting) = setting(name) {
                overrides.set(setting, options.value(setting), option);
            }
        }
        Ok((options, overrides.into_found()))
    }

    /// Returns the present value of a [`setting`] in a form that can be compared.
    fn value(&self, setting: &str) -> String {
        match setting {
            "proto" => format!("{:?} {}", self.proto, self.ipv6),
            "port" => format!("{:?}", self.port),
            "mountport" => format!("{:?}", self.mount_port),
            "mountproto" => format!("{:?} {}", self.mount_proto, self.mount_ipv6),
            "mounthost" => format!("{:?}", self.mount_host),
            "rpcrdma" => format!("{:?}", self.rpcrdma),
            "inline" => format!("{:?}", self.inline),
            "device" => format!("{:?}", self.device),
            "registration" => format!("{:?}", self.registration),
            "clientaddr" => format!("{:?}", self.client_address),
            "rsize" => format!("{:?}", self.attach.rsize),
            "wsize" => format!("{:?}", self.attach.wsize),
            "nconnect" => self.nconnect.to_string(),
            "threads" => self.threads.to_string(),
            "timeo" => format!("{:?}", self.timeo),
            "retrans" => self.retrans.to_string(),
            "hard" => self.hard.to_string(),
            "rdirplus" => self.attach.readdirplus.to_string(),
            "rw" => self.attach.read_only.to_string(),
            "suid" => format!("{:?}", self.mounted.set_id),
            "dev" => format!("{:?}", self.mounted.devices),
            _ => String::new(),
        }
    }

    fn apply(&mut self, catalog: &Catalog, option: &str) -> Result<(), OptionError> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let given = Given { name, value };
        match name {
            _ if option_list::find(name).is_none() => {
                return self.apply_without_effect(catalog, option, &given);
            }
            "proto" => {
                self.proto = given.proto()?;
                self.ipv6 = given.is_ipv6();
            }
            "rdma" => (self.proto, self.ipv6) = (given.flag(Proto::Rdma)?, false),
            "tcp" => (self.proto, self.ipv6) = (given.flag(Proto::Tcp)?, false),
            "port" => self.port = given.port()?,
            "mountport" => self.mount_port = given.port()?,
            "mountproto" => {
                self.mount_proto = Some(given.proto()?);
                self.mount_ipv6 = given.is_ipv6();
            }
            "mounthost" | "mountaddr" => self.mount_host = Some(given.text()?.to_owned()),
            "vers" | "nfsvers" | "mountvers" => {
                if !matches!(given.text()?, "3" | "3.0") {
                    return Err(given.wrong("3, the only version of NFS that is supported,"));
                }
            }
            "rpcrdma" => {
                let choice = catalog.versions().parse_choice(given.text()?);
                self.rpcrdma = match choice.map_err(|wrong| given.wrong(wrong.1))? {
                    Choice::Auto => None,
                    Choice::Only(version) => Some(version),
                }
            }
            "features" => {
                let second = catalog.parse_features(given.text()?);
                let second = second.map_err(|_| given.wrong(catalog.feature_names()))?;
                if let Some(first) = self.features.take_if(|first| *first != second) {
                    return Err(OptionError::Twice { first, second });
                }
                self.features = Some(second);
            }
            "inline" => {
                let sizes = given.text()?.parse();
                self.inline = Some(sizes.map_err(|_| given.wrong(INLINE))?);
            }
            "device" => self.device = Some(given.text()?.to_owned()),
            "registration" => self.registration = Some(given.text()?.to_owned()),
            "clientaddr" => {
                let address = given.text()?.parse();
                self.client_address = Some(address.map_err(|_| given.wrong("an address"))?);
            }
            "rsize" => self.attach.rsize = Some(given.size()?),
            "wsize" => self.attach.wsize = Some(given.size()?),
            "nconnect" => self.nconnect = given.number("1 to 16", 1, MAX_NCONNECT)?,
            "threads" => self.threads = given.number("1 to 16", 1, MAX_NCONNECT)?,
            "timeo" => {
                let tenths = given.number("tenths of a second, 1 to 6000,", 1, 6000)?;
                self.timeo = Duration::from_millis(u64::from(tenths) * 100);
            }
            "retrans" => self.retrans = given.number("0 to 100", 0, 100)?,
            "hard" => self.hard = given.flag(true)?,
            "soft" | "softerr" => {
                self.hard = given.flag(false)?;
                self.mounted.softerr = name == "softerr";
            }
            "rdirplus" => self.attach.readdirplus = given.flag(true)?,
            "nordirplus" => self.attach.readdirplus = given.flag(false)?,
            "ro" => self.attach.read_only = given.flag(true)?,
            "rw" => self.attach.read_only = given.flag(false)?,
            "nosuid" => self.set_id(given.flag(false)?),
            "suid" => self.set_id(given.flag(true)?),
            "nodev" => self.devices(given.flag(false)?),
            "dev" => self.devices(given.flag(true)?),
            // mount(8): of ordinary users' mounts these are implied.
            "user" | "users" | "owner" | "group" => {
                given.flag(())?;
                self.set_id(false);
                self.devices(false);
                self.mounted.execute &= matches!(name, "owner" | "group");
            }
            "local_lock" => {
                if !matches!(given.text()?, "all" | "none" | "flock" | "posix") {
                    return Err(given.wrong("all, none, flock or posix"));
                }
            }
            "remount" => self.remount = given.flag(true)?,
            "lookupcache" => {
                if !self.mounted.lookups(given.text()?) {
                    return Err(given.wrong("all, pos or none"));
                }
            }
            "acregmin" | "acregmax" | "acdirmin" | "acdirmax" | "actimeo" => {
                let seconds = given.number("a number of seconds, at most 86400,", 0, MAX_TRUST)?;
                self.mounted.time(name, seconds);
            }
            "sec" => {
                // Every caller of a mount has credentials of its own, so AUTH_NONE would be another client.
                if given.text()? != "sys" {
                    return Err(given.wrong("sys (AUTH_SYS), the only flavor that is supported,"));
                }
            }
            _ if self.mounted.flag(name) => given.flag(())?,
            _ => return self.apply_without_effect(catalog, option, &given),
        }
        Ok(())
    }

    /// Checks an option that has no effect, or is none.
    fn apply_without_effect(
        &self,
        catalog: &Catalog,
        option: &str,
        given: &Given<'_>,
    ) -> Result<(), OptionError> {
        let name = given.name;
        match name {
            _ if name.starts_with("x-") => {}
            _ if WITHOUT_EFFECT.contains(&name) => given.flag(())?,
            _ if WITHOUT_EFFECT
                .iter()
                .any(|o| o.strip_suffix('=') == Some(name)) =>
            {
                given.text()?;
            }
            _ if UNSUPPORTED.contains(&name) => {
                return Err(OptionError::Unsupported {
                    option: option.to_owned(),
                });
            }
            _ if catalog.parse_features(option).is_ok() => {
                return Err(self.feature_alone(option));
            }
            _ => {
                return Err(OptionError::Unknown {
                    option: option.to_owned(),
                    near: nearest(name),
                    known: known(catalog),
                });
            }
        }
        Ok(())
    }

    fn set_id(&mut self, on: bool) {
        self.mounted.set_id = Some(on);
    }

    fn devices(&mut self, on: bool) {
        self.mounted.devices = Some(on);
    }

    fn feature_alone(&self, option: &str) -> OptionError {
        let before = self.features.as_ref();
        let before = before.filter(|features| !features.is_none());
        let meant = match before {
            Some(features) => format!("features={features}+{option}"),
            None => format!("features={option}"),
        };
        let option = option.to_owned();
        OptionError::Feature { option, meant }
    }

    /// Returns the port of NFS: the URL's, else that of `port=`, else the default port of the
    /// transport.
    #[must_use]
    pub fn nfs_port(&self, in_url: Option<u16>) -> u16 {
        in_url.or(self.port).unwrap_or(match self.proto {
            Proto::Rdma => RDMA_PORT,
            Proto::Tcp => TCP_PORT,
        })
    }

    /// Returns whether host, port or transport of MOUNT differ from those of NFS, so that it needs
    /// a separate connection.
    #[must_use]
    pub fn separate_mount(&self) -> bool {
        let nfs = (self.proto, self.ipv6);
        let mount = |proto| (proto, self.mount_ipv6);
        self.mount_port.is_some()
            || self.mount_host.is_some()
            || self.mount_proto.is_some_and(|proto| mount(proto) != nfs)
    }
}

/// Lists the options that have an effect, except those that matter to a mounted export alone.
fn known(catalog: &Catalog) -> String {
    let versions = catalog.versions().names().replace(',', "|");
    let groups = GROUPS.iter().filter(|group| !group.of_mounts);
    let each = groups
        .flat_map(|group| group.options)
        .map(|option| match option.name {
            "rpcrdma" => format!("rpcrdma={versions}|auto"),
            _ => option.short(),
        });
    each.collect::<Vec<_>>().join(", ")
}

/// Returns the setting that an option changes; options with the same one can contradict each other.
/// `None`: the option has no effect, or an error reports a contradiction.
fn setting(name: &str) -> Option<&'static str> {
    Some(match name {
        "proto" | "rdma" | "tcp" => "proto",
        "port" => "port",
        "mountport" => "mountport",
        "mountproto" => "mountproto",
        "mounthost" | "mountaddr" => "mounthost",
        "rpcrdma" => "rpcrdma",
        "inline" => "inline",
        "device" => "device",
        "registration" => "registration",
        "clientaddr" => "clientaddr",
        "rsize" => "rsize",
        "wsize" => "wsize",
        "nconnect" => "nconnect",
        "threads" => "threads",
        "timeo" => "timeo",
        "retrans" => "retrans",
        "hard" | "soft" | "softerr" => "hard",
        "rdirplus" | "nordirplus" => "rdirplus",
        "ro" | "rw" => "rw",
        "suid" | "nosuid" => "suid",
        "dev" | "nodev" => "dev",
        _ => return None,
    })
}

/// Returns the known option of which `name` is probably a misspelling: few of its letters are
/// missing, wrong, superfluous or swapped with a neighbour.
fn nearest(name: &str) -> Option<String> {
    let listed = GROUPS.iter().flat_map(|group| group.options);
    let listed = listed.map(MountOption::short);
    let others = WITHOUT_EFFECT.iter().map(|&option| option.to_owned());
    let distance = |option: &str| {
        let known = option.split('=').next().unwrap_or(option);
        strsim::osa_distance(name, known)
    };
    let (slips, near) = listed
        .chain(others)
        .map(|option| (distance(&option), option))
        .min_by_key(|&(slips, _)| slips)?;
    (slips <= 1 + name.len() / 5).then_some(near)
}

/// One option as given.
struct Given<'a> {
    name: &'a str,
    value: Option<&'a str>,
}

impl<'a> Given<'a> {
    fn flag<T>(&self, on: T) -> Result<T, OptionError> {
        match self.value {
            None => Ok(on),
            Some(_) => Err(self.shape("takes no value")),
        }
    }

    fn text(&self) -> Result<&'a str, OptionError> {
        match self.value {
            Some(value) if !value.is_empty() => Ok(value),
            _ => Err(self.shape("needs a value")),
        }
    }

    fn number(&self, wanted: &'static str, min: u32, max: u32) -> Result<u32, OptionError> {
        match self.text()?.parse() {
            Ok(number) if (min..=max).contains(&number) => Ok(number),
            _ => Err(self.wrong(wanted)),
        }
    }

    /// Parses a port. In nfs(5), 0 means the default port.
    fn port(&self) -> Result<Option<u16>, OptionError> {
        match self.text()?.parse() {
            Ok(0) => Ok(None),
            Ok(port) => Ok(Some(port)),
            Err(_) => Err(self.wrong("a port")),
        }
    }

    /// Parses a size, in bytes or with a unit. As in nfs(5), less than 1024 means 4096; others are rounded down to
    /// a multiple of 1024, and later reduced to the maximum that both sides support.
    fn size(&self) -> Result<u32, OptionError> {
        let size = match units::size(self.text()?) {
            Ok(size) if size < u64::from(MIN_IO) => USUAL_IO,
            Ok(size) => size,
            Err(_) => return Err(self.wrong("a size in bytes, such as 1048576 or 1M,")),
        };
        let size = u32::try_from(size).map_or(MAX_DATA, |size| size.min(MAX_DATA));
        Ok(size - size % MIN_IO)
    }

    /// Returns whether the name of the transport is that for IPv6.
    fn is_ipv6(&self) -> bool {
        self.value.is_some_and(|value| value.ends_with('6'))
    }

    fn proto(&self) -> Result<Proto, OptionError> {
        match self.text()? {
            "rdma" | "rdma6" => Ok(Proto::Rdma),
            "tcp" | "tcp6" => Ok(Proto::Tcp),
            _ => Err(self.wrong("rdma, tcp, rdma6 or tcp6")),
        }
    }

    fn wrong(&self, wanted: impl Into<Cow<'static, str>>) -> OptionError {
        OptionError::Value {
            option: self.name.to_owned(),
            value: self.value.unwrap_or_default().to_owned(),
            wanted: wanted.into(),
        }
    }

    fn shape(&self, problem: &'static str) -> OptionError {
        OptionError::Shape {
            option: self.name.to_owned(),
            problem,
        }
    }
}

#[cfg(test)]
mod tests {
    use rpcrdma_protocols::{Directions, RoundTripFeatures};

    use super::*;

    #[test]
    fn options_are_read_over_the_defaults() {
        assert_eq!(MountOptions::parse("").unwrap(), MountOptions::default());
        let options = MountOptions::parse(
            "proto=tcp,port=2050,mountport=2051,rpcrdma=1,features=ddp:send+cont,inline=64k:8192,device=iwarp,\
             registration=windows,clientaddr=10.8.0.1,rsize=65536,wsize=70000,\
             nconnect=4,threads=2,timeo=25,retrans=5,soft,nordirplus,ro,vers=3,sec=sys",
        )
        .unwrap();
        let expected = MountOptions {
            proto: Proto::Tcp,
            port: Some(2050),
            mount_port: Some(2051),
            rpcrdma: Some(Version::ONE),
            features: Some(Features::from(RoundTripFeatures {
                ddp: Directions {
                    send: true,
                    receive: false,
                },
                cont: Directions::BOTH,
            })),
            inline: Some(InlineSizes {
                send: 65_536,
                receive: 8192,
            }),
            device: Some("iwarp".into()),
            registration: Some("windows".into()),
            client_address: Some([10, 8, 0, 1].into()),
            nconnect: 4,
            threads: 2,
            timeo: Duration::from_millis(2500),
            retrans: 5,
            hard: false,
            attach: AttachOptions {
                rsize: Some(65536),
                wsize: Some(69632),
                readdirplus: false,
                read_only: true,
            },
            ..MountOptions::default()
        };
        assert_eq!(options, expected);
        assert!(options.separate_mount());
        let with_units = MountOptions::parse("rsize=64k,wsize=10M,vers=3.0,nfsvers=3").unwrap();
        let sizes = (with_units.attach.rsize, with_units.attach.wsize);
        assert_eq!(sizes, (Some(64 << 10), Some(MAX_DATA)));
        let least = MountOptions::parse("rsize=1023,wsize=1024").unwrap();
        let sizes = (least.attach.rsize, least.attach.wsize);
        assert_eq!(sizes, (Some(4096), Some(1024)));
        let auto = MountOptions::parse("rpcrdma=2,rpcrdma=auto").unwrap();
        assert_eq!(auto, MountOptions::default());
        let wg = MountOptions::parse("rpcrdma=2wg").unwrap();
        assert_eq!(wg.rpcrdma, Some(Version::TWO_WG));
    }

    #[test]
    fn a_line_of_fstab_can_be_used() {
        let line = "defaults,_netdev,noatime,nodiratime,nolock,actimeo=3600,lookupcache=all,\
                    local_lock=none,x-systemd.automount,x-systemd.idle-timeout=60,rw,hard,intr";
        let of_mounts = MountOptions::parse("actimeo=3600").unwrap();
        assert_eq!(MountOptions::parse(line).unwrap(), of_mounts);
        assert_eq!(
            MountOptions::parse("soft,hard").unwrap(),
            MountOptions::default()
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = |text: &str| MountOptions::parse(text).unwrap_err();
        let unknown = error("hard,rzise=1");
        assert!(unknown.to_string().contains("rzise=1"));
        assert!(unknown.to_string().contains("rsize=, wsize="), "{unknown}");
        for (slip, meant) in [
            ("rzise=1", Some("rsize=")),
            ("nconect=4", Some("nconnect=")),
            ("prot=tcp", Some("proto=rdma|tcp|rdma6|tcp6")),
            ("nolokc", Some("nolock")),
            ("frobnicate=1", None),
            ("x", None),
        ] {
            let OptionError::Unknown { near, .. } = error(slip) else {
                panic!("{slip} is known");
            };
            assert_eq!(near.as_deref(), meant, "{slip}");
        }
        assert_eq!(
            error("vers=4.2").to_string(),
            "mount option vers=4.2: 3, the only version of NFS that is supported, is wanted"
        );
        for text in [
            "proto=udp",
            "nconnect=0",
            "nconnect=17",
            "threads=0",
            "threads=17",
            "rsize=x",
        ] {
            assert!(matches!(error(text), OptionError::Value { .. }), "{text}");
        }
        for text in [
            "port=65536",
            "timeo=0",
            "sec=krb5",
            "sec=none",
            "rpcrdma=0",
            "rpcrdma=3",
            "features=ddp:both",
            "features=cont+",
            "retrans=-1",
            "inline=512",
            "inline=5000",
            "inline=257k",
            "inline=4k:512k",
            "clientaddr=here",
        ] {
            assert!(matches!(error(text), OptionError::Value { .. }), "{text}");
        }
        for (text, meant) in [
            ("features=ddp,cont", "write features=ddp+cont,"),
            ("features=none,cont:send", "write features=cont:send,"),
            ("rpcrdma=2,ddp", "write features=ddp,"),
            (
                "features=ddp,features=cont",
                "features=ddp and again features=cont",
            ),
            ("features=ddp+kont", "as ddp:send+cont"),
            ("rsize=8q", "a size in bytes, such as 1048576 or 1M,"),
            ("wsize=99999999999T", "a size in bytes"),
            (
                "inline=300k",
                "mount option inline=300k: 1k to 256k in steps of 1k, or two",
            ),
        ] {
            let said = error(text).to_string();
            assert!(said.contains(meant), "{text}: {said}");
        }
        MountOptions::parse("features=ddp,features=ddp").unwrap();
        for text in ["port", "device=", "hard=1", "nolock=1", "actimeo"] {
            assert!(matches!(error(text), OptionError::Shape { .. }), "{text}");
        }
    }

    #[test]
    fn what_a_later_option_overrides_is_noted() {
        let noted = |text: &str| -> Vec<String> {
            let (_, notes) = MountOptions::parse_and_note(&Catalog::standard(), text).unwrap();
            notes.iter().map(ToString::to_string).collect()
        };
        for (text, said) in [
            (
                "rsize=4096,rsize=8192",
                "option rsize=4096 is overridden by rsize=8192",
            ),
            (
                "inline=8k,inline=64k:8k",
                "option inline=8k is overridden by inline=64k:8k",
            ),
            ("ro,rw", "option ro is overridden by rw"),
            ("hard,soft", "option hard is overridden by soft"),
            ("softerr,hard", "option softerr is overridden by hard"),
            ("proto=tcp,rdma", "option proto=tcp is overridden by rdma"),
            (
                "proto=rdma6,rdma",
                "option proto=rdma6 is overridden by rdma",
            ),
            ("proto=tcp6,tcp", "option proto=tcp6 is overridden by tcp"),
            (
                "proto=tcp,proto=tcp6",
                "option proto=tcp is overridden by proto=tcp6",
            ),
            (
                "mountproto=tcp,mountproto=rdma",
                "option mountproto=tcp is overridden by mountproto=rdma",
            ),
            ("port=1,port=0", "option port=1 is overridden by port=0"),
            ("suid,user", "option suid is overridden by user"),
            (
                "rpcrdma=2,nolock,rpcrdma=auto",
                "option rpcrdma=2 is overridden by rpcrdma=auto",
            ),
            (
                "nordirplus,rdirplus",
                "option nordirplus is overridden by rdirplus",
            ),
        ] {
            assert_eq!(noted(text), [said], "{text}");
        }
        for silent in [
            "rsize=4096,wsize=8192,rsize=4096",
            "rdma,proto=rdma",
            "soft,softerr",
            "user,suid,dev",
            "users,nosuid",
            "ac,noac",
            "ro,hard,nodev",
        ] {
            assert_eq!(noted(silent), [""; 0], "{silent}");
        }
        // Every option with an effect has a setting, except those that allow one value only,
        // `features=`, whose contradictions are errors, and the two that imply others.
        let groups = GROUPS.iter().filter(|group| !group.of_mounts);
        for name in groups.flat_map(|group| group.options).map(|it| it.name) {
            let none = [
                "features",
                "sec",
                "vers",
                "nfsvers",
                "mountvers",
                "user",
                "users",
                "owner",
                "group",
                "local_lock",
            ];
            assert_eq!(setting(name).is_none(), none.contains(&name), "{name}");
            let value = setting(name).map(|setting| MountOptions::default().value(setting));
            assert_ne!(value.as_deref(), Some(""), "{name}");
        }
    }

    /// The options of mount(8) for every type of file system, except those that are for mount(8)
    /// alone and that it does not give to a helper.
    #[test]
    fn each_option_of_mount_8_is_accepted_or_said_to_be_missing() {
        let accepted = "async atime noatime auto noauto defaults dev nodev diratime nodiratime dirsync exec noexec group \
                        noiversion nomand _netdev nofail relatime norelatime strictatime nostrictatime lazytime \
                        nolazytime suid nosuid silent loud owner remount ro rw sync user nouser users nosymfollow \
                        symfollow x-systemd.automount comment=mine";
        for option in accepted.split_whitespace() {
            MountOptions::parse(option).unwrap();
        }
        for option in
            "context=a fscontext=a defcontext=a rootcontext=a iversion mand bind loop".split(' ')
        {
            let error = MountOptions::parse(option).unwrap_err();
            assert!(matches!(error, OptionError::Unsupported { .. }), "{error}");
        }
    }

    #[test]
    fn ports_follow_the_transport() {
        let rdma = MountOptions::parse("rdma,port=0").unwrap();
        assert_eq!(rdma.nfs_port(None), 20049);
        assert!(!rdma.separate_mount());
        let tcp = MountOptions::parse("tcp,port=3000").unwrap();
        assert_eq!(tcp.nfs_port(None), 3000);
        assert_eq!(tcp.nfs_port(Some(4000)), 4000);
        assert_eq!(MountOptions::parse("tcp").unwrap().nfs_port(None), 2049);
        for separate in ["rdma,mountproto=tcp", "rdma,mountproto=rdma6"] {
            assert!(MountOptions::parse(separate).unwrap().separate_mount());
        }
        let same = MountOptions::parse("proto=tcp6,mountproto=tcp6").unwrap();
        assert!(!same.separate_mount());
    }

    #[test]
    fn options_of_nfs_5_that_are_not_here_are_called_that() {
        for option in [
            "softreval",
            "xprtsec=tls",
            "max_connect=4",
            "mand",
            "iversion",
        ] {
            let error = MountOptions::parse(option).unwrap_err().to_string();
            assert!(
                error.contains("nfs(5) or mount(8) is not supported here"),
                "{error}"
            );
        }
        let different: Vec<_> = different_here("rw,bg,fsc,nobg,nolock,local_lock=all")
            .map(|(name, _)| name)
            .collect();
        assert_eq!(different, ["bg", "fsc"]);
        for option in [
            "lock",
            "local_lock=none",
            "local_lock=flock",
            "strictatime",
            "lazytime",
        ] {
            assert_eq!(different_here(option).count(), 1, "{option}");
        }
        MountOptions::parse("local_lock=some").unwrap_err();
    }
}
