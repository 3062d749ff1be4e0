//! Checks the Wireshark dissector of this project (`wireshark/`) by what tshark shows with it.

mod exchange;
pub(crate) mod fields;
pub(crate) mod frames;
mod hostile;
pub(crate) mod offline;
pub(crate) mod pdml;
mod reused;
mod roce;
mod vectors;

use std::path::{Path, PathBuf};
use std::process::Command;

use self::fields::Codecs;
use self::pdml::Layer;
use crate::Report;
use crate::error::Error;

/// The protocols of the dissector.
const PROTOCOLS: &str = "rpcrdma1 rpcrdma2";

/// Returns the folder of the whole project.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// tshark with the dissector.
pub(crate) struct Wireshark {
    script: PathBuf,
}

impl Wireshark {
    /// Finds the dissector.
    pub(crate) fn new() -> Self {
        let script = root().join("wireshark/rpcrdma.lua");
        Self { script }
    }

    /// Runs tshark on a capture in two passes, so that calls know the frames of their replies.
    pub(crate) fn run(&self, file: &Path, args: &[&str]) -> Result<String, Error> {
        let mut command = Command::new("tshark");
        // Without a filter, tshark's first of two passes makes no fields.
        command.arg("-r").arg(file).args(["-2", "-R", "frame"]);
        command
            .arg("-X")
            .arg(format!("lua_script:{}", self.script.display()));
        command.args(args);
        let (out, said) = crate::dissect::run(&mut command)?;
        // An error of the script does not end tshark.
        if let Some(line) = said
            .lines()
            .find(|line| line.contains("Lua") || line.contains(".lua"))
        {
            return Err(Error::ours("the dissector")(line));
        }
        Ok(out)
    }

    /// Returns what the dissector shows.
    pub(crate) fn layers(&self, file: &Path) -> Result<Vec<Layer>, Error> {
        self.layers_of(file, PROTOCOLS)
    }

    /// Returns what tshark shows of these protocols, whose names have blanks between them.
    pub(crate) fn layers_of(&self, file: &Path, protocols: &str) -> Result<Vec<Layer>, Error> {
        self.layers_with(file, protocols, &[])
    }

    /// As [`Self::layers_of`], with further options.
    pub(crate) fn layers_with(
        &self,
        file: &Path,
        protocols: &str,
        options: &[&str],
    ) -> Result<Vec<Layer>, Error> {
        let args = [&["-T", "pdml", "-J", protocols], options].concat();
        let text = self.run(file, &args)?;
        if let Some(at) = text.lines().find(|line| line.contains("Lua Error")) {
            return Err(Error::ours("the dissector")(at.trim()));
        }
        let mut layers = pdml::parse(&text);
        layers.retain(|layer| protocols.split(' ').any(|name| name == layer.protocol));
        Ok(layers)
    }
}

/// Makes all checks of the dissector.
pub(crate) fn check(folder: &Path, report: &mut Report) -> Result<(), Error> {
    let (wireshark, codecs) = (Wireshark::new(), Codecs::new()?);
    let (count, wrong) = vectors::check(&wireshark, &codecs, folder)?;
    report.count("vectors as the codecs say", count, &wrong);
    let (count, wrong) = hostile::check(&wireshark, &codecs, folder)?;
    report.count("rules provoked", count, &wrong);
    let (count, wrong) = reused::check(&wireshark, folder)?;
    report.count("messages on ports used before", count, &wrong);
    exchange::check(&wireshark, &codecs, folder, report)
}
