//! What a cluster has and must keep: the size of its volumes, its passwords, its certificates.

use bellwether_apiserver::request::Subresource;
use bellwether_core::object::Kind;
use bellwether_operator::port::{CallError, Resource};
use jiff::SignedDuration;
use serde_json::json;

use crate::world::{Fate, World};
use crate::{created, settle, writes};

const CLAIMS: [&str; 3] = ["orders-1-data", "orders-2-data", "orders-3-data"];

fn bound() -> World {
    let mut world = created();
    for claim in CLAIMS {
        let status = json!({"status": {"phase": "Bound", "capacity": {"storage": "10Gi"}}});
        world.merge("persistentvolumeclaims", claim, Subresource::Status, &status);
    }
    settle(world, None)
}

#[test]
fn a_volume_that_can_t_grow_is_said_and_holds_nothing_up() {
    let mut world = bound();
    let spec = json!({"spec": {"storage": {"size": "20Gi"}}});
    world.merge("postgresclusters", "orders", Subresource::Main, &spec);
    world.delete("pods", "orders-3");
    let refused = || {
        let message = "only dynamically provisioned pvc can be resized".to_owned();
        Fate::Refused(CallError::Refused { code: 403, message })
    };
    let mut asked = 0;
    world.look();
    world.pass(|request| {
        let grows = request.verb.name() == "merge" && request.resource == Resource::Child(Kind::PersistentVolumeClaim);
        asked += usize::from(grows);
        if grows { refused() } else { Fate::Served }
    });
    assert_eq!(asked, 3, "each is asked for, though the first is refused");
    assert_eq!(world.names("pods").len(), 3, "the instance that was gone is back");
    let synced = world.condition("Synced");
    assert_eq!((&synced["status"], &synced["reason"]), (&json!("False"), &json!("VolumeNotGrown")));
    let message = synced["message"].as_str().unwrap();
    assert!(CLAIMS.iter().all(|claim| message.contains(claim)) && message.contains("only dynamically"), "{message}");
    assert_ne!(world.condition("Degraded")["reason"], "ApiRefused");

    let world = settle(world, None);
    assert_eq!(world.condition("Synced")["reason"], "VolumeGrowing", "asked for, and not there yet");
    let mut world = world;
    for claim in CLAIMS {
        let status = json!({"status": {"capacity": {"storage": "20Gi"}}});
        world.merge("persistentvolumeclaims", claim, Subresource::Status, &status);
    }
    assert_eq!(settle(world, None).condition("Synced")["status"], "True");
}

#[test]
fn a_service_that_is_refused_is_said_and_holds_nothing_up() {
    let mut world = bound();
    world.delete("services", "orders-ro");
    world.delete("pods", "orders-3");
    world.look();
    world.pass(|request| match request.to_string().contains("Service") && request.verb.name() != "get" {
        true => Fate::Refused(CallError::Refused { code: 403, message: "exceeded quota".to_owned() }),
        false => Fate::Served,
    });
    assert_eq!(world.names("pods").len(), 3, "the instance that was gone is back");
    let degraded = world.condition("Degraded");
    assert_eq!(degraded["reason"], "ApiRefused");
    assert!(degraded["message"].as_str().unwrap().contains("exceeded quota"), "{degraded}");
    let world = settle(world, None);
    assert!(world.names("services").contains(&"orders-ro".to_owned()));
    assert_ne!(world.condition("Degraded")["reason"], "ApiRefused");
}

#[test]
fn addresses_follow_a_password_that_somebody_has_changed() {
    let mut world = created();
    let before = writes(&world);
    let changed = json!({"stringData": {"password": "s3cr/t"}});
    world.merge("secrets", "orders-app", Subresource::Main, &changed);
    let mut world = settle(world, None);
    assert_eq!(world.secret("orders-app", "password"), "s3cr/t");
    assert!(world.secret("orders-app", "uri").contains(":s3cr%2Ft@"), "{}", world.secret("orders-app", "uri"));
    assert!(world.secret("orders-app", "jdbc-uri").contains("&password=s3cr%2Ft&"));
    assert_eq!(writes(&world), before + 1, "and nothing else");
    world.look();
    world.pass(|_| Fate::Served);
    assert_eq!(writes(&world), before + 1, "once");
}

#[test]
fn a_secret_that_is_deleted_is_made_anew() {
    let mut world = created();
    for secret in ["orders-app", "orders-superuser", "orders-server", "orders-replication"] {
        world.delete("secrets", secret);
    }
    let world = settle(world, None);
    assert_eq!(world.names("secrets").len(), 5);
    assert_ne!(world.secret("orders-app", "uri"), "");
    assert_ne!(world.secret("orders-server", "tls.crt"), "");
}

#[test]
fn a_password_that_the_user_supplies_anew_is_taken() {
    let mut world = World::new().with_namespace("shop");
    world.create("secrets", json!({"metadata": {"name": "mine"}, "stringData": {"pw": "first"}}));
    let from = json!({"name": "mine", "key": "pw"});
    world.create_cluster(&json!({"replicas": 1, "bootstrap": {"initdb": {"ownerPassword": from}}}));
    let mut world = settle(world, None);
    assert_eq!(world.secret("orders-app", "password"), "first");
    world.merge("secrets", "mine", Subresource::Main, &json!({"stringData": {"pw": "second"}}));
    let mut world = settle(world, None);
    assert_eq!(world.secret("orders-app", "password"), "second");
    assert!(world.secret("orders-app", "uri").contains(":second@"));
    world.delete("secrets", "mine");
    let before = writes(&world);
    let world = settle(world, None);
    assert_eq!((world.secret("orders-app", "password").as_str(), writes(&world)), ("second", before), "it stays");
}

/// Two years, day by day, with an operator that is dead every other week.
#[test]
fn certificates_are_renewed_long_before_they_expire() {
    let mut world = created();
    let (authority, mut last) = (world.secret("orders-ca", "ca.crt"), world.secret("orders-server", "tls.crt"));
    let mut renewals = vec![];
    for day in 1..=730_i64 {
        world.later(SignedDuration::from_hours(24));
        if day / 7 % 2 == 0 {
            continue;
        }
        world = settle(world, None);
        let now = world.secret("orders-server", "tls.crt");
        if now != last {
            renewals.push(day);
            last = now;
        }
    }
    assert_eq!(renewals, [245, 489], "with a third of a year left");
    assert_eq!(world.secret("orders-ca", "ca.crt"), authority, "which nobody has to be told of");
}
