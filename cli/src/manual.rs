//! The commands `completions` and `man`. Both are made of the definitions that `--help` is made of, with
//! what a program adds to them.

use std::fs;
use std::io;
use std::path::Path;

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, ValueHint};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use rpcrdma_setup::catalog::Catalog;
use rpcrdma_setup::mount_options::{DIFFERENT, GROUPS, MountOption, UNSUPPORTED, WITHOUT_EFFECT};
use rpcrdma_setup::{Context, Failure};

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::output;

/// The title of all pages.
const MANUAL: &str = "NFS over RPC-over-RDMA";
/// The beginning of an explanation that is about examples.
const EXAMPLES: &str = "Examples:\n";
/// The date of all pages, none: an empty argument of roff's.
const NO_DATE: &str = "\"\"";
/// The suffix, after the program's name, of the name of the page of mount options.
const MOUNT_OPTIONS: &str = "-mount-options";

/// Prints a completion script for the program with this name.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn completions(
    args: &CompletionsArgs,
    catalog: &Catalog,
    program: &str,
) -> Result<(), Failure> {
    let mut command = visible(&Cli::known_command(catalog), program);
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, program, &mut script);
    output::bytes(&script)
}

/// Returns the names, options and first sentences of a command and its subcommands, except what is
/// hidden, which completion scripts would show.
fn visible(command: &Command, name: &str) -> Command {
    let args = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let subcommands = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    let shown = Command::new(name.to_owned())
        .about(command.get_about().cloned().unwrap_or_default())
        .args(args.cloned().map(with_mount_options))
        .subcommands(subcommands.map(|sub| visible(sub, sub.get_name())))
        .disable_help_subcommand(true);
    match command.get_version() {
        Some(version) => shown.version(version.to_owned()),
        None => shown,
    }
}

/// Returns an argument with the names of mount options as its values, if it is `-o`. A script completes
/// the first of them.
fn with_mount_options(arg: Arg) -> Arg {
    if arg.get_short() != Some('o') {
        return arg;
    }
    let options = GROUPS.iter().flat_map(|group| group.options);
    let names = options.map(|option| match option.value {
        "" => option.name.to_owned(),
        _ => format!("{}=", option.name),
    });
    arg.value_parser(PossibleValuesParser::new(names))
        .value_hint(ValueHint::Other)
}

/// Writes the manual pages of the program with this name.
///
/// # Errors
/// A file or folder cannot be written.
pub(crate) fn man(args: &ManArgs, catalog: &Catalog, program: &str) -> Result<(), Failure> {
    let mut command = Cli::known_command(catalog)
        .display_name(program.to_owned())
        .bin_name(program.to_owned())
        .disable_help_subcommand(true);
    command.build();
    let pages = Pages {
        folder: &args.folder,
        program,
        source: format!("{program} {}", env!("CARGO_PKG_VERSION")),
    };
    pages.command(&command)?;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        pages.command(sub)?;
    }
    pages.mount_options(catalog)
}

/// Where pages are written, and what is common to them.
struct Pages<'a> {
    folder: &'a Path,
    program: &'a str,
    source: String,
}

impl Pages<'_> {
    /// Writes the page of a command.
    fn command(&self, command: &Command) -> Result<(), Failure> {
        let name = command.get_display_name().unwrap_or(self.program);
        let man = Man::new(command.clone());
        let man = man.source(&*self.source).manual(MANUAL).date(NO_DATE);
        let write = |page: &mut Vec<u8>| -> io::Result<()> {
            man.render_title(page)?;
            man.render_name_section(page)?;
            synopsis(command).to_writer(page)?;
            man.render_description_section(page)?;
            man.render_options_section(page)?;
            if command.has_subcommands() {
                man.render_subcommands_section(page)?;
            }
            let after = command.get_after_help().map(ToString::to_string);
            notes(&after.unwrap_or_default()).to_writer(page)?;
            self.ends(command).to_writer(page)
        };
        self.write(1, name, write)
    }

    /// Returns what the end of a page says: exit status and other pages.
    fn ends(&self, command: &Command) -> Roff {
        let mut roff = Roff::new();
        let has_options = |command: &Command| {
            let mut args = command.get_arguments();
            args.any(|arg| arg.get_short() == Some('o'))
        };
        let mut also = Vec::new();
        if command.has_subcommands() {
            roff.control("SH", ["EXIT STATUS"]);
            roff.text([roman(
                "0: success. 1: the work failed, or a part of it. 2: the command line makes no sense. After a \
                 signal, the command ends by that signal.",
            )]);
            roff.control("SH", ["ENVIRONMENT"]);
            roff.control("TP", []);
            roff.text([bold("RUST_LOG")]);
            roff.text([roman(
                "What is logged on standard error, instead of what -v says: a level such as info, or \
                 PART=LEVEL,... for single parts.",
            )]);
            let subs = command.get_subcommands().filter(|sub| !sub.is_hide_set());
            also.extend(subs.filter_map(|sub| Some((sub.get_display_name()?.to_owned(), 1))));
        } else {
            also.push((self.program.to_owned(), 1));
        }
        if command.has_subcommands() || has_options(command) {
            also.push((format!("{}{MOUNT_OPTIONS}", self.program), 7));
        }
        see_also(&mut roff, &also);
        roff
    }

    /// Writes the page of the mount options.
    fn mount_options(&self, catalog: &Catalog) -> Result<(), Failure> {
        let name = format!("{}{MOUNT_OPTIONS}", self.program);
        let mut roff = Roff::new();
        roff.control("TH", [&*name, "7", NO_DATE, &self.source, MANUAL]);
        roff.control("SH", ["NAME"]);
        let what = format!("{name} - options after -o of the commands that reach a server");
        roff.text([roman(what)]);
        roff.control("SH", ["SYNOPSIS"]);
        roff.text([
            bold(format!("{} mount -o ", self.program)),
            italic("OPTION"),
            roman("[,"),
            italic("OPTION"),
            roman("...] nfs://SERVER[:PORT]/EXPORT MOUNTPOINT"),
        ]);
        roff.control("SH", ["DESCRIPTION"]);
        roff.text([roman(
            "Options are separated by commas. They mean what they mean in nfs(5) and mount(8) where these have \
             them. Of options that contradict each other the last one applies, and a note says so.",
        )]);
        for group in GROUPS {
            roff.control("SH", [group.heading.to_uppercase().as_str()]);
            if group.of_mounts {
                roff.text([roman(
                    "These change nothing in commands that copy or list files.",
                )]);
            }
            for option in group.options {
                option_item(&mut roff, option, &self.added(catalog, option.name));
            }
        }
        roff.control("SH", ["WITHOUT EFFECT"]);
        roff.text([roman(
            "These are accepted, so that a line of fstab(5) can be used unchanged, and change nothing; so are \
             options that begin with x-:",
        )]);
        roff.control("PP", []);
        roff.text([roman(listed(WITHOUT_EFFECT))]);
        roff.control("PP", []);
        roff.text([roman(
            "A note says what happens instead of what nfs(5) or mount(8) say:",
        )]);
        for &(name, what) in DIFFERENT {
            roff.control("TP", []);
            roff.text([bold(name)]);
            roff.text([roman(format!("{what}."))]);
        }
        roff.control("SH", ["NOT SUPPORTED"]);
        roff.text([roman("These are errors:")]);
        roff.control("PP", []);
        roff.text([roman(listed(UNSUPPORTED))]);
        let also = ["nfs", "fstab"].map(|name| (name.to_owned(), 5));
        let mount = [
            (format!("{}-mount", self.program), 1),
            ("mount".to_owned(), 8),
        ];
        see_also(&mut roff, &[&mount[..], &also[..]].concat());
        self.write(7, &name, |page| roff.to_writer(page))
    }

    /// Returns what a program adds to the values of an option.
    fn added(&self, catalog: &Catalog, option: &str) -> String {
        let added: Vec<_> = match option {
            "features" => catalog.added_features().map(|(name, _)| name).collect(),
            "rpcrdma" => catalog.added_versions().map(|it| it.name()).collect(),
            _ => Vec::new(),
        };
        match added.is_empty() {
            true => String::new(),
            false => format!(" {} also has {}.", self.program, added.join(", ")),
        }
    }

    fn write(
        &self,
        section: u8,
        name: &str,
        render: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let folder = self.folder.join(format!("man{section}"));
        let file = folder.join(format!("{name}.{section}"));
        let mut page = Vec::new();
        render(&mut page)
            .and_then(|()| fs::create_dir_all(&folder))
            .and_then(|()| fs::write(&file, &page))
            .context(file.display())
    }
}

/// Returns the section with the usage that `--help` shows.
fn synopsis(command: &Command) -> Roff {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage);
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let rest = usage.strip_prefix(name).unwrap_or_default();
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    roff.text([bold(name), roman(rest)]);
    roff
}

/// Returns sections with the text that follows the options in `--help`. Paragraphs that are laid out by
/// hand stay as they are.
fn notes(text: &str) -> Roff {
    let mut roff = Roff::new();
    if text.is_empty() {
        return roff;
    }
    let (heading, text) = match text.strip_prefix(EXAMPLES) {
        Some(examples) => ("EXAMPLES", examples),
        None => ("NOTES", text),
    };
    roff.control("SH", [heading]);
    for paragraph in text.trim_end().split("\n\n") {
        roff.control("PP", []);
        let by_hand = paragraph.lines().any(|line| line.starts_with("  "));
        if by_hand {
            roff.control("nf", []);
        }
        for line in paragraph.lines() {
            roff.text([roman(line)]);
        }
        if by_hand {
            roff.control("fi", []);
        }
    }
    roff
}

fn option_item(roff: &mut Roff, option: &MountOption, added: &str) {
    let mut title = vec![bold(option.name)];
    if !option.value.is_empty() {
        title.push(bold("="));
        title.extend(value(option.value));
    }
    roff.control("TP", []);
    roff.text(title);
    roff.text([roman(format!("{}{added}", option.help))]);
}

/// Returns the values of an option, with words in capitals as what they are: a stand-in.
fn value(words: &str) -> Vec<Inline> {
    match words.contains(char::is_uppercase) {
        true => vec![italic(words)],
        false => vec![bold(words)],
    }
}

fn listed(names: &[&str]) -> String {
    format!("{}.", names.join(", "))
}

fn see_also(roff: &mut Roff, pages: &[(String, u8)]) {
    roff.control("SH", ["SEE ALSO"]);
    for (at, (name, section)) in pages.iter().enumerate() {
        let comma = if at + 1 < pages.len() { "," } else { "" };
        roff.text([bold(&**name), roman(format!("({section}){comma}"))]);
    }
}
