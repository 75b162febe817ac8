//! Lines that nobody waits for: a thread writes them, and what there is no room for is dropped and counted.
//!
//! Whoever reads a container's output may stop reading: a log collector that hangs, a full disk under it. A write would wait for it then, and
//! with it whoever wrote the line: an agent that does not renew its tenure, a PostgreSQL that does not commit. Never: that.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Bytes that may wait to be written: some thousand lines.
const ROOM: usize = 1024 * 1024;

/// A way to the thread.
#[derive(Clone, Debug)]
pub struct Lines {
    queue: Sender<Item>,
    held: Arc<Held>,
}

#[derive(Debug)]
enum Item {
    Line(Vec<u8>),
    /// Everything before this is written.
    Mark(Sender<()>),
}

#[derive(Debug, Default)]
struct Held {
    bytes: AtomicUsize,
    dropped: AtomicU64,
}

impl Lines {
    /// Starts the thread that writes into `sink`.
    pub fn into(sink: impl Write + Send + 'static) -> io::Result<Self> {
        let (queue, items) = channel();
        let held = Arc::new(Held::default());
        let shared = Arc::clone(&held);
        std::thread::Builder::new().name("log".to_owned()).spawn(move || write(sink, &items, &shared))?;
        Ok(Self { queue, held })
    }

    /// Takes a line, with its end, or drops it.
    pub fn put(&self, line: &[u8]) {
        let waiting = self.held.bytes.fetch_add(line.len(), Ordering::Relaxed);
        if waiting + line.len() > ROOM || self.queue.send(Item::Line(line.to_vec())).is_err() {
            self.held.bytes.fetch_sub(line.len(), Ordering::Relaxed);
            self.held.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until everything so far is written, but no longer than `limit`: before the process ends.
    pub fn flush(&self, limit: Duration) {
        let (done, written) = channel();
        if self.queue.send(Item::Mark(done)).is_ok() {
            let _ = written.recv_timeout(limit);
        }
    }
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.put(line);
        Ok(line.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Nobody can be told when the sink is gone.
fn write(mut sink: impl Write, items: &Receiver<Item>, held: &Held) {
    for item in items {
        match item {
            Item::Line(line) => {
                let _ = sink.write_all(&line);
                held.bytes.fetch_sub(line.len(), Ordering::Relaxed);
                let dropped = held.dropped.swap(0, Ordering::Relaxed);
                if dropped > 0 {
                    let _ = writeln!(
                        sink,
                        r#"{{"level":"WARN","message":"nobody read the log: lines were dropped","lines":{dropped}}}"#
                    );
                }
                let _ = sink.flush();
            }
            Item::Mark(done) => drop(done.send(())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A reader that reads when it is let.
    #[derive(Clone)]
    struct Slow {
        gate: Arc<Mutex<()>>,
        read: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _open = self.gate.lock().unwrap();
            self.read.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nobody_waits_for_a_reader_that_does_not_read_and_what_was_dropped_is_said() {
        let slow = Slow { gate: Arc::default(), read: Arc::default() };
        let closed = slow.gate.lock().unwrap();
        let lines = Lines::into(slow.clone()).unwrap();
        let line = [b'x'; 1024];
        for _ in 0..2 * ROOM / line.len() {
            lines.put(&line);
        }
        lines.flush(Duration::from_millis(10));
        drop(closed);
        lines.flush(Duration::from_secs(60));
        let read = slow.read.lock().unwrap().clone();
        assert!(read.len() <= ROOM + 1024, "{} bytes", read.len());
        assert!(String::from_utf8_lossy(&read).contains("lines were dropped"), "it is not said");
    }

    #[test]
    fn lines_come_out_whole_and_in_order() {
        let sink = Slow { gate: Arc::default(), read: Arc::default() };
        let lines = Lines::into(sink.clone()).unwrap();
        (0..100).for_each(|number| lines.put(format!("{number}\n").as_bytes()));
        lines.flush(Duration::from_secs(60));
        let expected: String = (0..100).map(|number| format!("{number}\n")).collect();
        assert_eq!(String::from_utf8(sink.read.lock().unwrap().clone()).unwrap(), expected);
    }
}
