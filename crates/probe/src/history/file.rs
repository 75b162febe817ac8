//! Histories on disk: lines go out as they come, each batch handed to the kernel before the next is waited for, so that
//! killing the probe loses nothing that it had recorded. Never: a damaged line taken for none. Only the very last line of
//! a file may be cut short, which is what a kill in the middle of a write leaves.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;

use super::{Event, FORMAT, History};

/// Why a history can't be written or read.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The file.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line is none of ours.
    #[error("{}:{line}: not a line of a probe's history: {problem}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Its line.
        line: usize,
        /// What is wrong.
        problem: String,
    },
    /// The recorder's thread ended before its time.
    #[error("the history's writer died")]
    Died,
}

/// Takes events from all writers and puts them on disk.
#[derive(Debug)]
pub struct Recorder {
    sender: mpsc::Sender<Event>,
    thread: JoinHandle<Result<History, HistoryError>>,
}

impl Recorder {
    /// Writes to a file, which must not be there yet: one history, one file. Without a path it only remembers.
    pub fn start(path: Option<&Path>) -> Result<Self, HistoryError> {
        let file = match path {
            None => None,
            Some(path) => {
                let file =
                    File::create_new(path).map_err(|source| HistoryError::Io { path: path.to_owned(), source })?;
                Some((path.to_owned(), BufWriter::new(file)))
            }
        };
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::spawn(move || record(&receiver, file));
        Ok(Self { sender, thread })
    }

    /// A way to record, for one writer.
    pub fn sender(&self) -> mpsc::Sender<Event> {
        self.sender.clone()
    }

    /// Waits until everything is written. All senders must have been dropped.
    pub fn finish(self) -> Result<History, HistoryError> {
        drop(self.sender);
        self.thread.join().unwrap_or(Err(HistoryError::Died))
    }
}

fn record(
    events: &mpsc::Receiver<Event>,
    mut file: Option<(PathBuf, BufWriter<File>)>,
) -> Result<History, HistoryError> {
    let mut history = History::default();
    while let Ok(first) = events.recv() {
        let batch = std::iter::once(first).chain(events.try_iter());
        let start = history.events.len();
        history.events.extend(batch);
        if let Some((path, file)) = &mut file {
            append(file, &history.events[start..]).map_err(|source| HistoryError::Io { path: path.clone(), source })?;
        }
    }
    Ok(history)
}

fn append(file: &mut BufWriter<File>, events: &[Event]) -> io::Result<()> {
    for event in events {
        serde_json::to_writer(&mut *file, event)?;
        file.write_all(b"\n")?;
    }
    file.flush()
}

/// Reads a history, also one whose probe was killed.
pub fn read(path: &Path) -> Result<History, HistoryError> {
    let text = std::fs::read_to_string(path).map_err(|source| HistoryError::Io { path: path.to_owned(), source })?;
    let damaged = |line: usize, problem: String| HistoryError::Line { path: path.to_owned(), line, problem };
    let mut events = vec![];
    for (index, line) in text.split_inclusive('\n').enumerate() {
        match serde_json::from_str(line) {
            Ok(event) => events.push(event),
            Err(_) if !line.ends_with('\n') => break,
            Err(error) => return Err(damaged(index + 1, error.to_string())),
        }
    }
    match events.first() {
        Some(Event::Begin(begin)) if begin.format == FORMAT => Ok(History { events }),
        Some(Event::Begin(begin)) => {
            Err(damaged(1, format!("it has format {}, this program reads {FORMAT}", begin.format)))
        }
        _ => Err(damaged(1, "it does not begin with a `begin`".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Micros, wall};
    use crate::history::{Begin, Mark, Outcome, Write, WriterId};

    fn begin() -> Event {
        let begin =
            Begin { format: FORMAT, run: "r".into(), at: Micros(1), wall: wall(), boot: None, table: "t".into() };
        Event::Begin(begin)
    }

    #[test]
    fn what_was_recorded_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history");
        let recorder = Recorder::start(Some(&path)).unwrap();
        let sender = recorder.sender();
        sender.send(begin()).unwrap();
        let write = Write {
            writer: WriterId(1),
            seq: 7,
            session: None,
            opened: None,
            sent: Micros(2),
            committing: None,
            answered: Micros(3),
            wall: wall(),
            outcome: Outcome::Refused { why: "no \"route\"\n".into() },
            server: None,
            known_by: None,
        };
        sender.send(Event::Write(write)).unwrap();
        drop(sender);
        let written = recorder.finish().unwrap();
        assert_eq!(written.events.len(), 2);
        assert_eq!(read(&path).unwrap(), written);
        assert!(Recorder::start(Some(&path)).is_err(), "a history is not overwritten");
    }

    #[test]
    fn only_the_last_line_may_be_cut_short() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history");
        let line = |event: &Event| serde_json::to_string(event).unwrap();
        let mark = Event::Mark(Mark { at: Micros(2), wall: wall(), what: "x".into() });
        std::fs::write(&path, format!("{}\n{}\n{}", line(&begin()), line(&mark), &line(&mark)[..20])).unwrap();
        assert_eq!(read(&path).unwrap().events.len(), 2);
        std::fs::write(&path, format!("{}\n{}\n{}\n", line(&begin()), &line(&mark)[..20], line(&mark))).unwrap();
        assert!(matches!(read(&path), Err(HistoryError::Line { line: 2, .. })));
        std::fs::write(&path, format!("{}\n", line(&mark))).unwrap();
        assert!(matches!(read(&path), Err(HistoryError::Line { line: 1, .. })));
    }
}
