//! Bad manifests are refused by the real API server, with a message that names the field, the value and the fix.
//!
//! The table is that of the rules' own tests (`bellwether_api::testing::refused`): what they say here and what they say there can't
//! drift apart.

use bellwether_api::testing::refused::{Refusal, refusals};
use serde_json::{Value, json};

use crate::failure::{Outcome, ensure, eventually};
use crate::namespace::{COMES_UP, Namespace};
use crate::output::say;
use crate::world::World;

pub fn table(world: &World) -> Outcome {
    let namespace = world.namespace("refused")?;
    let rows = refusals();
    ensure(rows.len() > 100, || format!("only {} rows: that can't be all", rows.len()))?;
    for row in &rows {
        let outcome = match &row.before {
            None => namespace.kubectl(["create", "-f", "-"]).input(row.manifest.to_string()).go(),
            Some(before) => changed(&namespace, before, &row.manifest)?,
        };
        refused(&outcome, row)?;
    }
    // Not a rule but kubectl's own care: a name that nobody knows is said, and not dropped.
    let misspelt = namespace.manifest("bad", &json!({"replica": 3})).to_string();
    let said = namespace.kubectl(["create", "-f", "-"]).input(misspelt).go().err().map(|error| error.to_string());
    let said = said.unwrap_or_default();
    ensure(said.contains("unknown field") && said.contains("spec.replica"), || format!("a misspelt field: {said:?}"))?;
    say(&format!("         {} manifests refused, each in its own words", rows.len() + 1));
    Ok(())
}

/// Stores what was there before and tries the change. It never gets a pod that runs: the table is about what the API server says.
fn changed(namespace: &Namespace<'_>, before: &Value, after: &Value) -> Outcome<Result<(), harness::Error>> {
    let nowhere = |manifest: &Value| {
        let mut manifest = manifest.clone();
        manifest["spec"]["scheduling"] = json!({"nodeSelector": {"e2e-nowhere": "true"}});
        manifest
    };
    namespace.kubectl(["create", "-f", "-"]).input(nowhere(before).to_string()).go()?;
    if before["status"].is_object() {
        let status = json!({"status": before["status"]}).to_string();
        let patch = ["patch", "postgrescluster", "orders", "--subresource=status", "--type=merge", "-p", &status];
        namespace.kubectl(patch).go()?;
    }
    // The whole object takes the place of the whole: what the second manifest leaves out is taken away.
    let outcome = eventually("the operator to have written its status", COMES_UP, || {
        let tried = namespace.kubectl(["replace", "-f", "-"]).input(nowhere(after).to_string()).go();
        let overtaken = tried.as_ref().is_err_and(|error| error.to_string().contains("(Conflict)"));
        ensure(!overtaken, || format!("{tried:?}"))?;
        Ok(tried)
    })?;
    namespace.kubectl(["delete", "postgrescluster", "orders", "--timeout=50s"]).go()?;
    Ok(outcome)
}

fn refused(outcome: &Result<(), harness::Error>, row: &Refusal) -> Outcome {
    let said = outcome.as_ref().err().map(ToString::to_string).unwrap_or_default();
    ensure(row.words.iter().all(|word| said.contains(word)), || {
        format!("{}: wanted {:?}, seen {said:?}", row.name, row.words)
    })
}
