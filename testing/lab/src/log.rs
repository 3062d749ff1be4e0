//! A log whose lines have the time since the start, on standard output and in a file.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::error::Error;

/// The output to standard output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Screen {
    /// No output.
    Off,
    /// Every line.
    On,
    /// Every line, with the name of its source, because others write there, too.
    Named(String),
}

/// A log of the progress.
#[derive(Debug)]
pub struct Log {
    started: Instant,
    screen: Screen,
    file: Option<Mutex<File>>,
}

impl Log {
    /// Creates a log to standard output, or to nowhere.
    #[must_use]
    pub fn new(screen: Screen) -> Self {
        Self {
            started: Instant::now(),
            screen,
            file: None,
        }
    }

    /// Creates a log to standard output and to a new file.
    ///
    /// # Errors
    /// [`Error::File`] if the file cannot be created.
    pub fn with_file(screen: Screen, path: &Path) -> Result<Self, Error> {
        let file = File::create(path).map_err(Error::file(path))?;
        Ok(Self {
            file: Some(Mutex::new(file)),
            ..Self::new(screen)
        })
    }

    /// Returns the time since the log was created.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Writes a text, each line with the time. A failure to write is ignored.
    pub fn say(&self, text: impl AsRef<str>) {
        let at = self.started.elapsed();
        for line in text.as_ref().lines() {
            let line = stamped(at, line);
            // Written as one piece, so that lines of several sources do not mix.
            let _ = match &self.screen {
                Screen::Off => Ok(()),
                Screen::On => io::stdout().write_all(line.as_bytes()),
                Screen::Named(name) => io::stdout().write_all(format!("{name} {line}").as_bytes()),
            };
            if let Some(file) = &self.file
                && let Ok(mut file) = file.lock()
            {
                let _ = file.write_all(line.as_bytes());
            }
        }
    }
}

fn stamped(at: Duration, line: &str) -> String {
    format!("[{:7.2}] {}\n", at.as_secs_f64(), line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        Log::with_file(Screen::Off, &path)
            .unwrap()
            .say("one\r\ntwo");
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line.starts_with("[   0.")));
        assert!(lines[0].ends_with("] one") && lines[1].ends_with("] two"));
        assert_eq!(stamped(Duration::from_millis(12_340), "x"), "[  12.34] x\n");
    }
}
