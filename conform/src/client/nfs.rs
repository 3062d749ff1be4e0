//! NFS version 3 and MOUNT (RFC 1813), as far as mounting, reading, writing and listing need them.

use super::call::{Call, READ, READDIR, READDIRPLUS, READLINK, WRITE, opaque};
use super::export::{Export, FOLDER, PATH, ROOT};
use crate::wire::rpc::{MOUNT, NFS};
use crate::wire::{Reader, Xdr};

/// Statuses of NFS.
const OK: u32 = 0;
const NOENT: u32 = 2;
const NOTDIR: u32 = 20;
const INVAL: u32 = 22;
const FBIG: u32 = 27;
const STALE: u32 = 70;
const NOTSUPP: u32 = 10_004;

/// Statuses of RPC (RFC 5531, section 9).
const SUCCESS: u32 = 0;
const PROG_UNAVAIL: u32 = 1;
const PROG_MISMATCH: u32 = 2;
const PROC_UNAVAIL: u32 = 3;
const GARBAGE_ARGS: u32 = 4;

/// The longest READ, bytes: the file takes several.
pub(super) const LONGEST_READ: u32 = 8192;
/// The longest WRITE, bytes: what is written takes one.
const LONGEST_WRITE: u32 = 65_536;
/// The beginning of a handle, before the number of the object.
const HANDLE: &[u8; 12] = b"conform/1813";
/// The verifier of cookies and of writes.
const VERIFIER: u64 = 0x636f_6e66_6f72_6d31;

/// Results of a procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Results {
    /// The status of RPC.
    pub(super) accepted: u32,
    /// The results, up to the length of the data.
    pub(super) head: Vec<u8>,
    /// The data of a READ, which follows.
    pub(super) data: Option<Vec<u8>>,
}

impl Results {
    fn plain(head: Xdr) -> Self {
        Self {
            accepted: SUCCESS,
            head: head.done(),
            data: None,
        }
    }

    fn refused(accepted: u32, rest: &[u32]) -> Self {
        Self {
            accepted,
            ..Self::plain(Xdr::new().words(rest))
        }
    }
}

/// Returns the handle of an object.
fn handle(object: u32) -> Vec<u8> {
    [&HANDLE[..], &object.to_be_bytes()].concat()
}

/// Reads a handle. Objects that there are not are zero.
fn object(from: &mut Reader<'_>, export: &Export) -> Option<u32> {
    let bytes = opaque(from)?;
    let number = bytes.strip_prefix(HANDLE).and_then(|rest| {
        let (word, []) = rest.split_first_chunk()? else {
            return None;
        };
        Some(u32::from_be_bytes(*word))
    });
    Some(number.filter(|it| export.has(*it)).unwrap_or(0))
}

/// Appends attributes.
fn attributes(out: Xdr, export: &Export, object: u32) -> Xdr {
    let (kind, mode) = match Export::is_folder(object) {
        true => (2, 0o777),
        false => (1, 0o666),
    };
    let size = export.size(object);
    // nlink, uid, gid; size, used; rdev; fsid, fileid; the three times.
    let out = out.words(&[kind, mode, 1, 0, 0]).long(size).long(size);
    let out = out.long(0).long(1).long(u64::from(object));
    out.words(&[1_000_000_000, 0, 1_000_000_000, 0, 1_000_000_000, 0])
}

/// Appends attributes that are present.
fn some_attributes(out: Xdr, export: &Export, object: u32) -> Xdr {
    attributes(out.word(1), export, object)
}

/// Returns the failure of a procedure: the status, and attributes that are absent.
fn failure(procedure: u32, status: u32) -> Results {
    let absent = match procedure {
        1 => 0,
        2 | 7..=13 | 21 => 2,
        14 => 4,
        15 => 3,
        _ => 1,
    };
    Results::plain(Xdr::new().word(status).words(&[0; 4][..absent]))
}

/// Performs a call. `data` is that of a WRITE. `half` makes READs return half of what they ask for, and `status` makes
/// the call fail.
pub(super) fn results(
    call: &Call,
    export: &mut Export,
    data: &[u8],
    half: bool,
    status: Option<u32>,
) -> Results {
    let (program, version, procedure) = call.procedure;
    if !matches!(program, NFS | MOUNT) {
        return Results::refused(PROG_UNAVAIL, &[]);
    }
    if version != 3 {
        return Results::refused(PROG_MISMATCH, &[3, 3]);
    }
    if procedure == 0 {
        return Results::plain(Xdr::new());
    }
    let garbage = || Results::refused(GARBAGE_ARGS, &[]);
    if program == MOUNT {
        return mount(procedure, call.args()).unwrap_or_else(garbage);
    }
    match status {
        Some(status) => failure(procedure, status),
        None => nfs(call, export, data, half).unwrap_or_else(garbage),
    }
}

/// Performs a procedure of MOUNT. Returns `None` if its arguments cannot be decoded.
fn mount(procedure: u32, mut from: Reader<'_>) -> Option<Results> {
    Some(Results::plain(match procedure {
        1 => {
            let path = opaque(&mut from)?;
            let path = path.strip_suffix(b"/").unwrap_or(path);
            if path != PATH {
                return Some(Results::plain(Xdr::new().word(NOENT)));
            }
            // AUTH_SYS and AUTH_NONE.
            let out = Xdr::new().word(OK).opaque(&handle(ROOT));
            out.words(&[2, 1, 0])
        }
        // DUMP: nobody; UMNT and UMNTALL: nothing.
        2 => Xdr::new().word(0),
        3 | 4 => Xdr::new(),
        // EXPORT: one, for everyone.
        5 => Xdr::new().word(1).opaque(PATH).words(&[0, 0]),
        _ => return Some(Results::refused(PROC_UNAVAIL, &[])),
    }))
}

/// Performs a procedure of NFS. Returns `None` if its arguments cannot be decoded.
fn nfs(call: &Call, export: &mut Export, data: &[u8], half: bool) -> Option<Results> {
    let (_, _, procedure) = call.procedure;
    let mut from = call.args();
    let from = &mut from;
    if procedure > 21 {
        return Some(Results::refused(PROC_UNAVAIL, &[]));
    }
    let target = object(from, export)?;
    if target == 0 {
        return Some(failure(procedure, STALE));
    }
    let fails = |status| Some(failure(procedure, status));
    let ok = Xdr::new().word(OK);
    Some(Results::plain(match procedure {
        1 => attributes(ok, export, target),
        // SETATTR
        2 => {
            if let Some(length) = new_size(from)?
                && !export.resize(target, length)
            {
                return fails(FBIG);
            }
            ok.words(&[0, 0])
        }
        // LOOKUP
        3 => {
            let Some(found) = export.lookup(target, opaque(from)?) else {
                return fails(if Export::is_folder(target) {
                    NOENT
                } else {
                    NOTDIR
                });
            };
            let out = ok.opaque(&handle(found));
            some_attributes(out, export, found).word(0)
        }
        // ACCESS: all that is asked for.
        4 => some_attributes(ok, export, target).word(from.word()?),
        READLINK => return fails(INVAL),
        READ => return read(target, from, export, half),
        WRITE => {
            let offset = from.long()?;
            let (count, stable) = (from.word()?, from.word()?);
            if count as usize != data.len() || !export.write(target, offset, data) {
                return fails(INVAL);
            }
            ok.words(&[0, 0, count, stable]).long(VERIFIER)
        }
        // CREATE
        8 => {
            let name = opaque(from)?;
            let made = match target {
                ROOT => export.make(name),
                _ => None,
            };
            let Some(made) = made else {
                return fails(INVAL);
            };
            let out = ok.word(1).opaque(&handle(made));
            some_attributes(out, export, made).words(&[0, 0])
        }
        // REMOVE
        12 => match export.remove(opaque(from)?) {
            true => ok.words(&[0, 0]),
            false => return fails(NOENT),
        },
        // RENAME
        14 => {
            let old = opaque(from)?;
            object(from, export)?;
            match export.rename(old, opaque(from)?) {
                true => ok.words(&[0; 4]),
                false => return fails(NOENT),
            }
        }
        READDIR | READDIRPLUS if !Export::is_folder(target) => return fails(NOTDIR),
        READDIR | READDIRPLUS => listing(call, target, from, export)?,
        // FSSTAT
        18 => {
            let out = [1 << 30; 3].into_iter().fold(ok.word(0), Xdr::long);
            [1 << 20; 3].into_iter().fold(out, Xdr::long).word(0)
        }
        // FSINFO
        19 => {
            let out = ok.words(&[0, LONGEST_READ, LONGEST_READ, 1]);
            let out = out.words(&[LONGEST_WRITE, LONGEST_WRITE, 1, LONGEST_READ]);
            // maxfilesize, time_delta, properties
            out.words(&[0x7fff_ffff, 0xffff_ffff, 0, 1, 0x1b])
        }
        // PATHCONF
        20 => ok.words(&[0, 1, 255, 1, 1, 0, 1]),
        // COMMIT
        21 => ok.words(&[0, 0]).long(VERIFIER),
        _ => return fails(NOTSUPP),
    }))
}

/// Reads `sattr3` up to the size. The outer `None` stands for one that cannot be decoded.
fn new_size(from: &mut Reader<'_>) -> Option<Option<u64>> {
    for _ in 0..3 {
        if from.word()? != 0 {
            from.word()?;
        }
    }
    match from.word()? {
        0 => Some(None),
        _ => from.long().map(Some),
    }
}

fn read(target: u32, from: &mut Reader<'_>, export: &mut Export, half: bool) -> Option<Results> {
    let (offset, asked) = (from.long()?, from.word()?);
    if target != super::export::READ {
        return Some(failure(READ, INVAL));
    }
    let most = asked.min(LONGEST_READ);
    let count = match half && most > 1 {
        true => most / 2,
        false => most,
    };
    let (data, is_last) = export.read(offset, count);
    let length = data.len() as u32;
    let out = some_attributes(Xdr::new().word(OK), export, target);
    let head = out.words(&[length, u32::from(is_last), length]);
    Some(Results {
        data: Some(data),
        ..Results::plain(head)
    })
}

/// Returns the results of READDIR or READDIRPLUS. Returns `None` if their arguments cannot be decoded.
fn listing(call: &Call, target: u32, from: &mut Reader<'_>, export: &mut Export) -> Option<Xdr> {
    let cookie = from.long()?;
    let most = u64::from(call.count()?);
    let mut names: Vec<(String, u32)> = vec![(".".into(), target), ("..".into(), ROOT)];
    if target == FOLDER {
        let objects = export.names.iter().zip(FOLDER + 1..);
        names.extend(objects.map(|(name, object)| (name.clone(), object)));
    } else {
        names.push(("file".into(), super::export::READ));
        names.push(("folder".into(), FOLDER));
    }
    let out = Xdr::new().word(OK).word(0).long(VERIFIER);
    let mut bytes = out.done();
    // The word that ends the list, and `eof`.
    let end = 8;
    let mut at = usize::try_from(cookie)
        .unwrap_or(usize::MAX)
        .min(names.len());
    while let Some((name, object)) = names.get(at) {
        let entry = Xdr::new().word(1).long(u64::from(*object));
        let mut entry = entry.opaque(name.as_bytes()).long(at as u64 + 1);
        if call.is(READDIRPLUS) {
            entry = some_attributes(entry, export, *object).word(1);
            entry = entry.opaque(&handle(*object));
        }
        let entry = entry.done();
        // The status is no part of the count.
        if (bytes.len() - 4 + entry.len() + end) as u64 > most {
            break;
        }
        bytes.extend(entry);
        at += 1;
    }
    let is_last = at == names.len();
    export.listed |= is_last && target == FOLDER;
    Some(Xdr::new().raw(&bytes).words(&[0, u32::from(is_last)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{rpc, v1};

    fn call(procedure: u32, args: Vec<u8>) -> Call {
        let message = rpc::nfs(7, procedure, args).bytes();
        Call::new(v1::header(7), message).unwrap()
    }

    #[test]
    fn a_listing_never_exceeds_its_count_and_ends() {
        let mut export = Export::new(true);
        for procedure in [READDIR, READDIRPLUS] {
            let (mut cookie, mut seen, most) = (0_u64, 0, 4096_u32);
            export.listed = false;
            while !export.listed {
                let args = Xdr::new().opaque(&handle(FOLDER)).long(cookie).long(0);
                let args = match procedure {
                    READDIR => args.word(most),
                    _ => args.words(&[most, most]),
                };
                let results = results(&call(procedure, args.done()), &mut export, &[], false, None);
                assert!(results.head.len() <= most as usize + 4);
                // Names are 69 bytes long, and their cookies count up.
                let entries = results.head.len() / 100;
                assert!(entries > 0);
                let count = |bytes: &[u8]| bytes.windows(5).filter(|it| it == b"name-").count();
                seen += count(&results.head);
                cookie = seen as u64 + 2;
            }
            assert_eq!(seen, export.names.len());
        }
    }

    #[test]
    fn arguments_that_cannot_be_decoded_are_garbage() {
        let mut export = Export::new(false);
        for procedure in 1..=21 {
            let cut = results(
                &call(procedure, vec![0, 0, 0, 9, 1]),
                &mut export,
                &[],
                false,
                None,
            );
            assert_eq!(cut.accepted, GARBAGE_ARGS, "{procedure}");
        }
    }

    #[test]
    fn half_of_a_read_says_so() {
        let mut export = Export::new(false);
        let args = rpc::read_args(&handle(super::super::export::READ), 0, 8192);
        let results = results(&call(READ, args), &mut export, &[], true, None);
        assert_eq!(results.data.map(|it| it.len()), Some(4096));
        assert_eq!(results.head.len(), 100 + 4);
    }
}
