//! What came of a round: a line of JSON, appended and never changed.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fault::Fault;

/// A round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Where: `embedded`, or `nodes`.
    pub home: String,
    /// Chose what was done.
    pub seed: u64,
    /// Its number under this seed.
    pub round: u64,
    /// When it began.
    pub at: jiff::Timestamp,
    /// What was done.
    pub faults: Vec<Fault>,
    /// Who led before.
    pub before: String,
    /// Who led in the end.
    pub after: String,
    /// What the probe says.
    pub told: Told,
    /// From the fault until every instance was ready again.
    pub ready_seconds: f64,
}

/// The probe's verdict, as far as it is counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Told {
    /// Writes that were acknowledged.
    pub acknowledged: u64,
    /// Writes of which nobody knows.
    pub ambiguous: u64,
    /// Acknowledged rows that an instance lacked in the end.
    pub lost: u64,
    /// Two that were written at once.
    pub overlaps: u64,
    /// Everything else that is proven against the servers.
    pub other_lies: u64,
    /// What is not known: the round proves nothing then.
    pub doubts: Vec<String>,
    /// The largest time without an acknowledged write, of sessions that are opened anew when they broke.
    pub gap: Option<f64>,
    /// The same of connections that are opened for each write.
    pub gap_new: Option<f64>,
    /// The same of sessions with each instance by its own address.
    pub gap_direct: Option<f64>,
    /// Changes of the server or timeline that was written.
    pub takeovers: u64,
}

impl Told {
    /// From the verdict as the probe prints it.
    pub fn read(verdict: &Value) -> Self {
        let lies = verdict["lies"].as_array().cloned().unwrap_or_default();
        let of = |kind: &str| lies.iter().filter(|lie| lie["lie"] == kind).cloned().collect::<Vec<_>>();
        let rows = |lie: &Value| lie["rows"]["count"].as_u64().unwrap_or(1);
        let (lost, overlaps) = (of("lost"), of("overlap"));
        let gap = |kind: &str| {
            let gaps = verdict["gaps"].as_array()?;
            gaps.iter().find(|gap| gap["kind"] == kind)?["seconds"].as_f64()
        };
        let list = |value: &Value| value.as_array().map_or(0, Vec::len);
        Self {
            acknowledged: verdict["writes"]["acknowledged"].as_u64().unwrap_or_default(),
            ambiguous: verdict["writes"]["ambiguous"].as_u64().unwrap_or_default(),
            lost: lost.iter().map(rows).sum(),
            overlaps: overlaps.len() as u64,
            other_lies: (lies.len() - lost.len() - overlaps.len()) as u64,
            doubts: verdict["doubts"]
                .as_array()
                .map_or_else(Vec::new, |all| all.iter().map(Value::to_string).collect()),
            gap: gap("kept"),
            gap_new: gap("new"),
            gap_direct: gap("direct"),
            takeovers: list(&verdict["takeovers"]) as u64,
        }
    }

    /// Whether nothing is proven against the servers.
    pub fn is_clean(&self) -> bool {
        self.lost == 0 && self.overlaps == 0 && self.other_lies == 0
    }
}

impl Record {
    /// For people.
    pub fn line(&self) -> String {
        let names: Vec<_> = self.faults.iter().map(|fault| fault.name()).collect();
        let gap = self.told.gap.map_or("no gap known".to_owned(), |gap| format!("gap {gap:.2} s"));
        let Told { lost, overlaps, other_lies, ambiguous, takeovers, doubts, .. } = &self.told;
        format!(
            "round {}: {}: {} → {}: {gap}, {takeovers} takeovers, {lost} lost, {overlaps} overlaps, {other_lies} other lies, {ambiguous} \
             ambiguous, {} doubts; ready after {:.1} s",
            self.round,
            names.join(", "),
            self.before,
            self.after,
            doubts.len(),
            self.ready_seconds
        )
    }

    /// Appends it.
    pub fn append(&self, to: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(to)?;
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        file.write_all(&line)
    }
}

/// All records of a file; none when there is no file.
pub fn read(from: &Path) -> io::Result<Vec<Record>> {
    let file = match File::open(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        file => file?,
    };
    BufReader::new(file).lines().map(|line| Ok(serde_json::from_str(&line?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_counted() {
        let verdict = serde_json::json!({
            "lies": [{"lie": "lost", "instance": "a", "rows": {"count": 3, "first": []}}, {"lie": "overlap", "seconds": 1.0}, {"lie": "duplicate"}],
            "doubts": [{"doubt": "no_instance"}],
            "writes": {"acknowledged": 10, "refused": 2, "ambiguous": 1, "late": 0},
            "gaps": [{"kind": "kept", "seconds": 0.5}, {"kind": "new", "seconds": 0.6}],
            "takeovers": [{}],
        });
        let told = Told::read(&verdict);
        assert_eq!((told.lost, told.overlaps, told.other_lies, told.doubts.len()), (3, 1, 1, 1));
        assert_eq!((told.acknowledged, told.ambiguous, told.takeovers), (10, 1, 1));
        assert_eq!((told.gap, told.gap_new, told.gap_direct), (Some(0.5), Some(0.6), None));
        assert!(!told.is_clean() && Told::default().is_clean());
    }
}
