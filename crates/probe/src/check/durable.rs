//! Judges the final tables: every acknowledged row is on every instance, once; no refused row is on any; no row that nobody wrote.

use std::collections::BTreeMap;

use super::attempts::{Attempt, Seen};
use super::{Doubt, Findings, Instance, Lie, Rows, Witness};
use crate::finals::{Content, FinalTable, Role, RowId};
use crate::history::{Outcome, WriterId};

/// How many rows of a kind are shown.
const SHOWN: usize = 10;

/// Looks at each instance.
pub(super) fn judge(seen: &Seen, finals: &[FinalTable], findings: &mut Findings) -> Vec<Instance> {
    if finals.is_empty() {
        findings.doubts.push(Doubt::NoInstance);
    }
    let primaries: Vec<_> =
        finals.iter().filter(|table| is_primary(table)).map(|table| table.instance.clone()).collect();
    if primaries.len() > 1 {
        findings.doubts.push(Doubt::SeveralPrimaries { instances: primaries });
    }
    finals.iter().map(|table| instance(seen, table, findings)).collect()
}

fn is_primary(table: &FinalTable) -> bool {
    table.content.as_ref().is_ok_and(|content| content.role == Role::Primary)
}

fn instance(seen: &Seen, table: &FinalTable, findings: &mut Findings) -> Instance {
    let name = &table.instance;
    let content = match &table.content {
        Ok(content) => content,
        Err(why) => {
            findings.doubts.push(Doubt::Unread { instance: name.clone(), why: why.clone() });
            return Instance { instance: name.clone(), role: None, rows: 0, ambiguous: 0, lacks: 0, caught_up: false };
        }
    };
    let lacks: Vec<_> = seen.acknowledged().map(|(id, _)| id).filter(|id| !content.rows.contains_key(id)).collect();
    if !content.caught_up {
        findings.doubts.push(Doubt::NotCaughtUp { instance: name.clone(), missing: lacks.len() });
    } else if !lacks.is_empty() {
        findings.lies.push(Lie::Lost { instance: name.clone(), rows: rows(seen, &lacks) });
    }
    present(seen, name, content, findings);
    let is_ambiguous = |id: &&RowId| {
        seen.attempts.get(*id).is_some_and(|attempt| matches!(attempt.outcome, Outcome::Ambiguous { .. }))
    };
    Instance {
        instance: name.clone(),
        role: Some(content.role),
        rows: content.rows.len(),
        ambiguous: content.rows.keys().filter(is_ambiguous).count(),
        lacks: lacks.len(),
        caught_up: content.caught_up,
    }
}

/// What is there and should not be. It needs no catching up: later it would be there all the more.
fn present(seen: &Seen, name: &str, content: &Content, findings: &mut Findings) {
    let (mut twice, mut refused, mut unknown) = (vec![], vec![], vec![]);
    let last = last_seqs(seen);
    for (id, copies) in &content.rows {
        if *copies > 1 {
            twice.push(id);
        }
        match seen.attempts.get(id).map(|attempt| &attempt.outcome) {
            Some(Outcome::Refused { .. }) => refused.push(id),
            Some(Outcome::Acknowledged | Outcome::Ambiguous { .. }) => {}
            None if was_in_flight(seen, &last, id) => {}
            None => unknown.push(id),
        }
    }
    let instance = name.to_owned();
    if !twice.is_empty() {
        findings.lies.push(Lie::Duplicate { instance: instance.clone(), rows: rows(seen, &twice) });
    }
    if !refused.is_empty() {
        findings.lies.push(Lie::RefusedButThere { instance: instance.clone(), rows: rows(seen, &refused) });
    }
    if !unknown.is_empty() {
        findings.lies.push(Lie::NeverWritten { instance, rows: rows(seen, &unknown) });
    }
}

/// A probe that was killed may have been writing the next id of each of its writers, and recorded none of them.
fn was_in_flight(seen: &Seen, last: &BTreeMap<(&str, WriterId), u64>, id: &RowId) -> bool {
    let recorded = last.get(&(id.run.as_str(), id.writer)).copied().unwrap_or(0);
    seen.killed.contains(&id.run) && id.seq == recorded + 1
}

fn last_seqs(seen: &Seen) -> BTreeMap<(&str, WriterId), u64> {
    let mut last = BTreeMap::new();
    for id in seen.attempts.keys() {
        let seq = last.entry((id.run.as_str(), id.writer)).or_insert(id.seq);
        *seq = id.seq.max(*seq);
    }
    last
}

fn rows(seen: &Seen, ids: &[&RowId]) -> Rows {
    let witness = |id: &&RowId| witness(id, seen.attempts.get(*id));
    Rows { count: ids.len(), first: ids.iter().take(SHOWN).map(witness).collect() }
}

pub(super) fn witness(id: &RowId, attempt: Option<&Attempt>) -> Witness {
    Witness { id: id.clone(), attempt: attempt.cloned() }
}
