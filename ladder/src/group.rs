//! Arrows that have one label.

use crate::model::{Arrow, ArrowKind};
use crate::words::octets;

/// Arrows from one end under one name that follow one another, with no other arrow in between.
#[derive(Clone, Debug)]
pub(crate) struct Group<'a> {
    /// The arrows, by their departure.
    pub(crate) arrows: Vec<&'a Arrow>,
}

/// Returns the groups of some arrows, by the departure of their first ones.
pub(crate) fn groups(arrows: &[Arrow]) -> Vec<Group<'_>> {
    let mut sorted: Vec<&Arrow> = arrows.iter().collect();
    sorted.sort_by_key(|arrow| (arrow.start, arrow.end));
    let mut groups: Vec<Group<'_>> = Vec::new();
    for arrow in sorted {
        match groups.last_mut() {
            Some(group) if group.has_room_for(arrow) => group.arrows.push(arrow),
            _ => groups.push(Group {
                arrows: vec![arrow],
            }),
        }
    }
    groups
}

impl Group<'_> {
    /// Returns whether an arrow belongs to the group.
    fn has_room_for(&self, arrow: &Arrow) -> bool {
        self.arrows.last().is_some_and(|last| {
            let alike = |of: &Arrow| (of.from, of.kind.is_message(), of.critical);
            last.name == arrow.name && alike(last) == alike(arrow)
        })
    }

    /// Returns the two lines of the label.
    pub(crate) fn label(&self) -> [String; 2] {
        let name = self.arrows.first().map_or("", |arrow| &arrow.name);
        let sum = octets(self.arrows.iter().map(|arrow| arrow.octets).sum());
        let kind = self.arrows.last().map(|arrow| arrow.kind);
        let details = match (self.arrows.len(), kind) {
            (1, Some(ArrowKind::SendWithInvalidate)) => format!("{sum}, invalidates"),
            (1, Some(ArrowKind::ReadRequest)) => format!("of {sum}"),
            (1, _) => sum,
            (n, Some(kind)) if kind.is_message() => format!("{n} Sends, {sum}"),
            (n, _) => format!("{n} operations, {sum}"),
        };
        [name.to_owned(), details]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::Side;

    #[test]
    fn parts_of_a_message_have_one_label() {
        let part = |start, octets, from, name: &str| Arrow {
            from,
            start: Duration::from_nanos(start),
            end: Duration::from_nanos(start + 5_000),
            octets,
            kind: ArrowKind::Send,
            name: name.to_owned(),
            critical: true,
        };
        let arrows = [
            part(600, 240, Side::Left, "call"),
            part(0, 4096, Side::Left, "call"),
            part(300, 4096, Side::Left, "call"),
            part(8_000, 40, Side::Right, "reply"),
            part(20_000, 40, Side::Left, "call"),
        ];
        let labels: Vec<_> = groups(&arrows).iter().map(Group::label).collect();
        let wanted = [
            ["call", "3 Sends, 8432 B"],
            ["reply", "40 B"],
            ["call", "40 B"],
        ];
        assert_eq!(labels, wanted);
    }
}
