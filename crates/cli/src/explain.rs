//! `bellwether plan`: what the operator would do about a cluster now, and why; or why nothing.
//!
//! The same observation, plan and check as the operator's, with the rights of whoever asks. Never: writes. What could not be seen is named, because
//! the operator may see it and plan otherwise.

use std::process::ExitCode;

use bellwether_api::v1::{PostgresCluster, PostgresClusterStatus};
use bellwether_core::object::Kind;
use bellwether_core::plan;
use bellwether_core::words;
use bellwether_operator::Settings;
use bellwether_operator::look::{Look, Outlook, look};
use bellwether_runtime::watch::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::SignedDuration;

use crate::args::Plan;
use crate::cluster::{ClusterError, Space, told};
use crate::output::Tone;
use crate::output::page::{Mark, Screen};
use crate::status::Refused;
use crate::status::page::weight;

/// The condition of a cluster in which no rollout and no scale-down begins a new step.
const PAUSED: &str = "Paused";

/// Whether reasons are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// What only.
    What,
    /// What, and why.
    Why,
}

/// Runs it.
pub fn run(options: &Plan) -> ExitCode {
    told(explain(options))
}

async fn explain(options: &Plan) -> Result<String, Refused> {
    let space = Space::at(&options.place).await?;
    let key = Key { namespace: space.namespace.clone(), name: options.cluster.clone() };
    let look = look(&space.client, &key, &Kind::ALL).await?;
    let missing = || ClusterError::NoCluster { cluster: options.cluster.clone(), namespace: space.namespace.clone() };
    let cluster = look.observed.cluster.known().ok_or_else(missing)?;
    let depth = if options.explain { Depth::Why } else { Depth::What };
    Ok(page(Screen::here(), depth, &seen(&look, cluster, &look.outlook())))
}

/// What is told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// The cluster's name.
    pub cluster: String,
    /// What would be done, in order, each with why.
    pub steps: Vec<(String, String)>,
    /// What it waits on.
    pub waits: Vec<String>,
    /// What is not as it should be, and stays so whatever the operator does.
    pub unlike: Vec<String>,
    /// What would become of the status.
    pub status: Vec<String>,
    /// Why nothing of it would be done, though it is planned.
    pub forbidden: Vec<String>,
    /// A person wants no new step.
    pub paused: bool,
    /// When it would look again by itself.
    pub again: Option<String>,
    /// What could not be seen, and why.
    pub unseen: Vec<String>,
}

fn seen(look: &Look, cluster: &PostgresCluster, outlook: &Outlook) -> Told {
    let Outlook { plan, violations } = outlook;
    Told {
        cluster: look.observed.names.cluster().to_owned(),
        steps: plan.actions.iter().map(|action| (action.effect.to_string(), action.why.clone())).collect(),
        waits: plan.waiting_on.iter().map(ToString::to_string).collect(),
        status: plan.status.as_ref().map(|after| changes(cluster.status.as_ref(), after)).unwrap_or_default(),
        forbidden: violations.iter().map(ToString::to_string).collect(),
        paused: plan::paused(cluster),
        unlike: plan.status.iter().flat_map(|status| &status.conditions).filter_map(unlike).collect(),
        // It looks at everything after a while, whatever was planned.
        again: SignedDuration::try_from(Settings::default().resync)
            .ok()
            .map(|resync| words::duration(plan.requeue.map_or(resync, |again| again.min(resync)))),
        unseen: look.unseen.iter().map(|(kind, why)| format!("{kind}: {why}")).collect(),
    }
}

fn unlike(condition: &Condition) -> Option<String> {
    let Condition { type_, status, reason, message, .. } = condition;
    // That it is paused is said anyway.
    let weighs = matches!(weight(type_, status), Mark::Bad | Mark::Stopped) && type_ != PAUSED;
    weighs.then(|| format!("{type_}={status} ({reason}): {message}"))
}

/// What of a status people would notice.
fn changes(before: Option<&PostgresClusterStatus>, after: &PostgresClusterStatus) -> Vec<String> {
    let mut all = vec![];
    let none = PostgresClusterStatus::default();
    let before = before.unwrap_or(&none);
    if before.phase != after.phase {
        let name = |phase: Option<bellwether_api::v1::Phase>| {
            phase.map_or_else(|| "none".to_owned(), |phase| format!("{phase:?}"))
        };
        all.push(format!("phase {} → {}", name(before.phase), name(after.phase)));
    }
    for condition in &after.conditions {
        let was = before.conditions.iter().find(|was| was.type_ == condition.type_);
        if was.is_none_or(|was| {
            (&was.status, &was.reason, &was.message) != (&condition.status, &condition.reason, &condition.message)
        }) {
            all.push(format!("{}={} ({}): {}", condition.type_, condition.status, condition.reason, condition.message));
        }
    }
    let gone = before.conditions.iter().filter(|was| after.conditions.iter().all(|now| now.type_ != was.type_));
    all.extend(gone.map(|was| format!("{} no longer said", was.type_)));
    if all.is_empty() && before != after {
        all.push("details of it".to_owned());
    }
    all
}

/// As people read it.
pub fn page(screen: Screen, depth: Depth, told: &Told) -> String {
    let mut text = String::new();
    let mut say = |line: &str| {
        text.push_str(line);
        text.push('\n');
    };
    say(&headline(screen, told));
    for (number, (step, why)) in told.steps.iter().enumerate() {
        let number = format!("{:>3}. ", number + 1);
        say(&format!("{number}{}", screen.folded(step, number.len(), number.len())));
        if depth == Depth::Why {
            say(&format!("     {}", screen.folded(&format!("because {why}"), 5, 5)));
        }
    }
    let mut list = |heading: &str, items: &[String]| {
        if !items.is_empty() {
            say(&format!("\n{}", screen.paint(heading, Tone::Strong)));
            items.iter().for_each(|item| say(&format!("  - {}", screen.folded(item, 4, 4))));
        }
    };
    list("It breaks a rule, so nothing of it would be carried out; this is a bug:", &told.forbidden);
    if depth == Depth::Why {
        list("It waits for", if told.steps.is_empty() { &[] } else { &told.waits });
        list("It would say in the status", &told.status);
        list("You may not see this; the operator does, and may plan otherwise:", &told.unseen);
        if let Some(again) = &told.again {
            say(&format!("\nWithout any change it would look again within {again}."));
        }
    }
    text.trim_end().to_owned()
}

fn headline(screen: Screen, told: &Told) -> String {
    let cluster = &told.cluster;
    let paused = if told.paused { " It is paused: no rollout and no scale-down begins a new step." } else { "" };
    match (told.steps.len(), told.waits.as_slice()) {
        (0, _) if !told.unseen.is_empty() && told.waits.is_empty() => screen.marked(
            Mark::Busy,
            &format!("The operator would do nothing about {cluster}, as far as you may see.{paused}"),
        ),
        (0, []) if told.status.is_empty() => {
            if !told.unlike.is_empty() {
                let left = told.unlike.join("; ");
                let text = format!(
                    "The operator would do nothing about {cluster}: what is not as it should be is for \
                     agents or people to change ({left}).{paused}"
                );
                return screen.marked(Mark::Busy, &text);
            }
            let because = "because everything is as the spec asks for";
            screen.marked(Mark::Good, &format!("The operator would do nothing about {cluster}, {because}.{paused}"))
        }
        (0, []) => screen
            .marked(Mark::Busy, &format!("The operator would do nothing about {cluster} but say how it is.{paused}")),
        (0, waits) => {
            let waits = waits.join("; ");
            screen.marked(
                Mark::Busy,
                &format!("The operator would do nothing about {cluster} now, because it waits for {waits}.{paused}"),
            )
        }
        (_, _) => screen
            .marked(Mark::Busy, &format!("The operator would do this about {cluster} now, in this order.{paused}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work() -> Told {
        Told {
            cluster: "orders".into(),
            steps: vec![("restart Pod orders-2".into(), "it runs with an earlier spec, and orders-1 and orders-3 are as they should be".into())],
            waits: vec!["orders-3 (copying: copied 40 % from orders-1) to serve readers".into()],
            status: vec!["phase Ready → Degraded".into()],
            again: Some("5m 0s".into()),
            unseen: vec!["Secret: secrets is forbidden: User \"jo\" cannot list resource \"secrets\" in API group \"\" in the namespace \"shop\"".into()],
            ..Told::default()
        }
    }

    #[test]
    fn a_plan_at_80_and_at_200_columns() {
        insta::assert_snapshot!("plan_80", page(Screen::plain(80), Depth::Why, &work()));
        insta::assert_snapshot!("plan_200", page(Screen::plain(200), Depth::Why, &work()));
    }

    #[test]
    fn without_reasons_it_is_a_list_of_what_would_be_done() {
        let text = page(Screen::plain(80), Depth::What, &work());
        assert!(text.contains("1. restart Pod orders-2") && !text.contains("because"), "{text}");
    }

    #[test]
    fn nothing_is_never_said_without_why() {
        let said = |told: Told| page(Screen::plain(200), Depth::What, &told);
        assert!(
            said(Told { cluster: "orders".into(), ..Told::default() })
                .contains("because everything is as the spec asks for")
        );
        let waits = Told { steps: vec![], ..work() };
        assert!(said(waits).contains("because it waits for orders-3 (copying"));
        let blind = Told { unseen: vec!["Pod: forbidden".into()], ..Told::default() };
        assert!(said(blind).contains("as far as you may see"));
        let fenced =
            Told { unlike: vec!["Fenced=True (Fenced): PostgreSQL is stopped on orders-2".into()], ..Told::default() };
        assert!(said(fenced).contains("stopped on orders-2"));
        assert!(said(Told { paused: true, ..Told::default() }).contains("It is paused"));
    }
}
