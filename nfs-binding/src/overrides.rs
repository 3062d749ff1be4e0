//! Options that a later option of the same list overrides.

use std::fmt;

/// An option that has no effect because another one of the list, as a rule a later one, sets the same to
/// another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overridden {
    /// The option without effect, as given.
    pub earlier: String,
    /// The option that applies instead, as given.
    pub later: String,
}

impl fmt::Display for Overridden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "option {} is overridden by {}", self.earlier, self.later)
    }
}

/// Finds overridden options while a list is parsed. `V` is what a setting is set to.
#[derive(Debug)]
pub struct Overrides<V> {
    /// Each setting so far, its value, and the option that set it.
    set: Vec<(&'static str, V, String)>,
    found: Vec<Overridden>,
}

impl<V: PartialEq> Overrides<V> {
    /// Records that `option` sets `setting` to `value`. If an earlier option set it to another
    /// value, that one is overridden.
    pub fn set(&mut self, setting: &'static str, value: V, option: &str) {
        self.imply(setting, &value, option);
        self.set.retain(|(name, ..)| *name != setting);
        self.set.push((setting, value, option.to_owned()));
    }

    /// Does the same for an option that only implies `value`: a later option that says otherwise is
    /// what mount(8) provides for, and so not reported.
    pub fn imply(&mut self, setting: &'static str, value: &V, option: &str) {
        let earlier = self.set.iter().position(|(name, ..)| *name == setting);
        if let Some(index) = earlier
            && self.set[index].1 != *value
        {
            let (_, _, earlier) = self.set.remove(index);
            let later = option.to_owned();
            self.found.push(Overridden { earlier, later });
        }
    }

    /// Returns the overridden options in the order in which they were overridden.
    #[must_use]
    pub fn into_found(self) -> Vec<Overridden> {
        self.found
    }
}

impl<V> Default for Overrides<V> {
    fn default() -> Self {
        Self {
            set: Vec::new(),
            found: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_value_overrides() {
        let mut overrides = Overrides::default();
        overrides.set("size", 1, "size=1");
        overrides.set("size", 1, "size=1");
        overrides.set("side", 1, "left");
        overrides.set("size", 2, "size=2");
        overrides.imply("size", &3, "big");
        overrides.set("size", 4, "size=4");
        let found = overrides.into_found();
        let said: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "option size=1 is overridden by size=2",
                "option size=2 is overridden by big"
            ]
        );
    }
}
