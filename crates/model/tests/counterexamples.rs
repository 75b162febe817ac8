//! Counterexamples played move by move: with the bug planted they break a promise, without it they break none. So the bug can be
//! reached within the scenario's bounds, however long an exploration would look for it.

use bellwether_core::election::Plant;
use bellwether_model::act::{Rules, Violation};
use bellwether_model::moves::{Fault, Move, apply};
use bellwether_model::scenario::{Scenario, begin};
use bellwether_model::world::{Body, NODES, Packet, World, channel};

const A: usize = 0;
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
