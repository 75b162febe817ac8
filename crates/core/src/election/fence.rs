//! Decides what becomes of the lead when a person fences this instance: it never leads, and gives the lead away if it has it.
//!
//! From: the wish, and who could take over. Never: campaigns, takes a consent or leads while it is fenced; keeps tenure once its PostgreSQL
//! is stopped and nobody takes over. What it still does harms nobody: it promises not to campaign, which it does not anyway, and
//! answers polls, because its log may be the one that holds an acknowledged commit.

use super::state::{Out, Quest, Role, State};

/// A person wants PostgreSQL here stopped. A leader hands over with the next tick; whatever was begun in order to lead ends, but for a
/// write that is on its way: its answer gives nothing any more.
pub(super) fn fenced(state: &mut State) {
    state.fenced = true;
    if let Role::Member(member) = &mut state.role
        && !matches!(member.quest, Quest::Writing { .. })
    {
        member.quest = Quest::None;
    }
}

/// No longer. A holder by name asks first, as after any pause (E4).
pub(super) fn lifted(state: &mut State) {
    state.fenced = false;
}

/// PostgreSQL is stopped and nobody is known to have everything. One that is not fenced would start again in place; this one lets its
/// tenure lapse without a consent, as one that was lost would: the others lead if enough of them are heard, and wait if not.
pub(super) fn release(state: &mut State, out: &mut Out) {
    state.become_member("it is fenced, and nobody is known to have everything: PostgreSQL stays stopped", out);
}
