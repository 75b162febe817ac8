//! A cluster goes, at any moment and in any order.

use bellwether_apiserver::request::Subresource;
use serde_json::json;

use crate::world::{Fate, World};
use crate::{created, settle};

/// The only finalizer there is belongs to Kubernetes: nothing that goes waits for us.
#[test]
fn note_1_a_namespace_is_emptied_in_every_order_with_an_operator_at_work_and_without() {
    let world = created();
    for object in world.everything() {
        let finalizers = object["metadata"]["finalizers"].as_array().into_iter().flatten();
        for finalizer in finalizers {
            assert_eq!(finalizer, "kubernetes.io/pvc-protection", "{}", object["metadata"]["name"]);
        }
    }
    let plurals: Vec<_> = world.plurals().filter(|plural| !world.list(plural).is_empty()).collect();
    assert!(plurals.len() > 10, "{plurals:?}");
    for first in 0..plurals.len() {
        for operator_works in [true, false] {
            let mut world = world.fork();
            world.delete("namespaces", "shop");
            for plural in plurals.iter().cycle().skip(first).take(plurals.len()) {
                for name in world.names(plural) {
                    world.delete(plural, &name);
                }
                while world.collect_garbage() {}
                if operator_works {
                    world.look();
                    world.pass(|_| Fate::Served);
                }
            }
            assert_eq!(world.shape(), [""; 0], "{} first, operator works: {operator_works}", plurals[first]);
        }
    }
}

/// Somebody else's finalizer keeps the cluster, so that it can be seen to go.
#[test]
fn note_2_nothing_is_made_for_a_cluster_that_goes_whenever_that_begins() {
    let writes = |world: &World| world.log.iter().filter(|request| request.verb.name() != "get").count();
    let all = writes(&created());
    for step in 0..all {
        let mut world = World::new().with_cluster("shop", 3);
        let kept = json!({"metadata": {"finalizers": ["example.com/kept"]}});
        world.merge("postgresclusters", "orders", Subresource::Main, &kept);
        let mut done = 0;
        while done < step {
            world.look();
            world.pass(|request| {
                let writes = request.verb.name() != "get";
                done += usize::from(writes && done < step);
                if writes && done == step { Fate::CrashAfter } else { Fate::Served }
            });
        }
        world.delete("postgresclusters", "orders");
        let before = world.log.len();
        let world = settle(world, None);
        let made = world.log[before..].iter().filter(|request| request.verb.name() != "get");
        let made: Vec<_> = made.map(ToString::to_string).filter(|text| !text.contains("Event")).collect();
        assert!(made.iter().all(|text| text.contains("PostgresCluster")), "after {step} writes: {made:?}");
        assert_eq!(world.cluster()["status"]["phase"], "Deleting");
    }
}
