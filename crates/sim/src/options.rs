//! What a run is asked for, and what its seed makes of it.

use bellwether_core::election::{Durability, Plant, Settings};

use crate::queue::Time;
use crate::rng::Rng;

/// What a run is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Everything random follows from it.
    pub seed: u64,
    /// Simulated minutes.
    pub minutes: u64,
    /// A bug to plant.
    pub plant: Option<Plant>,
    /// Whether lines are kept.
    pub trace: bool,
}

impl Options {
    /// Ten minutes of this seed.
    pub fn seed(seed: u64) -> Self {
        Self { seed, minutes: 10, plant: None, trace: false }
    }
}

/// What the seed makes of it.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// `spec.replicas` at first.
    pub replicas: usize,
    /// `spec.durability.mode`.
    pub durability: Durability,
    /// `spec.storage.onDelete` is `Delete`.
    pub delete_volumes: bool,
    /// Machines.
    pub machines: usize,
    /// Clients.
    pub clients: usize,
    /// How long news take to reach the operator, at most: one that keeps up, or one with a thousand other clusters.
    pub operator_lag: Time,
}

impl Scenario {
    /// Mostly three instances under `quorum`: the default, and where most is promised.
    pub fn draw(rng: &mut Rng) -> Self {
        let replicas = match rng.below(10) {
            0 => 2,
            1 => 4,
            2 => 5,
            _ => 3,
        };
        let durability = match rng.below(10) {
            0 => Durability::Preferred,
            1 => Durability::Async,
            _ => Durability::Quorum,
        };
        Self {
            replicas,
            durability,
            delete_volumes: rng.chance(300),
            machines: replicas + 2,
            clients: usize::try_from(rng.between(2, 4)).unwrap_or(2),
            operator_lag: match rng.below(10) {
                0 => 80,
                1..=3 => 1_500,
                _ => 8_000,
            },
        }
    }

    /// The agents' settings.
    pub fn settings(&self, plant: Option<Plant>) -> Settings {
        Settings { durability: self.durability, planted: plant, ..Settings::default() }
    }

    /// As the API spells the durability.
    pub fn mode(&self) -> &'static str {
        match self.durability {
            Durability::Quorum => "quorum",
            Durability::Preferred => "preferred",
            Durability::Async => "async",
        }
    }
}
