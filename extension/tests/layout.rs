//! Compares the sender's arithmetic with a byte-by-byte model, and the receiver's with the
//! sender's.

use std::collections::HashSet;

use quickcheck::{Arbitrary, Gen, QuickCheck};
use rpcrdma_extension::layout::{
    BadPlacement, BufferSegment, BufferStructure, Frame, Headers, Layout, NoRoom, SegmentFlags,
    SegmentGroup, Spot, lay_out, locate, overlapping_segment,
};

/// A buffer that is small enough for the byte-by-byte model, and a message for it.
#[derive(Clone, Debug)]
struct Problem {
    /// Length, alignment, and whether the segment is for placement.
    segments: Vec<(u32, u32, bool)>,
    headers: Headers,
    payload: u64,
    items: Vec<u64>,
    max: u32,
    /// Maximum length of a message.
    within: u64,
}

impl Arbitrary for Problem {
    fn arbitrary(g: &mut Gen) -> Self {
        let below = |g: &mut Gen, n: u64| u64::arbitrary(g) % n;
        let count = 1 + below(g, 5);
        let segments: Vec<(u32, u32, bool)> = (0..count)
            .map(|_| {
                let length = 4 * below(g, 16) as u32;
                let align = [0, 1, 4, 6, 8, 16][below(g, 6) as usize];
                (length, align, bool::arbitrary(g))
            })
            .collect();
        let len: u64 = segments.iter().map(|&(len, ..)| u64::from(len)).sum();
        Self {
            headers: Headers {
                first: 4 * below(g, 10),
                next: 4 * below(g, 6),
            },
            payload: 4 * below(g, 40),
            items: (0..below(g, 4)).map(|_| below(g, 90)).collect(),
            max: 1 + below(g, 12) as u32,
            within: match bool::arbitrary(g) {
                true => len,
                false => below(g, len + 1),
            },
            segments,
        }
    }

    fn shrink(&self) -> Box<dyn Iterator<Item = Self>> {
        let mut out = Vec::new();
        if !self.items.is_empty() {
            let mut fewer = self.clone();
            fewer.items.pop();
            out.push(fewer);
        }
        if self.payload > 0 {
            out.push(Self {
                payload: self.payload - 4,
                ..self.clone()
            });
        }
        if self.segments.len() > 1 {
            let mut fewer = self.clone();
            fewer.segments.pop();
            out.push(fewer);
        }
        Box::new(out.into_iter())
    }
}

impl Problem {
    fn frame(&self) -> Frame {
        let group = |&(length, align, target): &(u32, u32, bool)| SegmentGroup {
            count: 1,
            segment: BufferSegment {
                length,
                align,
                flags: match target {
                    true => SegmentFlags::DDP,
                    false => SegmentFlags::empty(),
                },
            },
        };
        let structure = BufferStructure::new(self.segments.iter().map(group));
        let frame = Frame::new(&structure).expect("a small buffer");
        frame.within(self.within)
    }

    /// Returns whether data can be placed into this segment: it is for placement, and a message can
    /// fill it.
    fn is_target(&self, segment: usize) -> bool {
        let upto = self.segments[..=segment].iter();
        let end: u64 = upto.map(|&(len, ..)| u64::from(len)).sum();
        self.segments[segment].2 && end <= self.within
    }

    /// Returns, for each byte of a buffer that a message can fill, its segment and the offset in
    /// that.
    fn cells(&self) -> Vec<(usize, u32)> {
        let segments = self.segments.iter().enumerate();
        let cells = segments.flat_map(|(at, &(len, ..))| (0..len).map(move |byte| (at, byte)));
        cells.take(self.within as usize).collect()
    }
}

/// The place of each byte of the payload and of each item: transmission and offset in it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Bytewise {
    payload: Vec<(usize, usize)>,
    items: Vec<Vec<(usize, usize)>>,
    parts: usize,
}

/// Lays out a message byte by byte, with a first header of `first` bytes. Returns `None` if there
/// is no room.
fn model(problem: &Problem, first: usize) -> Option<Bytewise> {
    let cells = problem.cells();
    let header = |part: usize| match part {
        0 => first,
        _ => problem.headers.next as usize,
    };
    let mut done = Bytewise::default();
    let (mut part, mut at) = (0, header(0));
    if at > cells.len() {
        return None;
    }
    let begin = |part: &mut usize, at: &mut usize| {
        *part += 1;
        *at = header(*part);
        (*part < problem.max as usize && *at <= cells.len()).then_some(())
    };
    for _ in 0..problem.payload / 4 {
        if at + 4 > cells.len() {
            begin(&mut part, &mut at)?;
            if at + 4 > cells.len() {
                return None;
            }
        }
        done.payload.extend((at..at + 4).map(|at| (part, at)));
        at += 4;
    }
    // The segment in which the previous item ended, if any.
    let mut sharing = None;
    for &len in &problem.items {
        let mut places = Vec::new();
        let mut inside = None;
        for _ in 0..len {
            let mut searched = false;
            loop {
                match cells.get(at) {
                    None if searched => return None,
                    None => {
                        begin(&mut part, &mut at)?;
                        (searched, inside, sharing) = (true, None, None);
                    }
                    Some(&(segment, byte)) => {
                        let (_, align, _) = problem.segments[segment];
                        let target = problem.is_target(segment);
                        // Offsets are multiples of 4, so an alignment to 6 cannot be kept.
                        let unit = if align % 4 == 0 { align.max(4) } else { 4 };
                        let aligned = byte % unit == 0 && sharing == Some(segment);
                        if target && (inside == Some(segment) || byte == 0 || aligned) {
                            inside = Some(segment);
                            break;
                        }
                        at += 1;
                    }
                }
            }
            places.push((part, at));
            at += 1;
        }
        if len > 0 {
            sharing = inside;
        }
        done.items.push(places);
    }
    done.parts = part + 1;
    Some(done)
}

/// Lays out a message with the header length that its segment numbers need.
fn model_with_header(problem: &Problem) -> Option<Bytewise> {
    let cells = problem.cells();
    let mut numbers = 0;
    loop {
        let first = problem.headers.first as usize + 4 * numbers;
        let mut done = model(problem, first)?;
        let mut needed = 0;
        for places in &done.items {
            let segments: HashSet<(usize, usize)> = places
                .iter()
                .map(|&(part, at)| (part, cells[at].0))
                .collect();
            needed += segments.len();
        }
        if needed <= numbers {
            // The payload follows the actual header, if that is shorter than assumed.
            let shift = 4 * (numbers - needed);
            let first = done.payload.iter_mut().filter(|(part, _)| *part == 0);
            first.for_each(|(_, at)| *at -= shift);
            return Some(done);
        }
        // Each number takes room in the header, and thereby from the data.
        numbers = needed;
    }
}

fn bytewise(layout: &Layout, problem: &Problem) -> Bytewise {
    let mut done = Bytewise {
        items: vec![Vec::new(); problem.items.len()],
        parts: layout.parts.len(),
        ..Bytewise::default()
    };
    for (number, part) in layout.parts.iter().enumerate() {
        let header = match number {
            0 => layout.first_header(&problem.headers),
            _ => problem.headers.next,
        };
        let len = part.payload.end - part.payload.start;
        assert_eq!(part.payload.start, done.payload.len() as u64, "in order");
        done.payload
            .extend((header..header + len).map(|at| (number, at as usize)));
        for run in &part.runs {
            let at = u64::from(run.at);
            let places = &mut done.items[run.item];
            assert_eq!(run.from, places.len() as u64, "in order");
            places.extend((at..at + run.len).map(|at| (number, at as usize)));
        }
    }
    done
}

/// Finds every byte with the receiver's arithmetic.
fn found_again(layout: &Layout, problem: &Problem) -> Vec<Vec<(usize, usize)>> {
    let frame = problem.frame();
    let count = layout.parts.len() as u32;
    let mut all = Vec::new();
    let found = layout.spots.iter().zip(&problem.items).map(|(spot, &len)| {
        let places = locate(&frame, count, spot, len as u32).expect("it was placed");
        all.extend(places.iter().copied());
        let bytes = places
            .iter()
            .flat_map(|place| (place.at..place.end()).map(|at| (place.transmission, at as usize)));
        bytes.collect()
    });
    let found = found.collect();
    assert_eq!(overlapping_segment(&all), None);
    found
}

fn agrees(problem: Problem) -> bool {
    let frame = problem.frame();
    let made = lay_out(
        &frame,
        &problem.headers,
        problem.payload,
        &problem.items,
        problem.max,
    );
    let expected = model_with_header(&problem);
    match (made, expected) {
        (Ok(layout), Some(expected)) => {
            let done = bytewise(&layout, &problem);
            let spots = found_again(&layout, &problem);
            let lens = layout.parts.iter().enumerate().map(|(number, part)| {
                part.len(match number {
                    0 => layout.first_header(&problem.headers),
                    _ => problem.headers.next,
                })
            });
            let lens: Vec<u64> = lens.collect();
            assert!(lens.iter().all(|&len| len <= problem.within), "{lens:?}");
            assert_eq!(
                layout.wire_bytes(&problem.headers),
                lens.iter().sum::<u64>()
            );
            assert_eq!(spots, done.items);
            assert_eq!(done, expected);
            true
        }
        (Err(_), None) => true,
        (made, expected) => panic!("{made:?}, expected {expected:?}"),
    }
}

#[test]
fn rtr_s7_2_what_is_laid_out_is_what_a_model_lays_out_byte_by_byte() {
    QuickCheck::new()
        .tests(20_000)
        .max_tests(20_000)
        .quickcheck(agrees as fn(Problem) -> bool);
}

const HEADERS: Headers = Headers {
    first: 72,
    next: 40,
};

fn head_and_segment() -> Frame {
    let structure = BufferStructure::with_placement(1024, 1, 65_536);
    Frame::new(&structure).expect("it makes sense")
}

#[test]
fn rtr_s3_3_eight_kilobytes_are_padded_to_their_segment_in_one_transmission() {
    let layout = lay_out(&head_and_segment(), &HEADERS, 156, &[8192], 1).expect("room");
    assert_eq!(layout.parts.len(), 1);
    let run = layout.parts[0].runs[0];
    assert_eq!((run.at, run.len), (1024, 8192));
    assert_eq!(&layout.spots[0].segments[..], [0]);
    assert_eq!(layout.wire_bytes(&HEADERS), 1024 + 8192);
}

#[test]
fn rtr_s4_2_a_mebibyte_goes_into_sixteen_transmissions() {
    let layout = lay_out(&head_and_segment(), &HEADERS, 156, &[1 << 20], 16).expect("room");
    assert_eq!(layout.parts.len(), 16);
    let numbers: Vec<u32> = (0..16).collect();
    assert_eq!(&layout.spots[0].segments[..], numbers);
    let full = |part: &rpcrdma_extension::layout::Part| part.len(40) == 1024 + 65_536;
    assert!(layout.parts.iter().all(full));
    let less = lay_out(&head_and_segment(), &HEADERS, 156, &[1 << 20], 15);
    assert_eq!(less, Err(NoRoom::Transmissions(15)));
}

#[test]
fn a_payload_that_reaches_into_the_segment_leaves_it_to_the_next_transmission() {
    // With 1024 bytes of head and one number in the header, 948 bytes are left for the payload.
    let fits = lay_out(&head_and_segment(), &HEADERS, 948, &[100], 2).expect("room");
    assert_eq!(fits.parts.len(), 1);
    let layout = lay_out(&head_and_segment(), &HEADERS, 952, &[100], 2).expect("room");
    assert_eq!(layout.parts.len(), 2);
    assert_eq!(&layout.spots[0].segments[..], [1]);
    let only = lay_out(&head_and_segment(), &HEADERS, 952, &[100], 1);
    assert_eq!(only, Err(NoRoom::Transmissions(1)));
}

#[test]
fn items_share_a_segment_at_aligned_offsets() {
    let layout = lay_out(&head_and_segment(), &HEADERS, 64, &[100, 5000, 61_440], 2).expect("room");
    let spots: Vec<(u32, Vec<u32>)> = layout
        .spots
        .iter()
        .map(|spot| (spot.offset, spot.segments.to_vec()))
        .collect();
    let expected = [(0, vec![0]), (4096, vec![0]), (12_288, vec![0, 1])];
    assert_eq!(spots, expected);
}

#[test]
fn there_is_no_room_without_segments_for_data() {
    let plain = Frame::plain(4096);
    let layout = lay_out(&plain, &HEADERS, 64, &[100], 9);
    assert_eq!(layout, Err(NoRoom::NoTarget));
    // The headers fill the whole segment.
    let structure = BufferStructure::with_placement(0, 1, 4096);
    let frame = Frame::new(&structure).expect("it makes sense");
    let layout = lay_out(&frame, &HEADERS, 64, &[100], 9);
    assert_eq!(layout, Err(NoRoom::NoTarget));
    let short = lay_out(&Frame::plain(40), &HEADERS, 64, &[], 9);
    let (header, buffer) = (72, 40);
    assert_eq!(short, Err(NoRoom::Header { header, buffer }));
}

#[test]
fn rtr_s9_5_a_place_that_is_none_is_reported_with_what_is_valid() {
    let frame = head_and_segment();
    let spot = |offset, segments: &[u32]| Spot {
        offset,
        segments: segments.iter().copied().collect(),
    };
    let segment = |value, min, max| Err(BadPlacement::Segment { value, min, max });
    let offset = |value, min, max| Err(BadPlacement::Offset { value, min, max });
    let found = |spot: Spot, length| locate(&frame, 2, &spot, length).map(|places| places.len());
    assert_eq!(found(spot(0, &[0, 1]), 70_000), Ok(2));
    assert_eq!(found(spot(0, &[1, 0]), 70_000), Ok(2));
    assert_eq!(found(spot(0, &[]), 0), Ok(0));
    assert_eq!(found(spot(0, &[2]), 10), segment(2, 0, 1));
    assert_eq!(found(spot(0, &[u32::MAX]), 10), segment(u32::MAX, 0, 1));
    // Exactly as many segments as needed, and no more.
    assert_eq!(found(spot(0, &[0]), 70_000), segment(1, 2, 1024));
    assert_eq!(found(spot(0, &[0, 1]), 65_536), segment(2, 1, 1));
    assert_eq!(found(spot(0, &[0]), 0), segment(1, 0, 0));
    assert_eq!(found(spot(0, &[]), 4), segment(0, 1, 1024));
    // The same bytes are named twice.
    assert_eq!(found(spot(0, &[0, 0]), 70_000), segment(0, 0, 1));
    assert_eq!(found(spot(65_536, &[0, 1]), 10), offset(65_536, 0, 65_535));
    assert_eq!(found(spot(u32::MAX, &[0]), 10), offset(u32::MAX, 0, 65_535));
    assert_eq!(found(spot(6, &[0]), 10), offset(6, 0, 65_535));
    let none = locate(&Frame::plain(4096), 2, &spot(0, &[0]), 10);
    assert_eq!(none.map(|places| places.len()), segment(0, 0, 0));
}
