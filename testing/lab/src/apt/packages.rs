//! The packages that apt resolved.

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// One version of one package, identified by the hash that the archive signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    /// The package's name.
    pub name: String,
    /// The package's version, with the epoch.
    pub version: String,
    /// The file name that apt uses.
    pub file: String,
    /// The size in bytes.
    pub size: u64,
    /// The SHA-256 hash in hexadecimal.
    pub sha256: String,
}

impl Package {
    /// Returns `name=version`, the format of apt.
    #[must_use]
    pub fn exact(&self) -> String {
        format!("{}={}", self.name, self.version)
    }

    /// Parses one line of `apt-get --print-uris`: `'address' name_version_architecture.deb size
    /// SHA256:digits`.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        words.next()?.strip_prefix('\'')?.strip_suffix('\'')?;
        let file = words.next()?;
        let size = words.next()?.parse().ok()?;
        let sha256 = words.next()?.strip_prefix("SHA256:")?;
        let mut parts = file.strip_suffix(".deb")?.split('_');
        let (name, version, architecture) = (parts.next()?, parts.next()?, parts.next()?);
        let is_plain = !name.is_empty() && !architecture.is_empty() && !file.contains('/');
        let is_hash = sha256.len() == 64 && sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_plain && is_hash && parts.next().is_none()).then(|| Self {
            name: name.to_owned(),
            version: version.replace("%3a", ":"),
            file: file.to_owned(),
            size,
            sha256: sha256.to_owned(),
        })
    }
}

/// Parses the output of `apt-get --print-uris`. Returns the packages by name.
///
/// # Errors
/// [`Error::Apt`] if there are none, or a line cannot be parsed.
pub fn parse(printed: &str) -> Result<Vec<Package>, Error> {
    let mut packages = Vec::new();
    // Other lines are remarks.
    for line in printed.lines().filter(|line| line.starts_with('\'')) {
        let odd = || Error::Apt(format!("this line is not understood: {line}"));
        packages.push(Package::parse(line).ok_or_else(odd)?);
    }
    if packages.is_empty() {
        return Err(Error::Apt("no packages were named".to_owned()));
    }
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(packages)
}

/// Formats the input of `sha256sum --check`.
#[must_use]
pub fn checksums(packages: &[&Package]) -> String {
    let line = |package: &&Package| format!("{}  {}\n", package.sha256, package.file);
    packages.iter().map(line).collect()
}

/// Returns the value of a field in the output of `apt-cache show`.
///
/// # Errors
/// [`Error::Apt`] if the field is missing.
pub fn field<'a>(shown: &'a str, name: &str) -> Result<&'a str, Error> {
    let value = |line: &'a str| line.strip_prefix(name)?.strip_prefix(": ");
    let missing = || Error::Apt(format!("a package has no field {name}"));
    shown.lines().find_map(value).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(digit: char) -> String {
        digit.to_string().repeat(64)
    }

    #[test]
    fn lines_of_uris() {
        let printed = format!(
            "'http://h.test/pool/k/kmod/kmod_30_amd64.deb' kmod_30_amd64.deb 95012 SHA256:{}\n\
             a remark\n\
             'http://h.test/q.deb' a_1%3a10.0+ds-2_all.deb 7 SHA256:{}\n",
            hash('a'),
            hash('0')
        );
        let packages = parse(&printed).unwrap();
        assert_eq!(packages.len(), 2);
        assert_eq!(packages[0].exact(), "a=1:10.0+ds-2");
        assert_eq!(packages[0].file, "a_1%3a10.0+ds-2_all.deb");
        assert_eq!(
            (packages[1].size, packages[1].name.as_str()),
            (95012, "kmod")
        );
        let sums = checksums(&[&packages[1]]);
        assert_eq!(sums, format!("{}  kmod_30_amd64.deb\n", hash('a')));
    }

    #[test]
    fn lines_that_are_not_understood_are_errors() {
        let good = hash('a');
        for line in [
            "'u' kmod_30_amd64.deb 95012 MD5Sum:00".to_owned(),
            format!("'u' kmod_30_amd64.deb x SHA256:{good}"),
            format!("'u' ../kmod_30_amd64.deb 1 SHA256:{good}"),
            format!("'u' kmod_30.deb 1 SHA256:{good}"),
            "'u'".to_owned(),
        ] {
            assert!(matches!(parse(&line), Err(Error::Apt(_))), "{line}");
        }
        assert!(matches!(parse("nothing"), Err(Error::Apt(_))));
    }

    #[test]
    fn fields_of_a_package() {
        let shown = "Package: l\nVersion: 6.12-1\nVersions: no\nDepends: a, b (= 1)\n";
        assert_eq!(field(shown, "Version").unwrap(), "6.12-1");
        assert_eq!(field(shown, "Depends").unwrap(), "a, b (= 1)");
        assert!(field(shown, "Recommends").is_err());
    }
}
