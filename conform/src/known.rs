//! Deviations that are known already: a file with their addresses, one a line.

/// The addresses of known deviations, in the order of their file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known(Vec<String>);

impl Known {
    /// Reads addresses, one a line. `#` begins a comment.
    ///
    /// # Errors
    /// A line has more than one word.
    pub fn parse(text: &str) -> Result<Self, NotOneAddress> {
        let mut addresses: Vec<String> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let before_comment = line.split('#').next().unwrap_or_default();
            let mut words = before_comment.split_whitespace();
            match (words.next(), words.next()) {
                (None, _) => {}
                (Some(address), None) => {
                    if !addresses.iter().any(|it| it == address) {
                        addresses.push(address.to_owned());
                    }
                }
                (Some(_), Some(_)) => {
                    let text = before_comment.trim().to_owned();
                    return Err(NotOneAddress { line: number, text });
                }
            }
        }
        Ok(Self(addresses))
    }

    /// Returns the addresses.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Returns whether this is the address of a known deviation.
    #[must_use]
    pub fn has(&self, address: &str) -> bool {
        self.addresses().any(|it| it == address)
    }
}

/// A line that is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {text:?} is not one address")]
pub struct NotOneAddress {
    /// The number of the line, from one.
    pub line: usize,
    /// The line, without its comment.
    pub text: String,
}

/// Comparison of the deviations of a run with the known ones, as addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Compared {
    /// Deviations that count and are not known.
    pub new: Vec<String>,
    /// Known deviations whose cases pass now.
    pub passed: Vec<String>,
    /// Known deviations whose cases were not performed: they are skipped, not applicable, or not selected.
    pub not_performed: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_empty_lines_are_no_addresses() {
        let text = "# theirs\nrfc8166/4.5.2/1\n\n  rfc8166/3.3.1/2 # issue 76\nrfc8166/4.5.2/1\n";
        let known = Known::parse(text).unwrap();
        let addresses: Vec<&str> = known.addresses().collect();
        assert_eq!(addresses, ["rfc8166/4.5.2/1", "rfc8166/3.3.1/2"]);
        assert!(known.has("rfc8166/3.3.1/2"));
        // A known deviation is one case, and no prefix of others.
        assert!(!known.has("rfc8166/3.3.1"));
    }

    #[test]
    fn a_line_with_two_addresses_is_an_error() {
        let error = Known::parse("\nrfc8166/4.5.2/1 rfc8166/4.5.2/2 # both\n").unwrap_err();
        let text = "line 2: \"rfc8166/4.5.2/1 rfc8166/4.5.2/2\" is not one address";
        assert_eq!(error.to_string(), text);
    }
}
