//! Two servers written at once.

use std::time::Duration;

use probe::check::{Conclusion, Lie};
use probe::history::Kind;
use probe::{Probe, Settings, Target};

use crate::proxy;
use crate::server::{PATIENCE, Server, eventually, judge, settings};

#[tokio::test]
async fn two_servers_behind_one_address_are_an_overlap() {
    let (one, other) = (Server::start("one").await, Server::start("other").await);
    let both = proxy::alternating(vec![one.address(), other.address()]).await;
    let access = one.access().through(Target::at("proxy", both.ip(), both.port()));
    let create =
        "create table bellwether_probe (run text, writer bigint, seq bigint, written timestamptz default now());
                  alter table bellwether_probe owner to app";
    for server in [&one, &other] {
        server.query("app", create).await.unwrap();
    }
    let probe = Probe::start(settings(access)).await.unwrap();
    assert!(probe.more_acknowledged(40, PATIENCE).await);
    let history = probe.stop().await.unwrap();
    let verdict = one.judge(&history).await;
    assert_eq!(verdict.conclusion, Conclusion::Lied);
    let overlap = |lie: &Lie| matches!(lie, Lie::Overlap { old, new, .. } if old.system != new.system);
    assert!(verdict.lies.iter().any(overlap), "{:#?}", verdict.lies);
    assert!(verdict.lies.iter().any(|lie| matches!(lie, Lie::Lost { .. })), "the half of the rows is on the other");
}

#[tokio::test]
async fn a_promoted_standby_beside_a_primary_that_goes_on_is_an_overlap_with_lost_rows() {
    let old = Server::start("old").await;
    let new = old.standby("new").await;
    let direct = vec![old.target(), new.target()];
    // The Service is the new one: the old one has only a session that was opened before, by its own address.
    let access = old.access().through(new.target());
    let on_old = Settings { sessions: 0, new: 0, ..settings(old.access()) };
    Probe::start(on_old).await.unwrap().stop().await.unwrap();
    eventually("the standby has the table", async || {
        new.query("app", "select count(*) from bellwether_probe").await.is_ok()
    })
    .await;
    let probe = Probe::start(Settings { direct, ..settings(access) }).await.unwrap();
    assert!(probe.more_acknowledged(20, PATIENCE).await, "through the old one");
    new.admin("select pg_promote()").await;
    probe.mark("promoted the standby beside its primary");
    assert!(probe.more_acknowledged(200, PATIENCE).await, "through both");
    let history = probe.stop().await.unwrap();
    // The old one never catches up: there is nothing to wait for.
    let verdict = judge(&new.access(), &history, &[new.target(), old.target()], Duration::ZERO).await;
    let overlap =
        |lie: &Lie| matches!(lie, Lie::Overlap { old, new, .. } if (old.timeline.0, new.timeline.0) == (1, 2));
    assert!(verdict.lies.iter().any(overlap), "{:#?}", verdict.lies);
    let lost = |lie: &Lie| matches!(lie, Lie::Lost { instance, .. } if instance == "new");
    assert!(verdict.lies.iter().any(lost), "{:#?}", verdict.lies);
    let takeover = &verdict.takeovers[0];
    assert_eq!((takeover.from.timeline.0, takeover.to.timeline.0), (1, 2));
    assert!(takeover.committed_until.unwrap() > 0.0, "{takeover:?}");
    assert!(verdict.gaps.iter().any(|gap| gap.kind == Kind::Direct));
}
