//! Parsing and formatting of sizes, times and counts.

use std::time::Duration;

/// Parses a size in bytes: `4096`, `64k`, `1M`, `2G`, with or without `iB` (powers of 1024).
///
/// # Errors
/// A text for the user that says what is wrong.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!(
            "`{text}` is not a size: write a number of bytes, or one followed by k, M, G or T (powers of \
             1024), like 4096, 64k or 1M"
        )
    };
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("`{text}` does not fit 64 bits"))
}

/// Parses a time: `250ns`, `100us`, `1ms`, `2s` or `0`.
///
/// # Errors
/// A text for the user that says what is wrong.
pub fn time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a time: write one like 250ns, 100us, 1ms or 2s");
    let digits = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let nanoseconds = match unit {
        // No time at all needs no unit.
        "" if number == 0 => 1,
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(wrong()),
    };
    let time = number.checked_mul(nanoseconds).map(Duration::from_nanos);
    time.ok_or_else(|| format!("`{text}` is too long"))
}

/// Parses a share in percent, `1%` or `0.05%`, into parts per million.
///
/// # Errors
/// A text for the user that says what is wrong.
pub fn share(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a share: write one like 1% or 0.05%");
    let number = text.strip_suffix('%').ok_or_else(wrong)?;
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(part) || part.len() > 4 {
        return Err(wrong());
    }
    // A part per million is the fourth digit after the point.
    let millionths = format!("{whole}{part:0<4}").parse::<u64>();
    let millionths = millionths.ok().filter(|&parts| parts <= 1_000_000);
    millionths.ok_or_else(wrong)
}

/// Writes a share of parts per million in percent, as [`share`] reads it.
pub fn show_share(millionths: u64) -> String {
    let (whole, part) = (millionths / 10_000, millionths % 10_000);
    match part {
        0 => format!("{whole}%"),
        _ => format!("{whole}.{}%", format!("{part:04}").trim_end_matches('0')),
    }
}

/// Writes a size the shortest exact way: `4 KiB`, `1 MiB`, `1000 B`.
pub fn show_size(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift && bytes.trailing_zeros() >= shift {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    format!("{bytes} B")
}

/// Writes an amount of data roughly: `12.3 MiB`.
pub fn show_amount(bytes: u64) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift {
            return format!("{:.1} {unit}", bytes as f64 / (1u64 << shift) as f64);
        }
    }
    format!("{bytes} B")
}

/// Formats a time, in seconds since the beginning of 1970, as `YYYY-MM-DD HH:MM:SS` in UTC. Output
/// for people should say the zone as well, because ls(1) and stat(1) print local time.
pub fn show_date(seconds: u64) -> String {
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// Returns year, month and day of a day since 1970. Days are counted from 1 March of year 0, so
/// that the leap day is the last of its year.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

/// Formats a count with its noun: `1 file`, `2 files`.
pub fn count(number: u64, one: &str, many: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ => format!("{number} {many}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_around_leap_days() {
        let date = show_date;
        assert_eq!(date(0), "1970-01-01 00:00:00");
        assert_eq!(date(951_782_399), "2000-02-28 23:59:59");
        assert_eq!(date(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(date(1_709_251_199), "2024-02-29 23:59:59");
        assert_eq!(date(u32::MAX.into()), "2106-02-07 06:28:15");
    }

    #[test]
    fn sizes_read_as_written() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("64k"), Ok(65536));
        assert_eq!(size("1MiB"), Ok(1 << 20));
        assert_eq!(size("2G"), Ok(2 << 30));
        for bad in ["", "k", "1x", "8q", "-1", "1.5M"] {
            let said = size(bad).unwrap_err();
            assert!(said.contains("k, M, G or T"), "{bad}: {said}");
        }
        let said = size("99999999999T").unwrap_err();
        assert!(said.contains("64 bits"), "{said}");
    }

    #[test]
    fn shares_read_as_written() {
        for (text, parts) in [
            ("0%", 0),
            ("1%", 10_000),
            ("0.05%", 500),
            ("12.3456%", 123_456),
        ] {
            assert_eq!(share(text), Ok(parts));
            assert_eq!(show_share(parts), text);
        }
        assert_eq!(share("100%"), Ok(1_000_000));
        for bad in [
            "", "%", "1", ".5%", "1.%", "-1%", "+1%", "0.00001%", "101%", "1 %",
        ] {
            assert!(share(bad).unwrap_err().contains("is not a share"), "{bad}");
        }
    }

    #[test]
    fn exact_sizes_show_in_their_largest_unit() {
        assert_eq!(show_size(1000), "1000 B");
        assert_eq!(show_size(8192), "8 KiB");
        assert_eq!(show_size(1 << 20), "1 MiB");
        assert_eq!(show_amount(1536), "1.5 KiB");
    }
}
