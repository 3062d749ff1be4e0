//! Text tables.

/// The gap between two columns.
const GAP: &str = "  ";

/// Text in columns: the first `left` columns flush left, the others flush right.
pub struct Table {
    left: usize,
    lines: Vec<Vec<String>>,
}

impl Table {
    /// Returns a table with these headings and no lines.
    pub fn new<const N: usize>(left: usize, header: [&str; N]) -> Self {
        Self {
            left,
            lines: vec![header.map(str::to_owned).to_vec()],
        }
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
                    text.push_str(GAP);
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
