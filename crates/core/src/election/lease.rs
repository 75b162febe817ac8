//! What this agent knows of the Lease, and which own writes may still change it.
//!
//! From: sights of the Lease in any order (watch, reads, answers to own writes). Never: goes back to an older version (E6), takes a
//! Lease that was deleted, replaced or put back for the one that elected a leader (E14), or forgets an own write that may yet
//! be committed (E1, E5).

use super::message::{LeaseView, Memory};
use super::settings::Settings;
use super::types::{LeaseUid, LeaseVersion, Members, Moment, RequestId};

/// Why the Lease can't be campaigned on (E14).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Damage {
    /// It does not exist.
    Deleted,
    /// It is another object, or its term or edition went backwards. This is what is there now.
    Replaced(LeaseView),
}

/// What a sight of the Lease told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// Nothing new.
    Old,
    /// A version newer than any before.
    Newer,
    /// That it is damaged.
    Damaged,
}

/// An own write that is not known to have failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct OwnWrite {
    pub request: RequestId,
    pub uid: LeaseUid,
    pub base: LeaseVersion,
    pub members: Members,
    /// When it was sent: tenure counts from here (E2).
    pub sent: Moment,
    /// Whether its outcome is still awaited. Otherwise it is ambiguous.
    pub pending: bool,
}

/// The newest Lease known, since when, and what is wrong with the present one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Known {
    view: Option<LeaseView>,
    first_seen: Option<Moment>,
    damage: Option<Damage>,
    writes: Vec<OwnWrite>,
}

impl Known {
    /// The newest version that is sound, damaged or not since.
    pub fn newest(&self) -> Option<&LeaseView> {
        self.view.as_ref()
    }
    /// The newest version, if the Lease is sound.
    pub fn sound(&self) -> Option<&LeaseView> {
        self.view.as_ref().filter(|_| self.damage.is_none())
    }
    pub fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }
    /// When this version was first seen, on the local clock: never the Lease's own `renewTime` (E9).
    pub fn first_seen(&self) -> Option<Moment> {
        self.first_seen
    }

    fn newest_version(&self) -> Option<LeaseVersion> {
        let damaged = match &self.damage {
            Some(Damage::Replaced(view)) => Some(view.version),
            _ => None,
        };
        self.view.as_ref().map(|view| view.version).max(damaged)
    }

    pub fn see(&mut self, view: LeaseView, now: Moment, memory: &Memory, settings: &Settings) -> Sight {
        let newest = self.newest_version();
        let again = newest == Some(view.version);
        if again {
            if self.damage == Some(Damage::Deleted) && self.view.as_ref() == Some(&view) {
                self.damage = None;
            }
            return Sight::Old;
        }
        if newest > Some(view.version) && !planted!(settings, MembersOutOfOrder) {
            return Sight::Old;
        }
        let put_back = is_earlier_edition(&view, memory) && !planted!(settings, EarlierEditionTaken);
        if (put_back || !sound(&view, memory)) && !planted!(settings, DamageIgnored) {
            self.damage = Some(Damage::Replaced(view));
            self.settle();
            return Sight::Damaged;
        }
        if !(planted!(settings, WaitNotRestarted) && self.first_seen.is_some()) {
            self.first_seen = Some(now);
        }
        self.damage = None;
        self.view = Some(view);
        self.settle();
        Sight::Newer
    }

    pub fn see_nothing(&mut self) -> Sight {
        if self.damage == Some(Damage::Deleted) {
            return Sight::Old;
        }
        self.damage = Some(Damage::Deleted);
        Sight::Damaged
    }

    pub fn send(&mut self, write: OwnWrite) {
        self.writes.push(write);
    }

    /// The outcome of a write came; returns what was sent.
    pub fn end(&mut self, request: RequestId, ambiguous: bool) -> Option<OwnWrite> {
        let at = self.writes.iter().position(|write| write.request == request && write.pending)?;
        let sent = self.writes[at].clone();
        if ambiguous {
            self.writes[at].pending = false;
            self.settle();
        } else {
            self.writes.remove(at);
        }
        Some(sent)
    }

    /// An ambiguous write on a version that has been replaced is settled: either its own commit replaced it, and the newest
    /// version has its members, or it never will be committed.
    fn settle(&mut self) {
        let newest = self.newest_version();
        self.writes.retain(|write| write.pending || newest <= Some(write.base));
    }

    /// Own writes that are not known to have failed.
    #[cfg(feature = "planted")]
    pub fn own_writes(&self) -> impl Iterator<Item = &OwnWrite> {
        self.writes.iter()
    }
    /// Moves every moment.
    #[cfg(feature = "planted")]
    pub fn age(&mut self, past: impl Fn(&mut Moment, super::Span), lease: super::Span) {
        let Self { view: _, first_seen, damage: _, writes } = self;
        first_seen.iter_mut().for_each(|seen| past(seen, lease));
        for OwnWrite { request: _, uid: _, base: _, members: _, sent, pending: _ } in writes {
            past(sent, lease);
        }
    }
    /// Gives every version and number its new name.
    #[cfg(feature = "planted")]
    pub fn rename(&mut self, names: &super::Names<'_>) {
        self.view.iter_mut().for_each(|view| view.rename(names));
        if let Some(Damage::Replaced(view)) = &mut self.damage {
            view.rename(names);
        }
        for write in &mut self.writes {
            write.request = (names.request)(write.request);
            write.base = (names.version)(write.base);
        }
    }

    pub fn pending(&self) -> bool {
        self.writes.iter().any(|write| write.pending)
    }
    /// Whether an own write is in flight or ambiguous.
    pub fn unresolved(&self) -> bool {
        !self.writes.is_empty()
    }

    /// Everybody who is a member at the newest version known, or at one that an own write may have made (E5).
    pub fn members(&self, settings: &Settings) -> Members {
        let mut all = self.view.as_ref().map(|view| view.content.members.clone()).unwrap_or_default();
        if let Some(Damage::Replaced(view)) = &self.damage {
            all = all.union(&view.content.members);
        }
        for write in &self.writes {
            if planted!(settings, RemovalCountedEarly) {
                all = all.iter().filter(|id| write.members.contains(*id)).collect();
            }
            if !planted!(settings, AdditionCountedLate) {
                all = all.union(&write.members);
            }
        }
        all
    }
}

/// Whether it was put back within a term: nobody leads by it who was not known before, but it may name voters that commits have not waited for
/// since, and lack those that they did.
fn is_earlier_edition(view: &LeaseView, memory: &Memory) -> bool {
    let same = memory.uid == Some(view.uid) && memory.lease_term == view.content.term;
    same && view.content.edition < memory.edition
}

/// Whether this can be the Lease that we knew, some writes later. One made again counts only once somebody leads by it in a term
/// above all that we have seen in the one before: that is how a cluster comes back (E14). The new leader's own messages may have
/// told of that term already.
fn sound(view: &LeaseView, memory: &Memory) -> bool {
    match memory.uid {
        None => true,
        Some(uid) if uid == view.uid => view.content.term >= memory.term,
        Some(_) => {
            let term = view.content.term;
            view.content.holder.is_some() && term >= memory.term && term > memory.lease_term
        }
    }
}
