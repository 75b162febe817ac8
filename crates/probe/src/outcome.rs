//! Decides what an answer means for a write: acknowledged, refused, or ambiguous.
//!
//! Refused means *certain* not to be committed, acknowledged means that the server said so without reserve; everything else
//! is ambiguous. Never: a COMMIT that came with a warning counted as acknowledged. PostgreSQL commits locally, gives up
//! waiting for its standbys, warns (01000, or 57P01 when the session is ended with it), and answers `COMMIT` as if nothing
//! were. The text of the warning is in the server's language, so none is read: any warning will do.

use std::time::Duration;

use crate::history::Outcome;

/// What came back to COMMIT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitAnswer {
    /// It is done.
    Done,
    /// The server says no.
    Error(Said),
    /// The connection ended.
    Broken(String),
    /// Nothing, for so long.
    Silence(Duration),
}

/// An error or a notice of the server's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// How grave it is.
    pub grade: Grade,
    /// PostgreSQL's code.
    pub code: String,
    /// The text.
    pub message: String,
}

/// How grave a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grade {
    /// For whoever wants to know.
    Notice,
    /// Something may be wrong.
    Warning,
    /// The statement failed; the session goes on.
    Error,
    /// The session ends.
    Fatal,
}

/// What the answer to COMMIT means, with what the server said while it committed.
pub fn of_commit(answer: &CommitAnswer, notices: &[Said]) -> Outcome {
    let warning = notices.iter().find(|said| said.grade != Grade::Notice);
    match (answer, warning) {
        (CommitAnswer::Done, None) => Outcome::Acknowledged,
        (CommitAnswer::Done, Some(warning)) => {
            Outcome::Ambiguous { why: format!("COMMIT with a warning: {}", in_words(warning)) }
        }
        (CommitAnswer::Error(said), None) if says_rolled_back(said) => {
            Outcome::Refused { why: format!("COMMIT: {}", in_words(said)) }
        }
        (CommitAnswer::Error(said), _) => Outcome::Ambiguous { why: format!("COMMIT: {}", in_words(said)) },
        (CommitAnswer::Broken(problem), _) => Outcome::Ambiguous { why: format!("COMMIT: {problem}") },
        (CommitAnswer::Silence(after), _) => Outcome::Ambiguous { why: format!("COMMIT: no answer in {after:?}") },
    }
}

/// Whether an answer to COMMIT is proof that nothing was committed. Only errors that PostgreSQL raises before it writes the commit
/// record are: violated constraints, conflicts, a transaction that had failed already. Others may come from a pooler that
/// lost its server, or from a server that ends after the record was written.
fn says_rolled_back(said: &Said) -> bool {
    let class = said.code.get(..2).unwrap_or_default();
    said.grade == Grade::Error && matches!(class, "23" | "25" | "40") && said.code != COMPLETION_UNKNOWN
}

/// `statement_completion_unknown`: of the class of rollbacks, and yet none for certain.
const COMPLETION_UNKNOWN: &str = "40003";

/// A message in one line.
pub fn in_words(said: &Said) -> String {
    format!("{} ({})", said.message, said.code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(grade: Grade, code: &str) -> Said {
        Said { grade, code: code.into(), message: "annulation de l'attente".into() }
    }
    fn error(grade: Grade, code: &str) -> CommitAnswer {
        CommitAnswer::Error(said(grade, code))
    }
    fn is_ambiguous(outcome: &Outcome) -> bool {
        matches!(outcome, Outcome::Ambiguous { .. })
    }
    fn is_refused(outcome: &Outcome) -> bool {
        matches!(outcome, Outcome::Refused { .. })
    }

    #[test]
    fn a_commit_without_a_warning_is_acknowledged() {
        assert_eq!(of_commit(&CommitAnswer::Done, &[]), Outcome::Acknowledged);
        assert_eq!(of_commit(&CommitAnswer::Done, &[said(Grade::Notice, "00000")]), Outcome::Acknowledged);
    }

    #[test]
    fn a_commit_with_a_warning_is_ambiguous_in_any_language() {
        assert!(is_ambiguous(&of_commit(&CommitAnswer::Done, &[said(Grade::Warning, "01000")])));
        assert!(is_ambiguous(&of_commit(&CommitAnswer::Done, &[said(Grade::Warning, "57P01")])));
    }

    #[test]
    fn an_error_that_proves_a_rollback_is_a_refusal_and_no_other_is() {
        for code in ["23505", "40001", "40P01", "25P02"] {
            assert!(is_refused(&of_commit(&error(Grade::Error, code), &[])), "{code}");
        }
        for code in ["40003", "57P01", "08006", "XX000", "53100", ""] {
            assert!(is_ambiguous(&of_commit(&error(Grade::Error, code), &[])), "{code}");
        }
        assert!(is_ambiguous(&of_commit(&error(Grade::Fatal, "40001"), &[])), "the session ended, perhaps after it");
        let warned = [said(Grade::Warning, "01000")];
        assert!(is_ambiguous(&of_commit(&error(Grade::Error, "40001"), &warned)), "it warned before");
    }

    #[test]
    fn silence_and_a_broken_connection_are_ambiguous() {
        assert!(is_ambiguous(&of_commit(&CommitAnswer::Silence(Duration::from_secs(2)), &[])));
        assert!(is_ambiguous(&of_commit(&CommitAnswer::Broken("connection closed".into()), &[])));
    }
}
