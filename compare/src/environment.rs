//! The environment of a measurement: the machine, its kernel, and the build of this program.

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rpcrdma_setup::units::show_date;
use rustix::system::uname;
use serde::Serialize;

use crate::processor;

/// The keys of `/proc/cpuinfo` that can have the name of the processor, on several architectures.
const MODEL_KEYS: [&str; 4] = ["model name", "cpu model", "Model", "Hardware"];
/// The files that can have the name of the policy by which idle processors sleep.
const IDLE_GOVERNOR: [&str; 2] = ["current_governor", "current_governor_ro"];

/// The environment of a measurement, which every row repeats. A value that is unknown, or has no
/// influence because everything is simulated, is null.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Environment {
    /// The version of this program.
    pub version: &'static str,
    /// The commit that this program was built from.
    pub commit: Option<String>,
    /// Whether this program was built with optimization, without debug assertions.
    pub optimized: bool,
    /// The name and release of the kernel.
    pub kernel: Option<String>,
    /// The architecture of the machine.
    pub machine: Option<String>,
    /// The model of the processor.
    pub processor: Option<String>,
    /// The number of processors that this program might use, before it was pinned to one.
    pub processors: Option<usize>,
    /// The policy by which idle processors sleep, which decides how long a wake-up takes.
    pub idle_governor: Option<String>,
    /// Whether this is a virtual machine, as far as it shows.
    pub virtual_machine: Option<bool>,
    /// The date, in UTC.
    pub date: Option<String>,
    /// The other machine on which the servers ran, with its kernel and build; null if they ran on this one.
    pub server: Option<String>,
}

impl Environment {
    /// Returns the environment of a simulation, where only the program matters.
    pub(crate) fn of_program(commit: Option<&str>) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            commit: commit.map(str::to_owned),
            optimized: !cfg!(debug_assertions),
            ..Self::default()
        }
    }

    /// Returns the environment of a measurement on this machine. It must be called before this
    /// process is pinned to a processor.
    pub(crate) fn of_machine(commit: Option<&str>) -> Self {
        let system = uname();
        let [name, release, machine] = [system.sysname(), system.release(), system.machine()]
            .map(|text| text.to_string_lossy().into_owned());
        let description = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            kernel: Some(format!("{name} {release}")),
            machine: Some(machine),
            processor: model(&description).map(str::to_owned),
            processors: Some(processor::usable().len()).filter(|&count| count > 0),
            idle_governor: idle_governor(Path::new("/sys/devices/system/cpu/cpuidle")),
            virtual_machine: Some(processor::is_virtual(&description)),
            date: today(),
            ..Self::of_program(commit)
        }
    }

    /// Returns a phrase with the version, commit and profile of the program.
    pub(crate) fn program(&self) -> String {
        let commit = match &self.commit {
            Some(commit) => format!("commit {commit}"),
            None => "unknown commit".to_owned(),
        };
        let build = match self.optimized {
            true => "optimized build",
            false => "debug build",
        };
        format!("rpcrdma {}, {commit}, {build}", self.version)
    }
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = [&self.date, &self.kernel, &self.machine, &self.processor];
        for text in known.into_iter().flatten() {
            write!(f, "{text}, ")?;
        }
        match self.processors {
            Some(1) => f.write_str("1 processor"),
            Some(count) => write!(f, "{count} processors"),
            None => f.write_str("unknown number of processors"),
        }?;
        if let Some(governor) = &self.idle_governor {
            write!(f, ", idle governor {governor}")?;
        }
        match &self.server {
            Some(server) => write!(f, "; servers on another machine: {server}"),
            None => Ok(()),
        }
    }
}

/// Returns the date in UTC.
fn today() -> Option<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let date = show_date(now.as_secs());
    date.split_once(' ').map(|(day, _)| day.to_owned())
}

/// Returns the policy by which idle processors sleep, if there is one in a folder like
/// `/sys/devices/system/cpu/cpuidle`. Some virtual machines have none: their host decides.
fn idle_governor(folder: &Path) -> Option<String> {
    let mut texts = IDLE_GOVERNOR.map(|name| fs::read_to_string(folder.join(name)).ok());
    let text = texts.iter_mut().find_map(Option::take)?;
    Some(text.trim().to_owned()).filter(|name| !name.is_empty() && name != "none")
}

/// Returns the model of the first processor in a text like `/proc/cpuinfo`.
fn model(description: &str) -> Option<&str> {
    let mut lines = description.lines().filter_map(|line| line.split_once(':'));
    lines
        .find(|(key, _)| MODEL_KEYS.contains(&key.trim()))
        .map(|(_, value)| value.trim())
        .filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_found_on_several_architectures() {
        let x86 = "processor\t: 0\nmodel\t\t: 106\nmodel name\t: Intel(R) Xeon(R) CPU @ 2.60GHz\n";
        assert_eq!(model(x86), Some("Intel(R) Xeon(R) CPU @ 2.60GHz"));
        let arm = "processor\t: 0\nBogoMIPS\t: 108.00\n\nModel\t\t: Raspberry Pi 5 Model B\n";
        assert_eq!(model(arm), Some("Raspberry Pi 5 Model B"));
        assert_eq!(model("processor\t: 0\nBogoMIPS\t: 50.00\n"), None);
        assert_eq!(model("model name\t:\n"), None);
    }

    #[test]
    fn the_policy_of_idle_processors_is_that_of_the_system() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(idle_governor(folder.path()), None);
        fs::write(folder.path().join("current_governor_ro"), "menu\n").unwrap();
        assert_eq!(idle_governor(folder.path()).as_deref(), Some("menu"));
        fs::write(folder.path().join("current_governor"), "haltpoll\n").unwrap();
        assert_eq!(idle_governor(folder.path()).as_deref(), Some("haltpoll"));
        fs::write(folder.path().join("current_governor"), "none\n").unwrap();
        assert_eq!(idle_governor(folder.path()), None);
        let environment = Environment {
            processors: Some(2),
            idle_governor: Some("haltpoll".to_owned()),
            ..Environment::default()
        };
        assert_eq!(
            environment.to_string(),
            "2 processors, idle governor haltpoll"
        );
    }

    #[test]
    fn what_is_unknown_is_said_to_be() {
        let environment = Environment {
            version: "1.0.0",
            ..Environment::default()
        };
        assert_eq!(
            environment.program(),
            "rpcrdma 1.0.0, unknown commit, debug build"
        );
        assert_eq!(environment.to_string(), "unknown number of processors");
        let one = Environment {
            kernel: Some("Linux 6.1.0".to_owned()),
            processors: Some(1),
            ..environment
        };
        assert_eq!(one.to_string(), "Linux 6.1.0, 1 processor");
    }
}
