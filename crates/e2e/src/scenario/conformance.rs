//! The conformance suite of our own API server, against the real one: where the two differ, ours is wrong.

use std::time::Duration;

use harness::command::Run;

use crate::failure::{Failure, Outcome, ensure};
use crate::output::say;
use crate::world::World;

pub fn suite(world: &World) -> Outcome {
    let target = &world.target;
    let arguments =
        ["test", "--locked", "-p", "bellwether-apiserver", "--test", "conformance", "--", "--test-threads=4"];
    let printed = Run::new("cargo", arguments)
        .directory(&target.sources)
        .env("BELLWETHER_CONFORMANCE_KUBECONFIG", &target.kubeconfig)
        .env("BELLWETHER_CONFORMANCE_CONTROLLERS", "1")
        .within(Duration::from_secs(900))
        .output()?;
    let told = printed.lines().find(|line| line.starts_with("conformance:"));
    let told = told.ok_or_else(|| Failure::Wrong(format!("it says nothing of itself: {printed}")))?;
    say(&format!("         {told}"));
    ensure(printed.contains("test result: ok"), || harness::error::tail(&printed, 40))
}
