//! Arguments and results of all procedures of NFS version 3 and MOUNT version 3 (RFC 1813).

use bytes::Bytes;
use nfs_binding::proto::{Procedure, Xdr, mnt, nfs};
use onc_rpc::{BulkItem, DecodeError, Decoder, Encoder, Message, Position, Segments};

/// Returns the maximum number of heap bytes that decoding `len` bytes may hold. The largest list
/// entries are those of READDIRPLUS: about 300 bytes for 32 on the wire, in a list that grows by
/// doubling.
const fn most(len: usize) -> usize {
    8192 + 40 * len
}

/// Checks one decoder. The first byte chooses the procedure and the direction, the second how the
/// message is divided into segments and items; the rest is the message.
pub fn check(data: &[u8]) {
    let [choice, apart, bytes @ ..] = data else {
        return;
    };
    macro_rules! dispatch {
        ($($procedure:ty),*) => {{
            let checks: &[fn(&[u8], u8)] = &[$(
                arguments::<<$procedure as Procedure>::Args>,
                results::<<$procedure as Procedure>::Results>,
            )*];
            checks[usize::from(*choice) % checks.len()](bytes, *apart);
        }};
    }
    dispatch!(
        nfs::Getattr,
        nfs::Setattr,
        nfs::Lookup,
        nfs::Access,
        nfs::Readlink,
        nfs::Read,
        nfs::Write,
        nfs::Create,
        nfs::Symlink,
        nfs::Mkdir,
        nfs::Mknod,
        nfs::Remove,
        nfs::Rename,
        nfs::Link,
        nfs::Readdir,
        nfs::Readdirplus,
        nfs::Fsstat,
        nfs::Fsinfo,
        nfs::Pathconf,
        nfs::Commit,
        mnt::Mount,
        mnt::Dump,
        mnt::Export,
        mnt::Null
    );
}

fn arguments<T: Xdr>(bytes: &[u8], apart: u8) {
    if let Some(message) = value::<T>(bytes, apart) {
        // RFC 8267, section 3: what the binding tells its transport holds for all a peer can send.
        assert!(message.payload_len() <= u64::from(T::MAX_LEN));
    }
}

fn results<T: Xdr>(bytes: &[u8], apart: u8) {
    value::<T>(bytes, apart);
}

fn decode<T: Xdr>(message: &Message) -> Result<(T, u64), DecodeError> {
    let mut input = Decoder::new(message);
    let value = T::decode(&mut input)?;
    input.items_used()?;
    let at = input.position();
    Ok((value, at))
}

/// Returns a message with `apart / 8` payload segments of some length, and with a bulk item at an
/// arbitrary position.
fn transferred(bytes: &[u8], apart: u8) -> Message {
    let item = usize::from(apart >> 4) * 4;
    let len = usize::from(apart & 0x0f);
    if apart == 0 || item + len > bytes.len() {
        return Message::from_payload(Bytes::copy_from_slice(bytes));
    }
    let cut = |bytes: &[u8]| Bytes::copy_from_slice(bytes);
    let (before, after) = (&bytes[..item], &bytes[item + len..]);
    let position = match len % 2 {
        0 => Position::At(item as u32),
        _ => Position::InOrder,
    };
    let data = cut(&bytes[item..item + len]).into();
    let payload = Segments::from_iter([cut(before), cut(after)]);
    Message::new(payload, [BulkItem { position, data }])
}

/// Decodes a value and encodes it again. Returns the encoding, or `None` if decoding failed.
fn value<T: Xdr>(bytes: &[u8], apart: u8) -> Option<Message> {
    let message = transferred(bytes, apart);
    let decoded = crate::within(most(bytes.len()), || decode::<T>(&message));
    let (value, at) = match decoded {
        Ok(decoded) => decoded,
        Err(DecodeError::Truncated { wanted, left, .. }) => {
            assert!(left < wanted);
            return None;
        }
        Err(_) => return None,
    };
    assert!(at <= message.stream_len() + 3, "it read what is not there");
    let mut out = Encoder::new();
    value.encode(&mut out);
    let again = out.finish();
    assert_eq!(again.stream_len(), at, "it is not as long as it was");
    let flat = again.gather(|_| true).concat();
    if apart == 0 {
        // Round-up need not be zero on arrival; all else is as it came.
        let same = flat
            .iter()
            .zip(bytes)
            .filter(|(ours, theirs)| ours == theirs);
        let differ = flat.len() - same.count();
        let pads = flat
            .iter()
            .zip(bytes)
            .filter(|(ours, theirs)| **ours == 0 && ours != theirs);
        assert_eq!(differ, pads.count(), "a value changed on its way");
    }
    // The same value, held apart or inline.
    for message in [again.clone(), Message::from_payload(flat.clone().into())] {
        let (value, _) = decode::<T>(&message).expect("an encoding of ours");
        let mut out = Encoder::new();
        value.encode(&mut out);
        assert_eq!(out.finish().gather(|_| true).concat(), flat);
    }
    Some(again)
}
