//! Creates devices, transports and clients from options.

use std::cell::RefCell;
use std::fmt::Display;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::panic::resume_unwind;
use std::pin::pin;
use std::rc::Rc;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use futures_util::future::{Either, select};
use nfs_binding::client::{Mount, NfsError, NfsUrl};
use nfs_binding::proto::{MAX_DATA, Status};
use onc_rpc::{AuthSys, Credential};
use rdma::Pool;
use rdma::middleware::Shaper;
use rdma::trace::Trace;
use rdma_core::Registration;
use rpc_transport::rdma::{
    CallbackOptions, Choice, RdmaClient, RdmaClientOptions, RdmaOptions, Version,
};
use rpc_transport::{
    CallError, Client, ClientLoops, ClientOptions, ClientTransport, Interrupt, Retry, Runtime,
    TcpClient, TcpOptions,
};
use rpcrdma_host::CongestionControl;
use rpcrdma_programs::callbacks::Answers;
use rpcrdma_protocols::{RoundTripFeatures, Side};

use crate::catalog::{Features, Tuning};
use crate::costs::{Costs, CostsArg};
use crate::device::{DeviceChoice, DeviceName, Opened, Resources};
use crate::mount_options::{MountOptions, Proto};
use crate::reached::Port;
use crate::{Context, Failure};

pub use crate::reached::Reached;

/// The maximum number of groups in AUTH_SYS credentials (RFC 5531, appendix A).
const MAX_GROUPS: usize = 16;
/// The maximum length of a reply to READ besides its data, bytes; amply.
const ROOM_FOR_HEADERS: u32 = 1 << 16;
/// The interval at which a thread that looks up a host is asked whether it is done.
const RESOLVER_TICK: Duration = Duration::from_millis(1);

/// The simulated link of one side, and how the side waits.
#[derive(Clone, Debug, Default)]
pub struct LinkOptions {
    /// Delay of everything this side sends.
    pub delay: Duration,
    /// Bits per second that this side can send.
    pub rate: Option<u64>,
    /// Whether to spin instead of sleeping.
    pub busy_poll: bool,
    /// Whether to ask for CRC32c in iWARP frames. Either side can have it.
    pub crc: bool,
    /// The congestion control of this side's TCP connections, those of the iwarp device included;
    /// `None`: the system's.
    pub congestion: Option<CongestionControl>,
}

impl LinkOptions {
    /// Returns the link simulation, if there is anything to simulate.
    fn shaper(&self) -> Option<Shaper> {
        (!self.delay.is_zero() || self.rate.is_some()).then(|| Shaper::new(self.delay, self.rate))
    }

    /// Returns the options of a TCP transport.
    pub fn tcp(&self) -> TcpOptions {
        TcpOptions {
            congestion: self.congestion.clone(),
            link: self.shaper(),
            ..TcpOptions::default()
        }
    }

    /// Opens a device behind the link.
    ///
    /// # Errors
    /// See [`DeviceChoice::open`].
    pub fn device(&self, choice: &DeviceChoice) -> Result<Opened, Failure> {
        choice.open(self.shaper(), self.crc, self.congestion.clone())
    }
}

/// The error of a thread that was to drive connections.
struct NotStarted(Failure);

impl From<io::Error> for NotStarted {
    fn from(error: io::Error) -> Self {
        Self(Failure::Work(format!(
            "cannot start the threads of a client: {error}"
        )))
    }
}

/// The options for callbacks, if they are enabled.
pub const CALLBACKS: CallbackOptions = CallbackOptions {
    credits: 32,
    chunks: true,
};

/// The parameters for connecting to a server: mount options, device and link.
#[derive(Clone, Debug)]
pub struct Access {
    /// Mount options.
    pub mount: MountOptions,
    /// The options of RPC-over-RDMA clients.
    pub rdma: RdmaClientOptions,
    /// The device under RPC-over-RDMA.
    pub device: DeviceChoice,
    /// The simulated link of this side.
    pub link: LinkOptions,
    /// The service that answers the server's calls, if the client accepts any.
    pub answers: Option<Answers>,
    /// The costs by which transfers are planned. Those of the device's class replace defaults when the
    /// device is open.
    pub costs: Costs,
    /// How long a server that had answered may be unreachable before calls fail. `None`: the
    /// transport's default ([`ClientOptions::give_up_after`]), which suits a command that ends.
    pub give_up_after: Option<Duration>,
    /// The observer of calls, if they are traced.
    pub trace: Option<Trace>,
    /// The handle that ends connecting early, with [`Failure::Interrupted`], for a command that has something to put in
    /// order first. `None`: nothing does, and a signal ends the process.
    pub interrupt: Option<Interrupt>,
}

impl Access {
    /// Combines mount options, the simulated link of this side, and costs, if any are given.
    ///
    /// # Errors
    /// A mount option cannot be used here, or the costs cannot be read.
    pub fn new(
        mount: MountOptions,
        link: LinkOptions,
        costs: Option<&CostsArg>,
    ) -> Result<Self, Failure> {
        Self::tuned(mount, link, costs, &Tuning::default())
    }

    /// Does what [`Access::new`] does, with what else is selected of a catalog, by which the mount
    /// options were parsed.
    ///
    /// # Errors
    /// A mount option or a setting cannot be used here, or the costs cannot be read.
    pub fn tuned(
        mount: MountOptions,
        link: LinkOptions,
        costs: Option<&CostsArg>,
        tuning: &Tuning,
    ) -> Result<Self, Failure> {
        only_rdma(&mount, costs.is_some(), tuning)?;
        tuning.check_for(Side::Client)?;
        let version = mount.rpcrdma.map_or(Choice::Auto, Choice::Only);
        let given = mount.features.as_ref().filter(|given| !given.is_none());
        if let Some(features) = given
            && version == Choice::Only(Version::ONE)
        {
            let features = format!("features={features}: version 2 is wanted for that");
            return Err(Failure::Usage(features));
        }
        let features = mount.features.clone();
        let features = features.unwrap_or_else(|| Features::from(RoundTripFeatures::ALL));
        let wrong = |error: String| Failure::Usage(format!("mount option {error}"));
        let device = DeviceChoice {
            name: option("device", mount.device.as_deref()).map_err(wrong)?,
            registration: option("registration", mount.registration.as_deref()).map_err(wrong)?,
            address: mount.client_address,
            ..DeviceChoice::default()
        };
        if device.name == DeviceName::Iwarp && device.address.is_some() {
            let text = "mount option clientaddr: only verbs devices have a choice (see device=)";
            return Err(Failure::usage(text));
        }
        let mut rdma = RdmaClientOptions::new(tuning.protocols(&features));
        if let Some(sizes) = mount.inline {
            tuning.check_beside_inline("mount option inline")?;
            sizes.apply(&mut rdma.common);
        }
        tuning.apply_to_client(&mut rdma);
        let costs = CostsArg::load(costs)?.on_link(link.delay, link.rate);
        let access = Self {
            mount,
            rdma: RdmaClientOptions {
                version,
                common: RdmaOptions {
                    costs: costs.model(),
                    ..rdma.common
                },
                ..rdma
            },
            device,
            link,
            answers: None,
            costs,
            give_up_after: None,
            trace: None,
            interrupt: None,
        };
        access.check_threads()?;
        Ok(access)
    }

    /// Connects to `host`, at `port` if one is given.
    ///
    /// # Errors
    /// The host is unknown or does not answer.
    pub fn reach(&self, host: &str, port: Option<u16>) -> Result<Reached, Failure> {
        self.reach_with(&self.runtime()?, host, port)
    }

    /// Adds advice to the failure of a call that the server refused because of the client's version: a
    /// server tells that to a client of version 1 with its first reply, when the connection is up.
    #[must_use]
    pub fn advised(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Work(text) => with_version_advice(text, self.rdma.version),
            failure => failure,
        }
    }

    fn reach_with(
        &self,
        runtime: &Runtime,
        host: &str,
        port: Option<u16>,
    ) -> Result<Reached, Failure> {
        if let (Some(own), Some(option)) = (port, self.mount.port)
            && own != option
        {
            let text = format!("mount option port={option}: {host}:{own} is at another port");
            return Err(Failure::Usage(text));
        }
        let port = self.mount.nfs_port(port);
        self.reach_from(runtime, (self.mount.proto, self.mount.ipv6), host, port)
    }

    fn reach_from(
        &self,
        runtime: &Runtime,
        (proto, ipv6): (Proto, bool),
        host: &str,
        port: u16,
    ) -> Result<Reached, Failure> {
        let found = self.addresses(runtime, host, port)?;
        let mut addresses = found.context(format_args!("cannot find server {host}"))?;
        addresses.retain(|address| address.is_ipv6() || !ipv6);
        let kind = if ipv6 { " of IPv6" } else { "" };
        let mut last = Failure::Work(format!(
            "cannot find server {host}: it has no address{kind}"
        ));
        for address in addresses {
            match self.connect(runtime, proto, address)? {
                Ok(reached) => return Ok(reached),
                Err(error) => last = explain(&error, proto, self.rdma.version),
            }
        }
        Err(last)
    }

    /// Performs `work`, which waits for the server at `place`.
    ///
    /// # Errors
    /// [`Failure::Interrupted`] if it was interrupted first. `work` is dropped then.
    fn until_interrupted<T>(
        &self,
        runtime: &Runtime,
        place: impl Display,
        work: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        let Some(interrupt) = &self.interrupt else {
            return Ok(runtime.block_on(work));
        };
        match runtime.block_on(select(pin!(work), pin!(interrupt.wait()))) {
            Either::Left((done, _)) => Ok(done),
            Either::Right(_) => Err(Failure::Interrupted(format!("connecting to {place}"))),
        }
    }

    /// Returns the addresses of a host, or why there are none.
    ///
    /// # Errors
    /// [`Failure::Interrupted`].
    fn addresses(
        &self,
        runtime: &Runtime,
        host: &str,
        port: u16,
    ) -> Result<io::Result<Vec<SocketAddr>>, Failure> {
        let place = (host.to_owned(), port);
        let find = move || place.to_socket_addrs().map(Iterator::collect);
        if self.interrupt.is_none() {
            return Ok(find());
        }
        // getaddrinfo(3) waits for name servers, and cannot be interrupted. A thread that still does when the
        // command ends is not waited for.
        let finding = thread::Builder::new().name("resolver".into()).spawn(find);
        let finding = finding.context("cannot start a thread")?;
        let found = async {
            while !finding.is_finished() {
                runtime.sleep(RESOLVER_TICK).await;
            }
        };
        self.until_interrupted(runtime, host, found)?;
        match finding.join() {
            Ok(found) => Ok(found),
            Err(panic) => resume_unwind(panic),
        }
    }

    fn connect(
        &self,
        runtime: &Runtime,
        proto: Proto,
        address: SocketAddr,
    ) -> Result<Result<Reached, CallError>, Failure> {
        let Open {
            port,
            transport,
            registration,
        } = match proto {
            Proto::Tcp => self.open_tcp(),
            Proto::Rdma => self.open_rdma(address),
        }?;
        let pool = transport.borrow().pool().clone();
        let options = self.client_options();
        let connecting = async {
            match self.answers.clone() {
                None => Client::connect(runtime, address, transport, options).await,
                Some(answers) => {
                    let answers = Box::new(answers);
                    Client::connect_with_callbacks(runtime, address, transport, options, answers)
                        .await
                }
            }
        };
        let connected = self.until_interrupted(runtime, address, connecting)?;
        Ok(connected.map(|client| Reached {
            runtime: runtime.clone(),
            client,
            port,
            pool,
            registration,
        }))
    }

    /// Returns a TCP transport, or one for each of several threads.
    fn open_tcp(&self) -> Result<Open, Failure> {
        let options = TcpOptions {
            // The reply to the longest READ that a server may allow.
            max_record: MAX_DATA + ROOM_FOR_HEADERS,
            callbacks: self.answers.is_some(),
            ..self.link.tcp()
        };
        if self.mount.threads == 1 {
            let port = Rc::new(RefCell::new(TcpClient::new(options)));
            return Ok(Open {
                port: Port::Tcp(Rc::clone(&port)),
                transport: port,
                registration: None,
            });
        }
        let make = move || Ok::<_, NotStarted>(TcpClient::new(options.clone()));
        let loops = self.start_threads(make)?;
        Ok(Open {
            port: Port::TcpLoops(Rc::clone(&loops)),
            transport: loops,
            registration: None,
        })
    }

    /// Returns a transport for RPC-over-RDMA with its device, or one for each of several threads.
    fn open_rdma(&self, address: SocketAddr) -> Result<Open, Failure> {
        let (link, mut choice) = (self.link.clone(), self.device.towards(address));
        let options = RdmaClientOptions {
            patience: self.patience(),
            ..self.rdma.clone()
        };
        let (callbacks, costs) = (self.answers.is_some(), self.costs.clone());
        let open = move |choice: &DeviceChoice| {
            let opened = link.device(choice)?;
            let registration = opened.registration;
            let client = rdma_client(opened, options.clone(), &costs, callbacks);
            Ok((client, registration))
        };
        if self.mount.threads == 1 {
            let (client, registration) = open(&choice)?;
            let port = Rc::new(RefCell::new(client));
            return Ok(Open {
                port: Port::Rdma(Rc::clone(&port)),
                transport: port,
                registration: Some(registration),
            });
        }
        let Resources { memory, kept, .. } = choice.resources;
        choice.pool = Some(Pool::keeping(memory, kept));
        let registration = Arc::new(OnceLock::new());
        let known = Arc::clone(&registration);
        let make = move || {
            let (client, registration) = open(&choice).map_err(NotStarted)?;
            known.get_or_init(|| registration);
            Ok(client)
        };
        let loops = self.start_threads(make)?;
        Ok(Open {
            port: Port::RdmaLoops(Rc::clone(&loops)),
            transport: loops,
            registration: registration.get().copied(),
        })
    }

    /// Returns a transport over RDMA with its device, for connections to `remote` on which the server may
    /// call. If it is an iwarp device, its memory is that of `pool`.
    ///
    /// # Errors
    /// See [`DeviceChoice::open`].
    pub fn rdma_transport(
        &self,
        remote: SocketAddr,
        pool: Option<Pool>,
    ) -> Result<RdmaClient, Failure> {
        let mut choice = self.device.towards(remote);
        choice.pool = pool.or(choice.pool);
        let opened = self.link.device(&choice)?;
        Ok(rdma_client(opened, self.rdma.clone(), &self.costs, true))
    }

    /// Rejects `threads=` above 1 if the transport does not support it, or if there are fewer connections.
    fn check_threads(&self) -> Result<(), Failure> {
        let (threads, nconnect) = (self.mount.threads, self.mount.nconnect);
        let reason = match threads {
            1 => return Ok(()),
            _ if threads > nconnect => {
                format!("needs nconnect={threads} or more, and nconnect={nconnect} is set: each thread drives a connection of its own")
            }
            // The data of calls would have to be copied from one device's memory to another's.
            _ if self.device.name != DeviceName::Iwarp => {
                "only for TCP and device=iwarp, as each thread of a verbs device has memory of its own".to_owned()
            }
            _ if self.link.rate.is_some() => {
                "not with --rate, which limits what one thread sends".to_owned()
            }
            _ => return Ok(()),
        };
        let text = format!("mount option threads={threads}: {reason}");
        Err(Failure::Usage(text))
    }

    fn start_threads<T: ClientTransport + 'static>(
        &self,
        make: impl Fn() -> Result<T, NotStarted> + Clone + Send + 'static,
    ) -> Result<Rc<RefCell<ClientLoops<T>>>, Failure> {
        self.check_threads()?;
        let loops = ClientLoops::start(self.mount.threads as usize, make);
        let loops = loops.map_err(|NotStarted(failure)| failure)?;
        Ok(Rc::new(RefCell::new(loops)))
    }

    /// Returns the maximum time for connecting, and for finding the version of the server.
    fn connect_timeout(&self) -> Duration {
        let default = ClientOptions::default().connect_timeout;
        match self.mount.hard {
            true => default,
            // A soft mount reports an error after `timeo` for the first transmission and for each of `retrans`
            // further ones. Connecting must not take longer.
            false => default.min(self.mount.timeo * (self.mount.retrans + 1)),
        }
    }

    /// Returns the time after which a server that does not answer version 2 is asked by version 1, so
    /// that there is time left for that.
    fn patience(&self) -> Duration {
        self.rdma.patience.min(self.connect_timeout() / 2)
    }

    fn client_options(&self) -> ClientOptions {
        let default = ClientOptions::default();
        ClientOptions {
            connect_timeout: self.connect_timeout(),
            give_up_after: self.give_up_after.unwrap_or(default.give_up_after),
            credential: credential(),
            nconnect: self.mount.nconnect as usize,
            trace: self.trace.clone(),
            timeout: self.mount.timeo,
            retry: if self.mount.hard {
                Retry::Hard
            } else {
                Retry::Soft {
                    retransmissions: self.mount.retrans,
                }
            },
            ..default
        }
    }

    /// Connects to the MOUNT service of `host`: the one that mount options name or, without such
    /// options, the one at the address of NFS, at `port` if one is given.
    ///
    /// # Errors
    /// The host is unknown or does not answer.
    pub fn reach_mountd(&self, host: &str, port: Option<u16>) -> Result<Reached, Failure> {
        let runtime = self.runtime()?;
        match self.separate_mountd(&runtime, host)? {
            Some(mountd) => Ok(mountd),
            None => self.reach(host, port),
        }
    }

    /// Connects to the MOUNT service of the mount options if it is not at the address of NFS.
    fn separate_mountd(&self, runtime: &Runtime, nfs: &str) -> Result<Option<Reached>, Failure> {
        if !self.mount.separate_mount() {
            return Ok(None);
        }
        let host = self.mount.mount_host.as_deref().unwrap_or(nfs);
        let proto = self.mount.mount_proto.unwrap_or(self.mount.proto);
        let options = MountOptions {
            proto,
            port: self.mount.mount_port,
            ..MountOptions::default()
        };
        let port = options.nfs_port(None);
        let ipv6 = match self.mount.mount_proto {
            Some(_) => self.mount.mount_ipv6,
            None => self.mount.ipv6,
        };
        let reached = self.reach_from(runtime, (proto, ipv6), host, port);
        let by_default = self.mount.mount_proto.is_none() && proto == Proto::Rdma;
        let what = match self.mount.mount_port.filter(|_| by_default) {
            Some(port) => format!(
                "mountport={port} without mountproto=, so that MOUNT goes over RDMA (most servers have it over TCP \
                 only: mountproto=tcp)"
            ),
            None => return reached.map(Some),
        };
        reached.map_err(|failure| failure.at(what)).map(Some)
    }

    /// Creates the runtime that drives clients.
    fn runtime(&self) -> Result<Runtime, Failure> {
        let runtime = Runtime::new().context("cannot set up polling")?;
        runtime.set_busy_poll(self.link.busy_poll);
        Ok(runtime)
    }

    /// Connects to the server of `url` and mounts the export that contains its path. Also returns
    /// the rest of the path.
    ///
    /// # Errors
    /// The server cannot be reached, or does not export the path.
    pub fn mount(&self, url: &NfsUrl) -> Result<Mounted, Failure> {
        self.mount_with(&self.runtime()?, url)
    }

    /// Does what [`Access::mount`] does, with a runtime that can drive other clients as well.
    ///
    /// # Errors
    /// The server cannot be reached, or does not export the path.
    pub fn mount_with(&self, runtime: &Runtime, url: &NfsUrl) -> Result<Mounted, Failure> {
        let reached = self.reach_with(runtime, &url.server, url.port)?;
        let mountd = self.separate_mountd(&reached.runtime, &url.server)?;
        let mountd = mountd.map_or_else(|| reached.client.clone(), |mountd| mountd.client);
        let attaching = Mount::attach(
            reached.client.clone(),
            mountd,
            &url.path,
            &self.mount.attach,
        );
        let attached = self.until_interrupted(runtime, url, attaching)?;
        let (mount, path) = attached.map_err(|error| {
            let advice = match error.status() {
                Some(Status::ACCES) => REFUSED.to_owned(),
                _ => advice(&error, self.mount.proto, self.rdma.version),
            };
            Failure::Work(format!("{url}: {error}{advice}"))
        })?;
        Ok(Mounted {
            reached,
            mount,
            path,
        })
    }
}

/// The advice to a user whose mount was refused.
const REFUSED: &str = "; the server's log has the reason: this host may not be one of the export's, or the \
                       export is `secure` and asks for a port below 1024, which takes root here";

/// Returns the transport of RPC-over-RDMA clients over a device, with the costs of the device where
/// none are given.
fn rdma_client(
    opened: Opened,
    mut options: RdmaClientOptions,
    costs: &Costs,
    callbacks: bool,
) -> RdmaClient {
    let class = &opened.device.attributes().costs;
    options.common.costs = costs.clone().or_of(class).model();
    if callbacks {
        options.common.callbacks = CALLBACKS;
    }
    RdmaClient::new(opened.device, options)
}

/// A transport that has been created and has no connections yet.
struct Open {
    /// The transport with its own type, for its counters.
    port: Port,
    /// The transport of `port`, as a client takes it.
    transport: Rc<RefCell<dyn ClientTransport>>,
    registration: Option<Registration>,
}

/// An export in use.
pub struct Mounted {
    /// The connection.
    pub reached: Reached,
    /// The export.
    pub mount: Mount<Client>,
    /// The rest of the URL's path, below the export's root.
    pub path: Vec<u8>,
}

/// Parses the value of an option, or returns the default if there is none.
fn option<T>(name: &str, value: Option<&str>) -> Result<T, String>
where
    T: Default + FromStr<Err = String>,
{
    let parsed = value.map_or_else(|| Ok(T::default()), str::parse);
    parsed.map_err(|error| format!("{name}: {error}"))
}

/// Rejects options for RDMA that are given with `proto=tcp`: they would have no effect, so the user
/// must have meant something else.
fn only_rdma(mount: &MountOptions, has_costs: bool, tuning: &Tuning) -> Result<(), Failure> {
    let given = [
        ("mount option rpcrdma", mount.rpcrdma.is_some()),
        ("features", mount.features.is_some()),
        ("mount option inline", mount.inline.is_some()),
        ("--costs", has_costs),
        (tuning.given().unwrap_or_default(), tuning.given().is_some()),
        ("mount option device", mount.device.is_some()),
        ("mount option registration", mount.registration.is_some()),
        ("mount option clientaddr", mount.client_address.is_some()),
    ];
    let tcp = mount.proto == Proto::Tcp && mount.mount_proto.unwrap_or(Proto::Tcp) == Proto::Tcp;
    match given.into_iter().find(|(_, given)| *given && tcp) {
        Some((name, _)) => Err(Failure::Usage(format!(
            "{name}: only for NFS over RDMA, not with proto=tcp"
        ))),
        None => Ok(()),
    }
}

/// The beginning of the transport's message when client and server have no version of RPC-over-RDMA
/// in common.
const NO_VERSION: &str = "no version in common";

/// Returns advice for the case that client and server have no version in common. Without the option, a
/// client tries all versions that it has, and no server is known that has none of them.
fn other_version(text: &str, version: Choice) -> Option<String> {
    let Choice::Only(wanted) = version else {
        return None;
    };
    text.contains(NO_VERSION)
        .then(|| format!("leave out rpcrdma={wanted}"))
}

fn with_version_advice(text: String, version: Choice) -> Failure {
    match other_version(&text, version) {
        Some(advice) => Failure::Work(format!("{text} ({advice})")),
        None => Failure::Work(text),
    }
}

/// Adds advice when a server is unreachable or speaks another protocol.
fn explain(error: &CallError, proto: Proto, version: Choice) -> Failure {
    let text = error.to_string();
    if text.contains(NO_VERSION) {
        return with_version_advice(text, version);
    }
    let other = match proto {
        Proto::Rdma => {
            "is `rpcrdma serve` running there, with room for a client? For NFS over TCP use -o proto=tcp"
        }
        Proto::Tcp => "is an NFS server running there? For NFS over RDMA leave out proto=tcp",
    };
    match error {
        CallError::Connect { .. } => Failure::Work(format!("{error} ({other})")),
        other => Failure::work(other),
    }
}

/// Returns advice for the case that the peer is not a server of this transport.
fn advice(error: &NfsError, proto: Proto, version: Choice) -> String {
    let NfsError::Call { source, .. } = error else {
        return String::new();
    };
    if let Some(advice) = other_version(&source.to_string(), version) {
        return format!("; {advice}");
    }
    let advice = match (source, proto) {
        (CallError::Unanswered { .. }, Proto::Tcp) => {
            "; if this is the port for NFS over RDMA, use -o proto=rdma"
        }
        (CallError::Unanswered { .. }, Proto::Rdma) => {
            "; if this is the port for NFS over TCP, use -o proto=tcp"
        }
        _ => "",
    };
    advice.to_owned()
}

/// Returns the AUTH_SYS credential of the calling user.
pub fn credential() -> Credential {
    let groups = rustix::process::getgroups().unwrap_or_default();
    let gids = groups.iter().map(|gid| gid.as_raw()).take(MAX_GROUPS);
    let name = rustix::system::uname().nodename().to_bytes().to_vec();
    Credential::Sys(AuthSys {
        stamp: 0,
        machine_name: name.into(),
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        gids: gids.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_soft_mount_has_time_for_version_1_if_version_2_is_not_answered() {
        let times = |options: &str| {
            let mount = MountOptions::parse(options).unwrap();
            let access = Access::new(mount, LinkOptions::default(), None).unwrap();
            (access.connect_timeout(), access.patience())
        };
        let seconds = Duration::from_secs;
        assert_eq!(times("hard,timeo=10,retrans=1"), (seconds(10), seconds(5)));
        assert_eq!(times("soft,timeo=10,retrans=1"), (seconds(2), seconds(1)));
        assert_eq!(times("soft,timeo=600"), (seconds(10), seconds(5)));
    }

    #[test]
    fn threads_without_use_are_refused() {
        let access = |options: &str, rate| {
            let mount = MountOptions::parse(options).unwrap();
            let link = LinkOptions {
                rate,
                ..LinkOptions::default()
            };
            Access::new(mount, link, None).map(drop)
        };
        for fine in [
            "nconnect=2,threads=2",
            "proto=tcp,nconnect=4,threads=2",
            "threads=1",
        ] {
            assert!(access(fine, None).is_ok(), "{fine}");
        }
        for (wrong, rate) in [
            ("threads=2", None),
            ("nconnect=2,threads=3", None),
            ("nconnect=2,threads=2,device=verbs", None),
            ("nconnect=2,threads=2", Some(1_000_000)),
        ] {
            let refused = access(wrong, rate).unwrap_err();
            assert!(matches!(refused, Failure::Usage(_)), "{wrong}: {refused}");
        }
    }
}
