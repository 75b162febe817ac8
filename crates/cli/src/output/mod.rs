//! All that people see: lines, tables, colours, and the live view.
//!
//! Colours and redrawing only in a terminal, and no colours with NO_COLOR. A pipe gets plain lines, one for each change.

pub mod live;
pub mod page;
pub mod progress;
pub mod table;
pub mod transfer;

use std::io::{IsTerminal, Write};

/// A colour, by meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// As it should be.
    Good,
    /// On its way.
    Busy,
    /// Not as it should be.
    Bad,
    /// Of less weight.
    Faint,
    /// Of more weight.
    Strong,
}

/// Prints a line.
pub fn line(text: &str) {
    // A reader that has gone away (`| head`) is no reason to stop a database.
    let _reader_gone = writeln!(std::io::stdout(), "{text}");
}

/// Prints what went wrong.
pub fn error(text: &str) {
    let label = paint_for(&std::io::stderr(), "error:", Tone::Bad);
    let _reader_gone = writeln!(std::io::stderr(), "{label} {text}");
}

/// Whether standard output is a terminal.
pub fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Text in a colour, where there are colours.
pub fn paint(text: &str, tone: Tone) -> String {
    paint_for(&std::io::stdout(), text, tone)
}

fn paint_for(stream: &impl IsTerminal, text: &str, tone: Tone) -> String {
    if has_colours(stream) { coloured(text, tone) } else { text.to_owned() }
}

fn has_colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn coloured(text: &str, tone: Tone) -> String {
    let code = match tone {
        Tone::Good => "32",
        Tone::Busy => "33",
        Tone::Bad => "31",
        Tone::Faint => "2",
        Tone::Strong => "1",
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// Resolves when somebody asks us to stop: Ctrl-C, or SIGTERM.
pub async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
