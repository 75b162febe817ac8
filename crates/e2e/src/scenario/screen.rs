//! The command line, from where people sit: it reaches agents and PostgreSQL through the API server, whether or not pods can be reached.

use serde_json::{Value, json};

use crate::failure::{Failure, Outcome, ensure, same};
use crate::world::World;

pub fn asked(world: &World) -> Outcome {
    let namespace = world.namespace("screen")?;
    namespace.ready_cluster("demo", &json!({}))?;
    let bellwether =
        |arguments: &[&str]| world.target.bellwether(arguments.iter().copied().chain(["-n", &namespace.name])).output();
    // Not Ready would be an exit code that is an error here.
    let text = bellwether(&["status", "demo", "-o", "json"])?;
    let status: Value = serde_json::from_str(&text).map_err(|error| Failure::Wrong(format!("{error}: {text}")))?;
    same("the primary's own word", &status["ready"]["confirmed"], true)?;
    let sources: Vec<_> = status["instances"].as_array().into_iter().flatten().map(|one| &one["source"]).collect();
    same("who was asked", sources, ["agent"; 3])?;
    let plan = bellwether(&["plan", "demo", "--explain"])?;
    ensure(plan.contains("would do nothing"), || plan.clone())?;
    // What follows `--` is psql's.
    let arguments = ["psql", "-n", &namespace.name, "demo", "--", "-Atc", "select 'by ' || current_user"];
    let row = world.target.bellwether(arguments).output()?;
    same("psql", row.trim(), "by app")
}
