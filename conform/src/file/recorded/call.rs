//! RPC calls and replies of recorded messages.

use crate::file::value::PROCEDURES;
use crate::wire::{Reader, rpc};

/// Procedures of NFS version 3 whose first result is the same for any folder or file.
const SAME_ANYWHERE: [u32; 8] = [1, 4, 6, 7, 18, 19, 20, 21];

/// An RPC call that can be made again.
pub(super) struct Call<'a> {
    pub(super) program: u32,
    pub(super) version: u32,
    pub(super) procedure: u32,
    pub(super) arguments: &'a [u8],
}

/// Returns a call with AUTH_NONE or AUTH_SYS, which the one who replays it can make.
pub(super) fn call_of(payload: &[u8]) -> Option<Call<'_>> {
    let mut from = Reader(payload);
    let (_, kind, version) = (from.word()?, from.word()?, from.word()?);
    if (kind, version) != (rpc::CALL, 2) {
        return None;
    }
    let (program, version, procedure) = (from.word()?, from.word()?, from.word()?);
    for _ in 0..2 {
        let flavor = from.word()?;
        let length = from.word()? as usize;
        from.take(length.checked_next_multiple_of(4)?)?;
        if flavor > 1 {
            return None;
        }
    }
    Some(Call {
        program,
        version,
        procedure,
        arguments: from.0,
    })
}

/// Returns the file handle that begins the arguments of a procedure of NFS version 3, and the other arguments.
pub(super) fn handle_of<'a>(call: &Call<'a>) -> Option<(&'a [u8], &'a [u8])> {
    let is_nfs = (call.program, call.version) == (rpc::NFS, 3) && call.procedure != 0;
    let mut from = Reader(call.arguments);
    let length = from.word().filter(|it| is_nfs && *it <= 64)? as usize;
    let handle = from.take(length)?;
    from.take(length.wrapping_neg() % 4)?;
    Some((handle, from.0))
}

/// Returns the name of a procedure, as lines of cases have it.
pub(super) fn procedure(call: &Call<'_>) -> String {
    let Call {
        program,
        version,
        procedure,
        ..
    } = call;
    let named = PROCEDURES.get(*procedure as usize);
    match (*program, *version, named) {
        (rpc::NFS, 3, Some(name)) => format!("NFS 3 {name}"),
        (rpc::NFS, ..) => format!("NFS {version} {procedure}"),
        (rpc::MOUNT, ..) => format!("MOUNT {version} {procedure}"),
        _ => format!("{program} {version} {procedure}"),
    }
}

/// Returns the result of a call that was accepted, with its first word where that is the same at any server. Calls in
/// several messages have the recorded handles, which another server does not know.
pub(super) fn result(call: &Call<'_>, in_one_message: bool, reply: &[u8]) -> Option<String> {
    // A server may lack any other program.
    if !matches!((call.program, call.version), (rpc::NFS | rpc::MOUNT, 3)) {
        return None;
    }
    let mut from = Reader(reply);
    let [_, kind, accepted] = [from.word()?, from.word()?, from.word()?];
    if (kind, accepted) != (rpc::REPLY, 0) {
        return None;
    }
    let _flavor = from.word()?;
    let length = from.word()? as usize;
    from.take(length.checked_next_multiple_of(4)?)?;
    let status = from.word()?;
    let status = match rpc::ACCEPT_STAT.get(status as usize) {
        Some(name) => (*name).to_owned(),
        None => status.to_string(),
    };
    let is_same = in_one_message
        && (call.program, call.version) == (rpc::NFS, 3)
        && SAME_ANYWHERE.contains(&call.procedure);
    Some(match (from.word(), is_same) {
        (None, _) => status,
        (Some(first), true) => format!("{status} {first} ..."),
        (Some(_), false) => format!("{status} ..."),
    })
}
