//! What `kubectl logs` shows: the file that a pod's output is kept in.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bellwether_apiserver::error::ApiError;
use bellwether_apiserver::http::{LogOptions, LogStream, PodLogs};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncSeekExt, SeekFrom};

use crate::kubelet::logs;

/// How often a followed log is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The logs of the pods of a home.
pub struct Files(pub PathBuf);

impl PodLogs for Files {
    fn log(&self, pod: &Value, options: LogOptions) -> BoxFuture<'static, Result<LogStream, ApiError>> {
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
        let current = logs::path(&self.0, &text("namespace"), &text("name"));
        let path = if options.previous { current.with_extension("log.1") } else { current };
        Box::pin(async move {
            let content = match tokio::fs::read(&path).await {
                Ok(content) => content,
                // A pod that has not started yet has said nothing.
                Err(missing) if missing.kind() == io::ErrorKind::NotFound => vec![],
                Err(error) => return Err(ApiError::internal(format!("the log {}: {error}", path.display()))),
            };
            let (length, is_followed) = (content.len() as u64, options.follow);
            let first = stream::once(async move { Ok(Bytes::from(chosen(content, &options))) });
            Ok(if is_followed { first.chain(follow(path, length)).boxed() } else { first.boxed() })
        })
    }
}

/// The part of a log that was asked for.
fn chosen(content: Vec<u8>, options: &LogOptions) -> Vec<u8> {
    let mut content = match options.tail_lines {
        Some(lines) => tail(&content, usize::try_from(lines).unwrap_or(usize::MAX)).to_vec(),
        None => content,
    };
    if let Some(limit) = options.limit_bytes {
        content.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    }
    content
}

fn tail(content: &[u8], lines: usize) -> &[u8] {
    let body = content.strip_suffix(b"\n").unwrap_or(content);
    let ends = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n').map(|(index, _)| index + 1);
    match lines.checked_sub(1) {
        None => &[],
        Some(skip) => &content[ends.into_iter().nth(skip).unwrap_or(0)..],
    }
}

fn follow(path: PathBuf, from: u64) -> LogStream {
    let news = stream::unfold((path, from), |(path, mut position)| async move {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let Ok(mut file) = tokio::fs::File::open(&path).await else { continue };
            let length = file.metadata().await.map_or(0, |meta| meta.len());
            if length < position {
                // It was put aside; the new one is read from its beginning.
                position = 0;
            }
            if length == position {
                continue;
            }
            let mut chunk = vec![];
            let read = async {
                file.seek(SeekFrom::Start(position)).await?;
                file.read_to_end(&mut chunk).await
            };
            return Some(match read.await {
                Ok(count) => (Ok(Bytes::from(chunk)), (path, position + count as u64)),
                Err(error) => (Err(error), (path, position)),
            });
        }
    });
    news.boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_counted_in_lines() {
        let text = b"one\ntwo\nthree\n";
        assert_eq!(tail(text, 0), b"");
        assert_eq!(tail(text, 1), b"three\n");
        assert_eq!(tail(text, 2), b"two\nthree\n");
        assert_eq!(tail(text, 9), text);
    }
}
