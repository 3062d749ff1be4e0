//! The contents of a picture. All times are counted from the beginning of the call.

use std::time::Duration;

/// One of the two life lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The left one: the requester.
    Left,
    /// The right one: the responder.
    Right,
}

impl Side {
    /// Returns the other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Right => Self::Left,
        }
    }
}

/// Ladders side by side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picture {
    /// The heading.
    pub title: String,
    /// The ladders, which have one scale of time.
    pub ladders: Vec<Ladder>,
    /// Paragraphs below them.
    pub notes: Vec<String>,
}

/// A call between two ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ladder {
    /// Its name.
    pub name: String,
    /// Meaning of the name, in a few words. Text after `; ` begins another line.
    pub about: String,
    /// The names of the left and the right end.
    pub ends: [String; 2],
    /// Messages and RDMA operations from one end to the other.
    pub arrows: Vec<Arrow>,
    /// Events at one end.
    pub marks: Vec<Mark>,
    /// The time until the results.
    pub took: Duration,
    /// Counts, each in a few words.
    pub totals: Vec<String>,
}

impl Default for Ladder {
    fn default() -> Self {
        Self {
            name: String::new(),
            about: String::new(),
            ends: ["client".to_owned(), "server".to_owned()],
            arrows: Vec::new(),
            marks: Vec::new(),
            took: Duration::ZERO,
            totals: Vec::new(),
        }
    }
}

impl Ladder {
    /// Returns the time of the last thing in it.
    pub(crate) fn end(&self) -> Duration {
        let arrows = self.arrows.iter().map(|arrow| arrow.end);
        let marks = self.marks.iter().map(|mark| mark.end);
        arrows.chain(marks).fold(self.took, Duration::max)
    }

    /// Returns all times at which something begins or ends.
    pub(crate) fn times(&self) -> impl Iterator<Item = Duration> {
        let arrows = self.arrows.iter().flat_map(|it| [it.start, it.end]);
        let marks = self.marks.iter().flat_map(|it| [it.start, it.end]);
        arrows.chain(marks).chain([Duration::ZERO, self.took])
    }

    /// Returns the parts of the life lines that the results wait for: those between the arrival of one
    /// critical arrow and the departure of the next.
    pub(crate) fn critical_parts(&self) -> Vec<(Side, Duration, Duration)> {
        let mut arrows: Vec<&Arrow> = self.arrows.iter().filter(|it| it.critical).collect();
        if arrows.is_empty() {
            return Vec::new();
        }
        arrows.sort_by_key(|arrow| arrow.start);
        let (mut side, mut since, mut parts) = (Side::Left, Duration::ZERO, Vec::new());
        for arrow in arrows {
            if arrow.from == side {
                parts.push((side, since, arrow.start));
                (side, since) = (side.other(), arrow.end);
            } else {
                // One of several arrows that are on their way together.
                since = since.max(arrow.end);
            }
        }
        parts.push((side, since, self.took));
        parts.retain(|(_, start, end)| start < end);
        parts
    }
}

/// A message, or a part of an RDMA operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrow {
    /// The end from which it goes.
    pub from: Side,
    /// The time at which its first bit leaves.
    pub start: Duration,
    /// The time at which its last bit arrives.
    pub end: Duration,
    /// Its length; of the request of an RDMA Read, the length that is asked for.
    pub octets: u64,
    /// Kind of Send or RDMA operation that carries it.
    pub kind: ArrowKind,
    /// Label, in a few words. Arrows that follow one another under one name are labelled once.
    pub name: String,
    /// Whether the results wait for it.
    pub critical: bool,
}

/// Kind of Send or RDMA operation that an arrow stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrowKind {
    /// A Send.
    Send,
    /// A Send that invalidates a handle of its receiver.
    SendWithInvalidate,
    /// The request of an RDMA Read.
    ReadRequest,
    /// The response to an RDMA Read.
    ReadResponse,
    /// An RDMA Write.
    Write,
}

impl ArrowKind {
    /// Returns whether it is a message, and not a part of an RDMA operation.
    pub(crate) fn is_message(self) -> bool {
        matches!(self, Self::Send | Self::SendWithInvalidate)
    }
}

/// Something that takes time at one end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The end.
    pub at: Side,
    /// Its beginning.
    pub start: Duration,
    /// Its end.
    pub end: Duration,
    /// Its kind.
    pub kind: MarkKind,
    /// Its label, in a few words; nothing if it has none.
    pub name: String,
}

/// Kind of event that a mark stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// From an interrupt to the turn of the program.
    Interrupt,
    /// A registration of memory.
    Registration,
    /// A local invalidation.
    Invalidation,
    /// A wait for credits.
    CreditWait,
    /// A wait for memory.
    MemoryWait,
    /// Work of a processor.
    Work,
    /// A round trip within the call, as that of an RDMA Read: a bracket beside the life line.
    RoundTrip,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn ns(nanos: u64) -> Duration {
        Duration::from_nanos(nanos)
    }

    fn arrow(
        from: Side,
        (start, end): (u64, u64),
        octets: u64,
        kind: ArrowKind,
        name: &str,
    ) -> Arrow {
        Arrow {
            from,
            start: ns(start),
            end: ns(end),
            octets,
            kind,
            name: name.to_owned(),
            critical: true,
        }
    }

    fn mark(at: Side, start: u64, end: u64, kind: MarkKind, name: &str) -> Mark {
        Mark {
            at,
            start: ns(start),
            end: ns(end),
            kind,
            name: name.to_owned(),
        }
    }

    /// Three ladders of a WRITE, much as a simulation draws them.
    pub(crate) fn sample() -> Picture {
        use ArrowKind::{ReadRequest, ReadResponse, Send, SendWithInvalidate};
        use MarkKind::{Interrupt, Registration, RoundTrip};
        use Side::{Left, Right};
        let ladder = |name: &str, took, arrows, marks| Ladder {
            name: name.to_owned(),
            about: "version 1, receives of 4 KiB".to_owned(),
            arrows,
            marks,
            took: ns(took),
            totals: vec!["2 round trips".to_owned(), "3 interrupts".to_owned()],
            ..Ladder::default()
        };
        let first = ladder(
            "v1-inv",
            29_131,
            vec![
                arrow(Left, (1_200, 6_220), 176, Send, "call, read chunk"),
                arrow(Right, (8_600, 13_610), 8192, ReadRequest, "RDMA Read"),
                arrow(Left, (14_110, 19_780), 8192, ReadResponse, "RDMA Read data"),
                arrow(Right, (22_000, 27_010), 128, SendWithInvalidate, "reply"),
            ],
            vec![
                mark(Left, 0, 1_040, Registration, "register 8 KiB"),
                mark(Right, 6_220, 8_220, Interrupt, "interrupt"),
                mark(Right, 8_600, 19_780, RoundTrip, "one more round trip"),
                mark(Right, 19_780, 21_780, Interrupt, "interrupt"),
                mark(Left, 27_010, 29_010, Interrupt, "interrupt"),
            ],
        );
        let second = ladder(
            "v2-cont",
            16_566,
            vec![
                arrow(Left, (200, 5_530), 4096, Send, "call with data"),
                arrow(Left, (530, 5_860), 4096, Send, "call with data"),
                arrow(Left, (860, 5_900), 240, Send, "call with data"),
                arrow(Right, (9_000, 14_010), 128, Send, "reply"),
            ],
            vec![
                mark(Right, 5_530, 7_530, Interrupt, "interrupt"),
                mark(Right, 7_900, 8_720, MarkKind::Work, "copy 8 KiB"),
                mark(Left, 14_010, 16_010, Interrupt, "interrupt"),
            ],
        );
        let third = ladder(
            "v2-ddp",
            15_393,
            vec![
                arrow(Left, (200, 5_950), 9216, Send, "call with data"),
                arrow(Right, (8_300, 13_310), 128, Send, "reply"),
            ],
            vec![
                mark(Right, 5_950, 7_950, Interrupt, "interrupt"),
                mark(Left, 13_310, 15_310, Interrupt, "interrupt"),
            ],
        );
        Picture {
            title: "One WRITE of 8 KiB".to_owned(),
            ladders: vec![first, second, third],
            notes: vec!["Link 5 µs each way.".to_owned()],
        }
    }

    /// A picture of arrows and marks at random, some of them in less time than others by orders of
    /// magnitude.
    pub(crate) fn random(numbers: &mut fastrand::Rng) -> Picture {
        let side = |numbers: &mut fastrand::Rng| match numbers.bool() {
            true => Side::Left,
            false => Side::Right,
        };
        let kinds = [
            ArrowKind::Send,
            ArrowKind::SendWithInvalidate,
            ArrowKind::ReadRequest,
            ArrowKind::ReadResponse,
            ArrowKind::Write,
        ];
        let ladder = |numbers: &mut fastrand::Rng, number: usize| {
            let (mut now, mut arrows, mut marks) = (0_u64, Vec::new(), Vec::new());
            for at in 0..numbers.usize(1..9) {
                let scale = 10_u64.pow(numbers.u32(1..7));
                now += numbers.u64(0..20) * scale;
                // Captures see a packet once, and several at one time.
                let end = now + numbers.u64(0..50).saturating_sub(12) * scale;
                if numbers.u8(0..3) == 0 {
                    marks.push(mark(
                        side(numbers),
                        now,
                        end,
                        MarkKind::Interrupt,
                        "interrupt",
                    ));
                } else {
                    let kind = kinds[numbers.usize(0..kinds.len())];
                    let name = format!("message-{at}");
                    let mut arrow =
                        arrow(side(numbers), (now, end), numbers.u64(0..9000), kind, &name);
                    arrow.critical = numbers.bool();
                    arrows.push(arrow);
                }
            }
            Ladder {
                name: format!("mode {number}"),
                about: "a long description of the mode which takes several lines".to_owned(),
                arrows,
                marks,
                took: ns(now),
                totals: vec!["2 round trips".to_owned()],
                ..Ladder::default()
            }
        };
        let count = numbers.usize(1..6);
        Picture {
            title: "At random".to_owned(),
            ladders: (0..count).map(|number| ladder(numbers, number)).collect(),
            notes: Vec::new(),
        }
    }

    /// Calls with many RDMA Writes each.
    pub(crate) fn long(calls: usize, writes: u64) -> Picture {
        let write = |at: u64| {
            let name = format!("write-{at}");
            let times = (at * 977, at * 977 + 500);
            arrow(Side::Right, times, 4096, ArrowKind::Write, &name)
        };
        let ladder = |number| Ladder {
            name: format!("call {number}"),
            arrows: (0..writes).map(write).collect(),
            took: ns(writes * 977),
            ..Ladder::default()
        };
        Picture {
            title: "Long calls".to_owned(),
            ladders: (0..calls).map(ladder).collect(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn the_results_wait_for_one_end_after_the_other() {
        let sample = sample();
        let parts = sample.ladders[0].critical_parts();
        let sides: Vec<Side> = parts.iter().map(|(side, ..)| *side).collect();
        use Side::{Left, Right};
        assert_eq!(sides, [Left, Right, Left, Right, Left]);
        assert_eq!(parts[2], (Left, ns(13_610), ns(14_110)));
        // The parts of a message do not begin anew.
        assert_eq!(sample.ladders[1].critical_parts().len(), 3);
    }
}
