//! Shows clusters as they change: redrawn in place in a terminal, one line for each change in a pipe.
//!
//! A redraw is one write, line by line over the old one, so that nothing flickers.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use bellwether_api::v1::PostgresCluster;
use bellwether_embedded::mirror::Mirror;
use bellwether_embedded::view::{ClusterView, InstanceView};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};

use super::{is_terminal, line, table};

/// How often the elapsed time is redrawn in a terminal.
const REDRAW_EVERY: Duration = Duration::from_millis(100);
/// The width when the terminal doesn't tell.
const USUAL_WIDTH: usize = 100;

/// What ends the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Every cluster is Ready.
    AllReady,
    /// Nothing: the caller stops it.
    Forever,
}

/// What is shown: the clusters, and the pods that confirm what their status says.
pub struct Scene {
    clusters: Mirror<PostgresCluster>,
    pods: Mirror<Pod>,
}

impl Scene {
    /// Everything in this API.
    pub async fn of(client: &Client) -> Self {
        let clusters = Mirror::start(Api::all(client.clone())).await;
        Self { clusters, pods: Mirror::start(Api::all(client.clone())).await }
    }

    fn views(&self) -> Vec<ClusterView> {
        let pods = self.pods.all();
        self.clusters.all().iter().map(|cluster| ClusterView::of(cluster).confirmed_by(&pods)).collect()
    }
}

/// Shows all clusters until what is asked for; returns them as last seen.
pub async fn show(scene: &Scene, since: Instant, until: Until) -> Vec<ClusterView> {
    let (mut clusters, mut pods) = (scene.clusters.ticks(), scene.pods.ticks());
    let is_live = is_terminal() && until == Until::AllReady;
    let mut screen = if is_live { Screen::Live(0) } else { Screen::lines(until, &scene.views()) };
    loop {
        let views = scene.views();
        screen.show(&views, since.elapsed());
        if until == Until::AllReady && !views.is_empty() && views.iter().all(|view| view.ready) {
            return views;
        }
        tokio::select! {
            _ = clusters.changed() => {}
            _ = pods.changed() => {}
            () = tokio::time::sleep(REDRAW_EVERY), if is_live => {}
        }
    }
}

enum Screen {
    /// Redrawn in place; so many lines are on the screen.
    Live(usize),
    /// One line a change; what was last said of each.
    Lines(BTreeMap<String, String>),
}

impl Screen {
    /// A view that goes on after the first one doesn't repeat what that has shown.
    fn lines(until: Until, views: &[ClusterView]) -> Self {
        let said = match until {
            Until::AllReady => BTreeMap::new(),
            Until::Forever => views.iter().flat_map(statements).collect(),
        };
        Self::Lines(said)
    }

    fn show(&mut self, views: &[ClusterView], elapsed: Duration) {
        match self {
            Self::Live(drawn) => *drawn = redraw(views, elapsed, *drawn),
            Self::Lines(said) => {
                let now: BTreeMap<_, _> = views.iter().flat_map(statements).collect();
                for (subject, statement) in now.iter().filter(|(subject, text)| said.get(*subject) != Some(*text)) {
                    line(&format!("[{:7.1} s] {subject}: {statement}", elapsed.as_secs_f64()));
                }
                for gone in said.keys().filter(|subject| !now.contains_key(*subject)) {
                    line(&format!("[{:7.1} s] {gone}: gone", elapsed.as_secs_f64()));
                }
                *said = now;
            }
        }
    }
}

fn redraw(views: &[ClusterView], elapsed: Duration, drawn: usize) -> usize {
    let width = terminal_size::terminal_size().map_or(USUAL_WIDTH, |(width, _)| width.0.into());
    let mut lines = vec![String::new()];
    for view in views {
        lines.push(table::headline(view, elapsed.as_secs_f64()));
        lines.extend(table::lines(view));
        lines.push(String::new());
    }
    let mut frame = if drawn == 0 { String::new() } else { format!("\x1b[{drawn}A") };
    for line in &lines {
        frame.push_str("\x1b[2K");
        frame.push_str(&fitted(line, width));
        frame.push('\n');
    }
    frame.push_str("\x1b[J");
    let mut stdout = std::io::stdout().lock();
    let _reader_gone = stdout.write_all(frame.as_bytes()).and_then(|()| stdout.flush());
    lines.len()
}

/// A line that would wrap breaks the redraw: it is cut, colour codes not counted.
fn fitted(line: &str, width: usize) -> String {
    let (mut result, mut used, mut in_code) = (String::new(), 0, false);
    for character in line.chars() {
        match character {
            '\x1b' => in_code = true,
            'm' if in_code => in_code = false,
            _ if in_code => {}
            _ if used == width => continue,
            _ => used += 1,
        }
        if in_code || character == 'm' || used <= width {
            result.push(character);
        }
    }
    result
}

/// What there is to say of a cluster and each of its instances.
fn statements(view: &ClusterView) -> Vec<(String, String)> {
    let cluster = format!("{}/{}", view.namespace, view.name);
    let phase = view.phase.map_or_else(|| "Pending".to_owned(), |phase| format!("{phase:?}"));
    let waiting = view.waiting_on.as_ref().map(|waiting| format!(", waiting on: {waiting}")).unwrap_or_default();
    let of_instance = |instance: &InstanceView| {
        let ready = if instance.ready { ", ready" } else { "" };
        let message = if instance.message.is_empty() { String::new() } else { format!(" ({})", instance.message) };
        let statement = format!("{} {:?}{ready}{message}", table::role(instance.role), instance.state);
        (format!("{}/{}", view.namespace, instance.name), statement)
    };
    std::iter::once((cluster, format!("{phase}{waiting}"))).chain(view.instances.iter().map(of_instance)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_cut_and_its_colours_are_closed() {
        assert_eq!(fitted("abcdef", 3), "abc");
        assert_eq!(fitted("\x1b[32mabcdef\x1b[0m", 3), "\x1b[32mabc\x1b[0m");
        assert_eq!(fitted("mmm", 2), "mm");
    }
}
