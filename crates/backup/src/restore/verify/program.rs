//! Runs one of PostgreSQL's programs to its end, and keeps what it says when it finds something.
//!
//! Never: memory without end for what it says, which is a line for each broken page; a program left running when nobody waits for it any more.

use std::process::Stdio;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

use super::VerifyError;

/// How much of what a program says is kept: the first findings, of which one would do.
const KEPT: usize = 8 << 10;

/// Runs it. Success is that it finds nothing.
pub(super) async fn run(program: &'static str, mut command: Command) -> Result<(), VerifyError> {
    let io = |cause| VerifyError::Io { what: format!("run {program}"), cause };
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(io)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    // Both are read to their ends, or it would wait for us when one is full.
    let (ended, said, complained) = tokio::join!(child.wait(), beginning(stdout), beginning(stderr));
    if ended.map_err(io)?.success() {
        return Ok(());
    }
    let finding = [complained, said].map(|text| text.trim().to_owned()).join("\n").trim().to_owned();
    Err(VerifyError::Finding { program, finding })
}

async fn beginning(pipe: Option<impl AsyncRead + Unpin>) -> String {
    let (mut kept, mut buffer) = (vec![], vec![0; KEPT]);
    let Some(mut pipe) = pipe else { return String::new() };
    while let Ok(length @ 1..) = pipe.read(&mut buffer).await {
        kept.extend_from_slice(&buffer[..length.min(KEPT.saturating_sub(kept.len()))]);
    }
    String::from_utf8_lossy(&kept).into_owned()
}
