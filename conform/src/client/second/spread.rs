//! Targets for an item in several transmissions (rtrext-00, 6.2 and 7.3).

use crate::client::placed::Target;

/// A target that has a part of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used {
    /// The number of the transmission.
    pub(super) transmission: usize,
    /// The number of the target among those of one transmission.
    pub(super) target: usize,
    /// The first byte in the message.
    pub(super) start: usize,
    /// The bytes of the item.
    pub(super) length: usize,
}

impl Used {
    /// Returns the number of the target in the group: those of each transmission count, used or not.
    pub(super) fn number(&self, targets: &[Target]) -> usize {
        self.transmission * targets.len() + self.target
    }
}

/// Returns the first targets that have room for an item of `length` bytes in at most so many transmissions, or `None`
/// if there are not enough. The first of `heads` tells the bytes of the first transmission before its data, for a number
/// of targets; the second is the same for each other transmission.
pub(super) fn spread(
    targets: &[Target],
    (first, other): (&dyn Fn(usize) -> usize, usize),
    most: usize,
    length: usize,
) -> Option<Vec<Used>> {
    // A header that names more targets is longer, so that fewer are open behind it.
    let mut count = 1;
    loop {
        let used = behind(targets, (first(count), other), most, length)?;
        if used.len() <= count {
            return Some(used);
        }
        count = used.len();
    }
}

fn behind(
    targets: &[Target],
    (first, other): (usize, usize),
    most: usize,
    length: usize,
) -> Option<Vec<Used>> {
    let mut used = Vec::new();
    let mut left = length;
    for transmission in 0..most {
        let head = if transmission == 0 { first } else { other };
        let open = targets.iter().enumerate().filter(|it| it.1.start >= head);
        for (target, it) in open {
            let length = left.min(it.length);
            left -= length;
            let start = it.start;
            used.push(Used {
                transmission,
                target,
                start,
                length,
            });
            if left == 0 {
                return Some(used);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn target(start: usize) -> Target {
        Target { start, length: 64 }
    }

    #[test]
    fn an_item_takes_the_first_targets_behind_the_headers() {
        let targets = [target(64), target(128)];
        let numbers = |head: usize, most: usize, length: usize| {
            let head = |count: usize| head + 4 * count;
            let used = spread(&targets, (&head, 40), most, length)?;
            Some(
                used.iter()
                    .map(|it| it.number(&targets))
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(numbers(60, 1, 64), Some(vec![0]));
        // The number of the second one makes the header reach into the first.
        assert_eq!(numbers(60, 2, 128), Some(vec![1, 2]));
        assert_eq!(numbers(60, 1, 128), None);
        assert_eq!(numbers(125, 1, 64), None);
        assert_eq!(numbers(125, 2, 65), Some(vec![2, 3]));
        assert_eq!(numbers(0, 9, 0), Some(vec![0]));
        assert_eq!(spread(&[], (&|_| 0, 0), 9, 1), None);
    }
}
