//! Plays the image pull: a pod asks for a PostgreSQL by its image, and what is installed on this machine decides.

use bellwether_core::contract::env;
use k8s_openapi::api::core::v1::Container;

/// The reason of a container that waits for its PostgreSQL.
pub const REASON: &str = "ErrImagePull";

/// Whether the PostgreSQL that the container asks for is installed; if not, what to say.
pub fn check(container: &Container, installed: &[String]) -> Result<(), String> {
    let version = container.env.iter().flatten().find(|variable| variable.name == env::PG_VERSION);
    let Some(version) = version.and_then(|variable| variable.value.as_ref()) else { return Ok(()) };
    if installed.contains(version) {
        return Ok(());
    }
    let there = match installed {
        [] => "no PostgreSQL is installed".to_owned(),
        some => format!("installed: {}", some.join(", ")),
    };
    Err(format!(
        "PostgreSQL {version} is not installed on this machine ({there}); install it (on Debian or Ubuntu: the package \
         postgresql-{version}), or set spec.version to one that is"
    ))
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
        let installed = ["15".to_owned(), "17".to_owned()];
        assert_eq!(check(&asking_for("15"), &installed), Ok(()));
        let refusal = check(&asking_for("18"), &installed).unwrap_err();
        assert!(refusal.contains("PostgreSQL 18") && refusal.contains("installed: 15, 17"), "{refusal}");
        assert!(check(&asking_for("18"), &[]).unwrap_err().contains("no PostgreSQL is installed"));
    }
}
