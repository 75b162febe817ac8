//! A watch, read line by line as it comes over the wire.

use std::time::Duration;

use futures::io::{AsyncBufReadExt, Lines};
use futures::{AsyncBufRead, StreamExt};
use http::Request;
use kube::Client;
use serde_json::Value;

use crate::world::EXCHANGED;

type Source = Lines<std::pin::Pin<Box<dyn AsyncBufRead + Send>>>;

/// An open watch.
pub struct Watch {
    asked: String,
    lines: Source,
}

/// One line of a watch.
#[derive(Clone, Debug)]
pub struct Event {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    pub kind: String,
    pub object: Value,
}

impl Event {
    /// `ADDED a`, for comparisons of order.
    pub fn brief(&self) -> String {
        format!("{} {}", self.kind, self.object["metadata"]["name"].as_str().unwrap_or_default())
    }
}

impl Watch {
    pub async fn open(client: &Client, uri: &str) -> Self {
        for _ in 0..100 {
            let request = Request::get(uri).body(vec![]).expect("a well-formed request");
            match client.request_stream(request).await {
                Ok(stream) => {
                    let stream: std::pin::Pin<Box<dyn AsyncBufRead + Send>> = Box::pin(stream);
                    return Self { asked: uri.to_owned(), lines: stream.lines() };
                }
                Err(error) if error.to_string().contains(EXCHANGED) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(error) => panic!("GET {uri}: {error}"),
            }
        }
        panic!("GET {uri}: {EXCHANGED:?} for 5 s");
    }

    /// The next event; none when the server has ended the watch.
    pub async fn next(&mut self) -> Option<Event> {
        let line = tokio::time::timeout(Duration::from_secs(30), self.lines.next())
            .await
            .unwrap_or_else(|_| panic!("GET {}: nothing came for 30 s", self.asked))?
            .unwrap_or_else(|error| panic!("GET {}: {error}", self.asked));
        let mut line: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("GET {}: {error} in {line:?}", self.asked));
        Some(Event { kind: line["type"].as_str().unwrap_or_default().to_owned(), object: line["object"].take() })
    }

    /// The next event, which there must be.
    pub async fn event(&mut self) -> Event {
        let asked = self.asked.clone();
        self.next().await.unwrap_or_else(|| panic!("GET {asked}: the watch ended"))
    }

    /// The next events in brief. Bookmarks are left out, and the certificate that controllers put into each new namespace, at a time
    /// of their own.
    pub async fn briefs(&mut self, count: usize) -> Vec<String> {
        let mut briefs = vec![];
        while briefs.len() < count {
            let event = self.event().await;
            let controllers = event.object["metadata"]["name"] == "kube-root-ca.crt";
            if event.kind != "BOOKMARK" && !controllers {
                briefs.push(event.brief());
            }
        }
        briefs
    }
}
