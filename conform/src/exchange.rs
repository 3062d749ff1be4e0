//! Messages of a case for whoever wants to know why it failed.

/// The octets of a message that are shown.
const SHOWN: usize = 256;
/// The lines that are kept.
const KEPT: usize = 64;

/// Messages of a case that were sent and received, in lines.
#[derive(Debug, Default)]
pub(crate) struct Exchange(Vec<String>);

impl Exchange {
    /// Adds a message, with the first of its octets.
    pub(crate) fn message(&mut self, what: &str, message: &[u8]) {
        let shown = &message[..message.len().min(SHOWN)];
        let words = shown.chunks(4).map(|word| {
            let hex = word.iter().map(|byte| format!("{byte:02x}"));
            hex.collect::<String>()
        });
        let words: Vec<String> = words.collect();
        let rest = if shown.len() < message.len() {
            " ..."
        } else {
            ""
        };
        self.text(format!(
            "{what} {} bytes: {}{rest}",
            message.len(),
            words.join(" ")
        ));
    }

    /// Adds a line.
    pub(crate) fn text(&mut self, text: String) {
        if self.0.len() < KEPT {
            self.0.push(text);
        }
    }

    pub(crate) fn lines(self) -> Vec<String> {
        self.0
    }
}
