//! Each lie, planted in a history or a table made by hand, and seen; and histories of honest servers, in which none is.

use std::collections::BTreeMap;
use std::time::Duration;

use bellwether_core::wal::{SystemIdentifier, Term, Timeline};
use proptest::prelude::*;

use super::{CheckError, Conclusion, Doubt, Lie, Rules, Verdict, check};
use crate::clock::{Micros, wall};
use crate::finals::{Content, FinalTable, Role, RowId};
use crate::history::{
    Begin, End, Event, FORMAT, History, Kind, KnownBy, Late, Mark, Outcome, Server, Write, Writer, WriterId,
};

const SECOND: u64 = 1_000_000;

/// A server of system 7.
fn server(instance: &str, timeline: u32, term: Option<u64>) -> Server {
    Server {
        instance: Some(instance.to_owned()),
        address: Some(format!("{instance}:5432")),
        postmaster: None,
        system: SystemIdentifier(7),
        timeline: Some(Timeline(timeline)),
        term: term.map(Term),
    }
}

/// A history under construction.
struct Story {
    events: Vec<Event>,
    seqs: BTreeMap<u32, u64>,
}

impl Story {
    /// A kept writer, 1; a new one, 2; and one that was set aside, 3.
    fn new() -> Self {
        let begin = Begin {
            format: FORMAT,
            run: "r".into(),
            at: Micros(0),
            wall: wall(),
            boot: Some("b".into()),
            table: "t".into(),
        };
        let writer =
            |writer, kind| Event::Writer(Writer { writer: WriterId(writer), kind, target: "db".into(), of: None });
        let events = vec![Event::Begin(begin), writer(1, Kind::Kept), writer(2, Kind::New), writer(3, Kind::Lingering)];
        Self { events, seqs: BTreeMap::new() }
    }

    fn write(&mut self, writer: u32, at: (u64, u64), server: &Server, outcome: Outcome) -> RowId {
        let seq = self.seqs.entry(writer).and_modify(|seq| *seq += 1).or_insert(1);
        self.events.push(Event::Write(Write {
            writer: WriterId(writer),
            seq: *seq,
            session: Some(1),
            opened: Some(Micros(0)),
            sent: Micros(at.0),
            committing: Some(Micros(at.0)),
            answered: Micros(at.1),
            wall: wall(),
            outcome,
            server: Some(server.clone()),
            known_by: Some(KnownBy::Write),
        }));
        RowId { run: "r".into(), writer: WriterId(writer), seq: *seq }
    }

    fn acknowledged(&mut self, writer: u32, at: (u64, u64), server: &Server) -> RowId {
        self.write(writer, at, server, Outcome::Acknowledged)
    }

    /// Both writers, 200 writes a second together, each taking a millisecond.
    /// Two writers, all of whose answers come before `to`.
    fn load(&mut self, from: u64, to: u64, server: &Server) {
        for at in (from..to).step_by(10_000) {
            for (writer, sent) in [(1, at), (2, at + 5000)].into_iter().filter(|(_, sent)| sent + 1000 <= to) {
                self.acknowledged(writer, (sent, sent + 1000), server);
            }
        }
    }

    fn mark(&mut self, at: u64) {
        self.events.push(Event::Mark(Mark { at: Micros(at), wall: wall(), what: "kill".into() }));
    }

    fn end(mut self, at: u64) -> History {
        self.events.push(Event::End(End { at: Micros(at) }));
        History { events: self.events }
    }
}

/// Two seconds on the first server, half a second of nothing, two seconds on the second.
fn failover() -> Story {
    let mut story = Story::new();
    story.load(0, 2 * SECOND, &server("a", 1, Some(1)));
    story.mark(2 * SECOND);
    story.load(5 * SECOND / 2, 9 * SECOND / 2, &server("b", 2, Some(2)));
    story
}

/// Three caught-up instances that have every acknowledged row once.
fn honest(history: &History) -> Vec<FinalTable> {
    let mut rows = BTreeMap::new();
    for event in &history.events {
        if let Event::Write(Write { writer, seq, outcome: Outcome::Acknowledged, .. }) = event {
            rows.insert(RowId { run: "r".into(), writer: *writer, seq: *seq }, 1);
        }
    }
    let table = |instance: &str, role| {
        let content = Content { role, server: None, caught_up: true, rows: rows.clone() };
        FinalTable { instance: instance.into(), content: Ok(content) }
    };
    vec![table("a", Role::Standby), table("b", Role::Primary), table("c", Role::Standby)]
}

fn content(table: &mut FinalTable) -> &mut Content {
    table.content.as_mut().unwrap()
}

fn judge(history: &History, tables: &[FinalTable]) -> Verdict {
    check(std::slice::from_ref(history), tables, &Rules::default()).unwrap()
}

fn has_lie(verdict: &Verdict, which: impl Fn(&Lie) -> bool) -> bool {
    verdict.conclusion == Conclusion::Lied && verdict.lies.iter().any(which)
}

#[test]
fn an_honest_failover_is_truthful_and_its_gap_is_measured() {
    let history = failover().end(9 * SECOND / 2);
    let verdict = judge(&history, &honest(&history));
    assert_eq!(verdict.conclusion, Conclusion::Truthful, "{verdict:#?}");
    let kinds: Vec<_> = verdict.gaps.iter().map(|gap| gap.kind).collect();
    assert_eq!(kinds, [Kind::Kept, Kind::New]);
    for gap in &verdict.gaps {
        assert!((0.5..0.52).contains(&gap.seconds), "{gap:?}");
        let between = (gap.from.seat.as_ref().unwrap(), gap.to.as_ref().unwrap().seat.as_ref().unwrap());
        assert_eq!((between.0.name.as_str(), between.1.name.as_str()), ("a", "b"));
    }
    let [takeover] = verdict.takeovers.as_slice() else { panic!("{verdict:#?}") };
    assert_eq!((takeover.tried_after, takeover.answered_until), (0, None));
    assert!((199.0..202.0).contains(&verdict.load.before.per_second()), "{:?}", verdict.load);
}

#[test]
fn a_lost_write_is_caught_on_the_one_instance_that_lacks_it() {
    let history = failover().end(9 * SECOND / 2);
    let mut tables = honest(&history);
    let lost = content(&mut tables[2]).rows.pop_first().unwrap().0;
    let verdict = judge(&history, &tables);
    let is_it = |lie: &Lie| matches!(lie, Lie::Lost { instance, rows } if instance == "c" && rows.count == 1 && rows.first[0].id == lost);
    assert!(has_lie(&verdict, is_it), "{:?}", verdict.lies);
    assert_eq!(verdict.lies.len(), 1);
}

#[test]
fn a_standby_that_has_not_caught_up_is_a_doubt_and_no_lie() {
    let history = failover().end(9 * SECOND / 2);
    let mut tables = honest(&history);
    content(&mut tables[2]).caught_up = false;
    content(&mut tables[2]).rows.pop_last();
    let verdict = judge(&history, &tables);
    assert_eq!(verdict.conclusion, Conclusion::Inconclusive);
    assert_eq!(verdict.doubts, [Doubt::NotCaughtUp { instance: "c".into(), missing: 1 }]);
    tables[2].content = Err("connection refused".into());
    let verdict = judge(&history, &tables);
    assert!(matches!(verdict.doubts.as_slice(), [Doubt::Unread { .. }]), "{:?}", verdict.doubts);
}

#[test]
fn a_duplicate_is_caught() {
    let history = failover().end(9 * SECOND / 2);
    let mut tables = honest(&history);
    *content(&mut tables[1]).rows.values_mut().next().unwrap() = 2;
    assert!(has_lie(
        &judge(&history, &tables),
        |lie| matches!(lie, Lie::Duplicate { instance, .. } if instance == "b")
    ));
}

#[test]
fn a_refused_row_that_is_there_is_caught_and_an_ambiguous_one_may_be_there() {
    let mut story = failover();
    let at = (SECOND, SECOND + 1);
    let refused = story.write(1, at, &server("a", 1, None), Outcome::Refused { why: "read-only".into() });
    let ambiguous = story.write(1, at, &server("a", 1, None), Outcome::Ambiguous { why: "silence".into() });
    let history = story.end(9 * SECOND / 2);
    let mut tables = honest(&history);
    assert_eq!(judge(&history, &tables).conclusion, Conclusion::Truthful, "neither need be there");
    content(&mut tables[0]).rows.insert(ambiguous, 1);
    assert_eq!(judge(&history, &tables).conclusion, Conclusion::Truthful, "it may be there");
    content(&mut tables[0]).rows.insert(refused, 1);
    assert!(has_lie(&judge(&history, &tables), |lie| matches!(lie, Lie::RefusedButThere { .. })));
}

#[test]
fn a_row_that_nobody_wrote_is_caught_unless_the_probe_was_killed_while_it_wrote_it() {
    let story = failover();
    let next = RowId { run: "r".into(), writer: WriterId(1), seq: story.seqs[&1] + 1 };
    let beyond = RowId { seq: next.seq + 1, ..next.clone() };
    let killed = History { events: story.events.clone() };
    let ended = story.end(9 * SECOND / 2);
    let with = |row: &RowId| {
        let mut tables = honest(&ended);
        content(&mut tables[1]).rows.insert(row.clone(), 1);
        tables
    };
    let never_written = |lie: &Lie| matches!(lie, Lie::NeverWritten { .. });
    assert!(has_lie(&judge(&ended, &with(&next)), never_written));
    assert_eq!(judge(&killed, &with(&next)).conclusion, Conclusion::Truthful);
    assert!(has_lie(&judge(&killed, &with(&beyond)), never_written));
}

#[test]
fn an_old_timeline_written_after_the_new_one_is_an_overlap() {
    let mut story = failover();
    let at = 3 * SECOND;
    story.acknowledged(3, (at, at + 1000), &server("a", 1, Some(1)));
    let history = story.end(9 * SECOND / 2);
    let verdict = judge(&history, &honest(&history));
    let expected = |lie: &Lie| match lie {
        Lie::Overlap { old, new, seconds, .. } => {
            old.timeline == Timeline(1) && new.timeline == Timeline(2) && (seconds - 0.499).abs() < 0.001
        }
        _ => false,
    };
    assert!(has_lie(&verdict, expected), "{:#?}", verdict.lies);
    assert!(has_lie(&verdict, |lie| matches!(lie, Lie::TermWentBack { .. })));
    let takeover = &verdict.takeovers[0];
    assert_eq!((takeover.tried_after, takeover.acknowledged_after), (1, 1));
    assert!((takeover.committed_until.unwrap() - 0.499).abs() < 0.001, "{takeover:?}");
    assert!((takeover.answered_until.unwrap() - 0.5).abs() < 0.001, "{takeover:?}");
}

#[test]
fn an_answer_that_was_only_late_is_no_overlap() {
    let mut story = failover();
    // COMMIT was sent before the fault, and the server was frozen with it: it may have been committed then.
    let at = (2 * SECOND - 500, 4 * SECOND);
    let id = story.write(1, at, &server("a", 1, Some(1)), Outcome::Ambiguous { why: "silence".into() });
    let late =
        Late { writer: WriterId(1), seq: id.seq, answered: Micros(4 * SECOND + 1), outcome: Outcome::Acknowledged };
    story.events.push(Event::Late(late));
    let history = story.end(9 * SECOND / 2);
    let verdict = judge(&history, &honest(&history));
    assert!(
        has_lie(&verdict, |lie| matches!(lie, Lie::Lost { .. })),
        "a late acknowledgement is one: the row must be there"
    );
    let mut tables = honest(&history);
    for table in &mut tables {
        content(table).rows.insert(id.clone(), 1);
    }
    let verdict = judge(&history, &tables);
    assert_eq!(verdict.conclusion, Conclusion::Truthful, "{:#?}", verdict.lies);
    assert_eq!(verdict.writes.late, 1);
    let takeover = &verdict.takeovers[0];
    assert_eq!((takeover.acknowledged_after, takeover.committed_until), (1, None));
    assert!(takeover.answered_until.is_some());
    assert!(verdict.gaps.iter().all(|gap| gap.seconds < 0.52), "it ends no gap either");
}

#[test]
fn two_servers_on_one_timeline_may_follow_each_other_but_not_alternate() {
    let (a, b) = (server("a", 1, None), server("b", 1, None));
    let mut story = Story::new();
    story.load(0, 2 * SECOND, &a);
    story.load(2 * SECOND, 4 * SECOND, &b);
    let history = History { events: story.events.clone() };
    assert_eq!(judge(&history, &honest(&history)).lies, []);
    story.load(4 * SECOND, 6 * SECOND, &a);
    let history = story.end(6 * SECOND);
    assert!(has_lie(&judge(&history, &honest(&history)), |lie| matches!(lie, Lie::Overlap { .. })));
}

#[test]
fn a_server_at_two_addresses_is_one_and_after_a_restart_it_is_another() {
    let at = |address: &str, started| Server {
        address: Some(address.to_owned()),
        postmaster: Some(started),
        ..server("a", 1, None)
    };
    let mut story = Story::new();
    for second in 0..4 {
        let address = if second % 2 == 0 { "10.0.0.1:5432" } else { "[fd00::1]:5432" };
        story.load(second * SECOND, (second + 1) * SECOND, &at(address, 70));
    }
    let history = History { events: story.events.clone() };
    assert_eq!(judge(&history, &honest(&history)).lies, []);
    // Its postmaster is killed and another started; then a backend of the first commits.
    story.load(4 * SECOND, 6 * SECOND, &at("10.0.0.1:5432", 71));
    let history = History { events: story.events.clone() };
    assert_eq!(judge(&history, &honest(&history)).lies, []);
    story.acknowledged(3, (5 * SECOND, 5 * SECOND + 1000), &at("10.0.0.1:5432", 70));
    let history = story.end(6 * SECOND);
    assert!(has_lie(&judge(&history, &honest(&history)), |lie| matches!(lie, Lie::Overlap { .. })));
}

#[test]
fn two_systems_written_at_once_are_an_overlap() {
    let a = server("a", 1, None);
    let b = Server { system: SystemIdentifier(8), ..server("b", 4, None) };
    let mut story = Story::new();
    for second in 0..4 {
        story.load(second * SECOND, (second + 1) * SECOND, if second % 2 == 0 { &a } else { &b });
    }
    let history = story.end(4 * SECOND);
    assert!(has_lie(&judge(&history, &honest(&history)), |lie| matches!(lie, Lie::Overlap { .. })));
}

#[test]
fn an_unknown_term_is_no_term() {
    let mut story = Story::new();
    story.load(0, 2 * SECOND, &server("a", 1, Some(5)));
    story.load(3 * SECOND, 5 * SECOND, &server("b", 2, None));
    let history = story.end(5 * SECOND);
    assert_eq!(judge(&history, &honest(&history)).conclusion, Conclusion::Truthful);
}

#[test]
fn a_thin_load_is_never_truthful() {
    let mut story = Story::new();
    story.load(0, 2 * SECOND, &server("a", 1, None));
    story.mark(2 * SECOND);
    for at in (3 * SECOND..6 * SECOND).step_by(20_000) {
        story.acknowledged(1 + (at / 20_000 % 2) as u32, (at, at + 1000), &server("b", 2, None));
    }
    let history = story.end(6 * SECOND);
    let verdict = judge(&history, &honest(&history));
    assert_eq!(verdict.conclusion, Conclusion::Inconclusive);
    let thin = |doubt: &Doubt| matches!(doubt, Doubt::ThinLoad { when: super::load::When::After, .. });
    assert!(verdict.doubts.iter().any(thin), "{:?}", verdict.doubts);
    assert_eq!(verdict.doubts.len(), 1, "{:?}", verdict.doubts);
    let short = Rules { least_time: Duration::from_secs(10), least_rate: 1.0 };
    let verdict = check(&[history], &[], &short).unwrap();
    assert!(verdict.doubts.len() >= 2, "for too short a time on both sides: {:?}", verdict.doubts);
}

#[test]
fn a_gap_that_never_ended_lasts_to_the_end() {
    let mut story = Story::new();
    story.load(0, 2 * SECOND, &server("a", 1, None));
    let history = story.end(9 * SECOND);
    let verdict = judge(&history, &honest(&history));
    assert!(verdict.gaps.iter().all(|gap| gap.to.is_none() && gap.seconds > 6.9), "{:?}", verdict.gaps);
    assert_eq!(verdict.conclusion, Conclusion::Inconclusive);
}

#[test]
fn nobody_looked_at_is_not_truthful() {
    let history = failover().end(9 * SECOND / 2);
    assert_eq!(judge(&history, &[]).doubts, [Doubt::NoInstance]);
}

#[test]
fn histories_of_two_machines_are_not_compared() {
    let story = |run: &str, boot: &str| {
        let mut history = failover().end(9 * SECOND / 2);
        if let Some(Event::Begin(begin)) = history.events.first_mut() {
            begin.run = run.into();
            begin.boot = Some(boot.into());
        }
        history
    };
    let judged = |one, other| check(&[one, other], &[], &Rules::default());
    assert!(judged(story("x", "b"), story("y", "b")).is_ok());
    assert!(matches!(judged(story("x", "b"), story("y", "c")), Err(CheckError::OtherClock { .. })));
    assert!(matches!(judged(story("x", "b"), story("x", "b")), Err(CheckError::Twice { .. })));
}

/// Any number of servers that take over one after the other, at most one writing at a time.
fn succession() -> impl Strategy<Value = History> {
    let tenure = (1_000_000u64..3_000_000, 0u64..800_000);
    proptest::collection::vec(tenure, 1..5).prop_map(|tenures| {
        let (mut story, mut at) = (Story::new(), 0);
        for (index, (lasts, gap)) in tenures.into_iter().enumerate() {
            let timeline = index as u32 + 1;
            story.load(at, at + lasts, &server(&format!("s{}", index % 3), timeline, Some(u64::from(timeline))));
            at += lasts + gap;
        }
        story.end(at + 1)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn servers_that_take_over_one_after_the_other_are_never_accused(history in succession()) {
        let verdict = judge(&history, &honest(&history));
        prop_assert!(verdict.lies.is_empty(), "{:#?}", verdict.lies);
    }

    #[test]
    fn every_lost_row_is_noticed(history in succession(), which in any::<prop::sample::Index>(), table in 0usize..3) {
        let mut tables = honest(&history);
        let id = which.get(&content(&mut tables[table]).rows.keys().cloned().collect::<Vec<_>>()).clone();
        content(&mut tables[table]).rows.remove(&id);
        let lost = |lie: &Lie| matches!(lie, Lie::Lost { rows, .. } if rows.count == 1 && rows.first[0].id == id);
        prop_assert!(has_lie(&judge(&history, &tables), lost));
    }

    #[test]
    fn every_write_to_an_old_timeline_after_the_new_one_is_noticed(
        history in succession(),
        after in 1u64..2_000_000,
        took in 1u64..5_000,
    ) {
        let first = |timeline: u32| {
            history.events.iter().find_map(|event| match event {
                Event::Write(write) if write.server.as_ref()?.timeline == Some(Timeline(timeline)) => Some(write.answered),
                _ => None,
            })
        };
        let Some(taken_over) = first(2) else { return Ok(()) };
        let (mut story, sent) = (Story { events: history.events.clone(), seqs: BTreeMap::new() }, taken_over.0 + after);
        story.acknowledged(3, (sent, sent + took), &server("s0", 1, None));
        let history = History { events: story.events };
        let overlap = |lie: &Lie| matches!(lie, Lie::Overlap { old, .. } if old.timeline == Timeline(1));
        prop_assert!(has_lie(&judge(&history, &honest(&history)), overlap));
    }

    #[test]
    fn the_order_of_the_lines_does_not_matter(history in succession(), seed in any::<u64>()) {
        // Lines are written when answers come, not when questions are sent: the first (the beginning) and the writers' stay.
        let mut shuffled = history.clone();
        let count = shuffled.events.len();
        let mut state = seed | 1;
        for index in (5..count).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            shuffled.events.swap(index, 4 + (state >> 33) as usize % (index - 3));
        }
        let (one, other) = (judge(&history, &honest(&history)), judge(&shuffled, &honest(&shuffled)));
        prop_assert_eq!((one.conclusion, one.writes, one.load), (other.conclusion, other.writes, other.load));
    }
}
