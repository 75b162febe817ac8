//! One line about work that goes on: drawn over itself in a terminal, printed once for each change in a pipe.

use std::io::Write;

use super::{is_terminal, line};

/// The line.
#[derive(Debug, Default)]
pub struct Progress {
    shown: String,
    live: bool,
}

impl Progress {
    /// Nothing is shown yet.
    pub fn new() -> Self {
        Self { shown: String::new(), live: is_terminal() }
    }

    /// Shows this, if it is new.
    pub fn show(&mut self, text: &str) {
        if self.shown == text {
            return;
        }
        text.clone_into(&mut self.shown);
        if self.live {
            let mut stdout = std::io::stdout();
            let _nobody_reads = write!(stdout, "\r\x1b[2K{text}").and_then(|()| stdout.flush());
        } else {
            line(text);
        }
    }

    /// What comes next begins a line of its own.
    pub fn end(&mut self) {
        if self.live && !self.shown.is_empty() {
            let mut stdout = std::io::stdout();
            let _nobody_reads = write!(stdout, "\r\x1b[2K").and_then(|()| stdout.flush());
        }
        self.shown.clear();
    }
}
