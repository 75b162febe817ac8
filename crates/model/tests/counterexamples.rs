//! Counterexamples played move by move: with the bug planted they break a promise, without it they break none. So the bug can be
//! reached within the scenario's bounds, however long an exploration would look for it.

use std::sync::Arc;

use bellwether_core::election::{MemberId, Outcome, Plant};
use bellwether_model::act::{Rules, Violation};
use bellwether_model::moves::{Fault, Move, apply, moves};
use bellwether_model::scenario::{Scenario, begin};
use bellwether_model::world::{API, Body, NODES, NOW, Packet, World, channel};

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;

struct Play {
    world: World,
    rules: Rules,
}

impl Play {
    fn of(scenario: &str, plant: Option<Plant>) -> Self {
        let scenario = Scenario::named(scenario).expect("a scenario");
        let rules = scenario.rules(plant);
        Self { world: begin(&scenario, &rules).expect("a beginning"), rules }
    }
    fn act(&mut self, which: Move) -> Result<(), Violation> {
        self.world = apply(&self.world, which, &self.rules).map_err(|(_, violation)| violation)?;
        Ok(())
    }
    fn fail(&mut self, fault: Fault) -> Result<(), Violation> {
        self.act(Move::Fault(fault))
    }
    /// Everything on its way arrives.
    fn settle(&mut self) -> Result<(), Violation> {
        while !self.world.quiet() {
            self.act(Move::Deliver)?;
        }
        Ok(())
    }
    fn ticks(&mut self, many: usize) -> Result<(), Violation> {
        for _ in 0..many {
            self.settle()?;
            self.act(Move::Tick)?;
        }
        self.settle()
    }
    /// Whether it has tenure.
    fn leads(&self, node: usize) -> bool {
        self.world.nodes[node].agent.as_ref().is_some_and(|agent| agent.tenure(NOW).is_some())
    }
    /// What of a partition can heal by itself and joins this instance with the API.
    fn reach_the_api(&mut self, node: usize) -> Result<(), Violation> {
        let heals =
            |which: &Move| matches!(which, Move::Heal(_, ways) if *ways == channel(node, API) | channel(API, node));
        let heal = moves(&self.world, &self.rules).into_iter().find(heals).expect("it is cut off");
        self.act(heal)
    }
    /// Time passes until this is the next to arrive. False: it never is.
    fn until(&mut self, next: impl Fn(&Packet) -> bool) -> Result<bool, Violation> {
        for _ in 0..400 {
            match self.world.net.queue.front() {
                Some(head) if next(head) => return Ok(true),
                Some(_) => self.act(Move::Deliver)?,
                None => self.act(Move::Tick)?,
            }
        }
        Ok(false)
    }
}

/// These instances on one side, the others and the API on the other.
fn partition(side: &[usize]) -> Fault {
    let rest: Vec<usize> = (0..=NODES).filter(|end| !side.contains(end)).collect();
    let ways = side.iter().flat_map(|one| rest.iter().map(move |other| channel(*one, *other) | channel(*other, *one)));
    Fault::Cut(ways.fold(0, |cut, way| cut | way))
}

/// Plays it with the bug and without.
fn breaks(scenario: &str, plant: Plant, promise: &str, script: impl Fn(&mut Play) -> Result<(), Violation>) {
    let sound = script(&mut Play::of(scenario, None));
    assert_eq!(sound, Ok(()), "without {plant:?}");
    let broken = script(&mut Play::of(scenario, Some(plant))).expect_err("nothing was broken");
    assert!(broken.0.starts_with(promise), "{plant:?}: {}", broken.0);
}

/// A commit that C alone holds is acknowledged; C falls silent and is no longer counted on; A dies.
fn a_voter_is_dropped_too_early(play: &mut Play) -> Result<(), Violation> {
    play.settle()?;
    play.act(Move::Commit(A, 1 << C))?;
    play.fail(partition(&[C]))?;
    play.ticks(4)?;
    play.fail(Fault::Crash(A))?;
    play.ticks(9)
}

#[test]
fn a_candidate_that_satisfies_the_new_voters_only_loses_a_commit() {
    breaks("quorum", Plant::JointStepIgnored, "INV-2", a_voter_is_dropped_too_early);
}

#[test]
fn old_voters_dropped_from_the_record_at_once_lose_a_commit() {
    breaks("quorum", Plant::OldVotersForgotten, "INV-2", a_voter_is_dropped_too_early);
}

#[test]
fn new_voters_recorded_before_they_hold_the_log_lose_a_commit() {
    breaks("quorum", Plant::FlushNotAwaited, "INV-2", a_voter_is_dropped_too_early);
}

#[test]
fn voters_applied_before_they_are_recorded_lose_a_commit() {
    breaks("voters", Plant::VotersBeforeRecord, "INV-2", |play| {
        let recorded =
            |packet: &Packet| matches!(&packet.body, Body::Write { write, .. } if write.content.sync.is_joint());
        assert!(play.until(recorded)?, "a joint step");
        play.fail(partition(&[A, C]))?;
        play.settle()?;
        play.act(Move::Commit(A, 1 << C))?;
        play.ticks(9)
    });
}

/// The primary lapses, alone; another is elected; the Lease is deleted. The lapsed one reaches the API first, and finds one made again.
///
/// The counterexample of the rule's first description (a campaign commits late, its sender has restarted, promises to the old leader, then
/// finds its own name) breaks nothing here: whoever finds its name asks first, and the one whom it promised does not answer.
#[test]
fn promises_that_revive_a_lapsed_primary_make_two() {
    breaks("pair", Plant::PromisesRevive, "INV-1", |play| {
        play.settle()?;
        play.fail(partition(&[A]))?;
        while !play.leads(B) {
            play.ticks(1)?;
        }
        play.fail(Fault::DeleteLease)?;
        play.ticks(1)?;
        play.reach_the_api(A)?;
        play.ticks(1)?;
        play.act(Move::Recreate)?;
        play.ticks(3)
    });
}

fn admits(packet: &Packet) -> bool {
    matches!(&packet.body, Body::Written { outcome: Outcome::Committed(view), .. } if view.content.members.len() == NODES)
}

/// C is admitted, and A does not learn that it is: from the sending of the admission on it needs C's promise, which it can't get.
#[test]
fn an_addition_that_counts_from_its_commit_makes_two_primaries() {
    breaks("joining", Plant::AdditionCountedLate, "INV-1", |play| {
        assert!(play.until(admits)?, "C is admitted");
        play.fail(Fault::Lose)?;
        play.fail(Fault::Cut(partition_of(&[(A, C), (A, API)])))?;
        play.ticks(9)
    });
}

/// The same, but the client of the API sends the admission again when it has no answer, and takes the conflict for the first one's.
#[test]
fn a_write_that_is_sent_again_makes_two_primaries() {
    breaks("joining", Plant::WritesRetried, "INV-1", |play| {
        assert!(play.until(admits)?, "C is admitted");
        play.fail(Fault::Lose)?;
        play.act(Move::Deliver)?;
        play.fail(Fault::Cut(partition_of(&[(A, C), (A, API)])))?;
        play.ticks(9)
    });
}

fn partition_of(pairs: &[(usize, usize)]) -> u16 {
    pairs.iter().fold(0, |cut, (one, other)| cut | channel(*one, *other) | channel(*other, *one))
}

/// A commit that B alone holds is acknowledged; B finds its copy unusable and clones it anew; A's PostgreSQL crashes.
#[test]
fn a_voter_without_a_copy_that_is_counted_loses_a_commit() {
    breaks("quorum", Plant::EmptyCopyCounted, "INV-2", |play| {
        play.settle()?;
        play.act(Move::Commit(A, 1 << B))?;
        play.fail(Fault::GiveUpCopy(B))?;
        play.fail(Fault::PostgresCrash(A))?;
        play.ticks(9)
    });
}

/// Every pod is deleted and made again on its volume. `identity` says who each of them is then.
fn all_made_again(scenario: &str, identity: impl Fn(MemberId) -> MemberId) -> Play {
    let mut play = Play::of(scenario, None);
    let sound = "no promise is broken";
    play.settle().expect(sound);
    play.fail(Fault::CrashAll).expect(sound);
    for node in (0..NODES).filter(|node| play.world.nodes[*node].lives > 0).collect::<Vec<_>>() {
        let it = Arc::make_mut(&mut play.world.nodes[node]);
        it.id = identity(it.id);
        play.act(Move::Restart(node)).expect(sound);
    }
    play.ticks(40).expect(sound);
    play
}

fn somebody_leads(play: &Play) -> bool {
    (0..NODES).any(|node| play.leads(node))
}

#[test]
fn a_cluster_whose_pods_were_all_made_again_on_their_volumes_comes_back() {
    for scenario in ["pair", "trio", "quorum"] {
        assert!(somebody_leads(&all_made_again(scenario, |id| id)), "{scenario}");
    }
}

#[test]
fn a_cluster_whose_members_are_pods_never_comes_back_when_all_were_made_again() {
    for scenario in ["pair", "trio", "quorum"] {
        assert!(!somebody_leads(&all_made_again(scenario, |id| MemberId(id.0 + 0x10))), "{scenario}");
    }
}

/// C is cut off from the others, and removed. The Lease is deleted and made again while A, who leads with B's promises, can't see it. C has
/// a person's word, and the Lease is old: it asks, and A says no.
#[test]
fn a_refusal_that_a_person_overrides_makes_two_primaries() {
    breaks("forced", Plant::RefusalOverridden, "INV-1", |play| {
        play.world.env.faults = 3;
        play.settle()?;
        play.fail(Fault::Cut(partition_of(&[(A, C), (B, C)])))?;
        let members = |play: &Play| play.world.shared.lease.as_ref().map(|view| view.content.members.len());
        while members(play) != Some(2) {
            play.ticks(1)?;
        }
        play.fail(Fault::Cut(partition_of(&[(A, API)])))?;
        play.fail(Fault::DeleteLease)?;
        play.act(Move::Recreate)?;
        play.settle()?;
        play.act(Move::Force(C))?;
        play.ticks(6)?;
        let heal = |which: &Move| matches!(which, Move::Heal(_, ways) if ways & channel(A, C) != 0);
        let heal = moves(&play.world, &play.rules).into_iter().find(heal).expect("C is cut off");
        play.act(heal)?;
        assert!(play.leads(A), "A still leads");
        play.ticks(9)
    });
}
