//! Each finding in one sentence.

use probe::check::{Conclusion, Doubt, Edge, Gap, Lie, Load, Rate, Rows, Takeover, Verdict, Witness};
use probe::finals::Role;
use probe::history::Kind;

/// How many rows a sentence names; JSON has more.
const SHOWN: usize = 3;

/// The one word, with what it means.
pub fn conclusion(conclusion: Conclusion) -> &'static str {
    match conclusion {
        Conclusion::Truthful => {
            "TRUTHFUL: every acknowledged row is on every instance, once, and no two timelines were written at once"
        }
        Conclusion::Inconclusive => "INCONCLUSIVE: nothing is proven against the servers, but not everything was seen",
        Conclusion::Lied => "LIED: the servers did not keep what they acknowledged",
    }
}

/// A role.
pub fn role(role: Option<Role>) -> &'static str {
    match role {
        Some(Role::Primary) => "primary",
        Some(Role::Standby) => "standby",
        None => "not read",
    }
}

/// A lie.
pub fn lie(lie: &Lie) -> String {
    match lie {
        Lie::Lost { instance, rows } => format!("{instance} lacks {}", counted(rows, "acknowledged")),
        Lie::Duplicate { instance, rows } => format!("{instance} has more than once {}", counted(rows, "written")),
        Lie::RefusedButThere { instance, rows } => format!("{instance} has {}", counted(rows, "refused")),
        Lie::NeverWritten { instance, rows } => format!("{instance} has {}", counted(rows, "never written")),
        Lie::Overlap { old, new, seconds, first_new, last_old } => format!(
            "{old} was still written {seconds:.3} s after {new} had acknowledged its first: {} before {}",
            witness(first_new),
            witness(last_old)
        ),
        Lie::TermWentBack { higher, lower } => {
            format!("a lower term was written after a higher one: {} before {}", witness(higher), witness(lower))
        }
    }
}

fn counted(rows: &Rows, what: &str) -> String {
    let first: Vec<_> = rows.first.iter().take(SHOWN).map(witness).collect();
    let more = if rows.count > first.len() { ", …" } else { "" };
    let noun = if rows.count == 1 { "row" } else { "rows" };
    format!("{} {what} {noun}: {}{more}", rows.count, first.join(", "))
}

fn witness(witness: &Witness) -> String {
    let id = format!("{}/{}", witness.id.writer.0, witness.id.seq);
    let Some(attempt) = &witness.attempt else { return id };
    let place = attempt.server.as_ref().map(|server| {
        let timeline = server.timeline.map(|timeline| format!(" timeline {timeline}")).unwrap_or_default();
        let term = server.term.map(|term| format!(" term {term}")).unwrap_or_default();
        format!(" {}{timeline}{term}", server.name())
    });
    format!("{id} ({:.6}{})", attempt.wall, place.unwrap_or_default())
}

/// A doubt.
pub fn doubt(doubt: &Doubt) -> String {
    match doubt {
        Doubt::NoInstance => "no instance's table was read".to_owned(),
        Doubt::Unread { instance, why } => format!("{instance} could not be read: {why}"),
        Doubt::NotCaughtUp { instance, missing } => {
            format!(
                "{instance} had not caught up with the primary in time ({missing} acknowledged rows missing so far)"
            )
        }
        Doubt::SeveralPrimaries { instances } => format!("several say they are primary: {}", instances.join(", ")),
        Doubt::ThinLoad { when, per_second, seconds } => {
            let when = format!("{when:?}").to_lowercase();
            format!(
                "the load {when} the fault was too thin, or too short, to conclude anything: {per_second:.0}/s for {seconds:.1} s"
            )
        }
        Doubt::NeverAcknowledged { kind: of } => format!("no write of {} was ever acknowledged", kind(*of)),
        Doubt::NoTimeline { writes } => format!("{writes} acknowledged writes did not say their timeline"),
    }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Kept => "kept sessions",
        Kind::Direct => "sessions by address",
        Kind::New => "new connections",
        Kind::Lingering => "sessions set aside",
    }
}

/// How many writes had which outcome.
pub fn writes(verdict: &Verdict) -> String {
    let writes = &verdict.writes;
    format!(
        "{} acknowledged, {} refused, {} ambiguous ({} answered after their deadline)",
        writes.acknowledged, writes.refused, writes.ambiguous, writes.late
    )
}

/// The load.
pub fn load(load: &Load) -> String {
    let side = |rate: &Rate| format!("{:.0}/s for {:.1} s", rate.per_second(), rate.seconds);
    let fault = load.fault.as_deref().map_or_else(|| "the largest gap".to_owned(), |fault| format!("{fault:?}"));
    format!("load: {} before {fault}, {} after", side(&load.before), side(&load.after))
}

/// A gap.
pub fn gap(gap: &Gap) -> String {
    let to = gap.to.as_ref().map_or_else(|| "the end of the run".to_owned(), edge);
    format!("largest gap of {}: {:.3} s, from {} to {to}", kind(gap.kind), gap.seconds, edge(&gap.from))
}

fn edge(edge: &Edge) -> String {
    let seat = edge.seat.as_ref().map(|seat| format!(" {seat}")).unwrap_or_default();
    format!("+{:.3} s ({:.3}){seat}", edge.seconds, edge.wall)
}

/// A takeover.
pub fn takeover(takeover: &Takeover) -> String {
    let after = match (takeover.answered_until, takeover.committed_until) {
        _ if takeover.tried_after == 0 => "no old session was left to try".to_owned(),
        (None, _) => "none was acknowledged any more".to_owned(),
        (Some(answered), None) => format!(
            "{} were still answered, up to {answered:.3} s after; none was certainly committed after",
            takeover.acknowledged_after
        ),
        (Some(answered), Some(committed)) => format!(
            "{} were still acknowledged, up to {answered:.3} s after, certainly committed up to {committed:.3} s after",
            takeover.acknowledged_after
        ),
    };
    let change = match takeover.from.name == takeover.to.name && takeover.from.timeline == takeover.to.timeline {
        true => format!("restart of {}", takeover.to),
        false => format!("takeover from {} to {}", takeover.from, takeover.to),
    };
    format!(
        "{change}, first acknowledged at +{:.3} s: of {} old sessions {} tried to write after it; {after} ({} refused, {} ambiguous)",
        takeover.at, takeover.old_sessions, takeover.tried_after, takeover.refused_after, takeover.ambiguous_after
    )
}
