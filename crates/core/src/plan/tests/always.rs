//! What holds for every cluster and every world: replanning comes to rest, and nothing is destroyed unseen.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::object::Kind;
use crate::plan::world::{NAME, World};
use crate::plan::{Effect, plan};

fn specs() -> impl Strategy<Value = Value> {
    (
        1..=5i32,
        any::<bool>(),
        prop_oneof![Just("Retain"), Just("Delete")],
        prop_oneof![Just("preferred"), Just("required"), Just("off")],
        prop_oneof![Just(None), Just(Some("async")), Just(Some("preferred"))],
        prop_oneof![Just("1Gi"), Just("1024Mi"), Just("1.5Ti")],
    )
        .prop_map(|(replicas, wal, on_delete, anti_affinity, durability, size)| {
            let mut spec = json!({
                "replicas": replicas, "version": "17",
                "storage": {"size": size, "onDelete": on_delete},
                "scheduling": {"antiAffinity": anti_affinity, "nodeSelector": {"disk": "ssd"}},
                "parameters": {"work_mem": "8MB"},
            });
            if wal {
                spec["storage"]["wal"] = json!({"size": "1Gi"});
            }
            if let Some(mode) = durability {
                spec["durability"] = json!({"mode": mode});
            }
            spec
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn note_12_a_second_plan_over_the_world_that_the_first_made_is_empty(spec in specs()) {
        let mut world = World::made(spec);
        prop_assert_eq!(world.plan().actions, []);
        world.settle();
        let plan = world.plan();
        prop_assert_eq!(plan.actions, []);
        prop_assert_eq!(plan.status, Some(world.status()));
        prop_assert_eq!(plan.events, []);
    }

    #[test]
    fn any_two_sizes_are_reached_from_each_other(spec in specs(), target in 1..=5i32) {
        let mut world = World::settled(spec);
        world.change_spec(|spec| spec["replicas"] = target.into());
        world.settle();
        prop_assert_eq!(world.names(Kind::Pod).len(), usize::try_from(target).unwrap());
        prop_assert_eq!(world.status().replicas, target);
        prop_assert_eq!(world.condition("Ready").0, "True");
    }

    #[test]
    fn what_was_not_seen_is_never_destroyed(
        spec in specs(),
        target in 1..=5i32,
        gone in prop_oneof![Just(0), Just(1), Just(2)],
        unseen in proptest::sample::subsequence(vec![Kind::Pod, Kind::PersistentVolumeClaim, Kind::Lease], 1..=3),
    ) {
        let mut world = World::settled(spec);
        match gone {
            0 => world.change_spec(|spec| spec["replicas"] = target.into()),
            1 => world.delete_cluster(),
            _ => { world.delete_cluster(); world.recreate(json!({"replicas": target})); }
        }
        world.unseen = unseen.clone();
        // An object that can't be seen may still be shown by another: both must be safe.
        for hidden in [false, true] {
            if hidden {
                world.objects.retain(|(kind, _), _| !unseen.contains(kind));
            }
            let plan = plan(&world.observe(), world.now, &Default::default());
            let destructive: Vec<_> = plan.actions.iter().filter(|action| action.effect.destroys()).collect();
            prop_assert!(destructive.is_empty(), "{destructive:?}");
            prop_assert!(!hidden || plan.status.is_none(), "nothing is said of what was not seen");
        }
    }

    #[test]
    fn note_13_no_volume_goes_while_its_instance_is_there_or_its_cluster_wants_it(
        spec in specs(),
        life in proptest::collection::vec((0..6u8, 1..=5i32), 1..8),
    ) {
        let mut world = World::settled(spec);
        for (what, number) in life {
            let instance = format!("orders-{number}");
            match what {
                0 | 1 => world.change_spec(|spec| spec["replicas"] = number.into()),
                2 => drop(world.objects.remove(&(Kind::Pod, instance))),
                3 if world.objects.contains_key(&(Kind::Pod, instance.clone())) => {
                    world.run(&instance, u32::try_from(number).unwrap(), "standby", "NotStreaming");
                }
                4 => world.unseen = vec![Kind::ALL[usize::try_from(number).unwrap() % Kind::ALL.len()]],
                _ => world.agents(),
            }
            let plan = world.step();
            world.unseen.clear();
            for action in plan.actions.iter().filter(|action| matches!(action.effect, Effect::DeleteVolume(_))) {
                let name = action.effect.target().1;
                let instance = name.trim_end_matches("-data").trim_end_matches("-wal").to_owned();
                prop_assert!(!world.names(Kind::Pod).contains(&instance.as_str()), "{action} under its pod");
                prop_assert!(world.observe().leader() != Some(&instance), "{action} of the leader");
            }
        }
    }

    #[test]
    fn a_crash_after_any_action_is_continued_from_what_is_there(spec in specs(), cut in 0usize..40) {
        let mut world = World::with(spec);
        let whole = world.plan();
        let mut half = world.clone();
        let mut broken = whole.clone();
        broken.actions.truncate(cut);
        half.apply_all(&broken);
        half.settle();
        world.settle();
        let names = |world: &World| world.objects.keys().cloned().collect::<Vec<_>>();
        prop_assert_eq!(names(&half), names(&world));
        prop_assert_eq!(half.status().phase, world.status().phase);
    }
}

#[test]
fn a_cluster_that_was_not_seen_plans_nothing() {
    let mut observed = World::settled(json!({"replicas": 3})).observe();
    observed.cluster = crate::fact::Fact::Unknown;
    let plan = plan(&observed, jiff::Timestamp::UNIX_EPOCH, &Default::default());
    assert_eq!(plan.actions, []);
    assert_eq!(plan.status, None);
}

#[test]
fn a_pod_that_cannot_be_decoded_stops_removals_and_is_named() {
    let mut world = World::settled(json!({"replicas": 3}));
    world.change_spec(|spec| spec["replicas"] = 1.into());
    world.get(Kind::Pod, "orders-2")["spec"]["containers"] = "not a list".into();
    let observed = world.observe();
    assert!(observed.unreadable[0].contains("Pod orders-2"), "{:?}", observed.unreadable);
    let plan = plan(&observed, world.now, &Default::default());
    assert!(!plan.actions.iter().any(|action| action.effect.destroys()));
    assert!(world.names(Kind::Lease).contains(&NAME));
}
