//! Where output is colored: `--color`, NO_COLOR and terminals.

use std::ffi::OsString;

use clap::{ColorChoice, ValueEnum};

/// The name of the option.
const OPTION: &str = "--color";

/// Returns the value of `--color` among the arguments of a program, if it is a valid one.
pub(super) fn asked(words: &[OsString]) -> ColorChoice {
    let words = || words.iter().filter_map(|word| word.to_str());
    let words = || words().take_while(|word| *word != "--");
    let apart = words().zip(words().skip(1));
    let apart = apart.filter(|(option, _)| *option == OPTION);
    let joined = words().filter_map(|word| word.strip_prefix(OPTION)?.strip_prefix('='));
    let mut values = apart.map(|(_, value)| value).chain(joined);
    let value = values.find_map(|value| ColorChoice::from_str(value, false).ok());
    value.unwrap_or_default()
}

/// Colors output from now on as the user wants it. If that is left open, it depends on the output: a terminal gets
/// colors, unless NO_COLOR is set or TERM is `dumb`.
pub(super) fn choose(choice: ColorChoice) {
    let choice = match choice {
        ColorChoice::Always => anstream::ColorChoice::Always,
        ColorChoice::Never => anstream::ColorChoice::Never,
        ColorChoice::Auto => anstream::ColorChoice::Auto,
    };
    choice.write_global();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_is_found_in_either_form() {
        let asked = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            asked(&words)
        };
        assert_eq!(asked("rpcrdma ls --color=never x"), ColorChoice::Never);
        assert_eq!(asked("rpcrdma --color always ls x"), ColorChoice::Always);
        for other in [
            "rpcrdma ls",
            "rpcrdma --color",
            "rpcrdma --color=red",
            "rpcrdma -- --color=never",
        ] {
            assert_eq!(asked(other), ColorChoice::Auto, "{other}");
        }
    }
}
