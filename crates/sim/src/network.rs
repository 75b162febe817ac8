//! The network: who reaches whom, how fast, and how much is lost on the way.
//!
//! Places are machines, the API, the clients and the operator. A link is directed, so a partition in one direction is one entry.
//! What is said here of a link holds for requests between agents, for calls of the API, for replication and for clients alike.

use crate::queue::Time;
use crate::rng::Rng;

/// A machine, or something that is on none.
pub type Place = usize;

/// How a link is.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    /// How many faults block it.
    blocked: u8,
    /// In a thousand: lost.
    loss: u64,
    /// At most so many milliseconds on top.
    jitter: u64,
    /// In a thousand: arrives twice.
    twice: u64,
}

/// All links.
#[derive(Clone, Debug)]
pub struct Network {
    machines: usize,
    links: Vec<Link>,
}

impl Network {
    /// Everybody reaches everybody.
    pub fn new(machines: usize) -> Self {
        let places = machines + 3;
        Self { machines, links: vec![Link::default(); places * places] }
    }
    /// Where the API is.
    pub fn api(&self) -> Place {
        self.machines
    }
    /// Where the clients are.
    pub fn clients(&self) -> Place {
        self.machines + 1
    }
    /// Where the operator is.
    pub fn operator(&self) -> Place {
        self.machines + 2
    }
    /// Each place.
    pub fn places(&self) -> std::ops::Range<Place> {
        0..self.machines + 3
    }

    fn link(&mut self, from: Place, to: Place) -> &mut Link {
        let places = self.machines + 3;
        &mut self.links[from * places + to]
    }

    /// Whether nothing gets through.
    pub fn blocked(&self, from: Place, to: Place) -> bool {
        from != to && self.links[from * (self.machines + 3) + to].blocked > 0
    }
    /// Whether they hear each other.
    pub fn connected(&self, one: Place, other: Place) -> bool {
        !self.blocked(one, other) && !self.blocked(other, one)
    }
    /// One more fault blocks the link.
    pub fn block(&mut self, from: Place, to: Place) {
        let link = self.link(from, to);
        link.blocked = link.blocked.saturating_add(1);
    }
    /// One fault less does.
    pub fn unblock(&mut self, from: Place, to: Place) {
        let link = self.link(from, to);
        link.blocked = link.blocked.saturating_sub(1);
    }
    /// From now on so much is lost, delayed, doubled, between every pair.
    pub fn weather(&mut self, loss: u64, jitter: u64, twice: u64) {
        for link in &mut self.links {
            (link.loss, link.jitter, link.twice) = (loss, jitter, twice);
        }
    }
    /// Whether anything is wrong with any link.
    pub fn calm(&self) -> bool {
        self.links.iter().all(|link| link.blocked == 0 && link.loss == 0 && link.jitter == 0 && link.twice == 0)
    }

    /// How long a packet is on its way; nothing when it is lost.
    pub fn transit(&self, from: Place, to: Place, rng: &mut Rng) -> Option<Time> {
        let link = &self.links[from * (self.machines + 3) + to];
        if from == to {
            return Some(0);
        }
        if link.blocked > 0 || link.loss > 0 && rng.chance(link.loss) {
            return None;
        }
        Some(self.delay(from, to, rng))
    }
    /// How long a packet of a connection is on its way: what is lost is sent again, which takes time instead.
    pub fn delay(&self, from: Place, to: Place, rng: &mut Rng) -> Time {
        let link = &self.links[from * (self.machines + 3) + to];
        let mut delay = rng.between(1, 4);
        if link.jitter > 0 {
            delay += rng.below(link.jitter);
        }
        if link.loss > 0 && rng.chance(link.loss) {
            delay += 200;
        }
        delay
    }
    /// Whether a packet arrives a second time.
    pub fn doubled(&self, from: Place, to: Place, rng: &mut Rng) -> bool {
        let twice = self.links[from * (self.machines + 3) + to].twice;
        twice > 0 && rng.chance(twice)
    }
}
