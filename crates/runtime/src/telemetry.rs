//! Logs: one JSON object a line for machines, or plain text for the file of a person.
//!
//! `BELLWETHER_LOG` filters as `RUST_LOG` does elsewhere (`info`, `bellwether_operator=debug,warn`). A filter that can't be
//! read is an error and not a default: a person who asked for `debug` and gets `info` looks in the wrong place.

use std::fs::File;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use crate::lines::Lines;

/// The environment variable with the filter.
pub const FILTER: &str = "BELLWETHER_LOG";

/// Ours at `info`; libraries only when something is wrong. `kube_runtime` repeats every retried watch as an error; our own
/// watch says it once, with what it means.
const DEFAULT_FILTER: &str =
    "info,kube=warn,kube_client=warn,kube_runtime=off,hyper=warn,rustls=warn,tower=warn,h2=warn";

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A JSON object, with the fields of the surrounding spans.
    Json,
    /// Text without colours.
    Human,
}

/// Where lines go.
#[derive(Debug)]
pub enum Sink {
    /// Standard output: PID 1 of a container, whose PostgreSQL logs there too. Nobody waits for who reads it ([`crate::lines`]).
    Stdout,
    /// Standard error.
    Stderr,
    /// A file; `bellwether up` keeps its terminal for people.
    File(File),
}

/// Why telemetry could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter can't be read.
    #[error(
        "{FILTER}={value:?} is not a log filter ({cause}); write for example `info` or `bellwether_operator=debug,info`"
    )]
    Filter {
        /// What was set.
        value: String,
        /// What is wrong with it.
        cause: tracing_subscriber::filter::ParseError,
    },
    /// There is no thread for the log.
    #[error("no thread for the log: {0}")]
    Thread(#[from] std::io::Error),
    /// A second initialisation in one process.
    #[error("logging is set up already: one process, one role")]
    Twice,
}

/// Standard output, once logging is set up.
static STDOUT: OnceLock<Lines> = OnceLock::new();

/// What is still to be written when a process ends may take this long.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A line of somebody else's, among our own. Before logging is set up there is nowhere to put it.
pub fn line(text: &str) {
    if let Some(lines) = STDOUT.get() {
        lines.put(format!("{text}\n").as_bytes());
    }
}

/// Waits until the log is written, for a moment: the last thing a process does.
pub fn flush() {
    if let Some(lines) = STDOUT.get() {
        lines.flush(LAST_WORDS);
    }
}

/// JSON lines on standard output.
pub fn init(role: &str) -> Result<(), TelemetryError> {
    init_with(role, Format::Json, Sink::Stdout)
}

/// Logs of the given form into the given sink, from now on and for the whole process.
pub fn init_with(role: &str, format: Format, sink: Sink) -> Result<(), TelemetryError> {
    let wanted = std::env::var(FILTER).ok().filter(|value| !value.trim().is_empty());
    let filter = parse_filter(wanted.as_deref())?;
    let writer = match sink {
        Sink::Stdout => {
            let lines = Lines::into(std::io::stdout())?;
            let lines = STDOUT.get_or_init(|| lines).clone();
            BoxMakeWriter::new(move || lines.clone())
        }
        Sink::Stderr => BoxMakeWriter::new(std::io::stderr),
        Sink::File(file) => BoxMakeWriter::new(Mutex::new(file)),
    };
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(false);
    let installed = match format {
        Format::Json => {
            tracing::subscriber::set_global_default(lines.json().flatten_event(true).with_current_span(true).finish())
        }
        Format::Human => tracing::subscriber::set_global_default(lines.finish()),
    };
    installed.map_err(|_| TelemetryError::Twice)?;
    tracing::info!(role, version = env!("CARGO_PKG_VERSION"), "started");
    Ok(())
}

fn parse_filter(wanted: Option<&str>) -> Result<EnvFilter, TelemetryError> {
    let value = wanted.unwrap_or(DEFAULT_FILTER);
    EnvFilter::builder().parse(value).map_err(|cause| TelemetryError::Filter { value: value.to_owned(), cause })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_filter_can_be_read() {
        assert!(parse_filter(None).is_ok());
    }

    #[test]
    fn a_filter_that_cannot_be_read_is_named() {
        let error = parse_filter(Some("info,=")).unwrap_err().to_string();
        assert!(error.contains("BELLWETHER_LOG") && error.contains("info,="), "{error}");
    }
}
