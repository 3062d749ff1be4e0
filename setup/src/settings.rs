//! Settings of the ends of connections: what `--set NAME=VALUE` changes.
//!
//! Each is a field of the options of a library, with a name, a unit, bounds and a sentence.
//! [`STANDARD`] is the one list of those of this project; `rpcrdma-compare` adds those of simulations, and a
//! program those of its own extensions
//! ([`Catalog::with_setting`](crate::catalog::Catalog::with_setting)), which read them from [`Settings`].
//!
//! ```
//! use rpcrdma_setup::settings::{Effect, Setting, Settings, Unit};
//!
//! static HINTS: Setting = Setting {
//!     name: "hints",
//!     unit: Unit::Number,
//!     bounds: (1, 64),
//!     step: 1,
//!     help: "Hints that a connection remembers",
//!     effect: Effect::Own { default: 8 },
//! };
//! let mut settings = Settings::default();
//! assert_eq!(settings.value(&HINTS), 8);
//! settings.set(&HINTS, "64")?;
//! assert_eq!(settings.value(&HINTS), 64);
//! let refused = settings.set(&HINTS, "65").unwrap_err();
//! assert_eq!(refused, "hints is set to 64 already");
//! # Ok::<(), String>(())
//! ```

use std::fmt;
use std::time::Duration;

use rdma::middleware::Delay;
use rpc_transport::rdma::{RdmaClientOptions, RdmaOptions, RdmaServerOptions};
use rpcrdma_protocols::{Placing, Side};

use crate::columns::wrap;
use crate::costs::Amount;
use crate::units;

/// The width of help, characters, without what it is indented by.
const WIDTH: usize = 96;

/// The unit of a setting, which says how its values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of things.
    Number,
    /// Bytes: `4096`, `64k`, `1M`.
    Bytes,
    /// A time, in nanoseconds: `250us`, `5ms`, `2s`.
    Time,
    /// A rate, in bytes per second, that is written in bits: `100m`, `10g`, `unlimited`.
    Rate,
    /// A share, in parts per million, that is written in percent: `1%`, `0.05%`.
    Share,
    /// `off` (0) or `on` (1).
    Switch,
}

impl Unit {
    fn parse(self, text: &str) -> Result<u64, String> {
        match self {
            Self::Number => text
                .parse()
                .map_err(|_| format!("`{text}` is not a number")),
            Self::Bytes => units::size(text),
            Self::Time => units::time(text).map(nanos),
            Self::Rate => match Amount::rate(text) {
                Ok(Amount::Rate(rate)) => Ok(rate),
                Ok(Amount::Time(_)) => Err(format!("`{text}` is not a rate")),
                Err(error) => Err(error.to_string()),
            },
            Self::Share => units::share(text),
            Self::Switch => match text {
                "off" => Ok(0),
                "on" => Ok(1),
                _ => Err(format!("`{text}` is neither on nor off")),
            },
        }
    }

    /// Writes a value as it is read.
    #[must_use]
    pub fn write(self, value: u64) -> String {
        match self {
            Self::Bytes => {
                let text = self.show(value).replace([' ', 'i', 'B'], "");
                text.replace('K', "k")
            }
            other => other.show(value),
        }
    }

    /// Writes a value for people.
    fn show(self, value: u64) -> String {
        match self {
            Self::Number => value.to_string(),
            Self::Bytes => units::show_size(value),
            Self::Time => Delay(Duration::from_nanos(value)).to_string(),
            Self::Rate => Amount::Rate(value).to_string(),
            Self::Share => units::show_share(value),
            Self::Switch => if value == 0 { "off" } else { "on" }.to_owned(),
        }
    }
}

/// The place of a setting in options: how it is read and written.
#[derive(Debug)]
pub struct Field<T> {
    /// Reads the field.
    pub get: fn(&T) -> u64,
    /// Writes the field.
    pub set: fn(&mut T, u64),
}

/// The effect of a setting.
#[derive(Debug)]
pub enum Effect {
    /// The options of either end.
    Common(Field<RdmaOptions>),
    /// The options of a client.
    Client(Field<RdmaClientOptions>),
    /// The options of a server.
    Server(Field<RdmaServerOptions>),
    /// The segments of receives that an extension for placement gets.
    Placing(Field<Placing>),
    /// A simulation, of seeds and of measurements, which asks for it by [`Settings::given`]. The function
    /// returns the value if it is not set.
    Simulation(fn() -> u64),
    /// A measurement in a simulation, likewise.
    Measurement(fn() -> u64),
    /// Something of a program's own, which asks for it by [`Settings::value`].
    Own {
        /// The value if it is not set.
        default: u64,
    },
}

/// A setting of one end of a connection.
#[derive(Debug)]
pub struct Setting {
    /// The name in `--set NAME=VALUE`.
    pub name: &'static str,
    /// The unit of its values.
    pub unit: Unit,
    /// The least and the greatest value.
    pub bounds: (u64, u64),
    /// The number that a value has to be a multiple of; 1 for any value.
    pub step: u64,
    /// A sentence that says what it is.
    pub help: &'static str,
    /// The effect.
    pub effect: Effect,
}

impl Setting {
    /// Reads a value.
    ///
    /// # Errors
    /// A value that is written wrongly or is out of bounds, as the text says.
    pub fn parse(&self, text: &str) -> Result<u64, String> {
        let value = self.unit.parse(text);
        let within = value.and_then(|value| match self.can_be(value) {
            true => Ok(value),
            false => Err(format!("`{text}` is not possible")),
        });
        within.map_err(|error| format!("{}: {error}: write {}", self.name, self.range()))
    }

    fn can_be(&self, value: u64) -> bool {
        let (least, most) = self.bounds;
        (least..=most).contains(&value) && value.is_multiple_of(self.step.max(1))
    }

    /// Checks that the default of a program's own setting is one of its values.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.effect {
            Effect::Own { default } if !self.can_be(default) => {
                let (default, range) = (self.unit.show(default), self.range());
                Err(format!(
                    "{}: the default {default} is not possible: {range}",
                    self.name
                ))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether only a simulation has it.
    #[must_use]
    pub fn is_of_simulations(&self) -> bool {
        matches!(self.effect, Effect::Simulation(_) | Effect::Measurement(_))
    }

    /// Says which values are possible.
    fn range(&self) -> String {
        let (least, most) = self.bounds;
        if self.unit == Unit::Switch {
            return "on or off".to_owned();
        }
        let range = format!("{} to {}", self.unit.show(least), self.unit.show(most));
        match self.step {
            0 | 1 => range,
            step => format!("{range} in steps of {}", self.unit.show(step)),
        }
    }

    /// Returns the value at one end if nothing is set. A setting of the other end alone has the value
    /// there.
    fn default_at(&self, side: Side) -> u64 {
        let protocols = rpcrdma_protocols::base();
        match (&self.effect, side) {
            (Effect::Common(Field { get, .. }), Side::Client) => {
                get(&RdmaClientOptions::new(protocols).common)
            }
            (Effect::Common(Field { get, .. }), Side::Server) => {
                get(&RdmaServerOptions::new(protocols).common)
            }
            (Effect::Client(Field { get, .. }), _) => get(&RdmaClientOptions::new(protocols)),
            (Effect::Server(Field { get, .. }), _) => get(&RdmaServerOptions::new(protocols)),
            (Effect::Placing(Field { get, .. }), _) => get(&Placing::default()),
            (Effect::Simulation(default) | Effect::Measurement(default), _) => default(),
            (Effect::Own { default }, _) => *default,
        }
    }

    /// Says what the value is if nothing is set.
    fn default(&self) -> String {
        let [client, server] =
            [Side::Client, Side::Server].map(|side| self.unit.show(self.default_at(side)));
        match self.effect {
            Effect::Client(_) => format!("client {client}"),
            Effect::Server(_) => format!("server {server}"),
            _ if client == server => client,
            _ => format!("client {client}, server {server}"),
        }
    }
}

impl fmt::Display for Setting {
    /// Writes the paragraph about the setting in `--set help`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut help = self.help.to_owned();
        if matches!(self.effect, Effect::Measurement(_)) {
            help.push_str(" (not of sim)");
        }
        let help = wrap(&help, WIDTH).replace('\n', "\n    ");
        let (range, default) = (self.range(), self.default());
        write!(f, "{}={range} [{default}]\n    {help}", self.name)
    }
}

/// Settings with their values.
#[derive(Clone, Debug, Default)]
pub struct Settings(Vec<(&'static Setting, u64)>);

impl Settings {
    /// Sets `setting` to the value that `text` says.
    ///
    /// # Errors
    /// The value is impossible, or the setting has one already.
    pub fn set(&mut self, setting: &'static Setting, text: &str) -> Result<(), String> {
        if let Some(value) = self.given(setting) {
            let value = setting.unit.show(value);
            return Err(format!("{} is set to {value} already", setting.name));
        }
        let value = setting.parse(text)?;
        self.0.push((setting, value));
        Ok(())
    }

    /// Returns whether nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value of a setting, or its default: that of clients if it is one of this project's
    /// that servers have another default of ([`Settings::value_at`]).
    #[must_use]
    pub fn value(&self, setting: &Setting) -> u64 {
        self.value_at(setting, Side::Client)
    }

    /// Returns the value of a setting at one end, or its default there.
    #[must_use]
    pub fn value_at(&self, setting: &Setting, side: Side) -> u64 {
        self.given(setting)
            .unwrap_or_else(|| setting.default_at(side))
    }

    /// Returns the name of a setting that has no effect on a client.
    #[must_use]
    pub fn of_servers(&self) -> Option<&'static str> {
        self.only(|effect| matches!(effect, Effect::Server(_)))
    }

    /// Returns the name of a setting that has no effect on a server.
    #[must_use]
    pub fn of_clients(&self) -> Option<&'static str> {
        self.only(|effect| matches!(effect, Effect::Client(_)))
    }

    /// Returns the name of a setting that has an effect in a simulation alone.
    #[must_use]
    pub fn of_simulations(&self) -> Option<&'static str> {
        self.only(|effect| matches!(effect, Effect::Simulation(_) | Effect::Measurement(_)))
    }

    /// Returns the name of a setting that has no effect on the seeds of a simulation.
    #[must_use]
    pub fn of_measurements(&self) -> Option<&'static str> {
        self.only(|effect| matches!(effect, Effect::Measurement(_)))
    }

    /// Returns the names of those that are set.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|(setting, _)| setting.name)
    }

    /// Returns the name of a setting of what inline sizes set as well.
    pub(crate) fn beside_inline(&self) -> Option<&'static str> {
        let lengths = ["inline-send", "inline-receive", "max-receive"];
        self.names().find(|name| lengths.contains(name))
    }

    fn only(&self, is_it: fn(&Effect) -> bool) -> Option<&'static str> {
        let mut found = self.0.iter().filter(|(setting, _)| is_it(&setting.effect));
        found.next().map(|(setting, _)| setting.name)
    }

    /// Returns the value of a setting if it is set.
    #[must_use]
    pub fn given(&self, setting: &Setting) -> Option<u64> {
        let mut known = self.0.iter();
        let found = known.find(|(known, _)| known.name == setting.name);
        found.map(|(_, value)| *value)
    }

    /// Changes the options of either end.
    pub fn apply(&self, options: &mut RdmaOptions) {
        for (setting, value) in &self.0 {
            if let Effect::Common(Field { set, .. }) = &setting.effect {
                set(options, *value);
            }
        }
    }

    /// Changes the options of a client.
    pub fn apply_to_client(&self, options: &mut RdmaClientOptions) {
        self.apply(&mut options.common);
        for (setting, value) in &self.0 {
            if let Effect::Client(Field { set, .. }) = &setting.effect {
                set(options, *value);
            }
        }
    }

    /// Changes the options of a server.
    pub fn apply_to_server(&self, options: &mut RdmaServerOptions) {
        self.apply(&mut options.common);
        for (setting, value) in &self.0 {
            if let Effect::Server(Field { set, .. }) = &setting.effect {
                set(options, *value);
            }
        }
    }

    /// Returns the segments of receives that data is placed in.
    #[must_use]
    pub fn placing(&self) -> Placing {
        let mut placing = Placing::default();
        for (setting, value) in &self.0 {
            if let Effect::Placing(Field { set, .. }) = &setting.effect {
                set(&mut placing, *value);
            }
        }
        placing
    }
}

impl fmt::Display for Settings {
    /// Writes the settings as `--set` reads them, with spaces between them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = self
            .0
            .iter()
            .map(|(setting, value)| format!("{}={}", setting.name, setting.unit.write(*value)));
        f.write_str(&each.collect::<Vec<_>>().join(" "))
    }
}

/// Converts a value within bounds of 32 bits.
fn word(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// Converts a time to nanoseconds.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Makes the [`Field`] of a field of options that has 32 bits.
macro_rules! word {
    ($field:ident) => {
        Field {
            get: |options| u64::from(options.$field),
            set: |options, value| options.$field = word(value),
        }
    };
}

/// Makes the [`Field`] of a field of options that is a time.
macro_rules! time {
    ($field:ident) => {
        Field {
            get: |options| nanos(options.$field),
            set: |options, value| options.$field = Duration::from_nanos(value),
        }
    };
}

/// Makes the [`Field`] of a field of options that is true or false.
macro_rules! switch {
    ($field:ident) => {
        Field {
            get: |options| u64::from(options.$field),
            set: |options, value| options.$field = value != 0,
        }
    };
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;

/// The settings of this project.
pub static STANDARD: &[Setting] = &[
    Setting {
        name: "credits",
        unit: Unit::Number,
        bounds: (1, 16_384),
        step: 1,
        help: "Client: calls outstanding on a connection at most. Server: credits granted at most; fewer if there \
               is no memory or no place in a queue for their receives",
        effect: Effect::Common(word!(credits)),
    },
    Setting {
        name: "inline-send",
        unit: Unit::Bytes,
        bounds: (KIB, 256 * KIB),
        step: KIB,
        help: "Longest message without chunks that this end sends (RFC 8797, section 4.2)",
        effect: Effect::Common(word!(inline_send)),
    },
    Setting {
        name: "inline-receive",
        unit: Unit::Bytes,
        bounds: (KIB, 256 * KIB),
        step: KIB,
        help: "Longest message without chunks that this end receives, and the least length of its receives, which \
               have 4 KiB or more in version 2",
        effect: Effect::Common(word!(inline_receive)),
    },
    Setting {
        name: "max-receive",
        unit: Unit::Bytes,
        bounds: (KIB, MIB),
        step: KIB,
        help: "Version 2: length to which this end makes its receives longer at most if the peer asks for it",
        effect: Effect::Common(word!(max_receive_size)),
    },
    Setting {
        name: "head",
        unit: Unit::Bytes,
        bounds: (64, 64 * KIB),
        step: 64,
        help: "Placement (ddp): length of the first segment of receives, for the header and the rest of the message \
               around the data",
        effect: Effect::Placing(word!(head)),
    },
    Setting {
        name: "target",
        unit: Unit::Bytes,
        bounds: (4 * KIB, MIB),
        step: 4 * KIB,
        help: "Placement (ddp): least length of the second segment of receives, into which data is placed",
        effect: Effect::Placing(word!(target)),
    },
    Setting {
        name: "short-items",
        unit: Unit::Bytes,
        bounds: (0, MIB),
        step: 1,
        help: "Data that is sent without chunks wherever it fits, even if an extension could place it: most bytes of a \
               call and its reply, or of a reply",
        effect: Effect::Common(word!(short_items)),
    },
    Setting {
        name: "spare-receives",
        unit: Unit::Number,
        bounds: (0, 16_384),
        step: 1,
        help: "Version 2, client: receives beyond those for credits at most, for replies in several messages",
        effect: Effect::Common(word!(spare_receives)),
    },
    Setting {
        name: "group-timeout",
        unit: Unit::Time,
        bounds: (MILLISECOND, 3600 * SECOND),
        step: 1,
        help: "Version 2: time within which a message in several transmissions has to be complete; otherwise the \
               connection is closed",
        effect: Effect::Common(time!(group_timeout)),
    },
    Setting {
        name: "max-message",
        unit: Unit::Bytes,
        bounds: (4 * KIB, 1024 * MIB),
        step: 4,
        help: "Longest RPC message in either direction",
        effect: Effect::Common(word!(max_message)),
    },
    Setting {
        name: "max-segment",
        unit: Unit::Bytes,
        bounds: (512, 1024 * MIB),
        step: 1,
        help: "Longest segment of a chunk; longer chunks have several",
        effect: Effect::Common(word!(max_segment)),
    },
    Setting {
        name: "inbound-reads",
        unit: Unit::Number,
        bounds: (1, 1024),
        step: 1,
        help: "RDMA Reads that the peer may have outstanding at most",
        effect: Effect::Common(word!(inbound_reads)),
    },
    Setting {
        name: "outbound-reads",
        unit: Unit::Number,
        bounds: (1, 1024),
        step: 1,
        help: "RDMA Reads that this end has outstanding at most",
        effect: Effect::Common(word!(outbound_reads)),
    },
    Setting {
        name: "private-data",
        unit: Unit::Switch,
        bounds: (0, 1),
        step: 1,
        help: "Version 1: whether this end announces its inline thresholds and remote invalidation when it connects \
               (RFC 8797); otherwise messages without chunks have at most 1 KiB",
        effect: Effect::Common(switch!(private_data)),
    },
    Setting {
        name: "remote-invalidation",
        unit: Unit::Switch,
        bounds: (0, 1),
        step: 1,
        help: "Whether replies may invalidate a handle of their call (Send With Invalidate); both ends have to agree",
        effect: Effect::Common(switch!(remote_invalidation)),
    },
    Setting {
        name: "patience",
        unit: Unit::Time,
        bounds: (MILLISECOND, 5 * SECOND),
        step: 1,
        help: "How long a client waits for the answer to its first message before it takes the server for one that \
               lacks its version",
        effect: Effect::Client(time!(patience)),
    },
    Setting {
        name: "progress-timeout",
        unit: Unit::Time,
        bounds: (100 * MILLISECOND, 3600 * SECOND),
        step: 1,
        help: "How long a client may leave RDMA Reads unanswered, or Sends and RDMA Writes uncompleted, before the \
               server closes its connection",
        effect: Effect::Server(time!(progress_timeout)),
    },
    Setting {
        name: "max-fetched",
        unit: Unit::Bytes,
        bounds: (64 * KIB, 4096 * MIB),
        step: 1,
        help: "Bytes of fetched chunks that the unanswered calls of one connection hold at most; further calls wait",
        effect: Effect::Server(Field {
            get: |options| options.max_fetched,
            set: |options, value| options.max_fetched = value,
        }),
    },
];

#[cfg(test)]
mod tests;
