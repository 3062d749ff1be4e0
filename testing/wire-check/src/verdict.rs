//! Compares expected and decoded values.

use std::fmt;

use crate::columns::{Columns, Direction};

/// The result of a field in one direction.
pub(crate) struct Verdict {
    direction: Direction,
    field: &'static str,
    values: usize,
    /// The first difference.
    problem: Option<String>,
}

impl Verdict {
    /// Returns whether the field is right.
    pub(crate) fn is_right(&self) -> bool {
        self.problem.is_none()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.is_right() { "ok" } else { "WRONG" };
        let (direction, field, values) = (self.direction, self.field, self.values);
        write!(f, "{mark:<6}{direction:<18}{field:<32}{values:>5} values")?;
        match &self.problem {
            Some(problem) => write!(f, "\n      {problem}"),
            None => Ok(()),
        }
    }
}

/// Compares the values and their order for every field in `sent`.
pub(crate) fn compare(sent: &Columns, decoded: &Columns) -> Vec<Verdict> {
    sent.fields()
        .map(|(direction, field)| {
            let wanted = sent.values(direction, field);
            let found = decoded.values(direction, field);
            Verdict {
                direction,
                field,
                values: wanted.len(),
                problem: difference(wanted, found),
            }
        })
        .collect()
}

fn difference(wanted: &[String], found: &[String]) -> Option<String> {
    let at = wanted.iter().zip(found).position(|(w, f)| w != f);
    let at = at.unwrap_or(wanted.len().min(found.len()));
    let show = |values: &[String]| match values.get(at) {
        Some(value) => format!("{value:?}"),
        None => format!("nothing after {} values", values.len()),
    };
    (wanted != found).then(|| {
        let (wanted, found) = (show(wanted), show(found));
        format!("value {at}: sent {wanted}, tshark says {found}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(values: &[u32]) -> Columns {
        let mut columns = Columns::default();
        columns.expect(Direction::Call, "field");
        for value in values {
            columns.push(Direction::Call, "field", value);
        }
        columns
    }

    #[test]
    fn only_the_same_values_in_the_same_order_are_right() {
        let sent = columns(&[1, 2]);
        assert!(compare(&sent, &columns(&[1, 2]))[0].is_right());
        for wrong in [&[1, 3][..], &[2, 1], &[1], &[1, 2, 3], &[]] {
            assert!(!compare(&sent, &columns(wrong))[0].is_right(), "{wrong:?}");
        }
        assert!(compare(&columns(&[]), &columns(&[]))[0].is_right());
        assert!(!compare(&columns(&[]), &columns(&[1]))[0].is_right());
    }
}
