//! Output of results to files and standard output, and comparison with an earlier report.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rpcrdma_compare::{Changes, Measured, Reference, Report, rows_json};
use rpcrdma_setup::units::show_date;
use rpcrdma_setup::{Context, Failure};

use crate::args::CompareArgs;
use crate::output;

/// The option whose output may go to standard output.
pub(super) const JSON: &str = "--json";

/// A destination of output.
pub(super) enum Place {
    Stdout,
    File(PathBuf),
}

impl Place {
    /// Checks that a destination can be written, so that the measurement is not lost for want of a
    /// place. `-` is standard output if `option` allows that. An existing file keeps its content, and
    /// a new one is created and removed again: both are written when there are results, because the
    /// measurement takes minutes and may fail.
    fn open(option: &str, path: &Path) -> Result<Self, Failure> {
        match (path == Path::new("-"), option) {
            (true, JSON) => return Ok(Self::Stdout),
            (true, _) => {
                let text = format!(
                    "{option} -: only {JSON} goes to standard output; a file of that name is ./-"
                );
                return Err(Failure::Usage(text));
            }
            (false, _) => {}
        }
        match OpenOptions::new().write(true).create_new(true).open(path) {
            Ok(_) => fs::remove_file(path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                OpenOptions::new().write(true).open(path).map(drop)
            }
            Err(error) => Err(error),
        }
        .context(format_args!("cannot create {}", path.display()))?;
        Ok(Self::File(path.to_owned()))
    }

    /// Opens the destination that an option names, if it is given.
    ///
    /// # Errors
    /// The file cannot be created.
    pub(super) fn of(option: &str, path: Option<&Path>) -> Result<Option<Self>, Failure> {
        path.map(|path| Self::open(option, path)).transpose()
    }

    /// Writes the output.
    ///
    /// # Errors
    /// The file or standard output cannot be written.
    pub(super) fn write(self, text: &str) -> Result<(), Failure> {
        match self {
            Self::Stdout => output::line(text),
            Self::File(path) => {
                // `create` truncates files; pipes and terminals have no length.
                let write = |text: &str| {
                    let mut file = BufWriter::new(File::create(&path)?);
                    writeln!(file, "{text}")?;
                    file.flush()
                };
                write(text).context(format_args!("cannot write {}", path.display()))
            }
        }
    }
}

/// The requested outputs besides tables.
pub(super) struct Outputs {
    json: Option<Place>,
    html: Option<Place>,
    /// The folder of the figures.
    figures: Option<PathBuf>,
    costs: Option<Place>,
    reference: Option<Reference>,
    /// Whether the run is tested against the reference.
    tests: bool,
}

/// The output that remains to be printed.
pub(super) struct Results {
    /// Whether to print tables: not if the rows went to standard output.
    pub(super) tables: bool,
    changes: Option<Changes>,
    tests: bool,
}

impl Outputs {
    /// Opens the files. The reference is read first, because it may also be an output file.
    ///
    /// # Errors
    /// A file cannot be created, or the reference is not a report.
    pub(super) fn open(args: &CompareArgs) -> Result<Self, Failure> {
        let reference = args.against.as_deref().or(args.reference.as_deref());
        let reference = reference.map(Reference::open).transpose()?;
        let place = |option, path: &Option<PathBuf>| Place::of(option, path.as_deref());
        if let Some(folder) = &args.figures {
            let what = format_args!("cannot create {}", folder.display());
            fs::create_dir_all(folder).context(what)?;
            // The first figure shows whether there can be files.
            Place::open("--figures", &folder.join("figure.svg"))?;
        }
        Ok(Self {
            reference,
            tests: args.against.is_some(),
            json: place(JSON, &args.json)?,
            html: place("--html", &args.html)?,
            figures: args.figures.clone(),
            costs: place("--save-costs", &args.save_costs)?,
        })
    }

    /// Returns whether there are output files, which contain more than the tables.
    pub(super) fn has_files(&self) -> bool {
        self.json.is_some() || self.html.is_some() || self.figures.is_some()
    }

    /// Writes the files.
    ///
    /// # Errors
    /// One cannot be written.
    pub(super) fn write(self, measured: &Measured) -> Result<Results, Failure> {
        let Measured {
            rows,
            summary,
            machine,
            ..
        } = measured;
        if let (Some(file), Some(costs)) = (self.costs, &measured.costs) {
            let json = costs.to_json(&format!("measured by compare: {summary}"));
            file.write(&serde_json::to_string_pretty(&json).map_err(Failure::work)?)?;
        }
        let changes = self.reference.map(|reference| reference.changes(rows));
        let changes = changes.transpose()?;
        let facts = facts();
        let drawn = match self.html.is_some() || self.figures.is_some() {
            true => measured.ladders()?,
            false => Vec::new(),
        };
        let report = Report {
            rows,
            of_receives: measured.is_of_receives(),
            summary,
            machine,
            facts: &facts,
            noise: measured.noise.as_deref(),
            changes: changes.as_ref(),
            ladders: &drawn,
        };
        if let Some(folder) = self.figures {
            let date = facts
                .each_ref()
                .map(|(name, value)| format!("{name}: {value}"))
                .join("; ");
            let conditions = [&**summary, machine, &date];
            for figure in report.figures() {
                for (extension, text) in [
                    ("svg", figure.svg(&conditions)),
                    ("tsv", figure.tsv(&conditions)),
                ] {
                    write_figure(&folder, &figure.name, extension, &text)?;
                }
            }
            for figure in &drawn {
                let plain = format!("{}-plain", figure.name);
                for (name, extension, text) in [
                    (&figure.name, "svg", figure.svg()),
                    (&figure.name, "txt", figure.text()),
                    (&plain, "svg", figure.plain_svg()),
                    (&plain, "txt", figure.plain_text()),
                ] {
                    write_figure(&folder, name, extension, &text)?;
                }
            }
        }
        if let Some(html) = self.html {
            html.write(&report.render().map_err(Failure::work)?)?;
        }
        let tables = !matches!(self.json, Some(Place::Stdout));
        if let Some(json) = self.json {
            json.write(&serde_json::to_string_pretty(&rows_json(rows)).map_err(Failure::work)?)?;
        }
        Ok(Results {
            tables,
            changes,
            tests: self.tests,
        })
    }
}

impl Results {
    /// Tests the run against an earlier one, if that was asked for.
    ///
    /// # Errors
    /// A row is slower than before, or costs more.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match &self.changes {
            Some(changes) if self.tests => changes.check(),
            _ => Ok(()),
        }
    }

    /// Prints the changes against the reference.
    ///
    /// # Errors
    /// Standard output cannot be written to.
    pub(super) fn print_changes(&self) -> Result<(), Failure> {
        let changes = self.changes.as_ref().map(Changes::table);
        changes.map_or(Ok(()), |table| output::line(format_args!("\n{table}")))
    }
}

/// Writes a file of a figure.
fn write_figure(folder: &Path, name: &str, extension: &str, text: &str) -> Result<(), Failure> {
    let path = folder.join(format!("{name}.{extension}"));
    fs::write(&path, text).context(format_args!("cannot write {}", path.display()))
}

/// Returns the facts needed to repeat the measurement besides its conditions: the command line, the
/// version and the date.
pub(super) fn facts() -> [(&'static str, String); 3] {
    let words = env::args_os().skip(1);
    let words: Vec<String> = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    [
        ("command", format!("rpcrdma {}", words.join(" "))),
        ("version", env!("RPCRDMA_VERSION").to_owned()),
        (
            "date",
            now.map_or_else(|_| String::new(), |now| show_date(now.as_secs()) + " UTC"),
        ),
    ]
}
