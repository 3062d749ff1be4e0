//! The lengths of NFSv4's file attributes.

use onc_rpc::{DecodeError, Decoder};

/// A length for which the protocol gives no limit.
pub(crate) const NO_LIMIT: u32 = u32::MAX;
/// The maximum length that is assumed for the name of an owner or group, bytes. The protocol gives
/// none; with user and domain names of 255 bytes there is room to spare.
pub(crate) const MAX_OWNER: u32 = 512;
/// The maximum length that is assumed for a security label, bytes. The protocol gives none; Linux
/// has this.
pub(crate) const MAX_LABEL: u32 = 2048;
/// The maximum number of words that is assumed for a bitmap in results. There are attributes for
/// three.
pub(crate) const MAX_WORDS: u32 = 8;
/// The maximum number of words in a bitmap of attributes whose lengths are known.
const KNOWN_WORDS: u32 = 3;

/// The length of a bitmap in results, bytes.
const BITMAP: u32 = 4 + 4 * MAX_WORDS;
/// The length of a `fattr4_owner`, bytes.
const OWNER: u32 = 4 + MAX_OWNER;
/// An attribute of which the protocol does not bound the length (RFC 8267, section 6.2).
const U: u32 = NO_LIMIT;

/// The longest encoding of each attribute, in bytes, by its number: those of RFC 7530 (0 to 55),
/// RFC 8881 (to 76), RFC 7862 (to 80), RFC 8275 (81), RFC 8276 (82) and RFC 9754 (83 to 86).
#[rustfmt::skip]
const LENGTHS: [u32; 87] = [
    // supported_attrs, type, fh_expire_type, change, size, link_support, symlink_support,
    // named_attr
    BITMAP, 4, 4, 8, 8, 4, 4, 4,
    // fsid, unique_handles, lease_time, rdattr_error, acl, aclsupport, archive, cansettime
    16, 4, 4, 4, U, 4, 4, 4,
    // case_insensitive, case_preserving, chown_restricted, filehandle, fileid, files_avail,
    // files_free, files_total
    4, 4, 4, 4 + 128, 8, 8, 8, 8,
    // fs_locations, hidden, homogeneous, maxfilesize, maxlink, maxname, maxread, maxwrite
    U, 4, 4, 8, 4, 4, 8, 8,
    // mimetype, mode, no_trunc, numlinks, owner, owner_group, quota_avail_hard, quota_avail_soft
    U, 4, 4, 4, OWNER, OWNER, 8, 8,
    // quota_used, rawdev, space_avail, space_free, space_total, space_used, system, time_access
    8, 8, 8, 8, 8, 8, 4, 12,
    // time_access_set, time_backup, time_create, time_delta, time_metadata, time_modify,
    // time_modify_set, mounted_on_fileid
    16, 12, 12, 12, 12, 12, 16, 8,
    // dir_notif_delay, dirent_notif_delay, dacl, sacl, change_policy, fs_status, fs_layout_types,
    // layout_hint
    12, 12, U, U, 16, U, U, U,
    // layout_types, layout_blksize, layout_alignment, fs_locations_info, mdsthreshold,
    // retention_get, retention_set, retentevt_get
    U, 4, 4, U, U, 24, 16, 24,
    // retentevt_set, retention_hold, mode_set_masked, suppattr_exclcreat, fs_charset_cap,
    // clone_blksize, space_freed, change_attr_type
    16, 8, 8, BITMAP, 4, 4, 8, 4,
    // sec_label, mode_umask, xattr_support, offline, time_deleg_access, time_deleg_modify,
    // open_arguments
    12 + MAX_LABEL, 8, 4, 4, 12, 12, 5 * BITMAP,
];

/// Passes a bitmap that asks for attributes, and returns the longest `fattr4` that answers it, in
/// bytes. [`u64::MAX`] if there is no limit.
pub(crate) fn asked(from: &mut Decoder<'_>) -> Result<u64, DecodeError> {
    let words = from.u32()?;
    // The bitmap of the answer, and the length word of the values.
    let mut longest = 8 + 4 * u64::from(words.max(KNOWN_WORDS));
    for word in 0..words.min(KNOWN_WORDS) {
        let mut bits = from.u32()?;
        while bits != 0 {
            let number = 32 * word + bits.trailing_zeros();
            bits &= bits - 1;
            let len = match LENGTHS.get(number as usize) {
                None | Some(&NO_LIMIT) => u64::MAX,
                Some(&len) => u64::from(len),
            };
            longest = longest.saturating_add(len);
        }
    }
    if let Some(more) = words.checked_sub(KNOWN_WORDS) {
        for _ in 0..more {
            if from.u32()? != 0 {
                longest = u64::MAX;
            }
        }
    }
    Ok(longest)
}
