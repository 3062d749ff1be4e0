//! Mount options, as `mount -o` and nfs(5) have them, and this project's own: versions of
//! RPC-over-RDMA, their features, and devices.

use std::net::IpAddr;
use std::time::Duration;

use nfs_binding::client::{AttachOptions, MIN_IO};
use nfs_binding::proto::MAX_DATA;
use rpc_transport::rdma::RoundTripFeatures;

/// Port of NFS over RDMA (RFC 8267, section 9).
pub const RDMA_PORT: u16 = 20049;
/// Port of NFS over TCP.
pub const TCP_PORT: u16 = 2049;
/// Most connections to one server, as nfs(5) has it.
pub const MAX_NCONNECT: u32 = 16;

/// Which transport carries NFS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proto {
    /// RPC over RDMA.
    #[default]
    Rdma,
    /// RPC over TCP.
    Tcp,
}

/// How a server is reached and used. Plain data: whoever builds the transport reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// `proto=`: transport of NFS.
    pub proto: Proto,
    /// `port=`.
    pub port: Option<u16>,
    /// `mountport=`: where MOUNT answers; not said: where NFS does.
    pub mount_port: Option<u16>,
    /// `proto=rdma6`, `proto=tcp6`: only IPv6 addresses of the server are of use (nfs(5)).
    pub ipv6: bool,
    /// The same of `mountproto=`.
    pub mount_ipv6: bool,
    /// `mountproto=`: transport of MOUNT; not said: the same as NFS's.
    pub mount_proto: Option<Proto>,
    /// `mounthost=`: the host where MOUNT answers, if it is another.
    pub mount_host: Option<String>,
    /// `rpcrdma=`: the RPC-over-RDMA version; not said, or `auto`: the highest that both sides have.
    pub rpcrdma: Option<u32>,
    /// `features=`: what this end does to spare round trips, in version 2.
    pub features: Option<RoundTripFeatures>,
    /// `device=`: which RDMA device.
    pub device: Option<String>,
    /// `registration=`: how that offers memory to the server.
    pub registration: Option<String>,
    /// `clientaddr=`: address of this host, and so which RDMA device, to connect from.
    pub client_address: Option<IpAddr>,
    /// `nconnect=`: connections to the server.
    pub nconnect: u32,
    /// `timeo=`: time to the first retransmission (an option of tenths of a second).
    pub timeo: Duration,
    /// `retrans=`: retransmissions after which a soft mount gives up.
    pub retrans: u32,
    /// `hard`: never give up; `soft`: give up after `retrans`.
    pub hard: bool,
    /// `rsize=`, `wsize=`, `rdirplus` and `ro`: how the export is used.
    pub attach: AttachOptions,
    /// `nosuid`: no copy of a file gets set-id bits.
    pub no_set_id: bool,
    /// `nodev`: devices are not copied.
    pub no_devices: bool,
}

impl Default for MountOptions {
    /// What nfs(5) has for TCP and RDMA: hard, 60 seconds, 2 retransmissions, one connection.
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
            device: None,
            registration: None,
            client_address: None,
            nconnect: 1,
            timeo: Duration::from_secs(60),
            retrans: 2,
            hard: true,
            attach: AttachOptions::default(),
            no_set_id: false,
            no_devices: false,
        }
    }
}

/// Why options cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// No such option.
    #[error("unknown mount option {option:?}{}; known are {known}, and those of nfs(5)", meant(.near))]
    Unknown {
        /// As given.
        option: String,
        /// One that may have been meant.
        near: Option<&'static str>,
        /// All that have an effect.
        known: String,
    },
    /// A feature on its own, as `features=ddp,cont` has one behind its comma.
    #[error("mount option {option:?} is a feature: write {meant}, with + between several")]
    Feature {
        /// As given.
        option: String,
        /// What was likely meant.
        meant: String,
    },
    /// `features=` twice, and not the same: whether both or the last are meant, nobody can know.
    #[error(
        "mount option features={first} and again features={second}: write one, as features=ddp+cont"
    )]
    Twice {
        /// What the first one said.
        first: RoundTripFeatures,
        /// What the other one says.
        second: RoundTripFeatures,
    },
    /// The option's value is not one of those it can have.
    #[error("mount option {option}={value}: {wanted} is wanted")]
    Value {
        /// The option.
        option: String,
        /// Its value.
        value: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// The option needs a value and has none, or has one and takes none.
    #[error("mount option {option:?} {problem}")]
    Shape {
        /// As given.
        option: String,
        /// What is wrong.
        problem: &'static str,
    },
}

fn meant(near: &Option<&str>) -> String {
    near.map_or_else(String::new, |near| format!(": did you mean {near}?"))
}

/// Options of nfs(5) and mount(8) that say nothing to a client without a cache, locks or a kernel:
/// accepted, so that a line of fstab can be used as it is. `=` marks those with a value.
const WITHOUT_EFFECT: &[&str] = &[
    "_netdev",
    "ac",
    "acdirmax=",
    "acdirmin=",
    "acl",
    "acregmax=",
    "acregmin=",
    "actimeo=",
    "async",
    "atime",
    "auto",
    "bg",
    "cto",
    "defaults",
    "diratime",
    "exec",
    "fg",
    "fsc",
    "intr",
    "local_lock=",
    "lock",
    "lookupcache=",
    "namlen=",
    "noac",
    "noacl",
    "noatime",
    "noauto",
    "nocto",
    "nodiratime",
    "noexec",
    "nofail",
    "nofsc",
    "nointr",
    "nolock",
    "norelatime",
    "noresvport",
    "nosharecache",
    "nouser",
    "relatime",
    "resvport",
    "retry=",
    "sharecache",
];

/// What `features=` can be, for messages.
const FEATURES: &str = "none, ddp, cont, or several with + between them as ddp:send+cont (:send, :receive: one way only)";

/// Options that have an effect, for messages.
const WITH_EFFECT: &[&str] = &[
    "proto=rdma|tcp|rdma6|tcp6",
    "rdma",
    "tcp",
    "port=",
    "mountport=",
    "mountproto=",
    "mounthost=",
    "mountvers=3",
    "vers=3",
    "nfsvers=3",
    "rpcrdma=1|2|auto",
    "features=",
    "device=",
    "registration=",
    "clientaddr=",
    "rsize=",
    "wsize=",
    "nconnect=",
    "timeo=",
    "retrans=",
    "hard",
    "soft",
    "softerr",
    "rdirplus",
    "nordirplus",
    "sec=sys",
    "ro",
    "rw",
    "nosuid",
    "suid",
    "nodev",
    "dev",
    "user",
    "users",
];

impl MountOptions {
    /// Reads options separated by commas, over the defaults. The last of contradicting ones holds,
    /// as with mount(8); but for `features=`, which nfs(5) has not, and of which two are as likely meant
    /// to add up.
    ///
    /// # Errors
    /// An option that is not known, or whose value makes no sense.
    pub fn parse(text: &str) -> Result<Self, OptionError> {
        let mut options = Self::default();
        for option in text.split(',').filter(|option| !option.is_empty()) {
            options.apply(option)?;
        }
        Ok(options)
    }

    fn apply(&mut self, option: &str) -> Result<(), OptionError> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let given = Given { name, value };
        match name {
            "proto" => {
                self.proto = given.proto()?;
                self.ipv6 = given.is_ipv6();
            }
            "rdma" => self.proto = given.flag(Proto::Rdma)?,
            "tcp" => self.proto = given.flag(Proto::Tcp)?,
            "port" => self.port = given.port()?,
            "mountport" => self.mount_port = given.port()?,
            "mountproto" => {
                self.mount_proto = Some(given.proto()?);
                self.mount_ipv6 = given.is_ipv6();
            }
            "mounthost" | "mountaddr" => self.mount_host = Some(given.text()?.to_owned()),
            "vers" | "nfsvers" | "mountvers" => {
                if given.text()? != "3" {
                    return Err(given.wrong("3, the only version here,"));
                }
            }
            "rpcrdma" => {
                self.rpcrdma = match given.text()? {
                    "auto" => None,
                    _ => Some(given.number("1, 2 or auto", 1, 2)?),
                }
            }
            "features" => {
                let second: RoundTripFeatures =
                    given.text()?.parse().map_err(|_| given.wrong(FEATURES))?;
                if let Some(first) = self.features.filter(|first| *first != second) {
                    return Err(OptionError::Twice { first, second });
                }
                self.features = Some(second);
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
            "timeo" => {
                let tenths = given.number("tenths of a second, 1 to 6000,", 1, 6000)?;
                self.timeo = Duration::from_millis(u64::from(tenths) * 100);
            }
            "retrans" => self.retrans = given.number("0 to 100", 0, 100)?,
            "hard" => self.hard = given.flag(true)?,
            "soft" | "softerr" => self.hard = given.flag(false)?,
            "rdirplus" => self.attach.readdirplus = given.flag(true)?,
            "nordirplus" => self.attach.readdirplus = given.flag(false)?,
            "ro" => self.attach.read_only = given.flag(true)?,
            "rw" => self.attach.read_only = given.flag(false)?,
            "nosuid" => self.no_set_id = given.flag(true)?,
            "suid" => self.no_set_id = given.flag(false)?,
            "nodev" => self.no_devices = given.flag(true)?,
            "dev" => self.no_devices = given.flag(false)?,
            // mount(8): of ordinary users' mounts these are implied.
            "user" | "users" => {
                given.flag(())?;
                (self.no_set_id, self.no_devices) = (true, true);
            }
            "sec" => {
                if !matches!(given.text()?, "sys" | "none") {
                    return Err(given.wrong("sys, or none,"));
                }
            }
            _ if name.starts_with("x-") => {}
            _ if WITHOUT_EFFECT.contains(&name) => given.flag(())?,
            _ if WITHOUT_EFFECT
                .iter()
                .any(|o| o.strip_suffix('=') == Some(name)) =>
            {
                given.text()?;
            }
            _ if option.parse::<RoundTripFeatures>().is_ok() => {
                return Err(self.feature_alone(option));
            }
            _ => {
                return Err(OptionError::Unknown {
                    option: option.to_owned(),
                    near: nearest(name),
                    known: WITH_EFFECT.join(", "),
                });
            }
        }
        Ok(())
    }

    fn feature_alone(&self, option: &str) -> OptionError {
        let before = self.features.filter(|features| !features.is_none());
        let meant = match before {
            Some(features) => format!("features={features}+{option}"),
            None => format!("features={option}"),
        };
        let option = option.to_owned();
        OptionError::Feature { option, meant }
    }

    /// The port that NFS is at: the URL's, else `port=`, else the transport's own.
    #[must_use]
    pub fn nfs_port(&self, in_url: Option<u16>) -> u16 {
        in_url.or(self.port).unwrap_or(match self.proto {
            Proto::Rdma => RDMA_PORT,
            Proto::Tcp => TCP_PORT,
        })
    }

    /// Whether MOUNT is reached in another way than NFS, and so over a connection of its own.
    #[must_use]
    pub fn separate_mount(&self) -> bool {
        self.mount_port.is_some()
            || self.mount_host.is_some()
            || self.mount_proto.is_some_and(|proto| proto != self.proto)
    }
}

/// The known option that `name` is likely a slip of the pen of: one letter in a few is missing,
/// wrong, too many or swapped with its neighbour.
fn nearest(name: &str) -> Option<&'static str> {
    let known = WITH_EFFECT.iter().chain(WITHOUT_EFFECT).copied();
    let distance = |option: &str| {
        let known = option.split('=').next().unwrap_or(option);
        strsim::osa_distance(name, known)
    };
    let (near, slips) = known
        .map(|option| (option, distance(option)))
        .min_by_key(|&(_, slips)| slips)?;
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

    /// nfs(5): 0 stands for "the usual one".
    fn port(&self) -> Result<Option<u16>, OptionError> {
        match self.text()?.parse() {
            Ok(0) => Ok(None),
            Ok(port) => Ok(Some(port)),
            Err(_) => Err(self.wrong("a port")),
        }
    }

    /// nfs(5): a size is rounded down to a multiple of 1024; too great a one is cut to the most
    /// that both sides can do.
    fn size(&self) -> Result<u32, OptionError> {
        let size = self.number(
            "a number of bytes without a unit, at least 1024,",
            MIN_IO,
            u32::MAX,
        )?;
        Ok((size - size % MIN_IO).min(MAX_DATA))
    }

    /// Whether a transport is the one over IPv6.
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

    fn wrong(&self, wanted: &'static str) -> OptionError {
        OptionError::Value {
            option: self.name.to_owned(),
            value: self.value.unwrap_or_default().to_owned(),
            wanted,
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
    use rpc_transport::rdma::Ways;

    use super::*;

    #[test]
    fn options_are_read_over_the_defaults() {
        assert_eq!(MountOptions::parse("").unwrap(), MountOptions::default());
        let options = MountOptions::parse(
            "proto=tcp,port=2050,mountport=2051,rpcrdma=1,features=ddp:send+cont,device=iwarp,\
             registration=windows,clientaddr=10.8.0.1,rsize=65536,wsize=70000,\
             nconnect=4,timeo=25,retrans=5,soft,nordirplus,ro,vers=3,sec=sys",
        )
        .unwrap();
        let expected = MountOptions {
            proto: Proto::Tcp,
            port: Some(2050),
            mount_port: Some(2051),
            rpcrdma: Some(1),
            features: Some(RoundTripFeatures {
                ddp: Ways {
                    send: true,
                    receive: false,
                },
                cont: Ways::BOTH,
            }),
            device: Some("iwarp".into()),
            registration: Some("windows".into()),
            client_address: Some([10, 8, 0, 1].into()),
            nconnect: 4,
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
        let auto = MountOptions::parse("rpcrdma=2,rpcrdma=auto").unwrap();
        assert_eq!(auto, MountOptions::default());
    }

    #[test]
    fn a_line_of_fstab_can_be_used() {
        let line = "defaults,_netdev,noatime,nodiratime,nolock,actimeo=3600,lookupcache=all,\
                    local_lock=none,x-systemd.automount,x-systemd.idle-timeout=60,rw,hard,intr";
        assert_eq!(MountOptions::parse(line).unwrap(), MountOptions::default());
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
            assert_eq!(near, meant, "{slip}");
        }
        assert_eq!(
            error("vers=4.2").to_string(),
            "mount option vers=4.2: 3, the only version here, is wanted"
        );
        for text in [
            "proto=udp",
            "nconnect=0",
            "nconnect=17",
            "rsize=1023",
            "rsize=x",
        ] {
            assert!(matches!(error(text), OptionError::Value { .. }), "{text}");
        }
        for text in [
            "port=65536",
            "timeo=0",
            "sec=krb5",
            "rpcrdma=0",
            "rpcrdma=3",
            "features=ddp:both",
            "features=cont+",
            "retrans=-1",
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
            ("rsize=8q", "a number of bytes without a unit"),
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
    fn ports_follow_the_transport() {
        let rdma = MountOptions::parse("rdma,port=0").unwrap();
        assert_eq!(rdma.nfs_port(None), 20049);
        assert!(!rdma.separate_mount());
        let tcp = MountOptions::parse("tcp,port=3000").unwrap();
        assert_eq!(tcp.nfs_port(None), 3000);
        assert_eq!(tcp.nfs_port(Some(4000)), 4000);
        assert_eq!(MountOptions::parse("tcp").unwrap().nfs_port(None), 2049);
        assert!(
            MountOptions::parse("rdma,mountproto=tcp")
                .unwrap()
                .separate_mount()
        );
    }
}
