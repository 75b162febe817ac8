//! The scenarios, in the order in which they run: installing first, removing the operator late, what the audit log says at the end.

mod access;
mod away;
mod backup;
mod beside;
mod conformance;
pub mod connect;
mod create;
mod deletion;
mod killed;
mod manifest;
mod metrics;
mod placement;
pub mod probed;
mod refused;
mod restricted;
mod screen;
mod trouble;
mod upgrade;
mod watched;

use crate::runner::{Needs, Operator, Scenario};

const fn scenario(name: &'static str, run: fn(&crate::world::World) -> crate::failure::Outcome) -> Scenario {
    Scenario { name, needs: Needs::Api, operator: Operator::Chart, run }
}

const fn on_harness(scenario: Scenario) -> Scenario {
    Scenario { needs: Needs::Harness, ..scenario }
}

const fn with_own_operator(scenario: Scenario) -> Scenario {
    Scenario { operator: Operator::Own, ..scenario }
}

/// All of them.
pub const ALL: &[Scenario] = &[
    with_own_operator(scenario("the plain manifest installs and is removed", manifest::plain)),
    scenario("create a cluster of three", create::three),
    scenario("standbys stream", create::standbys_stream),
    scenario("connect as the application over TLS", connect::over_tls),
    scenario("the command line asks the agents through the API server", screen::asked),
    scenario("the operator's metrics are scraped over HTTPS", metrics::scraped),
    Scenario { needs: Needs::Probe, ..scenario("the probe watches a primary being killed", probed::primary_killed) },
    on_harness(scenario("an old session beside a cut-off primary", beside::old_session)),
    on_harness(scenario("API server and operator away under load", away::api_and_operator)),
    on_harness(scenario("a backup is taken and verified", backup::taken_and_verified)),
    scenario("delete and recreate with retained volumes", deletion::recreate),
    scenario("onDelete Delete removes the volumes", deletion::on_delete),
    scenario("a namespace is deleted with everything in it", deletion::namespace),
    scenario("bad manifests are refused", refused::table),
    scenario("Pod Security restricted is enforced", restricted::enforced),
    scenario("an image that does not exist", trouble::no_image),
    scenario("no volume to be had", trouble::no_volume),
    scenario("a quota that is spent", trouble::quota),
    on_harness(scenario("pull secrets, selectors, tolerations and topology reach the pods", placement::fields)),
    on_harness(scenario("a one-node cluster works with a warning", placement::one_node)),
    on_harness(scenario("a drained node's instance comes back", placement::drained)),
    scenario("parameters and size change in place", create::changes),
    scenario("the operator is killed at random points", killed::during_creation),
    Scenario { needs: Needs::NextImage, ..scenario("an operator upgrade restarts no database", upgrade::image) },
    scenario("uninstall and reinstall keep everything", upgrade::uninstall),
    scenario("a namespace is deleted while there is no operator", deletion::namespace_without_operator),
    with_own_operator(scenario("only the listed namespaces are looked after", watched::listed)),
    on_harness(with_own_operator(scenario("the conformance suite passes", conformance::suite))),
    on_harness(scenario("no request was forbidden", access::nothing_forbidden)),
    on_harness(scenario("every granted verb was used", access::every_verb_used)),
];
