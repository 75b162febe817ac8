//! The table: what each fault cost, over all records.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::record::Record;

/// Below these, a percentile is a guess and is not printed.
const P95_FROM: usize = 20;
const P99_FROM: usize = 100;

/// As Markdown.
pub fn table(records: &[Record]) -> String {
    let mut rows: BTreeMap<(String, String), Vec<&Record>> = BTreeMap::new();
    for record in records {
        let faults = record.faults.iter().map(|fault| fault.name()).collect::<Vec<_>>().join(", then ");
        let kind = if record.faults.len() > 1 { "two faults".to_owned() } else { faults };
        rows.entry((record.home.clone(), kind)).or_default().push(record);
    }
    let mut text = String::from(
        "| where | what | rounds | takeovers | acknowledged | ambiguous | lost | overlaps | gap p50 | p95 | p99 | max |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for ((home, kind), rounds) in &rows {
        let sum = |of: fn(&Record) -> u64| rounds.iter().map(|record| of(record)).sum::<u64>();
        let mut gaps: Vec<f64> = rounds.iter().filter_map(|record| record.told.gap).collect();
        gaps.sort_by(f64::total_cmp);
        let _ = writeln!(
            text,
            "| {home} | {kind} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            rounds.len(),
            sum(|record| record.told.takeovers),
            sum(|record| record.told.acknowledged),
            sum(|record| record.told.ambiguous),
            sum(|record| record.told.lost),
            sum(|record| record.told.overlaps),
            percentile(&gaps, 50, 1),
            percentile(&gaps, 95, P95_FROM),
            percentile(&gaps, 99, P99_FROM),
            percentile(&gaps, 100, 1),
        );
    }
    let all: u64 = records.iter().map(|record| record.told.takeovers).sum();
    let lost: u64 = records.iter().map(|record| record.told.lost).sum();
    let overlaps: u64 = records.iter().map(|record| record.told.overlaps).sum();
    let doubtful = records.iter().filter(|record| !record.told.doubts.is_empty()).count();
    let _ = writeln!(
        text,
        "\n{} rounds, {all} takeovers, {lost} acknowledged rows lost, {overlaps} overlaps; {doubtful} rounds prove nothing, because the \
         probe was in doubt.",
        records.len()
    );
    text
}

/// The smallest value that so many hundredths are not above.
fn percentile(sorted: &[f64], hundredths: usize, least: usize) -> String {
    if sorted.len() < least {
        return "–".to_owned();
    }
    let rank = (sorted.len() * hundredths).div_ceil(100).max(1);
    sorted.get(rank - 1).map_or("–".to_owned(), |seconds| format!("{seconds:.2} s"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Fault;
    use crate::record::Told;

    fn record(fault: Fault, gap: f64) -> Record {
        Record {
            home: "embedded".to_owned(),
            seed: 1,
            round: 0,
            at: jiff::Timestamp::UNIX_EPOCH,
            faults: vec![fault],
            before: "a".to_owned(),
            after: "b".to_owned(),
            told: Told { acknowledged: 5, takeovers: 1, gap: Some(gap), ..Told::default() },
            ready_seconds: 1.0,
        }
    }

    #[test]
    fn a_percentile_is_printed_only_where_there_is_enough_to_tell() {
        let few: Vec<_> = (1..=19).map(|n| record(Fault::AgentKilled, f64::from(n))).collect();
        assert!(
            table(&few).contains("| embedded | agent-killed | 19 | 19 | 95 | 0 | 0 | 0 | 10.00 s | – | – | 19.00 s |"),
            "{}",
            table(&few)
        );
        let many: Vec<_> = (1..=100).map(|n| record(Fault::AgentKilled, f64::from(n))).collect();
        assert!(table(&many).contains("| 50.00 s | 95.00 s | 99.00 s | 100.00 s |"), "{}", table(&many));
    }
}
