//! Pictures whose ladders have no more arrows than anybody looks at, so that the size of a drawing and
//! the memory for it are bounded.

use std::borrow::Cow;
use std::ops::Range;
use std::time::Duration;

use crate::model::{Ladder, Picture};
use crate::words;

/// Maximum number of arrows of a ladder that are drawn.
const ARROWS: usize = 200;

/// Returns a picture whose ladders have at most [`ARROWS`] arrows each: the first and the last ones. A
/// note says how many are left out.
pub(crate) fn bounded(picture: &Picture) -> Cow<'_, Picture> {
    let mut picture = Cow::Borrowed(picture);
    for at in 0..picture.ladders.len() {
        let count = picture.ladders[at].arrows.len();
        if count <= ARROWS {
            continue;
        }
        let Picture { ladders, notes, .. } = picture.to_mut();
        let Range { start, end } = shorten(&mut ladders[at]);
        notes.push(format!(
            "{}: {} of its {count} arrows are left out, which begin between {} and {}.",
            ladders[at].name,
            count - ARROWS,
            words::time(start),
            words::time(end)
        ));
    }
    picture
}

/// Leaves arrows in the middle out, and what is marked between them. Returns from when to when.
fn shorten(ladder: &mut Ladder) -> Range<Duration> {
    ladder.arrows.sort_by_key(|arrow| (arrow.start, arrow.end));
    let (first, end) = (ARROWS / 2, ladder.arrows.len() - ARROWS / 2);
    let left_out = ladder.arrows[first].start..ladder.arrows[end].start;
    ladder.arrows.drain(first..end);
    ladder.marks.retain(|mark| !left_out.contains(&mark.start));
    left_out
}
