//! Plays the image pull: a pod asks for a PostgreSQL by its image, and what is installed on this machine decides.

use bellwether_core::contract::env;
use bellwether_postgres::installation;
use k8s_openapi::api::core::v1::Container;

/// The reason of a container that waits for its PostgreSQL.
pub const REASON: &str = "ErrImagePull";

/// Whether the PostgreSQL that the container asks for is installed; if not, what to say.
pub fn check(container: &Container) -> Result<(), String> {
    let version = container.env.iter().flatten().find(|variable| variable.name == env::PG_VERSION);
    match version.and_then(|variable| variable.value.as_ref()) {
        Some(version) => installation::find(version).map(drop).map_err(|missing| missing.to_string()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asking_for(version: &str) -> Container {
        serde_json::from_value(json!({"name": "c", "env": [{"name": env::PG_VERSION, "value": version}]})).unwrap()
    }

    #[test]
    fn a_version_that_is_not_there_is_refused_with_what_is() {
        let installed = installation::find_all();
        for there in &installed {
            assert_eq!(check(&asking_for(&there.major)), Ok(()));
        }
        let refusal = check(&asking_for("3")).unwrap_err();
        assert!(installed.iter().all(|there| refusal.contains(&there.full_version)), "{refusal}");
    }
}
