//! Path resolution.

use super::error::{NfsError, Op};
use super::mount::{Mount, Object};
use super::rpc::RpcClient;
use crate::proto::{FileType, SetAttributes, Status};

/// The maximum number of symbolic links followed in one resolution, as in Linux.
pub const MAX_LINKS: u32 = 40;

/// The treatment of a symbolic link at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// Resolve to the link itself.
    No,
    /// Resolve to the link's target.
    Yes,
}

/// Returns the components of a path: the parts between slashes, except empty ones and `.`.
pub fn components(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/')
        .filter(|component| !component.is_empty() && *component != b".")
}

/// The state of a path resolution: the names from the root, with their objects. `..` goes back
/// along this list, so it needs no call and cannot leave the export.
struct Walk {
    root: Object,
    below: Vec<(Vec<u8>, Object)>,
}

impl Walk {
    fn here(&self) -> &Object {
        self.below.last().map_or(&self.root, |(_, object)| object)
    }

    fn path(&self, name: &[u8]) -> Vec<u8> {
        let names = self.below.iter().map(|(name, _)| name.as_slice());
        let names: Vec<&[u8]> = names
            .chain([name])
            .filter(|name| !name.is_empty())
            .collect();
        names.join(&b'/')
    }
}

/// Paths are relative to the export's root, with or without a leading slash.
impl<C: RpcClient> Mount<C> {
    /// Resolves a path to an object. Symbolic links on the way are followed. Absolute ones start at
    /// the server's root, so they must lead into the same export.
    ///
    /// # Errors
    /// See [`NfsError`].
    pub async fn resolve(&self, path: &[u8], follow: Follow) -> Result<Object, NfsError> {
        let mut walk = Walk {
            root: self.object(self.root, None, b"".as_slice()).await?,
            below: Vec::new(),
        };
        let mut todo: Vec<Vec<u8>> = components(path).rev().map(<[u8]>::to_vec).collect();
        let mut links = 0;
        while let Some(name) = todo.pop() {
            if name == b".." {
                walk.below.pop();
                continue;
            }
            let at = walk.path(&name);
            let object = self.lookup(walk.here().handle, &name, &at).await?;
            let is_link = object.attributes.file_type == FileType::Symlink;
            if !is_link || (todo.is_empty() && follow == Follow::No) {
                walk.below.push((name, object));
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                let path = path.into();
                return Err(NfsError::LinkLoop { path });
            }
            let text = self.readlink(object.handle, &at).await?;
            let rest = if text.starts_with(b"/") {
                walk.below.clear();
                self.below_export(&text, &at)?
            } else {
                text.to_vec()
            };
            todo.extend(components(&rest).rev().map(<[u8]>::to_vec));
        }
        Ok(walk.here().clone())
    }

    /// Returns the part of an absolute path on the server that is below the export.
    fn below_export(&self, target: &[u8], link: &[u8]) -> Result<Vec<u8>, NfsError> {
        strip_prefix(target, &self.export).ok_or_else(|| NfsError::LinkOutside {
            path: link.into(),
            target: target.into(),
        })
    }

    /// Returns the directory that contains a path's last component, and that component. The
    /// component itself need not exist.
    ///
    /// # Errors
    /// See [`NfsError`]; [`NfsError::NoName`] for a path without a last component.
    pub async fn resolve_parent(&self, path: &[u8]) -> Result<(Object, Vec<u8>), NfsError> {
        let mut parts: Vec<&[u8]> = components(path).collect();
        let no_name = |why| {
            let path = path.into();
            Err(NfsError::NoName { path, why })
        };
        let name = match parts.pop() {
            None => return no_name("this is an export's root"),
            Some(b"..") => return no_name("`..` at the end stands for a directory above"),
            Some(name) => name.to_vec(),
        };
        let parent = self.resolve(&parts.join(&b'/'), Follow::Yes).await?;
        Ok((parent, name))
    }

    /// Returns the target path of a copy to `path`, with the rule of cp(1): `path/name` if `path`
    /// is a directory, else `path` itself.
    ///
    /// # Errors
    /// See [`NfsError`].
    pub async fn destination(&self, path: &[u8], name: &[u8]) -> Result<Vec<u8>, NfsError> {
        match self.resolve(path, Follow::Yes).await {
            Ok(object) if object.attributes.file_type == FileType::Directory => {
                let parts: Vec<&[u8]> = components(path).chain([name]).collect();
                Ok(parts.join(&b'/'))
            }
            Ok(_) => Ok(path.to_vec()),
            Err(error) if error.status() == Some(Status::NOENT) => Ok(path.to_vec()),
            Err(error) => Err(error),
        }
    }

    /// Creates a directory with `mode`, and its missing parents. An existing one is left as it is.
    ///
    /// # Errors
    /// See [`NfsError`].
    pub async fn mkdir_all(&self, path: &[u8], mode: u32) -> Result<Object, NfsError> {
        let parts: Vec<&[u8]> = components(path).collect();
        // The search starts at the far end and creates only missing directories, so existing
        // parents need not be writable.
        let mut missing = 0;
        let mut here = loop {
            let there = parts[..parts.len() - missing].join(&b'/');
            match self.resolve(&there, Follow::Yes).await {
                Ok(object) => break object,
                Err(error) if error.status() == Some(Status::NOENT) && missing < parts.len() => {
                    missing += 1;
                }
                Err(error) => return Err(error),
            }
        };
        for end in parts.len() - missing + 1..=parts.len() {
            let at = parts[..end].join(&b'/');
            let attributes = SetAttributes {
                mode: Some(mode),
                ..SetAttributes::default()
            };
            here = match self
                .mkdir(here.handle, parts[end - 1], attributes, &at)
                .await
            {
                // Another process created it, or this call did and its first reply was lost.
                Err(error) if error.status() == Some(Status::EXIST) => {
                    self.resolve(&at, Follow::Yes).await?
                }
                outcome => outcome?,
            };
        }
        if here.attributes.file_type != FileType::Directory {
            return Err(NfsError::Status {
                op: Op::MakeDirectory,
                path: path.into(),
                status: Status::NOTDIR,
            });
        }
        Ok(here)
    }
}

/// Returns the part of `path` below `prefix`, compared component by component.
pub(super) fn strip_prefix(path: &[u8], prefix: &[u8]) -> Option<Vec<u8>> {
    let mut rest = components(path);
    for component in components(prefix) {
        if rest.next() != Some(component) {
            return None;
        }
    }
    Some(rest.collect::<Vec<_>>().join(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_end_at_slashes() {
        let strip = |path: &str, prefix: &str| {
            strip_prefix(path.as_bytes(), prefix.as_bytes())
                .map(|rest| String::from_utf8(rest).unwrap())
        };
        assert_eq!(strip("/srv/data/a/b", "/srv/data").as_deref(), Some("a/b"));
        assert_eq!(strip("//srv//data/", "/srv/data/").as_deref(), Some(""));
        assert_eq!(strip("/srv/database", "/srv/data"), None);
        assert_eq!(strip("/srv", "/srv/data"), None);
        assert_eq!(strip("/a/./b", "/").as_deref(), Some("a/b"));
        assert_eq!(strip("/name/x", "name").as_deref(), Some("x"));
    }
}
