//! Text tables.

/// The gap between two columns, and that of a table with many.
const GAPS: [&str; 2] = ["  ", " "];

/// Text in columns: the first `left` columns flush left, the others flush right.
pub struct Table {
    left: usize,
    gap: &'static str,
    lines: Vec<Vec<String>>,
}

impl Table {
    /// Returns a table with these headings and no lines.
    pub fn new<const N: usize>(left: usize, header: [&str; N]) -> Self {
        Self {
            left,
            gap: GAPS[0],
            lines: vec![header.map(str::to_owned).to_vec()],
        }
    }

    /// Returns a table whose number of columns is known only when the program runs.
    pub fn with_columns(left: usize, header: Vec<String>) -> Self {
        Self {
            left,
            gap: GAPS[0],
            lines: vec![header],
        }
    }

    /// Adds a line of any number of cells.
    pub fn push_line(&mut self, cells: Vec<String>) {
        self.lines.push(cells);
    }

    /// Makes the gaps between columns narrow, for a table with many.
    #[must_use]
    pub fn narrow(mut self) -> Self {
        self.gap = GAPS[1];
        self
    }

    /// Adds a line.
    pub fn push<const N: usize>(&mut self, cells: [String; N]) {
        self.lines.push(cells.to_vec());
    }

    /// Returns the table as text, with a line feed after each line.
    pub fn render(&self) -> String {
        let columns = self.lines.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.lines.iter().filter_map(|line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut out = String::new();
        for line in &self.lines {
            let mut text = String::new();
            for (column, (cell, &width)) in line.iter().zip(&widths).enumerate() {
                if column > 0 {
                    text.push_str(self.gap);
                }
                if column < self.left {
                    text.push_str(&format!("{cell:<width$}"));
                } else {
                    text.push_str(&format!("{cell:>width$}"));
                }
            }
            out.push_str(text.trim_end());
            out.push('\n');
        }
        out
    }
}

/// Breaks a paragraph into lines of at most `width` characters, at spaces. A longer word has a line
/// of its own.
pub fn wrap(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut used = 0;
    for word in text.split_whitespace() {
        let len = word.chars().count();
        if used > 0 && used + 1 + len > width {
            out.push('\n');
            used = 0;
        } else if used > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += len;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paragraph_is_broken_at_spaces() {
        assert_eq!(wrap("one two  three", 7), "one two\nthree");
        assert_eq!(wrap("one two", 6), "one\ntwo");
        assert_eq!(wrap("µµµ µµµ", 7), "µµµ µµµ");
        assert_eq!(wrap("unbreakable a", 3), "unbreakable\na");
        assert_eq!(wrap("", 3), "");
    }

    #[test]
    fn narrow_tables_have_one_space_between_columns() {
        let mut table = Table::new(1, ["a", "b"]).narrow();
        table.push(["xx".to_owned(), "1".to_owned()]);
        assert_eq!(table.render(), "a  b\nxx 1\n");
    }
}
