//! Where readers are sent while the lead moves.

use bellwether_api::labels;
use jiff::SignedDuration;
use serde_json::json;

use super::super::Plan;
use super::super::world::World;
use crate::object::Kind;

/// What a plan would change of where readers are sent.
fn moved(plan: &Plan) -> Vec<String> {
    let all = plan.actions.iter().map(ToString::to_string);
    all.filter(|action| action.contains("orders-ro") || action.contains("orders-r:")).collect()
}

fn pass(world: &mut World, seconds: i64) -> Plan {
    world.now += SignedDuration::from_secs(seconds);
    world.step()
}

/// The first has stopped to hand over; nobody has taken the Lease yet.
fn handing_over() -> World {
    let mut world = World::settled(json!({"replicas": 3}));
    world.run("orders-1", 1, "standby", "Down");
    world
}

/// The second has taken the Lease and accepts writes, and whoever wants to write is not sent there yet.
fn taken_over() -> World {
    let mut world = handing_over();
    pass(&mut world, 0);
    let now = world.now.to_string();
    let lease = world.get(Kind::Lease, "orders");
    lease["metadata"]["annotations"][labels::LEADER] =
        json!({"instance": "orders-2", "address": "10.0.0.2"}).to_string().into();
    lease["spec"]["renewTime"] = now.into();
    world.run("orders-2", 2, "primary", "Leading");
    world
}

#[test]
fn readers_are_not_moved_while_nobody_leads_for_a_moment() {
    let mut world = handing_over();
    let plan = pass(&mut world, 0);
    assert_eq!(moved(&plan), [""; 0]);
    assert!(plan.requeue.is_some_and(|after| after <= SignedDuration::from_secs(8)), "it looks again by itself");
    assert_eq!(moved(&pass(&mut world, 7)), [""; 0]);
    // That is no failover any more.
    assert_eq!(moved(&pass(&mut world, 2)).len(), 1, "an instance that is down is no longer in -r");
}

#[test]
fn readers_move_after_writers() {
    let mut world = taken_over();
    assert_eq!(moved(&pass(&mut world, 1)), [""; 0]);
    world.get(Kind::EndpointSlice, "orders-rw")["endpoints"] = json!([{"addresses": ["10.0.0.2"]}]);
    assert_eq!(moved(&pass(&mut world, 0)).len(), 2);
    assert_eq!(moved(&pass(&mut world, 1)), [""; 0], "and stay there");
}

#[test]
fn a_primary_that_does_not_publish_its_endpoint_does_not_keep_readers_from_the_others() {
    let mut world = taken_over();
    assert_eq!(moved(&pass(&mut world, 1)), [""; 0]);
    assert_eq!(moved(&pass(&mut world, 8)).len(), 2);
}

#[test]
fn a_clock_that_is_far_ahead_holds_nobody_back() {
    let mut world = taken_over();
    world.get(Kind::Lease, "orders")["spec"]["renewTime"] =
        (world.now + SignedDuration::from_hours(1)).to_string().into();
    assert_eq!(moved(&pass(&mut world, 0)).len(), 2);
}
