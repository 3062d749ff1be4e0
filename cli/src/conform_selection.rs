//! The cases that the options of `conform` select, and the deviations that are known already.

use std::borrow::Cow;
use std::fs;

use rpcrdma_conform::case::{Case, Ground};
use rpcrdma_conform::cases;
use rpcrdma_conform::client;
use rpcrdma_conform::judge::{Selection, is_of};
use rpcrdma_conform::known::Known;
use rpcrdma_conform::report::{Entry, Report};
use rpcrdma_setup::Failure;

use crate::args::ConformArgs;

/// The address of a case.
#[derive(Clone)]
pub(crate) struct Address {
    address: String,
    /// The group of its version.
    group: &'static str,
    /// Whether it is performed with `--hostile` alone.
    hostile: bool,
}

impl Address {
    /// Returns the address of a case for clients.
    pub(crate) fn of_client(case: &client::case::Case) -> Self {
        Self {
            address: case.address(),
            group: case.dialect.group(),
            hostile: false,
        }
    }
}

impl From<&Case> for Address {
    fn from(case: &Case) -> Self {
        Self {
            address: case.address(),
            group: case.dialect.group(),
            hostile: case.hostile,
        }
    }
}

/// The choice of cases by options, and the deviations that are known.
pub(crate) struct Chosen {
    /// The selected cases.
    pub(crate) selection: Selection,
    /// The deviations that are known, if a file with them is given.
    known: Option<Known>,
    /// The number of cases that are left out.
    left_out: usize,
}

impl Chosen {
    /// Reads the options. `cases` are those among which they choose.
    ///
    /// # Errors
    /// An address is that of no case, no case is left, or the file with known deviations cannot be read.
    pub(crate) fn new(args: &ConformArgs, cases: &[Address]) -> Result<Self, Failure> {
        let selection = Selection {
            only: args.only.clone(),
            skip: args.skip.clone(),
            hostile: args.hostile,
            ..Selection::default()
        };
        for (option, prefixes) in [("--only", &args.only), ("--skip", &args.skip)] {
            for prefix in prefixes {
                let is_one = |it: &Address| is_of(&it.address, it.group, prefix);
                if !cases.iter().any(is_one) {
                    return Err(Failure::Usage(format!(
                        "{option} {prefix}: no case has such an address (--list has all)"
                    )));
                }
            }
        }
        let hostile = args.hostile;
        let performed = || cases.iter().filter(move |it| hostile || !it.hostile);
        if !performed().any(|it| selection.names(&it.address, it.group)) {
            let is_selected = |it: &Address| selection.names(&it.address, it.group);
            return Err(match cases.iter().any(is_selected) {
                true => Failure::usage("these cases are performed with --hostile alone"),
                false => Failure::usage("--skip: no case is left"),
            });
        }
        let is_out = |it: &&Address| selection.leaves_out(&it.address, it.group);
        let left_out = performed().filter(is_out).count();
        let known = known(args, cases)?;
        Ok(Self {
            selection,
            known,
            left_out,
        })
    }

    /// Returns the entry of a case, marked if its deviation is known.
    pub(crate) fn marked<'e>(&self, entry: &'e Entry) -> Cow<'e, Entry> {
        match &self.known {
            Some(known) if known.has(&entry.address) => {
                let mut entry = entry.clone();
                entry.mark(known);
                Cow::Owned(entry)
            }
            _ => Cow::Borrowed(entry),
        }
    }

    /// Adds to a report how many cases are left out, and what became of known deviations.
    pub(crate) fn complete(&self, report: &mut Report, strict: bool) {
        report.left_out = self.left_out;
        if let Some(known) = &self.known {
            report.compare(known, strict);
        }
    }
}

/// Reads the addresses of known deviations. They may be those of servers and of clients.
fn known(args: &ConformArgs, cases: &[Address]) -> Result<Option<Known>, Failure> {
    let Some(path) = &args.known else {
        return Ok(None);
    };
    let wrong = |what: &dyn std::fmt::Display| {
        Failure::Usage(format!("--known {}: {what}", path.display()))
    };
    let text = fs::read_to_string(path).map_err(|error| wrong(&error))?;
    let known = Known::parse(&text).map_err(|error| wrong(&error))?;
    let of_servers = cases::all(&Ground::without_files(1));
    let mut built_in: Vec<Address> = of_servers.iter().map(Address::from).collect();
    built_in.extend(client::cases::all().iter().map(Address::of_client));
    for address in known.addresses() {
        let mut all = built_in.iter().chain(cases);
        if !all.any(|it| it.address == address || it.group == address) {
            let text = format!("{address}: no case has this address (--list has all)");
            return Err(wrong(&text));
        }
    }
    Ok(Some(known))
}
