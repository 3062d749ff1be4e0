//! The versions that an end knows, and what negotiation asks of each.

use std::fmt;
use std::sync::Arc;

use rpcrdma_chunks::{FIXED_LEN, Fixed, Reader, proc};

use crate::{Choice, Version, Versions};

/// The beginning of a message that arrived while the version of its connection was not known.
#[derive(Clone, Copy, Debug)]
pub struct Beginning<'a> {
    fixed: Fixed,
    bytes: &'a [u8],
}

impl<'a> Beginning<'a> {
    /// Returns the beginning of a message, from its first
    /// [`MIN_HEADER_LEN`](rpcrdma_chunks::limits::MIN_HEADER_LEN) bytes, or all if it is shorter.
    /// `None` if it is too short for the fields that all versions have.
    #[must_use]
    pub fn of(bytes: &'a [u8]) -> Option<Self> {
        let fixed = Fixed::peek(bytes)?;
        Some(Self { fixed, bytes })
    }

    /// Returns the fields that all versions have.
    #[must_use]
    pub fn fixed(&self) -> &Fixed {
        &self.fixed
    }

    /// Returns the number of bytes that are known of the message.
    #[must_use]
    #[allow(
        clippy::len_without_is_empty,
        reason = "it has the fixed fields at least"
    )]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether the message is an error, which has the same number in every version.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.fixed.procedure == proc::ERROR
    }

    /// Returns the words that follow the fixed fields, as far as they are known.
    #[must_use]
    pub fn rest(&self) -> Reader<'a> {
        Reader::new(&self.bytes[FIXED_LEN..])
    }

    /// Returns the code of an error (`rdma_err`).
    #[must_use]
    pub fn error_code(&self) -> Option<u32> {
        self.is_error().then(|| self.rest().u32().ok())?
    }
}

/// The judgement of a version about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recognition {
    /// The message is of this version.
    Mine,
    /// Nothing in the message tells it from one of this version.
    Maybe,
    /// The message is of another version, or of none.
    No,
}

/// A version as negotiation sees it: its identifier, how its messages are recognized, and whether a
/// client has to ask for it.
pub trait Negotiable: fmt::Debug + Send + Sync {
    /// Returns the identifier.
    fn version(&self) -> Version;

    /// Returns whether a server takes a message that begins a connection for one of this version.
    /// By default it takes all messages with the number of the version.
    fn recognize_first(&self, first: &Beginning<'_>) -> Recognition {
        by_number(self.version(), first)
    }

    /// Returns the code of the error by which a server answers a first message that has the number
    /// of this version and is none of its messages. `None` if the server discards it.
    ///
    /// The error has no fields, and tells the client that the server speaks this version: a
    /// version error could only name the number.
    fn refusal(&self, first: &Beginning<'_>) -> Option<u32> {
        let _ = first;
        None
    }

    /// Returns whether a client asks its server for this version before it uses it. The first
    /// message of the version's extensions asks, and until the server answers in the version,
    /// nothing else is sent. Of the versions that are not asked for, a client uses the first at a
    /// server that lacks the others.
    fn is_asked_for(&self) -> bool {
        false
    }

    /// Returns whether a client takes a message from its server, while it asks for a version, for
    /// one of this version. `to_question` says whether the message has the XID of the client's.
    ///
    /// A message that no version takes for its own is an answer in the version that was asked for,
    /// if that says [`Recognition::Maybe`].
    fn recognize_answer(&self, answer: &Beginning<'_>, to_question: bool) -> Recognition {
        let _ = to_question;
        by_number(self.version(), answer)
    }
}

fn by_number(version: Version, message: &Beginning<'_>) -> Recognition {
    match message.fixed.version == version.number() {
        true => Recognition::Mine,
        false => Recognition::No,
    }
}

/// The versions that an end knows, at least one. A client prefers an earlier one to a later one, and
/// a message is shown to them in this order.
#[derive(Clone, Debug)]
pub struct KnownVersions(Arc<[&'static dyn Negotiable]>);

impl FromIterator<&'static dyn Negotiable> for KnownVersions {
    fn from_iter<I: IntoIterator<Item = &'static dyn Negotiable>>(versions: I) -> Self {
        Self(versions.into_iter().collect())
    }
}

impl KnownVersions {
    /// Returns the versions in their order.
    pub fn iter(&self) -> impl Iterator<Item = &'static dyn Negotiable> + Clone {
        self.0.iter().copied()
    }

    /// Returns the version of a client's first message, if it may use one.
    #[must_use]
    pub fn first(&self, choice: Choice) -> Option<&'static dyn Negotiable> {
        self.iter().find(|known| choice.allows(known.version()))
    }

    /// Returns the first version that takes a message for its own.
    pub(crate) fn owner(
        &self,
        recognizes: impl Fn(&dyn Negotiable) -> Recognition,
    ) -> Option<&'static dyn Negotiable> {
        let mut known = self.iter();
        known.find(|&known| recognizes(known) == Recognition::Mine)
    }

    /// Returns the versions that a server accepts.
    pub fn accepted<'a>(
        &'a self,
        accepts: &'a Versions,
    ) -> impl Iterator<Item = &'static dyn Negotiable> + Clone + 'a {
        self.iter()
            .filter(|known| accepts.contains(known.version()))
    }

    fn sorted(&self) -> Vec<Version> {
        let mut versions: Vec<_> = self.iter().map(Negotiable::version).collect();
        versions.sort_unstable();
        versions
    }

    /// Returns the names of all versions, by number, separated by commas.
    #[must_use]
    pub fn names(&self) -> String {
        let names: Vec<_> = self.sorted().iter().map(|known| known.name()).collect();
        names.join(",")
    }

    /// Returns the choice of a client by its name: that of a version, or `auto`.
    ///
    /// # Errors
    /// [`ParseVersionError`]: no known version has this name.
    pub fn parse_choice(&self, name: &str) -> Result<Choice, ParseVersionError> {
        if name == "auto" {
            return Ok(Choice::Auto);
        }
        self.named(name).map(Choice::Only).ok_or_else(|| {
            let names = self.names().replace(',', ", ");
            ParseVersionError(name.to_owned(), format!("{names} or auto"))
        })
    }

    /// Returns a set of versions by their names, separated by commas.
    ///
    /// # Errors
    /// [`ParseVersionError`]: there is no name, or one that no known version has.
    pub fn parse_versions(&self, names: &str) -> Result<Versions, ParseVersionError> {
        let found = names.split(',').map(|name| self.named(name.trim()));
        let found: Option<Vec<_>> = found.collect();
        let add = |set: Option<Versions>, version| match set {
            Some(set) => Some(set.with(version)),
            None => Some(Versions::only(version)),
        };
        let set = found.and_then(|found| found.into_iter().fold(None, add));
        set.ok_or_else(|| {
            let all: Vec<_> = self.sorted().iter().map(|known| known.name()).collect();
            let example = all.iter().take(2).copied().collect::<Vec<_>>().join(",");
            let all = match all.split_last() {
                Some((last, rest)) if !rest.is_empty() => {
                    format!("{} and {last}", rest.join(", "))
                }
                _ => all.concat(),
            };
            ParseVersionError(names.to_owned(), format!("some of {all}, as in {example}"))
        })
    }

    fn named(&self, name: &str) -> Option<Version> {
        let mut versions = self.iter().map(Negotiable::version);
        versions.find(|version| version.name() == name)
    }
}

/// A string is not the name of a version or of a set of versions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not {1}")]
pub struct ParseVersionError(
    /// The string.
    pub String,
    /// Description of the valid strings.
    pub String,
);
