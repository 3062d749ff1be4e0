//! One ladder as a grid of characters.

use std::time::Duration;

use crate::group::{Group, groups};
use crate::model::{Arrow, Ladder, MarkKind, Side};
use crate::scale::Scale;
use crate::words;

/// The characters of a drawing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Glyphs {
    line: char,
    critical_line: char,
    bar: char,
    wait: char,
    bracket: [char; 3],
    /// Of messages and of RDMA operations, each with what the results wait for second.
    arrows: [[char; 2]; 2],
    heads: [char; 2],
}

impl Glyphs {
    pub(super) fn new(ascii: bool) -> Self {
        match ascii {
            true => Self {
                line: ':',
                critical_line: '|',
                // No '#', which at the start of a line of a draft passes for a comment with the IETF's idnits.
                bar: '@',
                wait: '%',
                bracket: ['\\', ')', '/'],
                arrows: [['.', '-'], [',', '=']],
                heads: ['<', '>'],
            },
            false => Self {
                line: '│',
                critical_line: '┃',
                bar: '█',
                wait: '▒',
                bracket: ['╮', '│', '╯'],
                arrows: [['─', '━'], ['╌', '╍']],
                heads: ['◄', '►'],
            },
        }
    }
}

impl Glyphs {
    /// Returns whether a character is a part of an arrow.
    fn is_arrow(&self, letter: char) -> bool {
        self.arrows.as_flattened().contains(&letter) || self.heads.contains(&letter)
    }
}

/// A ladder that is drawn.
pub(super) struct Panel {
    /// The lines above the life lines.
    pub(super) head: Vec<String>,
    /// The life lines, and what is below them.
    pub(super) rows: Vec<Vec<char>>,
    /// The time at which the life lines end.
    pub(super) end: Duration,
    /// The labels that have no room.
    pub(super) left_out: Vec<String>,
    /// The column of the right life line.
    right: usize,
}

/// The cells of an arrow in one row: the first and the last column.
#[derive(Clone, Copy)]
struct Run {
    row: usize,
    first: usize,
    last: usize,
}

impl Panel {
    pub(super) fn new(ladder: &Ladder, scale: &Scale, width: usize, glyphs: &Glyphs) -> Self {
        let row = |time| scale.at(time).round() as usize;
        let mut panel = Self {
            head: Vec::new(),
            rows: Vec::new(),
            end: ladder.end(),
            left_out: Vec::new(),
            // A bracket and a blank column are beside it.
            right: width.saturating_sub(4).max(8),
        };
        panel.head(ladder, width);
        for at in 0..=row(panel.end) {
            panel.put(at, 0, glyphs.line);
            panel.put(at, panel.right, glyphs.line);
        }
        for (side, start, end) in ladder.critical_parts() {
            for at in row(start)..=row(end) {
                panel.put(at, panel.column(side), glyphs.critical_line);
            }
        }
        for mark in &ladder.marks {
            let (first, end) = (row(mark.start), row(mark.end));
            let last = end.saturating_sub(1).max(first);
            match mark.kind {
                MarkKind::RoundTrip => panel.bracket(mark.at, (first, end), glyphs),
                MarkKind::CreditWait | MarkKind::MemoryWait => {
                    (first..=last).for_each(|at| panel.put(at, panel.column(mark.at), glyphs.wait));
                }
                // Too short for a row.
                _ if mark.name.is_empty() && end == first => {}
                _ => (first..=last).for_each(|at| panel.put(at, panel.column(mark.at), glyphs.bar)),
            }
        }
        let groups = groups(&ladder.arrows);
        let mut drawn: Vec<Vec<Vec<Run>>> = Vec::new();
        for group in &groups {
            let runs = group.arrows.iter().map(|arrow| {
                let runs = panel.runs(arrow.from, row(arrow.start), row(arrow.end));
                panel.arrow(arrow, &runs, glyphs);
                runs
            });
            drawn.push(runs.collect());
        }
        for mark in ladder
            .marks
            .iter()
            .filter(|it| it.kind != MarkKind::RoundTrip)
        {
            let rows = (row(mark.start), row(mark.end));
            if !mark.name.is_empty() && !panel.label_mark(&mark.name, mark.at, rows) {
                panel.leave_out(ladder, mark.start, &mark.name);
            }
        }
        for (group, runs) in groups.iter().zip(&drawn) {
            panel.label_arrows(ladder, group, runs, glyphs);
        }
        panel.foot(ladder, width);
        panel
    }

    fn head(&mut self, ladder: &Ladder, width: usize) {
        let [left, right] = &ladder.ends;
        self.head.push(ladder.name.clone());
        let parts = ladder.about.split("; ");
        self.head
            .extend(parts.flat_map(|part| words::wrap(part, width.saturating_sub(1))));
        let room = (self.right + 1).saturating_sub(left.chars().count());
        self.head.push(format!("{left}{right:>room$}"));
    }

    /// Writes the time and the totals below the life lines.
    fn foot(&mut self, ladder: &Ladder, width: usize) {
        let mut at = self.rows.len();
        let took = [words::time(ladder.took)];
        for text in took.iter().chain(&ladder.totals) {
            for line in words::wrap(text, width.saturating_sub(1)) {
                self.write(at, 0, &line);
                at += 1;
            }
        }
    }

    fn column(&self, side: Side) -> usize {
        match side {
            Side::Left => 0,
            Side::Right => self.right,
        }
    }

    fn put(&mut self, row: usize, column: usize, letter: char) {
        while self.rows.len() <= row {
            self.rows.push(Vec::new());
        }
        let cells = &mut self.rows[row];
        if cells.len() <= column {
            cells.resize(column + 1, ' ');
        }
        cells[column] = letter;
    }

    fn write(&mut self, row: usize, column: usize, text: &str) {
        for (at, letter) in text.chars().enumerate() {
            self.put(row, column + at, letter);
        }
    }

    fn bracket(&mut self, side: Side, (first, last): (usize, usize), glyphs: &Glyphs) {
        // There is room beside the right life line only.
        if side == Side::Left || last <= first {
            return;
        }
        for at in first..=last {
            let letter = match at {
                at if at == first => glyphs.bracket[0],
                at if at == last => glyphs.bracket[2],
                _ => glyphs.bracket[1],
            };
            self.put(at, self.right + 1, letter);
        }
    }

    /// Returns the cells of an arrow between two rows.
    fn runs(&self, from: Side, first: usize, last: usize) -> Vec<Run> {
        let (cells, rows) = (self.right - 1, (last.max(first) - first) + 1);
        let run = |at: usize| {
            let (start, end) = (at * cells / rows, (at + 1) * cells / rows);
            let (start, end) = match from {
                Side::Left => (start + 1, end),
                Side::Right => (self.right - end, self.right - start - 1),
            };
            Run {
                row: first + at,
                first: start,
                last: end,
            }
        };
        let all = (0..rows).map(run);
        all.filter(|run| run.first <= run.last).collect()
    }

    fn arrow(&mut self, arrow: &Arrow, runs: &[Run], glyphs: &Glyphs) {
        let letter =
            glyphs.arrows[usize::from(!arrow.kind.is_message())][usize::from(arrow.critical)];
        for run in runs {
            for column in run.first..=run.last {
                self.put(run.row, column, letter);
            }
        }
        if let Some(run) = runs.last() {
            match arrow.from {
                Side::Left => self.put(run.row, run.last, glyphs.heads[1]),
                Side::Right => self.put(run.row, run.first, glyphs.heads[0]),
            }
        }
    }

    /// Returns whether a text has room between the life lines, with a blank on both sides.
    fn is_free(&self, row: usize, column: Option<usize>, text: &str) -> bool {
        let Some(column) = column.filter(|column| *column >= 2) else {
            return false;
        };
        let end = column + text.chars().count();
        let cells = self.rows.get(row).map_or(&[][..], |cells| cells);
        let free = |at: usize| cells.get(at).is_none_or(|cell| *cell == ' ');
        end < self.right && (column - 1..=end).all(free)
    }

    fn label_mark(&mut self, name: &str, side: Side, (first, last): (usize, usize)) -> bool {
        let column = match side {
            Side::Left => Some(2),
            Side::Right => (self.right - 1).checked_sub(name.chars().count()),
        };
        let before = first.saturating_sub(1)..first;
        let rows = (first..last.max(first) + 2).chain(before);
        let free = rows
            .into_iter()
            .find(|row| self.is_free(*row, column, name));
        if let Some((row, column)) = free.zip(column) {
            self.write(row, column, name);
        }
        free.is_some()
    }

    /// Writes the label of some arrows beside them: above the first one or below the last one.
    fn label_arrows(
        &mut self,
        ladder: &Ladder,
        group: &Group<'_>,
        drawn: &[Vec<Run>],
        glyphs: &Glyphs,
    ) {
        let (Some(arrow), Some(above), Some(below)) =
            (group.arrows.first(), drawn.first(), drawn.last())
        else {
            return;
        };
        let [name, details] = group.label();
        let joined = format!("{name}, {details}");
        let mut forms = vec![vec![joined.clone()], vec![name.clone(), details.clone()]];
        if let Some((first, rest)) = details.split_once(", ") {
            forms.push(vec![format!("{name}, {first}"), rest.to_owned()]);
        }
        let rightwards = arrow.from == Side::Left;
        for (runs, is_above) in [(above, true), (below, false)] {
            // After the runs in a row, or before them.
            let after = rightwards == is_above;
            // The lines below one another, and if they have no room each beside its part of the arrow.
            let aligned = forms.iter().map(|form| (form, true));
            for (form, is_aligned) in aligned.chain(forms.iter().map(|form| (form, false))) {
                let count = runs.len().saturating_sub(form.len() - 1);
                let order: Vec<usize> = match is_above {
                    true => (0..count).collect(),
                    false => (0..count).rev().collect(),
                };
                for at in order {
                    let rows = &runs[at..at + form.len()];
                    let column = |line: &String, run: &Run| {
                        let beside = |it: &&Run| is_aligned || it.row == run.row;
                        let mut rows = rows.iter().filter(beside);
                        match after {
                            true => rows.map(|run| run.last + 2).max(),
                            false => rows.try_fold(usize::MAX, |least, run| {
                                let first = (run.first - 1).checked_sub(line.chars().count())?;
                                Some(least.min(first))
                            }),
                        }
                    };
                    let mut lines = form.iter().zip(rows);
                    if lines.all(|(line, run)| self.is_free(run.row, column(line, run), line)) {
                        for (line, run) in form.iter().zip(rows) {
                            self.write(run.row, column(line, run).unwrap_or(2), line);
                        }
                        return;
                    }
                }
            }
        }
        // Within a line that is long enough, as that of an arrow in one row.
        for runs in drawn {
            for run in runs {
                let (room, long) = (run.last + 1 - run.first, joined.chars().count() + 2);
                let cells = self.rows.get(run.row).map_or(&[][..], |cells| cells);
                // Another arrow in the same row may have its label there.
                let own = |at: usize| cells.get(at).is_some_and(|cell| glyphs.is_arrow(*cell));
                if room >= long + 4 && (run.first..=run.last).all(own) {
                    let column = run.first + (room - long) / 2;
                    self.write(run.row, column, &format!(" {joined} "));
                    return;
                }
            }
        }
        self.leave_out(ladder, arrow.start, &joined);
    }

    fn leave_out(&mut self, ladder: &Ladder, time: Duration, text: &str) {
        self.left_out
            .push(format!("{}, {}: {text}", ladder.name, words::time(time)));
    }
}
