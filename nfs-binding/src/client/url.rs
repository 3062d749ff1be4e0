//! NFS URLs: `nfs://SERVER[:PORT]/PATH`, or `SERVER:/PATH`.

use std::fmt;
use std::str::FromStr;

/// The reason why a text is not an NFS URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// The text does not start with `nfs://`.
    #[error("{0:?} is not a URL of the form nfs://SERVER[:PORT]/EXPORT/PATH, and not SERVER:/EXPORT/PATH{meant}", meant = meant(.0))]
    Scheme(String),
    /// The text contains no server.
    #[error("{0:?} contains no server; the form is nfs://SERVER[:PORT]/EXPORT/PATH")]
    NoServer(String),
    /// An IPv6 address lacks its closing bracket, or something other than a port follows the
    /// bracket.
    #[error("{0:?}: an IPv6 address is written [ADDRESS] or [ADDRESS]:PORT")]
    Bracket(String),
    /// The port is not a number from 1 to 65535.
    #[error("{0:?} is not a port")]
    Port(String),
    /// A `%` is not followed by two hexadecimal digits.
    #[error("{0:?}: % in a path is written %25, and is followed by two hexadecimal digits")]
    Escape(String),
    /// The path contains a zero byte, which no name can contain.
    #[error("{0:?}: %00 cannot be in a path")]
    Zero(String),
}

/// Returns a hint for a URL that begins with a transport, or for a source with a port.
fn meant(text: &str) -> String {
    if let Some(("rdma" | "tcp", rest)) = text.split_once("://") {
        return format!(
            ": did you mean nfs://{rest}? -o proto=rdma or proto=tcp chooses the transport"
        );
    }
    match text.split_once(":/") {
        Some((server, path))
            if !server.is_empty() && !server.contains('/') && !path.starts_with('/') =>
        {
            format!(": did you mean nfs://{server}/{path}?")
        }
        _ => String::new(),
    }
}

/// An object on a server (RFC 2224, section 2, but with paths from the server's root, as in MOUNT).
/// The server decides which part of the path is the export.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NfsUrl {
    /// The host name or address; an IPv6 address is without its brackets.
    pub server: String,
    /// The port, if the URL has one.
    pub port: Option<u16>,
    /// The path with `%` escapes decoded; it starts with `/`.
    pub path: Vec<u8>,
}

impl NfsUrl {
    /// Parses `SERVER:/PATH`, `text` in whole.
    fn from_source(server: &str, path: &str, text: &str) -> Result<Self, UrlError> {
        let (server, port) = split_authority(server, text)?;
        if port.is_some() || server.contains('/') {
            return Err(UrlError::Scheme(text.to_owned()));
        }
        if server.is_empty() {
            return Err(UrlError::NoServer(text.to_owned()));
        }
        Ok(Self {
            server: server.to_owned(),
            port: None,
            path: format!("/{path}").into_bytes(),
        })
    }

    /// Returns the last component of the path, or an empty slice for the root.
    #[must_use]
    pub fn file_name(&self) -> &[u8] {
        let mut components = self.path.split(|&b| b == b'/').filter(|c| !c.is_empty());
        components.next_back().unwrap_or_default()
    }
}

impl FromStr for NfsUrl {
    type Err = UrlError;

    /// Parses a URL, or `SERVER:/PATH` as in nfs(5), in which an IPv6 address is in brackets, and the path has no
    /// escapes.
    fn from_str(text: &str) -> Result<Self, UrlError> {
        let source = text.split_once(":/");
        if let Some((server, path)) = source.filter(|(_, path)| !path.starts_with('/')) {
            return Self::from_source(server, path, text);
        }
        let rest = text
            .strip_prefix("nfs://")
            .ok_or_else(|| UrlError::Scheme(text.to_owned()))?;
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let (server, port) = split_authority(authority, text)?;
        if server.is_empty() {
            return Err(UrlError::NoServer(text.to_owned()));
        }
        Ok(Self {
            server: server.to_owned(),
            port: port.map(parse_port).transpose()?,
            path: unescape(path, text)?,
        })
    }
}

fn split_authority<'a>(
    authority: &'a str,
    text: &str,
) -> Result<(&'a str, Option<&'a str>), UrlError> {
    if let Some(rest) = authority.strip_prefix('[') {
        let bad = || UrlError::Bracket(text.to_owned());
        let (address, after) = rest.split_once(']').ok_or_else(bad)?;
        return match after.strip_prefix(':') {
            Some(port) => Ok((address, Some(port))),
            None if after.is_empty() => Ok((address, None)),
            None => Err(bad()),
        };
    }
    match authority.split_once(':') {
        Some((_, port)) if port.contains(':') => Err(UrlError::Bracket(text.to_owned())),
        Some((server, port)) => Ok((server, Some(port))),
        None => Ok((authority, None)),
    }
}

fn parse_port(text: &str) -> Result<u16, UrlError> {
    match text.parse() {
        Ok(0) | Err(_) => Err(UrlError::Port(text.to_owned())),
        Ok(port) => Ok(port),
    }
}

fn unescape(path: &str, text: &str) -> Result<Vec<u8>, UrlError> {
    let mut out = Vec::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|b| char::from(b).to_digit(16));
        match (digit(), digit()) {
            (Some(0), Some(0)) => return Err(UrlError::Zero(text.to_owned())),
            (Some(high), Some(low)) => out.push((high * 16 + low) as u8),
            _ => return Err(UrlError::Escape(text.to_owned())),
        }
    }
    Ok(out)
}

impl fmt::Display for NfsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.server.contains(':') {
            true => write!(f, "nfs://[{}]", self.server)?,
            false => write!(f, "nfs://{}", self.server)?,
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        for &byte in &self.path {
            if byte.is_ascii_graphic() && byte != b'%' {
                write!(f, "{}", char::from(byte))?;
            } else {
                write!(f, "%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> NfsUrl {
        text.parse().unwrap()
    }

    #[test]
    fn servers_ports_and_paths_are_told_apart() {
        let full = url("nfs://host.example:2050/srv/data/a b");
        assert_eq!(full.server, "host.example");
        assert_eq!(full.port, Some(2050));
        assert_eq!(full.path, b"/srv/data/a b");
        assert_eq!(full.file_name(), b"a b");
        let six = url("nfs://[fe80::1%eth0]:20049/x");
        assert_eq!(
            (six.server.as_str(), six.port),
            ("fe80::1%eth0", Some(20049))
        );
        let bare = url("nfs://::1".replace("::1", "[::1]").as_str());
        assert_eq!((bare.server.as_str(), bare.port), ("::1", None));
        assert_eq!(bare.path, b"/");
        assert_eq!(bare.file_name(), b"");
        assert_eq!(url("nfs://h/a/b//").file_name(), b"b");
    }

    #[test]
    fn bytes_that_are_not_text_can_be_named() {
        let odd = url("nfs://h/%ff%25/%20");
        assert_eq!(odd.path, b"/\xff%/ ");
        assert_eq!(url(&odd.to_string()), odd);
        assert_eq!(odd.to_string(), "nfs://h/%FF%25/%20");
        assert_eq!(
            url(&url("nfs://[::1]:1/x").to_string()),
            url("nfs://[::1]:1/x")
        );
    }

    #[test]
    fn a_url_that_is_nearly_right_is_understood() {
        let said = |text: &str| text.parse::<NfsUrl>().unwrap_err().to_string();
        assert!(said("host:5:/data").ends_with("did you mean nfs://host:5/data?"));
        assert!(said("rdma://host/data").contains("did you mean nfs://host/data? -o proto="));
        for other in ["http://h/x", "/data", ":/data", "a/b:/c", "data"] {
            assert!(!said(other).contains("did you mean"), "{other}");
        }
    }

    #[test]
    fn a_source_has_either_form() {
        let source = |text: &str| text.parse::<NfsUrl>();
        assert_eq!(source("nfs://h:5/a%20b"), Ok(url("nfs://h:5/a%20b")));
        assert_eq!(source("h:/a%20b:/c"), Ok(url("nfs://h/a%2520b:/c")));
        assert_eq!(source("[::1]:/"), Ok(url("nfs://[::1]/")));
        assert_eq!(source("h:/a://b"), Ok(url("nfs://h/a://b")));
        assert_eq!(source("nfs://h/a:/b"), source("h:/a:/b"));
        for bad in [
            "h:5:/x",
            "::1:/x",
            ":/x",
            "a/b:/x",
            "h:x",
            "/x",
            "[::1:/x",
            "rdma://h/x",
        ] {
            source(bad).unwrap_err();
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = |text: &str| text.parse::<NfsUrl>().unwrap_err();
        assert!(matches!(error("http://h/x"), UrlError::Scheme(_)));
        assert!(matches!(error("nfs:///x"), UrlError::NoServer(_)));
        assert!(matches!(error("nfs://:2049/x"), UrlError::NoServer(_)));
        assert!(matches!(error("nfs://::1/x"), UrlError::Bracket(_)));
        assert!(matches!(error("nfs://[::1/x"), UrlError::Bracket(_)));
        assert!(matches!(error("nfs://[::1]x/x"), UrlError::Bracket(_)));
        for port in ["", "0", "65536", "-1", "x"] {
            assert!(matches!(
                error(&format!("nfs://h:{port}/x")),
                UrlError::Port(_)
            ));
        }
        assert!(matches!(error("nfs://h/%f"), UrlError::Escape(_)));
        assert!(matches!(error("nfs://h/%zz"), UrlError::Escape(_)));
        assert!(matches!(error("nfs://h/%00"), UrlError::Zero(_)));
    }
}
