//! A log: what is in it, which leader wrote what of it as the volume remembers, and what its owner tells of it.
//!
//! As the agent keeps it (`core::instance::history`): who wrote which timeline is kept before the first record of it can arrive, and a leader
//! tells its history along with whatever it says. Judged: nobody ranks its log above what it is. One that ranks too low loses nothing by
//! itself; that it is passed over though it alone holds something acknowledged is INV-2.

use std::sync::Arc;

use bellwether_core::election::{Plant, Position};
use bellwether_core::instance::history::{BEGINNING, Told, WrittenBy, extended, leads_on, term_of};
use bellwether_core::wal::{Lsn, Term, Timeline};

use super::Pg;
use crate::world::{Who, World};

impl World {
    /// How far the log of an instance reaches; nothing where it has none that can be used, or nobody knows who wrote it.
    pub fn position(&self, instance: usize) -> Option<Position> {
        let data = self.data(instance).filter(|data| !data.broken)?;
        if self.instances[instance].container.as_ref().is_some_and(|container| container.server.rewinding) {
            return None;
        }
        if self.written_by(instance).is_empty() {
            return Some(BEGINNING);
        }
        let last = self.records.0[usize::try_from(*data.log.last()?).ok()?];
        let term = term_of(self.written_by(instance), last.timeline)?;
        Some(Position { term, timeline: last.timeline, lsn: end(&data.log) })
    }

    /// The same, said to others: it must be true.
    pub fn said_position(&mut self, instance: usize) -> Option<Position> {
        let position = self.position(instance)?;
        let last = *self.data(instance)?.log.last()?;
        let wrote = self.records.0[usize::try_from(last).ok()?].term;
        if wrote.is_some_and(|wrote| position.term > wrote) {
            let name = self.instances[instance].name.clone();
            let (said, wrote) = (position.term.0, wrote.map_or(0, |term| term.0));
            self.ghost
                .violated("RANK", || format!("{name} says that its log is of term {said}, and it is of term {wrote}"));
        }
        Some(position)
    }

    /// Commits will wait for this standby: what it is sent it must rank as what it is, or others would be preferred that lack it.
    pub(super) fn judge_rank(&mut self, number: usize) {
        let connection = &self.connections[number];
        let counted = self.container(connection.primary).is_some_and(|leader| self.follows_in_term(leader, connection));
        let Some(last) = connection.newest().filter(|_| counted) else { return };
        let Some(record) = usize::try_from(last).ok().and_then(|at| self.records.0.get(at)) else { return };
        let instance = connection.standby.instance;
        let ranked = term_of(self.written_by(instance), record.timeline);
        if ranked != record.term {
            let (name, wrote) = (self.instances[instance].name.clone(), record.term);
            self.ghost
                .violated("RANK", || format!("{name} acknowledges what {wrote:?} wrote, and ranks it {ranked:?}"));
        }
    }

    /// The timeline of a record.
    pub(super) fn timeline_of(&self, record: u32) -> Timeline {
        usize::try_from(record).ok().and_then(|at| self.records.0.get(at)).map_or(Timeline(0), |record| record.timeline)
    }

    /// Who wrote which timelines, as the volume of an instance remembers.
    pub(super) fn written_by(&self, instance: usize) -> &[WrittenBy] {
        &self.volumes[self.instances[instance].volume].written_by
    }

    /// WAL above the present timeline will be of this term.
    pub(super) fn will_write(&mut self, instance: usize, term: Term, above: Timeline) {
        let volume = self.instances[instance].volume;
        let log = &mut self.volumes[volume].written_by;
        *log = extended(log, &[WrittenBy { term, above }]);
    }

    /// The list of the leader that is about to be followed, or copied.
    pub(super) fn adopt(&mut self, instance: usize, log: &[WrittenBy]) {
        let volume = self.instances[instance].volume;
        self.volumes[volume].written_by = extended(&[], log);
    }

    /// Writes a record at the end of an instance's log; where it is.
    pub(super) fn append(&mut self, instance: usize) -> usize {
        let volume = self.instances[instance].volume;
        let volume = &mut self.volumes[volume];
        let Some(data) = volume.data.as_mut() else { return 0 };
        let number = self.records.write(term_of(&volume.written_by, data.timeline), data.timeline);
        data.log.push(number);
        data.log.len() - 1
    }

    /// Begins a new timeline where the log ends.
    pub(super) fn begin_timeline(&mut self, instance: usize) {
        let Some(data) = self.data_mut(instance) else { return };
        Arc::make_mut(&mut data.forks).push((data.timeline, end(&data.log)));
        data.timeline = Timeline(data.timeline.0 + 1);
    }

    /// Lets the others know that this instance is being promoted, and where its log ends.
    pub(super) fn tell_promotion(&mut self, who: Who) {
        let Some(at) = self.data(who.instance).map(|data| end(&data.log)) else { return };
        let told = Told::promoting(at, self.written_by(who.instance).to_vec());
        self.tell(who, told);
    }

    /// Lets the others know which history this primary writes, in the term that it leads now.
    pub fn tell_log(&mut self, who: Who) {
        let Some(container) = self.container(who).filter(|container| container.server.state == Pg::Primary) else {
            return;
        };
        let (Some(term), Some(data)) = (container.leads.map(Term), self.data(who.instance)) else { return };
        let (timeline, forks) = (data.timeline, data.forks.clone());
        if leads_on(self.written_by(who.instance), term) && !self.planted(Plant::LaterTermNotKept) {
            self.will_write(who.instance, term, timeline);
        }
        let told = Told::leader(term, timeline, &forks, self.written_by(who.instance).to_vec());
        self.tell(who, told);
    }

    /// Others are not to compare their logs with this one any more.
    pub(super) fn tell_no_log(&mut self, who: Who) {
        if self.container(who).is_some_and(|container| *container.tells != Told::default()) {
            self.tell(who, Told::default());
        }
    }

    fn tell(&mut self, who: Who, told: Told) {
        let Some(container) = self.container_mut(who) else { return };
        if *container.tells == told {
            return;
        }
        container.tells = Arc::new(told);
        let me = self.instances[who.instance].id;
        let others: Vec<_> = self.places.keys().copied().filter(|id| *id != me).collect();
        for other in others {
            self.send(who, other, None);
        }
    }
}

fn end(log: &[u32]) -> Lsn {
    Lsn(log.len() as u64)
}
