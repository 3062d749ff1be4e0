//! The socket by which other programs of the same user ask a mount for its statistics.
//!
//! The socket is a file outside of the mount, so that no name of the export can be taken for it, and asking does
//! not depend on the kernel's requests to the mount. Its name is the number of the mount's device, which
//! everybody finds in the table of mounts, and which no two mounts have at the same time. The folder
//! belongs to the user who has mounted, and is for nobody else (except root).

use std::fs::{self, DirBuilder, Metadata};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time that a mount has to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The maximum length of an answer in bytes.
const LONGEST: u64 = 16 << 20;

/// Returns the path of the socket of a mount that user `uid` has made, whose files are on this device
/// (`MAJOR:MINOR`). `runtime` is the user's folder for sockets (`XDG_RUNTIME_DIR`), if it is known.
#[must_use]
pub fn path_for(uid: u32, device: &str, runtime: Option<&Path>) -> PathBuf {
    let folder = match (uid, runtime) {
        // The user of root's shell may have left its own folder in the environment.
        (0, _) => PathBuf::from("/run"),
        (_, Some(runtime)) => runtime.to_owned(),
        (uid, None) => PathBuf::from(format!("/run/user/{uid}")),
    };
    let name = device.replace(['/', ':'], "-");
    folder.join("rpcrdma").join(format!("mount-{name}"))
}

/// Listens on a socket of this path, for the user `uid`, which must be that of this process. What another
/// process has left there is replaced.
///
/// # Errors
/// The error of the operating system, or the folder belongs to somebody else.
pub fn listen(path: &Path, uid: u32) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent() {
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => check(&fs::symlink_metadata(folder)?, uid, Metadata::is_dir)?,
        }
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => UnixListener::bind(path),
    }
}

/// Checks that a file is of the right type and belongs to a user.
fn check(found: &Metadata, uid: u32, is_right: impl Fn(&Metadata) -> bool) -> io::Result<()> {
    match is_right(found) && found.uid() == uid {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it belongs to somebody else, or is something else",
        )),
    }
}

/// Asks for what is at `target`, such as `/mountstats`, at the socket of a mount of the user `uid`.
///
/// # Errors
/// Nobody answers at this path, or not as expected.
pub fn ask(path: &Path, uid: u32, target: &str) -> io::Result<String> {
    check(&fs::symlink_metadata(path)?, uid, |it| {
        it.file_type().is_socket()
    })?;
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(stream, "GET {target} HTTP/1.1\r\nHost: mount\r\n\r\n")?;
    let mut response = String::new();
    stream.take(LONGEST).read_to_string(&mut response)?;
    let other = || io::Error::other("the answer makes no sense");
    let (head, body) = response.split_once("\r\n\r\n").ok_or_else(other)?;
    match head.starts_with("HTTP/1.1 200 ") {
        true => Ok(body.to_owned()),
        false => Err(io::Error::other(
            head.lines().next().unwrap_or_default().to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::{Endpoint, Format, Listener, NoAnswer};

    #[test]
    fn a_mount_is_asked_at_the_socket_of_its_device() {
        let home = std::env::temp_dir().join(format!("rpcrdma-socket-{}", std::process::id()));
        fs::create_dir_all(&home).unwrap();
        let uid = fs::metadata(&home).unwrap().uid();
        let path = home.join("rpcrdma").join("mount-0-57");
        assert!(ask(&path, uid, "/x").is_err(), "there is none");
        // One that was left behind is in nobody's way.
        drop(listen(&path, uid).unwrap());
        let answer = |path: &str, _: Format| match path {
            "/x" => Ok("y\n".to_owned()),
            _ => Err(NoAnswer::NotFound),
        };
        let listener = Listener::Unix(listen(&path, uid).unwrap());
        let _endpoint = Endpoint::start(vec![listener], answer).unwrap();
        assert_eq!(ask(&path, uid, "/x").unwrap(), "y\n");
        assert!(ask(&path, uid, "/other").is_err());
        let folder = path.parent().unwrap();
        let mode = fs::metadata(folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        // Neither asked nor used if it is somebody else's.
        assert!(ask(&path, uid + 1, "/x").is_err());
        assert!(listen(&path, uid + 1).is_err());
        fs::remove_dir_all(&home).unwrap();
    }

    #[test]
    fn the_folder_is_that_of_the_user_who_has_mounted() {
        let home = Path::new("/home/x");
        assert_eq!(path_for(0, "0:5", Some(home)), path_for(0, "0:5", None));
        assert!(path_for(7, "0:5", Some(home)).starts_with(home));
        let path = |uid| path_for(uid, "0:5", None).display().to_string();
        assert_eq!(path(0), "/run/rpcrdma/mount-0-5");
        assert_eq!(path(1000), "/run/user/1000/rpcrdma/mount-0-5");
    }
}
