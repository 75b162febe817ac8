//! Cuts the bytes of a server's stderr into records.
//!
//! A record is a line that begins with our prefix, the lines after it that begin with a tab, and the lines of the same
//! process that carry its details (`DETAIL:`, `STATEMENT:` …, each with the prefix again). Anything else is a line of its
//! own. Nothing is dropped: a record that grows too large is handed over in parts.

use super::{Level, Record};

/// How [`super::LINE_PREFIX`] begins.
const MARKER: &[u8] = b"bw1|";
/// Time, process, SQLSTATE, kind of process, address: what no client can choose, so the separator can be searched for.
const TRUSTED_FIELDS: usize = 5;
/// The longest that the trusted fields are together; a line that goes on without them is not ours.
const TRUSTED_MAX: usize = 512;
/// User, database, application: what clients choose, in fixed width.
const NAME_FIELDS: usize = 3;
const NAME_WIDTH: usize = 63;
/// What a record may take in memory: more than any sane statement, little beside the agent's budget.
const MAX_UNIT: usize = 256 * 1024;

/// Makes records of a server's stderr.
#[derive(Debug, Default)]
pub struct LineParser {
    bytes: Vec<u8>,
    /// The record that may still get details.
    current: Option<Record>,
    /// Set while the body of a line that was too large is still coming.
    overflowed: bool,
    /// The last line that was ours; a line that begins with a tab belongs to it.
    last: Option<Header>,
}

#[derive(Clone, Debug)]
struct Header {
    timestamp: String,
    pid: i32,
    sqlstate: String,
    backend: String,
    remote: String,
    names: [String; NAME_FIELDS],
}

/// What the next bytes are.
enum Unit {
    /// A line with our prefix, and its continuation.
    Line(Box<Header>, Vec<u8>),
    /// More of the last line with our prefix.
    More(Vec<u8>),
    /// A line that somebody else wrote.
    Foreign(Vec<u8>),
}

/// What is at the beginning of a line.
enum Start {
    Ours(Box<Header>, usize),
    Foreign,
    Undecided,
}

impl LineParser {
    /// Takes the next bytes; returns the records that are whole now.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Record> {
        self.bytes.extend_from_slice(bytes);
        let mut records = vec![];
        while let Some(unit) = self.next_unit(false) {
            self.take(unit, &mut records);
        }
        records
    }

    /// Hands over what is whole if nothing follows it. A line without its end stays.
    pub fn flush(&mut self) -> Vec<Record> {
        let mut records = vec![];
        if self.bytes.ends_with(b"\n") {
            self.drain(&mut records);
        }
        records.extend(self.current.take());
        records
    }

    /// Hands over everything: nothing will follow.
    pub fn finish(&mut self) -> Vec<Record> {
        let mut records = vec![];
        self.drain(&mut records);
        records.extend(self.current.take());
        records
    }

    /// Whether something waits for what may follow it.
    pub fn is_pending(&self) -> bool {
        !self.bytes.is_empty() || self.current.is_some()
    }

    fn drain(&mut self, records: &mut Vec<Record>) {
        while let Some(unit) = self.next_unit(true) {
            self.take(unit, records);
        }
    }

    fn next_unit(&mut self, last: bool) -> Option<Unit> {
        if self.bytes.is_empty() {
            return None;
        }
        if self.overflowed || (self.bytes[0] == b'\t' && self.last.is_some()) {
            return Some(Unit::More(self.cut_body(0, last)?));
        }
        match start_of_line(&self.bytes, last) {
            Start::Undecided => None,
            Start::Foreign => Some(Unit::Foreign(self.cut_foreign(last)?)),
            Start::Ours(header, length) => {
                let body = self.cut_body(length, last)?;
                self.last = Some((*header).clone());
                Some(Unit::Line(header, body))
            }
        }
    }

    /// Removes a line with its continuation and returns it from `from` on. It ends at a line break that no tab follows.
    fn cut_body(&mut self, from: usize, last: bool) -> Option<Vec<u8>> {
        let rest = &self.bytes[from..];
        let ends = |at: usize| match rest.get(at + 1) {
            Some(next) => *next != b'\t',
            None => last,
        };
        let end = (0..rest.len()).find(|&at| rest[at] == b'\n' && ends(at));
        let (end, taken) = match end {
            Some(end) => (end, end + 1),
            None if last || rest.len() > MAX_UNIT => (rest.len(), rest.len()),
            None => return None,
        };
        self.overflowed = taken == end && !last;
        let body = rest[..end].to_vec();
        self.bytes.drain(..from + taken);
        Some(body)
    }

    /// Removes a line that is not ours. One of ours may begin in the middle of it: not everybody ends their lines.
    fn cut_foreign(&mut self, last: bool) -> Option<Vec<u8>> {
        let line_end = self.bytes.iter().position(|b| *b == b'\n');
        let line = &self.bytes[..line_end.unwrap_or(self.bytes.len())];
        let ours = line.windows(MARKER.len()).skip(1).position(|window| window == MARKER).map(|at| at + 1);
        let (end, taken) = match (ours, line_end) {
            (Some(ours), _) => (ours, ours),
            (None, Some(end)) => (end, end + 1),
            (None, None) if last || line.len() > MAX_UNIT => (line.len(), line.len()),
            (None, None) => return None,
        };
        let line = self.bytes[..end].to_vec();
        self.bytes.drain(..taken);
        Some(line)
    }

    fn take(&mut self, unit: Unit, records: &mut Vec<Record>) {
        match unit {
            Unit::Line(header, body) => self.take_line(&header, &text_of(&body), records),
            Unit::More(body) => {
                records.extend(self.current.take());
                let mut record = self.last.as_ref().map(Header::record).unwrap_or_default();
                record.message = text_of(&body);
                record.continued = true;
                records.push(record);
            }
            Unit::Foreign(line) => {
                records.extend(self.current.take());
                let text = String::from_utf8_lossy(&line);
                if !text.trim().is_empty() {
                    records.push(foreign(text.trim_end()));
                }
            }
        }
    }

    fn take_line(&mut self, header: &Header, body: &str, records: &mut Vec<Record>) {
        let (label, text) = body.split_once(":  ").unwrap_or(("", body));
        if let Some(level) = level_of(label) {
            records.extend(self.current.take());
            let mut record = header.record();
            record.level = level;
            // With `log_error_verbosity = verbose` the code stands before the message, too.
            record.message = text.strip_prefix(&format!("{}: ", header.sqlstate)).unwrap_or(text).to_owned();
            self.current = Some(record);
            return;
        }
        // Details without their message (it was handed over in parts) are a record of their own.
        if self.current.as_ref().is_none_or(|current| current.pid != Some(header.pid)) {
            records.extend(self.current.replace(header.record()));
        }
        let record = self.current.get_or_insert_with(|| header.record());
        match field_of(record, label) {
            Some(field) => append(field.get_or_insert_default(), text),
            // A label that we don't know is kept with its text.
            None => append(&mut record.message, body),
        }
    }
}

/// Reads the prefix at the beginning of `bytes`.
fn start_of_line(bytes: &[u8], last: bool) -> Start {
    let undecided = || if last { Start::Foreign } else { Start::Undecided };
    if !bytes.starts_with(MARKER) {
        return if MARKER.starts_with(bytes) { undecided() } else { Start::Foreign };
    }
    let mut fields = vec![];
    let mut at = MARKER.len();
    while fields.len() < TRUSTED_FIELDS {
        let window = &bytes[at..bytes.len().min(MARKER.len() + TRUSTED_MAX)];
        match window.iter().position(|b| matches!(b, b'|' | b'\n')) {
            Some(end) if window[end] == b'|' => {
                fields.push(String::from_utf8_lossy(&window[..end]).into_owned());
                at += end + 1;
            }
            Some(_) => return Start::Foreign,
            None if bytes.len() >= MARKER.len() + TRUSTED_MAX => return Start::Foreign,
            None => return undecided(),
        }
    }
    let length = at + NAME_FIELDS * (NAME_WIDTH + 1);
    let Some(names) = bytes.get(at..length) else { return undecided() };
    let mut read = names.chunks(NAME_WIDTH + 1).map(|field| {
        let (name, end) = field.split_at(NAME_WIDTH);
        (end == b"|").then(|| String::from_utf8_lossy(name).trim_end_matches(' ').to_owned())
    });
    let mut name = || read.next().flatten();
    let (Some(user), Some(database), Some(application)) = (name(), name(), name()) else { return Start::Foreign };
    let [timestamp, pid, sqlstate, backend, remote] = fields.try_into().expect("five fields were read");
    let Ok(pid) = pid.parse() else { return Start::Foreign };
    let names = [user, database, application];
    Start::Ours(Box::new(Header { timestamp: rfc3339(&timestamp), pid, sqlstate, backend, remote, names }), length)
}

impl Header {
    fn record(&self) -> Record {
        let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty() && text != "[unknown]");
        let [user, database, application] = &self.names;
        Record {
            timestamp: Some(self.timestamp.clone()),
            pid: Some(self.pid),
            backend: given(&self.backend),
            remote: given(&self.remote),
            user: given(user),
            database: given(database),
            application_name: given(application),
            sqlstate: given(&self.sqlstate).filter(|code| code != "00000"),
            ..Record::default()
        }
    }
}

/// From `2026-11-15 23:38:37.123 UTC`.
fn rfc3339(postgres: &str) -> String {
    let utc = postgres.strip_suffix(" UTC").or_else(|| postgres.strip_suffix(" GMT"));
    utc.map_or_else(|| postgres.to_owned(), |time| format!("{}Z", time.replacen(' ', "T", 1)))
}

/// The text of a body, without the tabs that PostgreSQL put after its line breaks.
fn text_of(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    text.strip_prefix('\t').unwrap_or(&text).trim_end_matches('\n').replace("\n\t", "\n")
}

fn field_of<'a>(record: &'a mut Record, label: &str) -> Option<&'a mut Option<String>> {
    Some(match label {
        "DETAIL" => &mut record.detail,
        "HINT" => &mut record.hint,
        "QUERY" => &mut record.query,
        "CONTEXT" => &mut record.context,
        "LOCATION" => &mut record.location,
        "BACKTRACE" => &mut record.backtrace,
        "STATEMENT" => &mut record.statement,
        _ => return None,
    })
}

fn append(to: &mut String, text: &str) {
    if !to.is_empty() {
        to.push('\n');
    }
    to.push_str(text);
}

fn level_of(label: &str) -> Option<Level> {
    Some(match label {
        "DEBUG" | "DEBUG1" | "DEBUG2" | "DEBUG3" | "DEBUG4" | "DEBUG5" => Level::Debug,
        "LOG" => Level::Log,
        "INFO" => Level::Info,
        "NOTICE" => Level::Notice,
        "WARNING" => Level::Warning,
        "ERROR" => Level::Error,
        "FATAL" => Level::Fatal,
        "PANIC" => Level::Panic,
        _ => return None,
    })
}

/// A line without our prefix. Before it has read its configuration PostgreSQL uses one of its own:
/// `2026-11-15 23:38:37.123 UTC [4242] FATAL:  …`.
fn foreign(line: &str) -> Record {
    let plain = || Record { message: line.to_owned(), ..Record::default() };
    let Some((before, after)) = line.split_once("] ") else { return plain() };
    let Some((time, pid)) = before.rsplit_once(" [") else { return plain() };
    let Some((label, message)) = after.split_once(":  ") else { return plain() };
    match (level_of(label), pid.parse()) {
        (Some(level), Ok(pid)) => Record {
            timestamp: Some(rfc3339(time)),
            level,
            pid: Some(pid),
            message: message.to_owned(),
            ..Record::default()
        },
        _ => plain(),
    }
}
