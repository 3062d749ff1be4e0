//! Cases that can be performed where nothing may be written.
//!
//! A case is made three times: for the objects that there are, with another folder, and with another file. If these
//! are the same, the case names no object, so that it cannot change any. Otherwise, each step that differs must be an
//! NFS call that only reads. A step in which no call is found does not count as one that reads: it can be a part of a
//! call in several messages.

use std::collections::HashMap;

use crate::case::{Case, Ground, Step};

/// The words of an RPC call from its type to the program: CALL, version 2, NFS (RFC 5531, section 9).
const CALL_OF_NFS: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0x86, 0xa3];
/// The bytes of these words, and of the program's version and the procedure.
const CALL_LEN: usize = CALL_OF_NFS.len() + 8;
/// The procedures of NFS version 3 that change nothing (RFC 1813, section 3.3): NULL, GETATTR, LOOKUP, ACCESS,
/// READLINK, READ, READDIR, READDIRPLUS, FSSTAT, FSINFO, PATHCONF.
const READING: [u32; 11] = [0, 1, 3, 4, 5, 6, 16, 17, 18, 19, 20];

/// The bytes of a file that the longest READ of the built-in cases needs, rounded up.
pub const LONGEST: u32 = 16_384;

/// Objects that may be read, but not written.
#[derive(Clone, Debug)]
pub struct Objects {
    /// The handle of a folder.
    pub folder: Vec<u8>,
    /// The handle of a regular file and its first bytes, if there is one that is not empty. With [`LONGEST`] bytes, it
    /// is long enough for all cases that read.
    pub file: Option<(Vec<u8>, Vec<u8>)>,
    /// The user and the group that calls are made as.
    pub user: (u32, u32),
    /// The first XID.
    pub xid: u32,
}

impl Objects {
    /// Returns the ground of cases, perhaps with the handles of other objects.
    fn ground(&self, other_folder: bool, other_file: bool) -> Ground {
        let other = |handle: &[u8], is_other: bool| -> Vec<u8> {
            let mask = if is_other { 0xff } else { 0 };
            handle.iter().map(|byte| byte ^ mask).collect()
        };
        // Cases that name it are not performed.
        let none = (vec![0; 32], Vec::new());
        let (file, held) = self.file.as_ref().unwrap_or(&none);
        let folder = other(&self.folder, other_folder);
        let mut ground = Ground::new(folder, other(file, other_file), self.user, self.xid);
        ground.held.clone_from(held);
        ground
    }
}

/// Returns the cases of `make` for these objects, and why some of them cannot be performed, by their addresses.
///
/// # Errors
/// The error of `make`.
pub fn cases<E>(
    objects: &Objects,
    make: impl Fn(&Ground) -> Result<Vec<Case>, E>,
) -> Result<(Vec<Case>, HashMap<String, String>), E> {
    let cases = make(&objects.ground(false, false))?;
    let of_other_folder = make(&objects.ground(true, false))?;
    let of_other_file = make(&objects.ground(false, true))?;
    let mut unfit = HashMap::new();
    for (at, case) in cases.iter().enumerate() {
        let address = case.address();
        let same = |made: &'_ [Case]| made.get(at).filter(|it| it.address() == address).cloned();
        // Cases from files are read anew each time.
        let (Some(folder), Some(file)) = (same(&of_other_folder), same(&of_other_file)) else {
            let why = "the files with cases have changed while they were read";
            unfit.insert(address, why.to_owned());
            continue;
        };
        let others = [&folder.script[..], &file.script[..]];
        let why = if file.script != case.script && objects.file.is_none() {
            "it needs a file, and the folder has no regular file that can be read and is not empty"
        } else if writes(&case.script, others) {
            match &objects.file {
                Some((_, held)) if held.len() < LONGEST as usize => {
                    "it writes, or it reads more than the longest file in the folder has"
                }
                _ => "it writes, and nothing may be written",
            }
        } else {
            continue;
        };
        unfit.insert(address, why.to_owned());
    }
    Ok((cases, unfit))
}

/// Returns whether a step may write: whether one that names an object, so that it differs from the same step for
/// another object, is no call that only reads.
fn writes(script: &[Step], others: [&[Step]; 2]) -> bool {
    others.iter().any(|other| {
        let mut pairs = script.iter().zip(*other);
        other.len() != script.len() || pairs.any(|(step, other)| step != other && !only_reads(step))
    })
}

fn only_reads(step: &Step) -> bool {
    match step {
        Step::Send(octets)
        | Step::SendGranting(_, octets)
        | Step::Flood(_, octets)
        | Step::Offer(_, octets) => {
            let mut has_one = false;
            for call in octets.windows(CALL_LEN) {
                let Some(rest) = call.strip_prefix(&CALL_OF_NFS[..]) else {
                    continue;
                };
                let is_reading = |it: &u32| {
                    let version_and_procedure = [3, *it].map(u32::to_be_bytes).concat();
                    rest == version_and_procedure
                };
                if !READING.iter().any(is_reading) {
                    return false;
                }
                has_one = true;
            }
            has_one
        }
        // These send nothing.
        Step::Expect(_) | Step::Within(..) | Step::Holds(..) | Step::Message(..) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::cases::{all, content};
    use crate::wire::{Xdr, rpc, v1, wg};

    const FOLDER: [u8; 32] = [0x5a; 32];
    const FILE: [u8; 32] = [0x66; 32];

    fn objects(held: usize) -> Objects {
        Objects {
            folder: FOLDER.to_vec(),
            file: (held > 0).then(|| (FILE.to_vec(), content(1, held))),
            user: (0, 0),
            xid: 7,
        }
    }

    fn built_in(objects: &Objects) -> (Vec<Case>, HashMap<String, String>) {
        let make = |ground: &Ground| Ok::<_, Infallible>(all(ground));
        let Ok(made) = cases(objects, make);
        made
    }

    /// Returns whether a script has a call that changes an object of the tests.
    fn changes(script: &[Step]) -> bool {
        script.iter().any(|step| {
            let (Step::Send(octets)
            | Step::SendGranting(_, octets)
            | Step::Flood(_, octets)
            | Step::Offer(_, octets)) = step
            else {
                return false;
            };
            let has = |part: &[u8]| octets.windows(part.len()).any(|it| it == part);
            // SETATTR, WRITE to LINK, COMMIT.
            let changing = [2].into_iter().chain(7..=15).chain([21]);
            let mut calls = changing.map(|it| Xdr::new().words(&[2, rpc::NFS, 3, it]).done());
            (has(&FOLDER) || has(&FILE)) && calls.any(|it| has(&it))
        })
    }

    #[test]
    fn cases_that_change_nothing_are_performed() {
        let (cases, unfit) = built_in(&objects(LONGEST as usize));
        for case in cases.iter().filter(|it| !unfit.contains_key(&it.address())) {
            assert!(!changes(&case.script), "{}", case.address());
        }
        let fits = |address: &str| {
            assert!(cases.iter().any(|it| it.address() == address), "{address}");
            !unfit.contains_key(address)
        };
        // No file; READ by a Write chunk, inline, by a Reply chunk, in several messages; LOOKUP.
        for address in [
            "rfc8166/4.5.1/1",
            "rfc8166/4.3.2/1",
            "rfc8166/3.5.1/10",
            "rfc8166/3.5.3/11",
            "rpcrdma2-07/6.6.4/2",
            "rpcrdma2-01/rfc8166-4.3.2/1",
            "rfc8166/6.1/10",
        ] {
            assert!(fits(address), "{address}: {:?}", unfit.get(address));
        }
        // WRITE, inline and long; SYMLINK; CREATE; a call in several messages.
        for address in [
            "rfc8166/3.4.5/20",
            "rfc8166/3.5.1/1",
            "rfc8166/3.5.3/21",
            "rfc8267/4/1",
            "rfc1813/4.5/2",
            "rpcrdma2-07/6.6.2/1",
        ] {
            assert!(!fits(address), "{address}");
        }
        let performed = cases.len() - unfit.len();
        assert!(
            performed * 10 > cases.len() * 9,
            "{performed} of {}",
            cases.len()
        );
    }

    #[test]
    fn a_file_that_is_missing_or_short_leaves_out_what_reads_it() {
        let why = |held, address: &str| {
            let (_, mut unfit) = built_in(&objects(held));
            unfit.remove(address).unwrap_or_default()
        };
        assert!(why(0, "rfc8166/4.3.2/1").contains("no regular file"));
        assert!(why(0, "rfc8166/4.5.1/1").is_empty());
        // It reads 8192 bytes, and the other one 701.
        assert!(why(1000, "rfc8166/4.3.2/1").contains("longest file"));
        assert!(why(1000, "rfc8166/3.5.1/10").is_empty());
    }

    #[test]
    fn cases_that_change_while_they_are_made_are_not_performed() {
        let made = std::cell::Cell::new(0);
        let make = |_: &Ground| {
            made.set(made.get() + 1);
            let case = |number| {
                let script = vec![Step::Send(rpc::null(9).bytes())];
                crate::case::case("RFC 8166, 4.5", number, "a call", "nothing", script)
            };
            // The second time, there is one case less; the third time, one has another address.
            Ok::<_, Infallible>(match made.get() {
                1 => [1, 2, 3].map(case).to_vec(),
                2 => [1, 2].map(case).to_vec(),
                _ => [1, 4, 3].map(case).to_vec(),
            })
        };
        let Ok((cases, unfit)) = cases(&objects(100), make);
        let is_unfit = cases.iter().map(|it| unfit.contains_key(&it.address()));
        assert_eq!(is_unfit.collect::<Vec<_>>(), [false, true, true]);
    }

    #[test]
    fn a_part_that_names_an_object_without_a_call_may_be_that_of_a_write() {
        let make = |ground: &Ground| {
            let args = rpc::write_args(&ground.file, 0, 4);
            let call = rpc::nfs(9, 7, args).bytes();
            let (first, last) = call.split_at(12);
            let parts = vec![
                Step::Send(wg::message(9, wg::CALL_MIDDLE, &[last.len() as u32], first)),
                Step::Send(wg::call(9, last)),
            ];
            let read = rpc::nfs(9, 6, rpc::read_args(&ground.file, 0, 4)).bytes();
            let whole = vec![Step::Send(v1::header(9).with(&read))];
            let case = |number, script| {
                crate::case::case("RFC 8166, 4.5", number, "a call", "nothing", script)
            };
            Ok::<_, Infallible>(vec![case(1, parts), case(2, whole)])
        };
        let Ok((_, unfit)) = cases(&objects(100), make);
        assert!(unfit.contains_key("rfc8166/4.5/1"));
        assert!(!unfit.contains_key("rfc8166/4.5/2"));
    }
}
