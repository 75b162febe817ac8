//! The words of the election: moments, identities, versions, positions, voters.
//!
//! Each is a type of its own, so that a term is never compared with a version, nor a moment of one machine with a span. What is
//! not known is an `Option` or a [`crate::fact::Fact`]: an unknown never reads as zero.

use std::fmt;
use std::sync::Arc;

use crate::wal::{Lsn, Term, Timeline};

/// Milliseconds of this machine's `CLOCK_BOOTTIME` (E13: it runs on while the machine is suspended). Moments of different
/// machines are never compared, and none is ever sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

/// A length of time in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub u64);

impl Moment {
    /// The moment this much later.
    pub fn plus(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
    /// The moment this much earlier.
    pub fn minus(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
    /// How long ago `earlier` was; nothing when it lies ahead.
    pub fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

/// When tenure ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Deadline {
    /// At this moment of the local clock, unless it is extended before.
    At(Moment),
    /// There is nobody else who could lead: a single instance never demotes.
    Never,
}

impl Deadline {
    /// Whether it has passed at `now`.
    pub fn passed(self, now: Moment) -> bool {
        matches!(self, Self::At(at) if at <= now)
    }
}

/// An instance: the identity of its volume, which is the UID of the pod that first filled it and is kept on it (E13). A pod made
/// again on the same volume is the same instance, restarted; one under the same name with another volume is somebody else, who
/// holds nothing of what the first acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u128);

impl fmt::Debug for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0;
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            n >> 96,
            (n >> 80) & 0xffff,
            (n >> 64) & 0xffff,
            (n >> 48) & 0xffff,
            n & 0xffff_ffff_ffff
        )
    }
}

impl MemberId {
    /// Reads a pod's UID.
    pub fn from_uid(uid: &str) -> Option<Self> {
        let digits: String = uid.chars().filter(|c| *c != '-').collect();
        (digits.len() == 32).then(|| u128::from_str_radix(&digits, 16).ok().map(Self)).flatten()
    }
}

/// One life of an agent's process. The shell draws it at random; it only has to differ from the lives before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// The number of a request within one incarnation. It grows with each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// The UID of the Lease object: a Lease deleted and made again is another one (E14).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseUid(pub u128);

/// How often what the Lease records was changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Edition(pub u64);

/// The Lease's `resourceVersion`. Kubernetes orders them as numbers, across objects and re-creations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseVersion(pub u64);

/// How far an instance's write-ahead log reaches. The term comes first: what a later leader wrote outranks any amount of what
/// an earlier one wrote without acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The term of the leader that wrote the newest record on this volume.
    pub term: Term,
    /// The timeline of that record.
    pub timeline: Timeline,
    /// Where the log ends.
    pub lsn: Lsn,
}

/// A set of instances, in the order of their identities. It is never changed, so that clones share it: every view of the Lease has one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Members(Arc<[MemberId]>);

impl Members {
    /// Whether `id` is one of them.
    pub fn contains(&self, id: MemberId) -> bool {
        self.0.binary_search(&id).is_ok()
    }
    /// With `id`.
    #[must_use]
    pub fn with(&self, id: MemberId) -> Self {
        self.iter().chain([id]).collect()
    }
    /// Without `id`.
    #[must_use]
    pub fn without(&self, id: MemberId) -> Self {
        Self(self.iter().filter(|other| *other != id).collect())
    }
    /// All of both.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.iter().chain(other.iter()).collect()
    }
    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = MemberId> + Clone + '_ {
        self.0.iter().copied()
    }
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether there is nobody.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<MemberId> for Members {
    fn from_iter<I: IntoIterator<Item = MemberId>>(ids: I) -> Self {
        let mut all: Vec<_> = ids.into_iter().collect();
        all.sort_unstable();
        all.dedup();
        Self(all.into())
    }
}

/// Commits wait for any `needed` of `members`. "Commits wait for nobody" is the absence of this type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Voters {
    needed: usize,
    members: Members,
}

impl Voters {
    /// Any `needed` of `members`; nothing where nobody can be waited for. More than there are means all of them.
    pub fn new(needed: usize, members: Members) -> Option<Self> {
        let needed = needed.min(members.len());
        (needed > 0).then_some(Self { needed, members })
    }
    /// How many must have a commit.
    pub fn needed(&self) -> usize {
        self.needed
    }
    /// Who may be counted.
    pub fn members(&self) -> &Members {
        &self.members
    }
    /// Whether those `heard` are so many that one of them is certain to hold each acknowledged commit: every set of `needed`
    /// voters meets them.
    pub fn covered_by(&self, heard: &Members) -> bool {
        self.members.iter().filter(|voter| heard.contains(*voter)).count() + self.needed > self.members.len()
    }
}

/// One rule that commits were acknowledged by, or are about to be. Without voters: acknowledged without waiting.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    /// The leader that acknowledged by it, when it no longer holds the Lease. None: the present holder.
    pub former: Option<MemberId>,
    /// Whom its commits waited for.
    pub voters: Option<Voters>,
}

/// The Lease's record of synchronous replication: every rule that an acknowledged commit may have been acknowledged by. More
/// than one is a joint step; the last is the one in force or about to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sync(Arc<[Rule]>);

impl Sync {
    /// One rule alone, the holder's.
    pub fn only(voters: Option<Voters>) -> Self {
        Self([Rule { former: None, voters }].into())
    }
    /// These rules and one more of the holder's, which is to come into force. Of two that ask for the same the later says all.
    #[must_use]
    pub fn joined_by(&self, voters: Option<Voters>) -> Self {
        let mut all: Vec<_> = self.0.iter().filter(|old| old.voters != voters).cloned().collect();
        all.push(Rule { former: None, voters });
        Self(all.into())
    }
    /// The same rules when another takes the Lease: what was the holder's own is from now on that of a former leader.
    #[must_use]
    pub fn left_by(&self, holder: Option<MemberId>) -> Self {
        self.0.iter().map(|rule| Rule { former: rule.former.or(holder), voters: rule.voters.clone() }).collect()
    }
    /// Every rule, in the order in which they came into force.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.0.iter()
    }
    /// The rule in force, or about to be.
    pub fn newest(&self) -> Option<&Voters> {
        self.0.last().and_then(|rule| rule.voters.as_ref())
    }
    /// Whether a change is under way.
    pub fn is_joint(&self) -> bool {
        self.0.len() > 1
    }
    /// The rules that the former leaders among those `heard` do not answer for. Whoever led had everything when it began and
    /// wrote itself what it acknowledged, so a former leader whose copy is intact holds all of its own rule and of every earlier
    /// one, whatever became of their voters. Of later ones it knows nothing.
    pub fn left_open(&self, heard: &Members) -> &[Rule] {
        let answers = |rule: &Rule| rule.former.is_some_and(|leader| heard.contains(leader));
        let from = self.0.iter().rposition(answers).map_or(0, |last| last + 1);
        &self.0[from..]
    }
    /// Whether commits may be waiting for `id`.
    pub fn counts_on(&self, id: MemberId) -> bool {
        self.0.iter().filter_map(|rule| rule.voters.as_ref()).any(|voters| voters.members.contains(id))
    }
}

impl FromIterator<Rule> for Sync {
    fn from_iter<I: IntoIterator<Item = Rule>>(rules: I) -> Self {
        Self(rules.into_iter().collect())
    }
}

/// A promise this instance gave: not to campaign before `until` on its own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Promise {
    /// To whom.
    pub to: MemberId,
    /// Of which term.
    pub term: Term,
    /// Counted from the receipt of the request (E8).
    pub until: Moment,
}

/// The right to accept writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tenure {
    /// The term it is for.
    pub term: Term,
    /// When it ends.
    pub until: Deadline,
}
