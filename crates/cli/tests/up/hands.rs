//! What people do to a cluster with their own hands: fence, unfence, and make one lead by force.

use std::net::{IpAddr, SocketAddr};

use bellwether_api::v1::{InstanceState, PostgresCluster};
use bellwether_core::contract::{AGENT_PORT, POSTGRES_PORT};
use bellwether_embedded::proc;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::DeleteParams;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::home::{Home, eventually};

async fn state(home: &Home, instance: &str) -> Option<InstanceState> {
    let api: Api<PostgresCluster> = Api::default_namespaced(home.client().await);
    let status = api.get_opt("demo").await.ok()??.status?;
    status.instances.iter().find(|other| other.name == instance).map(|other| other.state)
}

/// Whether commits wait for any of two standbys, and nothing else is recorded any more.
async fn two_vote(home: &Home) -> Option<()> {
    let lease = Api::<Lease>::default_namespaced(home.client().await).get("demo").await.ok()?;
    let rules = lease.metadata.annotations?.remove("bellwether.dev/sync")?;
    let rules: Vec<serde_json::Value> = serde_json::from_str(&rules).ok()?;
    let [rule] = rules.as_slice() else { return None };
    (rule["members"].as_array()?.len() == 2).then_some(())
}

/// Who listens on this port of an instance.
async fn listener(home: &Home, instance: &str, port: u16) -> Option<i32> {
    let pod = Api::<Pod>::default_namespaced(home.client().await).get(instance).await.unwrap();
    let address: IpAddr = pod.status.unwrap().pod_ip.unwrap().parse().unwrap();
    proc::listener(SocketAddr::new(address, port)).map(|(pid, _)| pid)
}

async fn has_postgres(home: &Home, instance: &str) -> bool {
    listener(home, instance, POSTGRES_PORT).await.is_some()
}

async fn leader(home: &Home) -> Option<String> {
    let lease = Api::<Lease>::default_namespaced(home.client().await).get("demo").await.ok()?;
    let leader = lease.metadata.annotations?.get("bellwether.dev/leader")?.clone();
    serde_json::from_str::<serde_json::Value>(&leader).ok()?["instance"].as_str().map(str::to_owned)
}

async fn has_event(home: &Home, reason: &str) -> bool {
    let events = Api::<Event>::default_namespaced(home.client().await).list(&Default::default()).await.unwrap();
    events.items.iter().any(|event| event.reason.as_deref() == Some(reason))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fenced_standby_stays_stopped_across_restarts_and_comes_back_when_that_is_lifted() {
    let mut home = Home::up(&["--replicas", "3"]).await;
    home.ready("demo", 3).await;
    let (code, said) = home.asked(&["fence", "demo-9", "--yes"]);
    assert!(code == Some(1) && said.contains("there are demo-1, demo-2, demo-3"), "{said}");
    let (code, said) = home.asked(&["fence", "demo-2"]);
    assert!(code == Some(1) && said.contains("no terminal") && said.contains("writes to demo go on"), "{said}");
    assert_eq!(state(&home, "demo-2").await, Some(InstanceState::Streaming), "nothing was done");
    let (code, said) = home.asked(&["fence", "demo-2", "--yes"]);
    assert!(code == Some(0) && said.contains("demo-2 is fenced"), "{said}");
    assert!(!has_postgres(&home, "demo-2").await);
    assert_eq!(home.condition("demo", "Ready").await.unwrap().0, "True");
    assert_eq!(home.condition("demo", "Fenced").await.unwrap(), ("True".to_owned(), "Fenced".to_owned()));
    assert!(has_event(&home, "Fenced").await);
    home.execute("demo", "create table kept (id int); insert into kept values (1)").await;
    // Operator, API, kubelets and agents all end, and come back.
    home.stop().await;
    home.start(&[]).await;
    eventually("the others serve again", || async {
        let ready = home.condition("demo", "Ready").await?;
        (ready.0 == "True" && state(&home, "demo-2").await == Some(InstanceState::Fenced)).then_some(())
    })
    .await;
    assert!(!has_postgres(&home, "demo-2").await);
    // Its pod is made again on its volume.
    let pods: Api<Pod> = Api::default_namespaced(home.client().await);
    let uid = pods.get("demo-2").await.unwrap().metadata.uid;
    pods.delete("demo-2", &DeleteParams::default()).await.unwrap();
    eventually("the new pod is fenced", || async {
        let pod = pods.get_opt("demo-2").await.ok()??;
        let new = pod.metadata.uid != uid && pod.metadata.annotations?.get("bellwether.dev/report")?.contains("Fenced");
        (new && state(&home, "demo-2").await == Some(InstanceState::Fenced)).then_some(())
    })
    .await;
    assert!(!has_postgres(&home, "demo-2").await);
    let (code, said) = home.asked(&["unfence", "demo-2"]);
    assert!(code == Some(0) && said.contains("it is Streaming"), "{said}");
    home.ready("demo", 3).await;
    assert_eq!(home.condition("demo", "Fenced").await, None);
    assert_eq!(home.number("demo", "demo-2", "select count(*) from kept").await, Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fenced_primary_hands_over_first_and_stops_alone_when_nobody_can_take_over() {
    let home = Home::up(&["--replicas", "3"]).await;
    home.ready("demo", 3).await;
    home.execute("demo", "create table kept (id int); insert into kept values (1)").await;
    let (code, said) = home.asked(&["fence", "demo-1", "--yes"]);
    assert!(code == Some(0) && said.contains("demo-1 leads demo") && said.contains(" leads"), "{said}");
    let second = leader(&home).await.unwrap();
    assert_ne!(second, "demo-1");
    assert!(!has_postgres(&home, "demo-1").await);
    home.execute("demo", "insert into kept values (2)").await;
    let third = if second == "demo-2" { "demo-3" } else { "demo-2" };
    let (code, said) = home.asked(&["fence", third, "--yes"]);
    assert!(code == Some(0) && said.contains("Commits will wait"), "{said}");
    let (code, said) = home.asked(&["fence", &second, "--yes"]);
    assert!(code == Some(0) && said.contains("nobody leads"), "{said}");
    assert_eq!(home.condition("demo", "Ready").await.unwrap(), ("False".to_owned(), "Fenced".to_owned()));
    for instance in ["demo-1", "demo-2", "demo-3"] {
        assert!(!has_postgres(&home, instance).await, "{instance}");
        let (code, said) =
            home.asked(&["failover", "demo", "--to", instance, "--force", "--accept-data-loss", "--yes"]);
        assert!(code == Some(1) && said.contains("is fenced"), "{said}");
    }
    for instance in [second.as_str(), third, "demo-1"] {
        let (code, said) = home.asked(&["unfence", instance]);
        assert!(code == Some(0), "{said}");
    }
    home.ready("demo", 3).await;
    for instance in ["demo-1", "demo-2", "demo-3"] {
        let counted = || async { home.number("demo", instance, "select count(*) from kept").await.filter(|n| *n == 2) };
        eventually("everything is there", counted).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_one_leads_by_force_when_those_are_lost_for_good_who_would_know() {
    let home = Home::up(&["--replicas", "3"]).await;
    home.ready("demo", 3).await;
    home.execute("demo", "create table kept (id int); insert into kept values (1)").await;
    let force = |more: &[&'static str]| home.asked(&[&["failover", "demo"], more].concat());
    let (code, said) = force(&[]);
    assert!(code == Some(1) && said.contains("bellwether switchover demo") && said.contains("--force"), "{said}");
    let (code, said) = force(&["--force"]);
    assert!(code == Some(1) && said.contains("--accept-data-loss"), "{said}");
    let (code, said) = force(&["--force", "--accept-data-loss", "--yes"]);
    assert!(code == Some(1) && said.contains("leads demo and accepts writes"), "{said}");
    let primary = leader(&home).await.unwrap();
    let survivor = "demo-3";
    assert_ne!(primary, survivor);
    // Were it the only voter, it would lead by itself.
    eventually("commits wait for one of two", || two_vote(&home)).await;
    // Two volumes are lost with their pods, the primary's first.
    let pods: Api<Pod> = Api::default_namespaced(home.client().await);
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(home.client().await);
    let lost: Vec<_> = ["demo-1", "demo-2"].into_iter().collect();
    // Its last act would be to hand over.
    let agent = listener(&home, &primary, AGENT_PORT).await.expect("the primary's agent listens");
    kill(Pid::from_raw(agent), Signal::SIGSTOP).unwrap();
    for instance in &lost {
        claims.delete(&format!("{instance}-data"), &DeleteParams::default()).await.unwrap();
    }
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    for instance in &lost {
        pods.delete(instance, &now).await.unwrap();
    }
    eventually("nobody leads, and the survivor says how far it is", || async {
        let api: Api<PostgresCluster> = Api::default_namespaced(home.client().await);
        let status = api.get("demo").await.ok()?.status?;
        let survivor = status.instances.iter().find(|instance| instance.name == survivor)?;
        survivor.message.as_ref()?.contains("its log ends at").then_some(())
    })
    .await;
    let (code, said) = force(&["--force", "--accept-data-loss"]);
    assert!(code == Some(1) && said.contains("no terminal") && said.contains("LOST FOR GOOD"), "{said}");
    let (code, said) = force(&["--force", "--accept-data-loss", "--yes"]);
    assert!(code == Some(0) && said.contains("demo-3 was made to lead term"), "{said}");
    // Those that are lost join anew, and commits are acknowledged again.
    home.ready("demo", 3).await;
    assert_eq!(leader(&home).await.as_deref(), Some(survivor));
    home.execute("demo", "insert into kept values (2)").await;
    for instance in ["demo-1", "demo-2", "demo-3"] {
        let counted = || async { home.number("demo", instance, "select count(*) from kept").await.filter(|n| *n == 2) };
        eventually("everything is there", counted).await;
    }
    assert_eq!(home.condition("demo", "Forced").await.unwrap(), ("True".to_owned(), "ForcedFailover".to_owned()));
    assert!(has_event(&home, "ForcedFailover").await);
    let lease = Api::<Lease>::default_namespaced(home.client().await).get("demo").await.unwrap();
    let annotations = lease.metadata.annotations.unwrap();
    assert!(annotations.contains_key("bellwether.dev/forced-failover"));
    assert!(!annotations.contains_key("bellwether.dev/force-failover"), "the wish was followed once");
}
