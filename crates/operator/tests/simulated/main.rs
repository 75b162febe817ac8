//! The operator's real pass without a runtime, a network or a clock: over the API server's synchronous store, one request at a time,
//! with every request a place where something can go wrong.
//!
//! This is the smallest driver there is; a simulator does the same with a scheduler around it.

mod backup;
mod deletion;
mod keep;
mod others;
mod workloads;
mod world;

use bellwether_operator::port::simulated::lost;
use bellwether_operator::port::{CallError, Request};
use world::{Fate, World};

/// More rounds than any creation takes; what takes longer is a loop.
const PATIENCE: usize = 200;

/// Runs operators until nothing is left to do, with one accident at the request of this number.
fn settle(world: World, accident: Option<&(usize, Fate)>) -> World {
    let mut world = world;
    for _ in 0..PATIENCE {
        let before = world.store.revision();
        let asked_before = world.log.len();
        let mut asked = asked_before;
        world.look();
        world.pass(|_| {
            asked += 1;
            match accident {
                Some((at, fate)) if *at == asked => fate.clone(),
                _ => Fate::Served,
            }
        });
        let accident_is_over = accident.is_none_or(|(at, _)| asked_before >= *at);
        if world.store.revision() == before && accident_is_over {
            return world;
        }
    }
    panic!("still writing after {PATIENCE} passes, {accident:?}: {:?}", world.log.last());
}

fn created() -> World {
    settle(World::new().with_cluster("shop", 3), None)
}

fn requests(world: &World) -> Vec<String> {
    world.log.iter().map(ToString::to_string).collect()
}

fn writes(world: &World) -> usize {
    world.log.iter().filter(|request| request.verb.name() != "get").count()
}

#[test]
fn a_cluster_gets_its_volume_its_pod_and_all_they_need() {
    let world = created();
    let instances = ["orders-1", "orders-2", "orders-3"];
    assert_eq!(world.names("pods"), instances);
    assert_eq!(world.names("persistentvolumeclaims"), instances.map(|instance| format!("{instance}-data")));
    let secrets = ["orders-app", "orders-ca", "orders-replication", "orders-server", "orders-superuser"];
    assert_eq!(world.names("secrets"), secrets);
    let events = world.log.iter().filter(|request| request.to_string().starts_with("create Event"));
    assert!(events.count() > 0, "people are told");
    assert_eq!(world.cluster()["status"]["phase"], "Provisioning", "{}", world.cluster()["status"]);
}

#[test]
fn a_new_operator_that_sees_everything_writes_nothing() {
    let mut world = created();
    let before = writes(&world);
    world.restart();
    world.look();
    world.pass(|_| Fate::Served);
    assert_eq!(writes(&world), before, "{:?}", &requests(&world)[requests(&world).len() - 3..]);
}

#[test]
fn an_operator_that_has_not_listed_yet_writes_nothing() {
    let mut world = World::new().with_cluster("shop", 3);
    world.pass(|_| Fate::Served);
    assert_eq!(requests(&world), [""; 0]);
}

#[test]
fn a_cluster_that_nobody_can_read_is_counted_and_nothing_is_done_to_it() {
    let mut world = created();
    let before = world.log.len();
    let mut cluster = world.cluster();
    cluster["spec"]["replicas"] = "many".into();
    cluster["metadata"]["resourceVersion"] = "999999".into();
    world.deliver_cluster(cluster);
    world.pass(|_| Fate::Served);
    assert_eq!((world.unreadable(), world.log.len()), (1, before));
}

#[test]
fn the_same_inputs_give_the_same_requests_byte_for_byte() {
    let (first, second) = (created(), created());
    assert!(first.log == second.log, "{:?}\n{:?}", requests(&first), requests(&second));
    assert_eq!(first.everything(), second.everything());
}

#[test]
fn whatever_happens_to_any_one_request_the_same_objects_come_of_it() {
    let mut world = settle(World::new().with_cluster("calm", 1), None);
    let (shape, calm) = (world.shape(), world.log.clone());
    let refused = |code: u16| Fate::Refused(CallError::Refused { code, message: format!("planted {code}") });
    let fates = [Fate::CrashBefore, Fate::CrashAfter, Fate::Lost, refused(409), refused(500), refused(403)];
    for (number, request) in calm.iter().enumerate() {
        for (which, fate) in fates.iter().enumerate() {
            world = world.with_cluster(&format!("n{number}-{which}"), 1);
            world = settle(world, Some(&(number + 1, fate.clone())));
            assert_eq!(world.shape(), shape, "{fate:?} at request {number}, {request}");
        }
    }
}

#[test]
fn note_25_a_watch_that_says_nothing_makes_nobody_act_twice() {
    let mut world = World::new().with_cluster("shop", 3);
    world.look();
    world.pass(|_| Fate::Served);
    let first: Vec<Request> = world.log.clone();
    // Nothing new was delivered: what the operator knows is what the answers to its own writes told it.
    world.pass(|_| Fate::Served);
    let written = world.log[first.len()..].iter().filter(|request| request.verb.name() != "get");
    let again = written.filter(|request| first.contains(request));
    assert_eq!(again.collect::<Vec<_>>(), [&first[0]; 0]);
}

#[test]
fn in_a_namespace_that_is_being_deleted_nothing_is_made() {
    let written_after = |ends: bool| {
        let mut world = created();
        let before = writes(&world);
        world.delete("pods", "orders-2");
        if ends {
            world.delete("namespaces", "shop");
        }
        world.look();
        world.pass(|_| Fate::Served);
        writes(&world) - before
    };
    assert!(written_after(false) > 0, "a pod that is gone is made anew");
    assert_eq!(written_after(true), 0);
}

#[test]
fn a_lost_answer_is_unknown_and_not_a_refusal() {
    assert!(matches!(lost(), Err(CallError::Unanswered { .. })));
}
