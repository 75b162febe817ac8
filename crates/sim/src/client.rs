//! Applications: each writes unique rows, one after another, through the `rw` Service, over sessions that it keeps as long as they live.
//!
//! A session stays with the server it was opened to, wherever the Service leads meanwhile: that is what fencing is for.

use crate::world::{What, Who, World};

/// How long an application waits for an answer before it gives the session up.
const PATIENCE: u64 = 8_000;

/// An application with one session at a time.
#[derive(Clone, Debug, Default)]
pub struct Client {
    /// Its session: the server, and the boot of it.
    session: Option<(Who, u32)>,
    /// Counts its statements and attempts: an answer to an earlier one means nothing.
    statement: u32,
    /// Commits that were acknowledged to it.
    pub acknowledged: u64,
}

impl World {
    /// A client goes on: it writes, or connects.
    pub fn client(&mut self, client: usize, statement: u32) {
        if self.clients[client].statement != statement {
            return;
        }
        // Some reconnect now and then, as a pool does.
        if self.rng.chance(30) {
            self.clients[client].session = None;
        }
        if self.clients[client].session.is_none() {
            self.clients[client].session = self.open_session();
        }
        self.clients[client].statement += 1;
        let statement = self.clients[client].statement;
        let Some((who, _)) = self.clients[client].session else {
            return self.within(200, 900, What::Client(client, statement));
        };
        let (clients, machine) = (self.net.clients(), self.instances[who.instance].machine);
        if let Some(delay) = self.net.transit(clients, machine, &mut self.rng) {
            self.after(delay, What::Statement(client, statement));
        }
        self.after(PATIENCE, What::Answered(client, statement, false));
    }

    /// A new session through the Service.
    fn open_session(&self) -> Option<(Who, u32)> {
        let address = self.proxy.as_deref()?;
        let instance = self.instances.iter().position(|instance| !instance.gone && instance.address == address)?;
        let who = self.present(instance)?;
        let reached = self.net.connected(self.net.clients(), self.instances[instance].machine);
        let server = &self.container(who)?.server;
        (reached && server.writable() && !server.headless).then_some((who, server.boot))
    }

    /// A statement arrives at its server.
    pub fn statement(&mut self, client: usize, statement: u32) {
        let Some((who, boot)) = self.clients[client].session.filter(|_| self.clients[client].statement == statement)
        else {
            return;
        };
        if let Some(until) = self.postgres_frozen(who) {
            return self.queue.push(until, What::Statement(client, statement));
        }
        let alive = self.container(who).is_some_and(|container| container.server.boot == boot);
        if !alive || !self.commit(who, client, statement) {
            let (machine, clients) = (self.instances[who.instance].machine, self.net.clients());
            if let Some(delay) = self.net.transit(machine, clients, &mut self.rng) {
                self.after(delay, What::Answered(client, statement, false));
            }
        }
    }

    /// The answer arrives: committed, or not known.
    pub fn client_answered(&mut self, client: usize, statement: u32, committed: bool) {
        if self.clients[client].statement != statement {
            return;
        }
        self.clients[client].statement += 1;
        let next = self.clients[client].statement;
        if committed {
            self.clients[client].acknowledged += 1;
            self.within(150, 1_500, What::Client(client, next));
        } else {
            self.clients[client].session = None;
            self.within(100, 600, What::Client(client, next));
        }
    }
}
