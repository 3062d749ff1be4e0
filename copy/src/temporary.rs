//! Temporary names of objects until they get their own.

use rustix::io::Errno;

/// The longest file name that most local file systems support, bytes.
const NAME_MAX: usize = 255;
/// The maximum number of attempts with different temporary names.
const NAME_ATTEMPTS: u32 = 100;

/// Makes an object with `make` under a temporary name, beside the one that it is to get. Returns what
/// `make` returned, and the temporary name.
///
/// # Errors
/// The error of `make`; [`Errno::EXIST`]: all attempts met existing names; and the errors of
/// [`random_name`].
pub(super) fn under_temporary_name<T>(
    name: &[u8],
    make: impl Fn(&[u8]) -> Result<T, Errno>,
) -> Result<(T, Vec<u8>), Errno> {
    for _ in 0..NAME_ATTEMPTS {
        let temporary = random_name(name)?;
        match make(&temporary) {
            Ok(made) => return Ok((made, temporary)),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Errno::EXIST)
}

/// Returns a random temporary name for an object until it gets its own.
///
/// # Errors
/// [`Errno::NOTDIR`]: `name` ends with a slash. [`Errno::IO`]: there are no random numbers.
pub(super) fn random_name(name: &[u8]) -> Result<Vec<u8>, Errno> {
    let random = getrandom::u32().map_err(|_| Errno::IO)?;
    temporary_name(name, random).ok_or(Errno::NOTDIR)
}

/// Returns a temporary name. It is hidden and resembles `name`, so that a user who finds it after an
/// interrupted copy can tell what it was. Returns `None` if `name` ends with a slash.
fn temporary_name(name: &[u8], random: u32) -> Option<Vec<u8>> {
    let base = name.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
    let (directory, base) = name.split_at(base);
    let suffix = format!(".{random:08x}");
    let room = NAME_MAX - 1 - suffix.len();
    let base = match base.len() {
        0 => return None,
        len => &base[..len.min(room)],
    };
    Some([directory, b".", base, suffix.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_names_are_beside_the_file_hidden_and_never_too_long() {
        let name = |name: &[u8]| temporary_name(name, 0xbeef);
        assert_eq!(name(b"file").as_deref(), Some(&b".file.0000beef"[..]));
        assert_eq!(name(b"/a/b/c").as_deref(), Some(&b"/a/b/.c.0000beef"[..]));
        assert_eq!(name(b"a/"), None);
        let long = name(&[b"dir/".to_vec(), vec![b'x'; 255]].concat()).unwrap();
        assert_eq!(long.len(), b"dir/".len() + NAME_MAX);
        assert!(long.ends_with(b"x.0000beef"));
    }
}
