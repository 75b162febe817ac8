//! What PostgreSQL calls for each file of its log: hands the file's name to the archiver and waits for its word.
//!
//! Small, because it is started every few seconds. Never: success without that word. Whatever goes wrong, PostgreSQL keeps the file and comes
//! again.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// The hidden role's name: `bellwether archive-wal <socket> <file>`.
pub const ROLE: &str = "archive-wal";

/// What the archiver answers when a file is in the store.
pub const DONE: &str = "done";

/// How long the archiver may take with a file. It gives up on a store earlier than that by itself: what is waited for here is an archiver that hangs.
const PATIENCE: Duration = Duration::from_secs(420);

/// The value of `archive_command` that calls this.
pub fn line(program: &Path, socket: &Path) -> String {
    format!("{} {ROLE} {} %f", word(program), word(socket))
}

/// A word of a shell, in which `%` means itself to PostgreSQL.
pub(super) fn word(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''").replace('%', "%%"))
}

/// Hands over the file named in `args`, after the socket.
pub fn main(args: &[String]) -> ExitCode {
    let why = match args {
        [socket, file] => match hand_over(Path::new(socket), file, PATIENCE) {
            Ok(answer) if answer == DONE => return ExitCode::SUCCESS,
            Ok(answer) => answer,
            Err(error) => format!("the archiver does not answer: {error}"),
        },
        _ => "a socket and a file are needed".to_owned(),
    };
    // PostgreSQL puts it into its log.
    let _ = writeln!(std::io::stderr(), "bellwether {ROLE}: {why}");
    ExitCode::FAILURE
}

fn hand_over(socket: &Path, file: &str, patience: Duration) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    writeln!(stream, "{file}")?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    match answer.strip_suffix('\n') {
        Some(whole) => Ok(whole.to_owned()),
        None => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn answered(answer: &'static str) -> std::io::Result<String> {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = String::new();
            BufReader::new(stream.try_clone().unwrap()).read_line(&mut asked).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            asked
        });
        let said = hand_over(&socket, "000000010000000000000002", Duration::from_secs(10));
        assert_eq!(server.join().unwrap(), "000000010000000000000002\n");
        said
    }

    #[test]
    fn only_a_whole_word_counts() {
        assert_eq!(answered("done\n").unwrap(), DONE);
        assert_eq!(answered("the store is down\n").unwrap(), "the store is down");
        assert!(answered("done").is_err(), "it was cut off, and may have been `done with errors`");
        assert!(answered("").is_err());
    }

    #[test]
    fn an_archiver_that_is_not_there_is_no_success() {
        assert!(hand_over(Path::new("/nowhere/s"), "x", Duration::from_secs(1)).is_err());
    }

    #[test]
    fn a_shell_reads_the_line_as_it_is_meant() {
        let line = line(Path::new("/opt/a b/bellwether"), Path::new("/run/100%/it's"));
        assert_eq!(line, r"'/opt/a b/bellwether' archive-wal '/run/100%%/it'\''s' %f");
    }
}
