//! Synchronous replication as `synchronous_standby_names = 'ANY k (…)'` has it.
//!
//! Each walsender judges by the configuration that *it* has read, when an acknowledgement reaches it: the k-th highest flush position of
//! the connected standbys that are named. Fewer than k of them release nobody. Whether backends wait at all is the checkpointer's to
//! say. So a change of the rule is a time during which old and new are both in use; it is over when every process has read it.

use bellwether_core::election::{Event, Plant, Voters};

use super::{Connection, Pg};
use crate::world::{Container, What, Who, World};

impl World {
    /// Commits wait for these from now on, as soon as each process has read it.
    pub fn set_voters(&mut self, who: Who, voters: Option<Voters>) {
        let Some(container) = self.container_mut(who) else { return };
        let server = &mut container.server;
        server.rule = voters;
        server.rule_number += 1;
        server.in_force = false;
        server.in_force_from = None;
        let number = server.rule_number;
        let processes: Vec<_> = server.senders.iter().map(|sender| Some(*sender)).chain([None]).collect();
        for process in processes {
            // A busy walsender reads its configuration between two batches.
            let longest = if self.rng.chance(50) { 1_000 } else { 100 };
            self.within(1, longest, What::Reload(who, process, number));
        }
    }

    /// One process has read its configuration.
    pub fn reload(&mut self, who: Who, process: Option<usize>, number: u32) {
        if let Some(until) = self.postgres_frozen(who) {
            return self.queue.push(until, What::Reload(who, process, number));
        }
        let Some(container) = self.container_mut(who) else { return };
        let server = &mut container.server;
        if server.state != Pg::Primary {
            return;
        }
        let rule = server.rule.clone();
        let newest = server.rule_number;
        match process {
            Some(connection) => {
                let connection = &mut self.connections[connection];
                connection.rule_number = newest;
                connection.rule = rule;
                let rule = connection.rule.clone();
                self.release(who, rule.as_ref());
            }
            None => {
                server.defined = rule.is_some();
                server.defined_number = newest;
                if !server.defined {
                    let last = server.waiting.back().map(|commit| commit.at);
                    if let Some(last) = last {
                        self.acknowledge(who, last);
                    }
                }
            }
        }
        self.look_in_force(who);
    }

    /// Wakes the commits that this rule lets go.
    pub(super) fn release(&mut self, who: Who, rule: Option<&Voters>) {
        let Some(container) = self.container(who) else { return };
        let Some(rule) = rule else { return };
        let mut flushed: Vec<usize> = container
            .server
            .senders
            .iter()
            .map(|sender| &self.connections[*sender])
            .filter(|connection| self.counts(container, connection, rule))
            .map(|connection| connection.flushed)
            .collect();
        flushed.sort_unstable_by(|a, b| b.cmp(a));
        let reached = flushed.get(rule.needed() - 1).copied().unwrap_or(0);
        if reached > 0 {
            self.acknowledge(who, reached - 1);
        }
    }

    /// Whether commits wait for this standby: it is named, by its identity and the term in which it follows.
    fn counts(&self, leader: &Container, connection: &Connection, voters: &Voters) -> bool {
        self.follows_in_term(leader, connection) && voters.members().contains(connection.standby_id)
    }

    /// Whether its name says that it follows this leader in its present term.
    pub(super) fn follows_in_term(&self, leader: &Container, connection: &Connection) -> bool {
        Some(connection.term.0) == leader.leads || self.planted(Plant::EarlierFollowerCounted)
    }

    /// Every commit up to this place in the log is acknowledged to its client.
    pub(super) fn acknowledge(&mut self, who: Who, up_to: usize) {
        loop {
            let Some(container) = self.container_mut(who) else { return };
            let Some(commit) = container.server.waiting.front().copied().filter(|commit| commit.at <= up_to) else {
                return;
            };
            container.server.waiting.pop_front();
            self.judge_acknowledgement(who, commit.at);
            let machine = self.instances[who.instance].machine;
            let clients = self.net.clients();
            if let Some(delay) = self.net.transit(machine, clients, &mut self.rng) {
                self.after(delay, What::Answered(commit.client, commit.statement, true));
            }
        }
    }

    /// Tells the agent when no process goes by an older rule, and so many of the new voters that a successor must meet one hold
    /// everything that may have been acknowledged till then.
    pub(super) fn look_in_force(&mut self, who: Who) {
        let Some(container) = self.container(who) else { return };
        let server = &container.server;
        if server.in_force || server.state != Pg::Primary {
            return;
        }
        let newest = server.rule_number;
        let read = server.senders.iter().all(|sender| self.connections[*sender].rule_number == newest);
        if !read || server.defined_number != newest {
            return;
        }
        let end = self.data(who.instance).map_or(0, |data| data.log.len());
        let from = server.in_force_from.unwrap_or(end);
        let hold = |voters: &Voters| {
            let senders = server.senders.iter().map(|sender| &self.connections[*sender]);
            let holders = senders.filter(|c| self.counts(container, c, voters) && c.flushed >= from);
            holders.count() >= voters.needed()
        };
        let hasty = self.settings.planted == Some(Plant::FlushNotAwaited);
        let held = hasty || server.rule.as_ref().is_none_or(hold);
        let Some(container) = self.container_mut(who) else { return };
        container.server.in_force_from = Some(from);
        if held {
            container.server.in_force = true;
            let voters = container.server.rule.clone();
            self.note(|world| format!("{}: its voters are in force", world.instances[who.instance].name));
            self.happen(who, Event::VotersInForce { voters });
        }
    }
}
