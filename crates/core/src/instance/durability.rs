//! The durability in force. Whom commits wait for then is the election's to decide (`election::voters`).

use bellwether_api::v1::DurabilityMode;

use crate::contract::InstanceConfig;

/// The durability in force. The operator says; where an older one doesn't, the number of instances does.
pub fn mode(config: &InstanceConfig) -> DurabilityMode {
    config.durability.unwrap_or(match config.instances.len() {
        0 | 1 => DurabilityMode::Async,
        2 => DurabilityMode::Preferred,
        _ => DurabilityMode::Quorum,
    })
}
