//! Names of header types, fields and constants, as the XDR files of a version have them.

use std::collections::{BTreeMap, HashSet};
use std::sync::LazyLock;

use crate::dialect::Dialect;
use crate::wire::wg;
use crate::xdr::{Body, Declaration, Error, Shape, Specification, Type, parse};

/// The XDR files of each version, by their names in `drafts/xdr`.
fn files(dialect: Dialect) -> &'static [(&'static str, &'static str)] {
    match dialect {
        Dialect::One => &[("rpcrdma1.x", include_str!("../xdr/rpcrdma1.x"))],
        Dialect::Two => &[
            ("rpcrdma2.x", include_str!("../xdr/rpcrdma2.x")),
            ("xchar.x", include_str!("../xdr/xchar.x")),
            ("rtr.x", include_str!("../xdr/rtr.x")),
        ],
        Dialect::Wg => &[
            ("rpcrdma2wg.x", include_str!("../xdr/rpcrdma2wg.x")),
            ("wg-ddp.x", include_str!("../xdr/wg-ddp.x")),
        ],
    }
}

/// The first three fields of every header.
pub const FIXED: [&str; 3] = ["rdma_xid", "rdma_vers", "rdma_credit"];

/// A header type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderType {
    /// The name of its constant.
    pub name: String,
    /// Its number: the fourth word of a header.
    pub number: u32,
    /// The fields after the fourth word, if there are any.
    pub fields: Option<Declaration>,
}

/// The names of one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vocabulary {
    dialect: Dialect,
    pub(crate) all: Specification,
    headers: Headers,
}

/// The header types of a specification, made once for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Headers {
    /// Header types of unions first, in the order of the files, then the others by their names.
    all: Vec<HeaderType>,
    by_name: BTreeMap<String, usize>,
    /// The first one with each number.
    by_number: BTreeMap<u32, usize>,
}

impl Vocabulary {
    /// Reads the XDR files of a version.
    ///
    /// # Errors
    /// The name of a file, and its error.
    pub fn new(dialect: Dialect) -> Result<Self, (String, Error)> {
        let mut vocabulary = Self {
            dialect,
            all: Specification::default(),
            headers: Headers::default(),
        };
        for (name, text) in files(dialect) {
            let added = vocabulary.add(text);
            added.map_err(|error| ((*name).to_owned(), error))?;
        }
        Ok(vocabulary)
    }

    /// Returns the vocabulary of a version, for whoever adds nothing to it. The files are read once.
    ///
    /// # Errors
    /// The errors of [`Self::new`].
    pub fn shared(dialect: Dialect) -> Result<&'static Self, &'static (String, Error)> {
        static ALL: [LazyLock<Result<Vocabulary, (String, Error)>>; 3] = [
            LazyLock::new(|| Vocabulary::new(Dialect::One)),
            LazyLock::new(|| Vocabulary::new(Dialect::Two)),
            LazyLock::new(|| Vocabulary::new(Dialect::Wg)),
        ];
        let [one, two, wg] = &ALL;
        let made = match dialect {
            Dialect::One => one,
            Dialect::Two => two,
            Dialect::Wg => wg,
        };
        made.as_ref()
    }

    /// Adds the definitions of another file. After an error, none of them is known.
    ///
    /// # Errors
    /// The first element that is no XDR, or is defined otherwise.
    pub fn add(&mut self, text: &str) -> Result<(), Error> {
        let mut all = self.all.clone();
        parse(&self.spelled(text), &mut all)?;
        self.headers = Headers::of(&all, self.selector());
        self.all = all;
        Ok(())
    }

    /// Returns the version.
    #[must_use]
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Returns names as version-two-07 has them. In `drafts/xdr` they begin otherwise, beside those of 2016.
    fn spelled(&self, text: &str) -> String {
        match self.dialect {
            Dialect::Wg => text
                .replace("rpcrdma2wg", "rpcrdma2")
                .replace("RDMA2WG", "RDMA2"),
            Dialect::One | Dialect::Two => text.to_owned(),
        }
    }

    /// Returns the value of a constant.
    #[must_use]
    pub fn constant(&self, name: &str) -> Option<u64> {
        self.all.constants.get(&self.spelled(name)).copied()
    }

    /// Returns the name of the fourth field of every header.
    #[must_use]
    pub fn selector(&self) -> &'static str {
        match self.dialect {
            Dialect::One | Dialect::Two => "rdma_proc",
            Dialect::Wg => "rdma_htype",
        }
    }

    /// Returns the value of `rdma_credit` in messages that do not set it.
    #[must_use]
    pub fn credit(&self) -> u32 {
        match self.dialect {
            Dialect::One | Dialect::Two => 8,
            Dialect::Wg => wg::CREDIT,
        }
    }

    /// Returns the header type with this name. Its fields are those of the arm of a union that it selects, or of the
    /// structure that is called after it, as in version-two-07: `rpcrdma2_hdr_call_inline` after RDMA2_CALL_INLINE.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&HeaderType> {
        let place = self.headers.by_name.get(&self.spelled(name))?;
        self.headers.all.get(*place)
    }

    /// Returns the header type with this number. Those of unions come first: other constants may have the same numbers.
    #[must_use]
    pub fn header_of(&self, number: u32) -> Option<&HeaderType> {
        let place = self.headers.by_number.get(&number)?;
        self.headers.all.get(*place)
    }

    /// Returns all header types.
    #[must_use]
    pub fn headers(&self) -> &[HeaderType] {
        &self.headers.all
    }
}

impl Headers {
    /// Makes the list of a specification whose headers have this fourth field.
    fn of(all: &Specification, selector: &str) -> Self {
        let (mut headers, mut of_unions) = (Self::default(), HashSet::new());
        for (case, fields) in arms(all, selector) {
            if of_unions.insert(case) {
                headers.push(all, case, fields.cloned());
            }
        }
        for name in all.constants.keys() {
            if !of_unions.contains(name.as_str())
                && let Some(structure) = structure_of(all, name)
            {
                headers.push(all, name, Some(structure));
            }
        }
        headers
    }

    /// Adds a header type, if its constant has 32 bits.
    fn push(&mut self, all: &Specification, name: &str, fields: Option<Declaration>) {
        let number = all.constants.get(name);
        let Some(number) = number.and_then(|it| u32::try_from(*it).ok()) else {
            return;
        };
        let place = self.all.len();
        self.by_name.insert(name.to_owned(), place);
        self.by_number.entry(number).or_insert(place);
        self.all.push(HeaderType {
            name: name.to_owned(),
            number,
            fields,
        });
    }
}

/// Returns the arms of all unions that select the fields of headers, by the names of their cases.
fn arms<'a>(
    all: &'a Specification,
    selector: &'a str,
) -> impl Iterator<Item = (&'a str, Option<&'a Declaration>)> {
    let unions = all.types.iter().filter_map(move |(_, body)| match body {
        Body::Union(tag, arms) if tag.name == selector => Some(arms),
        _ => None,
    });
    unions.flatten().flat_map(|(cases, fields)| {
        cases
            .iter()
            .map(move |case| (case.as_str(), fields.as_ref()))
    })
}

/// Returns the structure that is called after a constant.
fn structure_of(all: &Specification, constant: &str) -> Option<Declaration> {
    let (_, rest) = constant.split_once('_')?;
    let rest = rest.to_ascii_lowercase();
    let names = [
        format!("rpcrdma2_hdr_{rest}"),
        format!("rpcrdma1_hdr_{rest}"),
    ];
    let name = names.into_iter().find(|it| all.body(it).is_some())?;
    Some(Declaration {
        name: rest,
        of: Type::Named(name),
        shape: Shape::One,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_all_versions_are_read_and_their_headers_begin_alike() {
        for (dialect, top) in [
            (Dialect::One, "rpcrdma1_xprt_hdr"),
            (Dialect::Two, "rpcrdma2_xprt_hdr"),
            (Dialect::Wg, "rpcrdma2_msg"),
        ] {
            let vocabulary = Vocabulary::new(dialect).unwrap();
            let Some(Body::Struct(fields)) = vocabulary.all.body(top) else {
                panic!("{top}");
            };
            let names: Vec<&str> = fields.iter().map(|it| it.name.as_str()).collect();
            assert_eq!(names[..3], FIXED, "{top}");
            assert!(vocabulary.headers().len() >= 4, "{top}");
            assert_eq!(Vocabulary::shared(dialect), Ok(&vocabulary), "{top}");
        }
    }

    #[test]
    fn a_header_type_is_found_by_a_union_or_by_the_name_of_its_structure() {
        let mut vocabulary = Vocabulary::new(Dialect::Wg).unwrap();
        let call = vocabulary.header("RDMA2WG_CALL_INLINE").unwrap();
        assert_eq!((call.name.as_str(), call.number), ("RDMA2_CALL_INLINE", 10));
        assert_eq!(vocabulary.header_of(10), Some(call));
        // It is made once, and not for each lookup.
        let again = vocabulary.header("RDMA2_CALL_INLINE").unwrap();
        assert!(std::ptr::eq(call, again));
        assert_eq!(vocabulary.header("RDMA2_GRANT").unwrap().fields, None);
        assert_eq!(vocabulary.header("RDMA2_CALL_HINT"), None);
        let own = "const RDMA2_CALL_HINT = 0xffffff10;\nstruct rpcrdma2_hdr_call_hint { uint32 rdma_hint; };";
        vocabulary.add(own).unwrap();
        let hint = vocabulary.header("RDMA2_CALL_HINT").unwrap();
        assert_eq!(hint.number, 0xffff_ff10);
        assert_eq!(vocabulary.header_of(0xffff_ff10), Some(hint));
        // Again, as of a second document, it is no error; otherwise it is.
        vocabulary.add(own).unwrap();
        let before = vocabulary.clone();
        let wrong = "const RDMA2_CALL_OTHER = 7; const RDMA2_CALL_HINT = 1;";
        assert!(vocabulary.add(wrong).is_err());
        assert_eq!(vocabulary, before);
    }
}
