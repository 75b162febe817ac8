//! The status table: one row an instance.

use bellwether_api::v1::{InstanceRole, InstanceState};
use bellwether_embedded::view::{ClusterView, InstanceView};
use comfy_table::Table;
use comfy_table::presets::NOTHING;

use super::{Tone, paint};

/// The lines of a cluster's table.
pub fn lines(view: &ClusterView) -> Vec<String> {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(["INSTANCE", "ROLE", "STATE", "NODE", "WAITING ON"]);
    for instance in &view.instances {
        table.add_row([
            instance.name.clone(),
            role(instance.role).to_owned(),
            format!("{:?}", instance.state),
            instance.node.clone(),
            instance.message.clone(),
        ]);
    }
    let rows = table.lines().enumerate().map(|(index, line)| {
        let line = line.trim_end().to_owned();
        match index.checked_sub(1).and_then(|row| view.instances.get(row)) {
            Some(instance) => format!("{} {line}", mark(instance)),
            None => format!("  {}", paint(&line, Tone::Faint)),
        }
    });
    rows.collect()
}

/// The cluster's own line.
pub fn headline(view: &ClusterView, elapsed: f64) -> String {
    let phase = view.phase.map_or_else(|| "Pending".to_owned(), |phase| format!("{phase:?}"));
    let tone = if view.ready { Tone::Good } else { Tone::Busy };
    let waiting = view.waiting_on.as_ref().map(|waiting| format!(" · {waiting}")).unwrap_or_default();
    let name = paint(&format!("{}/{}", view.namespace, view.name), Tone::Strong);
    format!("{name}  {}  {}{waiting}", paint(&phase, tone), paint(&format!("{elapsed:.1} s"), Tone::Faint))
}

fn mark(instance: &InstanceView) -> String {
    let (sign, tone) = match (instance.ready, instance.state) {
        (true, _) => ("●", Tone::Good),
        (false, InstanceState::Down | InstanceState::NotStreaming) => ("●", Tone::Bad),
        (false, InstanceState::Fenced) => ("○", Tone::Strong),
        (false, _) => ("○", Tone::Busy),
    };
    paint(sign, tone)
}

/// A role in words.
pub fn role(role: Option<InstanceRole>) -> &'static str {
    match role {
        Some(InstanceRole::Primary) => "primary",
        Some(InstanceRole::Standby) => "standby",
        None => "-",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instance_has_a_row_with_what_it_waits_on() {
        let instance = InstanceView {
            name: "demo-2".into(),
            role: Some(InstanceRole::Standby),
            state: InstanceState::Joining,
            ready: false,
            node: "node-2".into(),
            message: "copied 40 %".into(),
        };
        let view = ClusterView {
            namespace: "default".into(),
            name: "demo".into(),
            phase: None,
            ready: false,
            waiting_on: None,
            instances: vec![instance],
        };
        let lines = lines(&view);
        assert_eq!(lines.len(), 2, "{lines:?}");
        for word in ["demo-2", "standby", "Joining", "node-2", "copied 40 %"] {
            assert!(lines[1].contains(word), "{lines:?}");
        }
    }
}
