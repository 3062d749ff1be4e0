//! Times and lengths in words.

use std::time::Duration;

/// Formats a length in octets: `168 B`, `8 KiB`.
pub(crate) fn octets(octets: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if octets >= 1 << shift && octets.trailing_zeros() >= shift {
            return format!("{} {unit}", octets >> shift);
        }
    }
    format!("{octets} B")
}

/// The units of time, each with its nanoseconds.
const UNITS: [(&str, u64); 4] = [
    ("ns", 1),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
];

/// Returns the greatest unit in which a time is at least 1.
fn unit(time: Duration) -> (&'static str, u64) {
    let fits = |&&(_, nanos): &&(&str, u64)| time.as_nanos() >= u128::from(nanos);
    *UNITS.iter().rev().find(fits).unwrap_or(&UNITS[1])
}

/// Formats a time with three digits: `29.1 µs`.
pub(crate) fn time(time: Duration) -> String {
    let (name, nanos) = unit(time);
    let value = time.as_nanos() as f64 / nanos as f64;
    match value {
        _ if nanos == 1 => format!("{value:.0} {name}"),
        v if v < 9.995 => format!("{v:.2} {name}"),
        v if v < 99.95 => format!("{v:.1} {name}"),
        v => format!("{v:.0} {name}"),
    }
}

/// Formats a time of an axis in the unit of its longest time, with three digits at most.
pub(crate) fn tick(time: Duration, longest: Duration) -> String {
    let value = time.as_nanos() as f64 / unit(longest).1 as f64;
    let text = match value {
        v if v >= 99.95 => return format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Returns the name of the unit of an axis.
pub(crate) fn tick_unit(longest: Duration) -> &'static str {
    unit(longest).0
}

/// Returns a text in lines of at most `width` characters, if its words are not longer.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Returns the text in ASCII.
pub(crate) fn ascii(text: &str) -> String {
    let letter = |letter: char| match letter {
        'µ' => "u".to_owned(),
        '–' | '—' => "-".to_owned(),
        '×' => "x".to_owned(),
        letter if letter.is_ascii() => letter.to_string(),
        _ => "?".to_owned(),
    };
    text.chars().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        for (nanos, wanted) in [
            (0, "0.00 µs"),
            (540, "540 ns"),
            (1_040, "1.04 µs"),
            (9_996, "10.0 µs"),
            (29_131, "29.1 µs"),
            (999_400, "999 µs"),
            (2_040_000, "2.04 ms"),
            (3_000_000_000, "3.00 s"),
        ] {
            assert_eq!(time(Duration::from_nanos(nanos)), wanted);
        }
        let of = |nanos| tick(Duration::from_nanos(nanos), Duration::from_micros(29));
        assert_eq!([of(0), of(500), of(25_000)], ["0", "0.5", "25"]);
        assert_eq!(tick_unit(Duration::from_millis(3)), "ms");
    }

    #[test]
    fn lengths_are_exact() {
        assert_eq!([octets(8192), octets(8432)], ["8 KiB", "8432 B"]);
        assert_eq!(ascii("29.1 µs × 2 →"), "29.1 us x 2 ?");
    }
}
