//! `bellwether logs`: what agents and PostgreSQL wrote, of one instance or of all, as people read it.
//!
//! Each line is a JSON object; one that isn't is shown as it is. Never: a line left out because it could not be read.

use std::collections::BTreeMap;
use std::process::ExitCode;

use bellwether_api::labels;
use bellwether_api::names::Names;
use bellwether_core::contract::CONTAINER;
use futures::{AsyncBufReadExt as _, StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams, LogParams};
use serde_json::Value;

use crate::args::Logs;
use crate::bring_up;
use crate::cluster::{ClusterError, Space};
use crate::exit::Exit;
use crate::output::page::Screen;
use crate::output::{self, Tone};

/// Runs it.
pub fn run(options: &Logs) -> ExitCode {
    bring_up::block_on(async {
        let shown = tokio::select! {
            shown = logs(options) => shown,
            () = output::signal() => Ok(()),
        };
        Ok(match shown {
            Ok(()) => Exit::Ok,
            Err(error) => {
                output::error(&error.to_string());
                Exit::Failed
            }
        })
    })
}

async fn logs(options: &Logs) -> Result<(), ClusterError> {
    let space = Space::at(&options.place).await?;
    let pods: Api<Pod> = Api::namespaced(space.client.clone(), &space.namespace);
    let instances = instances(&space, &pods, &options.of).await?;
    let params = LogParams {
        container: Some(CONTAINER.to_owned()),
        follow: options.follow,
        tail_lines: Some(options.tail.max(0)),
        ..LogParams::default()
    };
    let mut streams = vec![];
    for instance in &instances {
        match pods.log_stream(instance, &params).await {
            Ok(lines) => streams.push(Box::pin(lines.lines().map_ok(move |line| (instance, line)))),
            // Of several, the others have something to say.
            Err(error) if instances.len() > 1 => output::error(&format!("{instance}: {error}")),
            Err(error) => return Err(error.into()),
        }
    }
    let screen = Screen::here();
    let show = |instance: &str, line: &str| {
        let name = if instances.len() > 1 { Some(instance) } else { None };
        output::line(&if options.json { line.to_owned() } else { readable(screen, name, line) });
    };
    let mut merged = stream::select_all(streams);
    if options.follow {
        while let Some(line) = merged.next().await {
            match line {
                Ok((instance, line)) => show(instance, &line),
                Err(error) => output::error(&error.to_string()),
            }
        }
        return Ok(());
    }
    let mut all = vec![];
    while let Some(line) = merged.next().await {
        match line {
            Ok((instance, line)) => all.push((instance, line)),
            Err(error) => output::error(&error.to_string()),
        }
    }
    for (instance, line) in in_order(all) {
        show(instance, &line);
    }
    Ok(())
}

/// The instance that is meant, or all of the cluster that is.
async fn instances(space: &Space, pods: &Api<Pod>, of: &str) -> Result<Vec<String>, ClusterError> {
    let there = pods.list(&ListParams::default().labels(labels::INSTANCE)).await?.items;
    if there.iter().any(|pod| pod.name_any() == of) {
        return Ok(vec![of.to_owned()]);
    }
    let names = Names::of(of);
    let belongs = |pod: &&Pod| pod.labels().get(labels::CLUSTER).is_some_and(|cluster| cluster == of);
    let mut own: Vec<_> = there.iter().filter(belongs).map(ResourceExt::name_any).collect();
    own.sort_by_key(|name| (names.serial(name), name.clone()));
    if own.is_empty() {
        let there = there.iter().map(ResourceExt::name_any).collect();
        return Err(ClusterError::NoInstance { instance: of.to_owned(), namespace: space.namespace.clone(), there });
    }
    Ok(own)
}

/// By time; a line that says none belongs to the one before it.
fn in_order(lines: Vec<(&String, String)>) -> Vec<(&String, String)> {
    let mut last: BTreeMap<&String, String> = BTreeMap::new();
    let mut dated: Vec<_> = lines
        .into_iter()
        .map(|(instance, line)| {
            let said = serde_json::from_str::<Value>(&line).ok();
            let time = said.and_then(|said| said["timestamp"].as_str().map(comparable));
            let time = time.or_else(|| last.get(instance).cloned()).unwrap_or_default();
            last.insert(instance, time.clone());
            (time, instance, line)
        })
        .collect();
    dated.sort_by(|one, other| one.0.cmp(&other.0));
    dated.into_iter().map(|(_, instance, line)| (instance, line)).collect()
}

/// PostgreSQL's times have milliseconds, the agent's microseconds: without the final Z they compare as text.
fn comparable(time: &str) -> String {
    time.trim_end_matches('Z').to_owned()
}

/// A line as people read it.
fn readable(screen: Screen, instance: Option<&str>, line: &str) -> String {
    let name = instance.map(|name| format!("{name}  ")).unwrap_or_default();
    let Some(said) = serde_json::from_str::<Value>(line).ok().filter(Value::is_object) else {
        return format!("{name}{line}");
    };
    let text = |field: &str| said[field].as_str().unwrap_or_default();
    let who = if text("logger") == "postgres" { "postgres" } else { "agent" };
    let level = text("level").to_uppercase();
    let tone = match level.as_str() {
        "ERROR" | "FATAL" | "PANIC" => Tone::Bad,
        "WARN" | "WARNING" => Tone::Busy,
        _ => Tone::Faint,
    };
    let session = match (text("user"), text("database")) {
        ("", _) => String::new(),
        (user, "") => format!(" [{user}]"),
        (user, database) => format!(" [{user}@{database}]"),
    };
    // What tracing adds beside the message is what it is about; PostgreSQL's own has its names.
    let more: Vec<_> = match who {
        "agent" => said
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(field, _)| {
                !["timestamp", "level", "message", "target", "role", "version"].contains(&field.as_str())
            })
            .map(|(field, value)| {
                format!("{field}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            })
            .collect(),
        _ => ["detail", "hint", "context", "statement"]
            .into_iter()
            .filter(|field| !text(field).is_empty())
            .map(|field| format!("{field}: {}", text(field)))
            .collect(),
    };
    let more =
        if more.is_empty() { String::new() } else { format!("  {}", screen.paint(&more.join(" "), Tone::Faint)) };
    let (time, level) = (screen.paint(text("timestamp"), Tone::Faint), screen.paint(&format!("{level:<7}"), tone));
    format!("{time}  {name}{who:<8}  {level}  {}{session}{more}", text("message"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> String {
        readable(Screen::plain(200), Some("demo-1"), line)
    }

    #[test]
    fn lines_of_agent_and_postgres_read_alike() {
        let agent = r#"{"timestamp":"2026-03-01T09:00:00.5Z","level":"INFO","message":"connected","peer":"demo-2","target":"x"}"#;
        assert_eq!(read(agent), "2026-03-01T09:00:00.5Z  demo-1  agent     INFO     connected  peer=demo-2");
        let postgres = r#"{"timestamp":"2026-03-01T09:00:01Z","level":"error","logger":"postgres","message":"relation \"x\" does not exist","user":"app","database":"app","statement":"select * from x"}"#;
        assert_eq!(
            read(postgres),
            "2026-03-01T09:00:01Z  demo-1  postgres  ERROR    relation \"x\" does not exist [app@app]  statement: select * from x"
        );
    }

    #[test]
    fn a_line_that_is_no_json_is_shown_as_it_is() {
        assert_eq!(read("thread panicked"), "demo-1  thread panicked");
        assert_eq!(read("42"), "demo-1  42");
    }

    #[test]
    fn lines_of_several_are_in_the_order_of_their_time() {
        let (one, two) = ("demo-1".to_owned(), "demo-2".to_owned());
        let at = |time: &str| format!(r#"{{"timestamp":"{time}"}}"#);
        let lines = vec![
            (&one, at("2026-03-01T09:00:02.001Z")),
            (&one, "a line that goes on".to_owned()),
            (&two, at("2026-03-01T09:00:02.000500Z")),
            (&two, at("2026-03-01T09:00:03Z")),
        ];
        let order: Vec<_> = in_order(lines).into_iter().map(|(instance, _)| instance.as_str()).collect();
        assert_eq!(order, ["demo-2", "demo-1", "demo-1", "demo-2"]);
    }
}
