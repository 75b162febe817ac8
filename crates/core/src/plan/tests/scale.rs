//! More instances, and fewer: the steps in their order, what each waits on, and what happens when somebody changes their mind half way.

use bellwether_api::labels;
use bellwether_api::v1::{OperationKind, OperationStep, Phase};
use jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::words::told;
use crate::contract::InstanceConfig;
use crate::lease_object::MEMBERS;
use crate::object::Kind;
use crate::plan::world::{NAME, World};
use crate::plan::{Effect, LEAVE_WITHIN, Plan};

fn scale(world: &mut World, replicas: i32) {
    world.change_spec(|spec| spec["replicas"] = replicas.into());
}

fn readers(world: &mut World) -> Vec<String> {
    let slice = world.get(Kind::EndpointSlice, "orders-ro");
    let names = slice["endpoints"].as_array().into_iter().flatten().map(|e| e["targetRef"]["name"].as_str().unwrap());
    names.map(str::to_owned).collect()
}

fn config(world: &World) -> InstanceConfig {
    world.observe().config.known().unwrap().clone()
}

/// Which step the status tells, after one pass.
fn step(world: &mut World) -> Option<OperationStep> {
    world.step();
    world.status().operation.map(|operation| operation.step)
}

fn waiting_on(world: &World) -> String {
    world.status().operation.unwrap().waiting_on
}

fn removed(plan: &Plan) -> Vec<String> {
    let gone = |effect: &Effect| match effect {
        Effect::DeletePod(target) => Some(target.name.clone()),
        _ => None,
    };
    plan.actions.iter().filter_map(|action| gone(&action.effect)).collect()
}

/// A pod that copies: it has no role yet.
fn copies(world: &mut World, name: &str, serial: u32) {
    world.run(name, serial, "standby", "Joining");
    let report = &mut world.get(Kind::Pod, name)["metadata"]["annotations"][labels::REPORT];
    let mut told: Value = serde_json::from_str(report.as_str().unwrap()).unwrap();
    told["role"] = Value::Null;
    told["systemIdentifier"] = Value::Null;
    told["message"] = "40 %".into();
    *report = told.to_string().into();
}

#[test]
fn a_standby_is_added_step_by_step_and_readers_come_last() {
    let mut world = World::settled(json!({"replicas": 1}));
    scale(&mut world, 2);
    assert_eq!(step(&mut world), Some(OperationStep::ScalingUp));
    assert!(waiting_on(&world).contains("orders-2 (its pod is to be made)"), "{}", waiting_on(&world));
    assert_eq!(step(&mut world), Some(OperationStep::ScalingUp));
    copies(&mut world, "orders-2", 2);
    assert_eq!(step(&mut world), Some(OperationStep::Syncing));
    assert!(waiting_on(&world).contains("orders-2 (copying: 40 %)"), "{}", waiting_on(&world));
    for (state, doing) in [("Starting", "starting"), ("CatchingUp", "replaying, a second or more behind")] {
        world.run("orders-2", 2, "standby", state);
        assert_eq!(step(&mut world), Some(OperationStep::Syncing), "{state}");
        assert!(waiting_on(&world).contains(&format!("orders-2 ({doing})")), "{}", waiting_on(&world));
        assert_eq!(world.status().operation.unwrap().kind, OperationKind::ScaleUp);
        assert_eq!((world.status().phase, readers(&mut world)), (Some(Phase::Joining), vec![]));
    }
    world.run("orders-2", 2, "standby", "Streaming");
    assert_eq!(step(&mut world), Some(OperationStep::UpdatingEndpoints));
    assert_eq!((step(&mut world), readers(&mut world)), (None, vec!["orders-2".to_owned()]));
    assert_eq!(world.status().phase, Some(Phase::Ready));
}

#[test]
fn the_time_is_that_of_the_step() {
    let mut world = World::settled(json!({"replicas": 1}));
    scale(&mut world, 2);
    world.step();
    let began = world.now;
    world.now += SignedDuration::from_secs(5);
    world.step();
    assert_eq!(world.status().operation.unwrap().since.0, began);
    copies(&mut world, "orders-2", 2);
    world.step();
    assert_eq!(world.status().operation.unwrap().since.0, world.now);
}

#[test]
fn several_join_at_once_and_the_last_of_them_is_what_is_waited_for() {
    let mut world = World::settled(json!({"replicas": 1}));
    scale(&mut world, 5);
    world.step();
    world.step();
    assert_eq!(world.names(Kind::Pod).len(), 5, "four pods in one pass");
    for serial in 2..=5 {
        copies(&mut world, &format!("orders-{serial}"), serial);
    }
    world.run("orders-2", 2, "standby", "Streaming");
    assert_eq!(step(&mut world), Some(OperationStep::Syncing));
    assert_eq!(step(&mut world), Some(OperationStep::Syncing));
    assert_eq!(readers(&mut world), ["orders-2"], "who has caught up waits for nobody");
    assert!(!waiting_on(&world).contains("orders-2"), "{}", waiting_on(&world));
}

#[test]
fn one_that_fails_while_it_joins_is_still_a_scale_up_and_is_said() {
    let mut world = World::settled(json!({"replicas": 2}));
    scale(&mut world, 3);
    world.step();
    world.step();
    world.run("orders-3", 3, "standby", "Down");
    assert_eq!(step(&mut world), Some(OperationStep::Syncing));
    let status = world.status();
    assert_eq!((status.phase, status.operation.unwrap().kind), (Some(Phase::Degraded), OperationKind::ScaleUp));
    assert_eq!(world.condition("Degraded").1, "ReplicaUnhealthy");
    // It is retried; or whoever asked for it takes that back.
    let mut back = world.clone();
    scale(&mut back, 2);
    back.settle();
    assert_eq!(back.names(Kind::Pod), ["orders-1", "orders-2"]);
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Ready));
}

#[test]
fn one_that_had_joined_and_fell_over_is_repaired_and_not_added() {
    let mut world = World::settled(json!({"replicas": 3}));
    world.run("orders-3", 3, "standby", "CatchingUp");
    world.step();
    assert_eq!(world.status().operation.unwrap().kind, OperationKind::Repair);
    world.settle();
    world.objects.remove(&(Kind::Pod, "orders-3".to_owned()));
    world.step();
    assert_eq!(world.status().operation.unwrap().kind, OperationKind::Repair);
}

#[test]
fn a_standby_leaves_readers_and_members_and_slot_before_its_pod_goes() {
    let mut world = World::settled(json!({"replicas": 3}));
    scale(&mut world, 2);
    let is_member = |world: &mut World| {
        let uid = world.get(Kind::Pod, "orders-3")["metadata"]["uid"].as_str().unwrap().to_owned();
        world.get(Kind::Lease, NAME)["metadata"]["annotations"][MEMBERS].as_str().unwrap().contains(&format!("{uid:?}"))
    };
    assert_eq!(step(&mut world), Some(OperationStep::Leaving));
    assert_eq!(config(&world).instances, ["orders-1", "orders-2"]);
    assert!(config(&world).is_leaving("orders-3") && is_member(&mut world));
    assert_eq!(readers(&mut world), ["orders-2"]);
    assert!(waiting_on(&world).contains("the primary to let orders-3 leave"), "{}", waiting_on(&world));
    let since = config(&world).leaving[0].since;
    world.now += SignedDuration::from_secs(20);
    assert_eq!(step(&mut world), Some(OperationStep::Leaving), "as long as it is a member");
    assert!(waiting_on(&world).contains("the primary to let orders-3 leave"), "{}", waiting_on(&world));
    assert_eq!(config(&world).leaving[0].since, since);
    world.agents();
    assert!(!is_member(&mut world));
    assert_eq!(step(&mut world), Some(OperationStep::Leaving), "as long as it has a slot");
    assert!(waiting_on(&world).contains("the replication slot of orders-3"), "{}", waiting_on(&world));
    world.agents();
    let plan = world.step();
    assert_eq!(removed(&plan), ["orders-3"]);
    assert_eq!(world.status().operation.unwrap().step, OperationStep::Removing);
    world.settle();
    assert_eq!((world.status().phase, world.status().operation), (Some(Phase::Ready), None));
    assert_eq!(config(&world).leaving, []);
}

#[test]
fn a_primary_that_lets_nobody_go_is_not_waited_for_for_ever() {
    let mut world = World::settled(json!({"replicas": 3}));
    world.stubborn = true;
    scale(&mut world, 2);
    world.step();
    world.agents();
    world.now += LEAVE_WITHIN - SignedDuration::from_secs(1);
    let plan = world.step();
    assert_eq!(removed(&plan), [""; 0]);
    assert!(plan.requeue.is_some_and(|after| after <= SignedDuration::from_secs(1)), "{:?}", plan.requeue);
    world.now += SignedDuration::from_secs(1);
    let plan = world.step();
    assert_eq!(removed(&plan), ["orders-3"]);
    let why = plan.actions.iter().find(|action| matches!(action.effect, Effect::DeletePod(_))).unwrap().why.clone();
    assert!(why.contains("has not let it go"), "{why}");
}

#[test]
fn the_least_useful_goes_first_and_the_reason_says_why() {
    let mut world = World::settled(json!({"replicas": 5}));
    world.run("orders-2", 2, "standby", "NotStreaming");
    scale(&mut world, 4);
    world.step();
    assert!(config(&world).is_leaving("orders-2"));
    // It comes back, but what was begun is finished.
    let mut reasons = vec![];
    for _ in 0..6 {
        world.agents();
        reasons
            .extend(world.step().actions.iter().map(ToString::to_string).filter(|did| did.starts_with("delete Pod")));
    }
    assert_eq!(world.names(Kind::Pod), ["orders-1", "orders-3", "orders-4", "orders-5"]);
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    assert!(
        reasons[0].contains("orders-2: spec.replicas is 4, and it is the standby that is needed least"),
        "{reasons:?}"
    );
}

#[test]
fn a_standby_that_commits_need_is_kept_and_counted_on_again() {
    let mut world = World::settled(json!({"replicas": 5}));
    scale(&mut world, 4);
    world.step();
    assert!(config(&world).is_leaving("orders-5"));
    // Commits of four wait for two of three, and only one of those streams.
    for serial in [2, 3] {
        world.run(&format!("orders-{serial}"), serial, "standby", "CatchingUp");
    }
    let plan = world.step();
    assert!(!config(&world).is_leaving("orders-5"));
    let waiting: Vec<_> = plan.waiting_on.iter().map(ToString::to_string).collect();
    assert!(waiting.contains(&"more standbys to stream: commits need orders-5 until then".to_owned()), "{waiting:?}");
    world.settle();
    assert_eq!(world.names(Kind::Pod).len(), 4);
}

#[test]
fn one_that_has_not_joined_goes_at_once() {
    let mut world = World::settled(json!({"replicas": 2}));
    scale(&mut world, 3);
    world.step();
    world.step();
    copies(&mut world, "orders-3", 3);
    world.step();
    scale(&mut world, 2);
    let plan = world.step();
    assert_eq!(removed(&plan), ["orders-3"], "it is nobody's member");
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Ready));
}

#[test]
fn whoever_takes_over_meanwhile_stays() {
    let mut world = World::settled(json!({"replicas": 3}));
    scale(&mut world, 2);
    world.step();
    assert!(config(&world).is_leaving("orders-3"));
    let leader = json!({"instance": "orders-3", "address": "10.0.0.3"}).to_string();
    world.get(Kind::Lease, NAME)["metadata"]["annotations"][labels::LEADER] = leader.into();
    world.settle();
    assert_eq!(world.names(Kind::Pod), ["orders-1", "orders-3"]);
    assert_eq!(config(&world).instances, ["orders-1", "orders-3"]);
}

#[test]
fn a_pause_holds_a_scale_down_where_it_is() {
    let mut world = World::settled(json!({"replicas": 3}));
    let pause = |world: &mut World, value: Value| {
        world.cluster.as_mut().unwrap()["metadata"]["annotations"] = json!({labels::PAUSED: value});
    };
    pause(&mut world, "true".into());
    scale(&mut world, 2);
    world.settle();
    assert_eq!(config(&world).leaving, [], "nobody is told to leave");
    pause(&mut world, "false".into());
    world.step();
    pause(&mut world, "true".into());
    let told = config(&world).leaving;
    world.settle();
    assert_eq!((world.names(Kind::Pod).len(), config(&world).leaving), (3, told), "and who was told is not removed");
    pause(&mut world, "false".into());
    world.settle();
    assert_eq!(world.names(Kind::Pod).len(), 2);
}

#[test]
fn agents_are_told_nothing_new_of_instances_that_could_not_be_seen() {
    let unseen = |world: &World| {
        let mut blind = world.clone();
        blind.unseen = vec![Kind::Pod];
        blind.objects.retain(|(kind, _), _| *kind != Kind::Pod);
        blind.step();
        config(&blind)
    };
    let mut world = World::settled(json!({"replicas": 3}));
    world.run("orders-2", 2, "standby", "Down");
    scale(&mut world, 2);
    world.settle();
    assert_eq!(config(&world).instances, ["orders-1", "orders-3"], "though there is a volume of the second");
    assert_eq!(unseen(&world), config(&world));
    scale(&mut world, 1);
    world.step();
    assert!(config(&world).is_leaving("orders-3"));
    assert_eq!(unseen(&world), config(&world));
}

/// Three of which the first, or another with a low number, has left and its volume stayed.
fn left_behind(spec: Value, leader: &str, left: u32) -> World {
    let mut world = World::settled(spec);
    let address = leader.replace("orders-", "10.0.0.");
    let place = json!({"instance": leader, "address": address}).to_string();
    world.get(Kind::Lease, NAME)["metadata"]["annotations"][labels::LEADER] = place.into();
    world.settle();
    world.run(&format!("orders-{left}"), left, "standby", "Down");
    scale(&mut world, 2);
    world.settle();
    world
}

fn drain(world: &mut World, name: &str) {
    world.get(Kind::Pod, name)["metadata"]["deletionTimestamp"] = "2026-01-01T01:00:00Z".into();
}

#[test]
fn one_that_was_drained_comes_back_and_not_one_that_left_before_it() {
    let mut world = left_behind(json!({"replicas": 3}), "orders-3", 1);
    assert_eq!((world.names(Kind::Pod), config(&world).instances.len()), (vec!["orders-2", "orders-3"], 2));
    assert_eq!(world.names(Kind::PersistentVolumeClaim).len(), 3, "the volume of the first stays");
    // While its pod stops, and when it has gone.
    drain(&mut world, "orders-2");
    world.step();
    assert_eq!(world.names(Kind::Pod), ["orders-2", "orders-3"]);
    assert_eq!(config(&world).instances, ["orders-2", "orders-3"]);
    assert_eq!(config(&world).leaving, []);
    world.objects.remove(&(Kind::Pod, "orders-2".to_owned()));
    world.settle();
    assert_eq!(world.names(Kind::Pod), ["orders-2", "orders-3"]);
    // So it is when a rollout restarts it.
    world.change_spec(|spec| spec["image"] = "registry.example/postgres:17.6-2".into());
    world.settle();
    assert_eq!(
        (world.names(Kind::Pod), world.restarts.len()),
        (vec!["orders-2", "orders-3"], 3),
        "{:?}",
        world.restarts
    );
    // More are wanted: now the first is used again.
    scale(&mut world, 3);
    world.settle();
    assert_eq!(world.names(Kind::Pod), ["orders-1", "orders-2", "orders-3"]);
}

#[test]
fn the_volume_of_one_that_was_drained_is_not_taken_for_that_of_one_that_left() {
    let mut world = left_behind(json!({"replicas": 3}), "orders-3", 1);
    let pause = |world: &mut World, value: &str| {
        world.cluster.as_mut().unwrap()["metadata"]["annotations"] = json!({labels::PAUSED: value});
    };
    // The volume that was left behind is to go, but not yet: and then one is drained.
    pause(&mut world, "true");
    world.change_spec(|spec| spec["storage"] = json!({"onDelete": "Delete"}));
    world.settle();
    assert_eq!(world.names(Kind::PersistentVolumeClaim), ["orders-1-data", "orders-2-data", "orders-3-data"]);
    world.objects.remove(&(Kind::Pod, "orders-2".to_owned()));
    pause(&mut world, "false");
    // Before it was seen whom the agents were told of, nobody is made, and nothing goes.
    let mut blind = world.clone();
    blind.unseen = vec![Kind::ConfigMap];
    let told = blind.objects.remove(&(Kind::ConfigMap, format!("{NAME}-config"))).unwrap();
    let plan = blind.step();
    let waiting: Vec<_> = plan.waiting_on.iter().map(ToString::to_string).collect();
    assert!(waiting.contains(&"a complete view of ConfigMap".to_owned()), "{waiting:?}");
    assert_eq!((blind.names(Kind::Pod), blind.names(Kind::PersistentVolumeClaim).len()), (vec!["orders-3"], 3));
    blind.objects.insert((Kind::ConfigMap, format!("{NAME}-config")), told);
    blind.unseen.clear();
    for mut world in [world, blind] {
        world.settle();
        assert_eq!(world.names(Kind::Pod), ["orders-2", "orders-3"]);
        assert_eq!(world.names(Kind::PersistentVolumeClaim), ["orders-2-data", "orders-3-data"]);
    }
}

#[test]
fn each_step_is_an_event() {
    let mut world = World::settled(json!({"replicas": 1}));
    let mut reasons = vec![];
    let mut play = |world: &mut World, agents: bool| {
        reasons.extend(world.step().events.into_iter().map(|note| note.reason));
        if agents {
            world.agents();
        }
    };
    scale(&mut world, 2);
    play(&mut world, false);
    play(&mut world, false);
    copies(&mut world, "orders-2", 2);
    play(&mut world, true);
    play(&mut world, true);
    play(&mut world, true);
    scale(&mut world, 1);
    for _ in 0..6 {
        play(&mut world, true);
    }
    let steps = ["ScalingUp", "Syncing", "UpdatingEndpoints", "ScaledUp", "Leaving", "Removing", "ScaledDown"];
    reasons.retain(|reason| steps.contains(&reason.as_str()));
    assert_eq!(reasons, steps);
}

#[test]
fn scaling_up_in_words() {
    let mut world = World::settled(json!({"replicas": 2}));
    scale(&mut world, 4);
    world.step();
    world.step();
    copies(&mut world, "orders-3", 3);
    world.run("orders-4", 4, "standby", "CatchingUp");
    insta::assert_snapshot!(told(&world.plan()));
}

#[test]
fn five_to_two_while_the_fourth_is_syncing() {
    let mut world = World::settled(json!({"replicas": 3}));
    scale(&mut world, 5);
    world.step();
    world.step();
    copies(&mut world, "orders-4", 4);
    world.run("orders-5", 5, "standby", "Streaming");
    world.step();
    scale(&mut world, 2);
    let first = world.step();
    assert_eq!(removed(&first), ["orders-4"]);
    insta::assert_snapshot!(told(&first));
    world.settle();
    assert_eq!(world.names(Kind::Pod), ["orders-1", "orders-2"]);
    assert_eq!((world.status().phase, world.status().operation), (Some(Phase::Ready), None));
}

/// What may happen between two passes.
#[derive(Clone, Debug)]
enum Turn {
    Scale(i32),
    Pass,
    Agents,
    /// An instance does this.
    Does(u32, &'static str),
    Failover,
    Stubborn(bool),
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let does = prop_oneof![Just("Joining"), Just("CatchingUp"), Just("Streaming"), Just("NotStreaming"), Just("Down")];
    let turn = prop_oneof![
        3 => (1..=5i32).prop_map(Turn::Scale),
        6 => Just(Turn::Pass),
        2 => Just(Turn::Agents),
        4 => (2..=5u32, does).prop_map(|(serial, state)| Turn::Does(serial, state)),
        1 => Just(Turn::Failover),
        1 => any::<bool>().prop_map(Turn::Stubborn),
    ];
    proptest::collection::vec(turn, 1..25)
}

fn take(world: &mut World, turn: &Turn) {
    let there = |world: &World, name: &str| world.names(Kind::Pod).contains(&name);
    match turn {
        Turn::Scale(replicas) => scale(world, *replicas),
        Turn::Pass => {
            let before = world.observe();
            let gone = removed(&world.step());
            world.now += SignedDuration::from_secs(1);
            assert!(gone.len() <= 1, "one at a time: {gone:?}");
            assert!(gone.iter().all(|name| before.leader() != Some(name)), "never the primary");
        }
        Turn::Agents => world.agents(),
        Turn::Does(serial, state) => {
            let name = format!("orders-{serial}");
            if there(world, &name) && world.observe().leader() != Some(&name) {
                match *state {
                    "Joining" => copies(world, &name, *serial),
                    state => world.run(&name, *serial, "standby", state),
                }
            }
        }
        Turn::Failover => {
            let observed = world.observe();
            let leader = observed.leader().map(str::to_owned);
            let next = observed.pods.items.values().find(|pod| Some(&pod.name) != leader.as_ref() && pod.streams());
            if let Some(next) = next {
                let place = json!({"instance": next.name, "address": next.ip}).to_string();
                world.get(Kind::Lease, NAME)["metadata"]["annotations"][labels::LEADER] = place.into();
            }
        }
        Turn::Stubborn(stubborn) => world.stubborn = *stubborn,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn whatever_was_begun_and_changed_half_way_comes_to_what_was_asked_for_last(
        begin in 1..=5i32, target in 1..=5i32, turns in turns(), on_delete in prop_oneof![Just("Retain"), Just("Delete")],
    ) {
        let mut world = World::settled(json!({"replicas": begin, "storage": {"onDelete": on_delete}}));
        for turn in &turns {
            take(&mut world, turn);
        }
        world.stubborn = false;
        scale(&mut world, target);
        world.settle();
        prop_assert_eq!(world.names(Kind::Pod).len(), usize::try_from(target).unwrap());
        let status = world.status();
        prop_assert_eq!((status.phase, status.operation), (Some(Phase::Ready), None));
        prop_assert_eq!(world.condition("Ready").0, "True");
        prop_assert_eq!(readers(&mut world).len(), usize::try_from(target - 1).unwrap());
        let config = config(&world);
        prop_assert_eq!((config.instances.len(), config.leaving), (usize::try_from(target).unwrap(), vec![]));
        if on_delete == "Delete" {
            prop_assert_eq!(world.names(Kind::PersistentVolumeClaim).len(), usize::try_from(target).unwrap());
        }
        prop_assert_eq!(world.plan().actions, []);
    }

    #[test]
    fn whoever_belongs_and_has_a_volume_comes_back_whatever_pods_go(
        left in 1..=4u32, lost in proptest::sample::subsequence(vec![1, 2, 3, 4u32], 1..=4),
        stops in any::<bool>(), on_delete in prop_oneof![Just("Retain"), Just("Delete")],
    ) {
        let leader = if left == 4 { "orders-3" } else { "orders-4" };
        let mut world = left_behind(json!({"replicas": 4, "storage": {"onDelete": on_delete}}), leader, left);
        let belong = config(&world).instances;
        prop_assert_eq!(belong.len(), 2);
        for name in lost.iter().map(|serial| format!("orders-{serial}")).filter(|name| belong.contains(name)) {
            if stops {
                drain(&mut world, &name);
                world.step();
                prop_assert_eq!(config(&world).instances, belong.clone());
            }
            world.objects.remove(&(Kind::Pod, name));
            world.step();
        }
        world.settle();
        prop_assert_eq!(world.names(Kind::Pod), belong.iter().map(String::as_str).collect::<Vec<_>>());
    }
}
