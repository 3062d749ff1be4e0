//! The cases that the options of `conform` select, and the deviations that are known already.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::{fs, io};

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
    /// Whether the case is for clients.
    of_client: bool,
}

impl Address {
    /// Returns the address of a case for clients.
    pub(crate) fn of_client(case: &client::case::Case) -> Self {
        Self {
            address: case.address(),
            group: case.dialect.group(),
            hostile: false,
            of_client: true,
        }
    }

    /// Returns the addresses of all built-in cases: those for servers, and those for clients.
    fn built_in() -> Vec<Self> {
        let of_servers = cases::all(&Ground::without_files(1));
        let of_clients = client::cases::all();
        let of_clients = of_clients.iter().map(Self::of_client);
        of_servers
            .iter()
            .map(Self::from)
            .chain(of_clients)
            .collect()
    }

    /// Returns the document, the first component of the address.
    fn document(&self) -> &str {
        document(&self.address)
    }
}

/// Returns the first component of an address.
fn document(address: &str) -> &str {
    let (document, _) = address.split_once('/').unwrap_or((address, ""));
    document
}

impl From<&Case> for Address {
    fn from(case: &Case) -> Self {
        Self {
            address: case.address(),
            group: case.dialect.group(),
            hostile: case.hostile,
            of_client: false,
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
                    let why = why_none(args, prefix, cases);
                    return Err(Failure::Usage(format!("{option} {prefix}: {why}")));
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

    /// Adds to a report how many cases are left out, what became of known deviations, and why no case was tested.
    pub(crate) fn complete(&self, report: &mut Report, strict: bool) {
        report.left_out = self.left_out;
        if let Some(known) = &self.known {
            report.compare(known, strict);
        }
        report.complete(strict);
    }
}

/// Says why none of the cases among which the options choose has this address, or one that begins with it, and what to
/// type instead.
fn why_none(args: &ConformArgs, prefix: &str, cases: &[Address]) -> String {
    let built_in = Address::built_in();
    let is_one = |it: &&Address| is_of(&it.address, it.group, prefix);
    match built_in.iter().find(is_one) {
        Some(it) if it.of_client => {
            return format!(
                "this is for clients, and the cases here are for servers; to judge a client, type rpcrdma conform \
                 --listen ADDR:PORT --run COMMAND --only {prefix} (docs/conform-clients.md)"
            );
        }
        Some(_) if args.listen.is_some() => {
            return format!(
                "this is for servers, and --listen judges a client; to judge a server, type rpcrdma conform --only \
                 {prefix} nfs://SERVER/EXPORT (docs/conform.md)"
            );
        }
        Some(_) => {
            return "this is built-in, and --cases replaces what is built-in (--built-in: both)"
                .into();
        }
        None => {}
    }
    let document = document(prefix);
    let is_document = |it: &Address| is_of(&it.address, it.group, document);
    if cases.iter().any(is_document) {
        return format!(
            "no case has such an address (--list --only {document} shows those that there are)"
        );
    }
    let mut documents: BTreeSet<&str> = cases.iter().map(Address::document).collect();
    documents.extend(cases.iter().map(|it| it.group));
    let documents: Vec<&str> = documents.into_iter().collect();
    format!(
        "no case has such an address; addresses begin with {}",
        documents.join(", ")
    )
}

/// Reads the addresses of known deviations. They may be those of servers and of clients.
fn known(args: &ConformArgs, cases: &[Address]) -> Result<Option<Known>, Failure> {
    let Some(path) = &args.known else {
        return Ok(None);
    };
    let wrong = |what: &dyn std::fmt::Display| {
        Failure::Usage(format!("--known {}: {what}", path.display()))
    };
    let text = fs::read_to_string(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => wrong(
            &"there is no such file; it lists the addresses of known deviations, one a line (without known deviations, \
              leave the option out)",
        ),
        _ => wrong(&error),
    })?;
    let known = Known::parse(&text).map_err(|error| wrong(&error))?;
    let built_in = Address::built_in();
    for address in known.addresses() {
        let mut all = built_in.iter().chain(cases);
        if !all.any(|it| it.address == address || it.group == address) {
            let text = format!("{address}: no case has this address (--list has all)");
            return Err(wrong(&text));
        }
    }
    Ok(Some(known))
}
