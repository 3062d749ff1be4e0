//! A server to measure, as the user names it.

use std::str::FromStr;

use nfs_binding::client::NfsUrl;
use rpcrdma_setup::access::{Access, LinkOptions};
use rpcrdma_setup::catalog::Tuning;
use rpcrdma_setup::mount_options::MountOptions;
use rpcrdma_setup::{Context, Failure};

/// An export of a server, and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The name in tables.
    pub(crate) name: String,
    /// The server's process on this machine, whose processor time is measured.
    pub(crate) pid: Option<u32>,
    /// Mount options.
    pub(crate) options: String,
    /// The directory for what the calls need.
    pub(crate) url: NfsUrl,
}

impl Target {
    /// Returns how the server is reached.
    ///
    /// # Errors
    /// An option is unknown, or cannot have an effect here.
    pub(super) fn access(&self, tuning: &Tuning) -> Result<Access, Failure> {
        let name = &self.name;
        let parsed = MountOptions::parse_and_note(&tuning.catalog, &self.options);
        let (mount, _) = parsed.map_err(|error| Failure::Usage(format!("{name}: {error}")))?;
        if mount.nconnect != 1 {
            let text = "mount option nconnect: --connections says how many connections there are";
            return Err(Failure::usage(text));
        }
        if mount.attach.read_only {
            let text = "mount option ro: what the calls need has to be written";
            return Err(Failure::usage(text));
        }
        let link = LinkOptions {
            // The server decides, as for other commands.
            crc: false,
            ..LinkOptions::default()
        };
        Access::tuned(mount, link, None, tuning)
    }
}

impl FromStr for Target {
    type Err = String;

    /// Parses `NAME PID OPTIONS URL`, in which `-` stands for no process and no options.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let &[name, pid, options, url] = words.as_slice() else {
            return Err(format!("`{text}` is not NAME PID OPTIONS URL"));
        };
        let given = |word: &str| (word != "-").then(|| word.to_owned());
        let pid = given(pid).map(|pid| parse_pid(&pid)).transpose()?;
        Ok(Self {
            name: name.to_owned(),
            pid,
            options: given(options).unwrap_or_default(),
            url: url.parse::<NfsUrl>().map_err(|error| error.to_string())?,
        })
    }
}

/// Parses the number of a process.
///
/// # Errors
/// A text for the user that says what is wrong.
pub(crate) fn parse_pid(text: &str) -> Result<u32, String> {
    let pid = text.parse::<i32>().ok().filter(|&pid| pid > 0);
    pid.map(i32::unsigned_abs)
        .ok_or_else(|| format!("`{text}` is not the number of a process"))
}

/// Checks that no two targets have the same name, and that each can be measured.
pub(super) fn check_all(targets: &[Target], tuning: &Tuning) -> Result<(), Failure> {
    for (index, target) in targets.iter().enumerate() {
        target.access(tuning)?;
        if targets[..index]
            .iter()
            .any(|other| other.name == target.name)
        {
            let name = &target.name;
            return Err(Failure::Usage(format!(
                "{name}: two servers have this name"
            )));
        }
        if let Some(pid) = target.pid {
            super::processor_time::of_process(pid)
                .context(format_args!("process {pid} of {}", target.name))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_four_words() {
        let target: Target = "ours 12 proto=tcp,port=7 nfs://host/export"
            .parse()
            .unwrap();
        assert_eq!((&*target.name, target.pid), ("ours", Some(12)));
        assert_eq!(target.options, "proto=tcp,port=7");
        assert_eq!(target.url.path, b"/export");
        assert!(target.access(&Tuning::default()).is_ok());
        let target: Target = "x - - nfs://host/export".parse().unwrap();
        assert_eq!((target.pid, &*target.options), (None, ""));
        for wrong in [
            "",
            "x 1 proto=tcp",
            "x 0 - nfs://h/e",
            "x 1 - host",
            "x q - nfs://h/e",
        ] {
            assert!(wrong.parse::<Target>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn options_without_effect_are_refused() {
        for options in ["nconnect=2", "ro", "proto=tcp,rpcrdma=1", "frobnicate"] {
            let target: Target = format!("x - {options} nfs://host/export").parse().unwrap();
            let refused = target.access(&Tuning::default()).unwrap_err();
            assert!(matches!(refused, Failure::Usage(_)), "{options}: {refused}");
        }
    }
}
