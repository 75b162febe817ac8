//! The namespace of a scenario, and the database clusters in it.

use std::time::Duration;

use harness::command::Run;
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome, ensure, eventually, same};
use crate::target::Target;

/// The prefix of every namespace that this program makes, and the only ones it removes.
pub const PREFIX: &str = "e2e-";

/// Within this a cluster of three is up, or something is wrong. Far more than it takes, so that a busy machine is not a failure.
pub const COMES_UP: Duration = Duration::from_secs(120);

/// A namespace.
pub struct Namespace<'a> {
    target: &'a Target,
    /// What it is called.
    pub name: String,
}

/// A condition of a cluster's status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One word.
    pub reason: String,
    /// For people.
    pub message: String,
}

impl<'a> Namespace<'a> {
    /// Makes the namespace `e2e-NAME`; what an earlier run left of it goes first.
    pub fn create(target: &'a Target, name: &str, labels: &Value) -> Outcome<Self> {
        let name = format!("{PREFIX}{name}");
        delete(target, &name)?;
        target.apply(&json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels},
        }))?;
        Ok(Self { target, name })
    }

    /// A kubectl command in it.
    pub fn kubectl<'b>(&'b self, arguments: impl IntoIterator<Item = &'b str>) -> Run {
        self.target.kubectl(["-n", &self.name].into_iter().chain(arguments))
    }

    /// What `kubectl get … -o json` prints.
    pub fn get<'b>(&'b self, arguments: impl IntoIterator<Item = &'b str>) -> Outcome<Value> {
        self.target.get(["-n", &self.name].into_iter().chain(arguments))
    }

    /// The items of a list.
    pub fn list<'b>(&'b self, arguments: impl IntoIterator<Item = &'b str>) -> Outcome<Vec<Value>> {
        self.target.list(["-n", &self.name].into_iter().chain(arguments))
    }

    /// The names of the objects in a list, as kubectl sorts them.
    pub fn names<'b>(&'b self, arguments: impl IntoIterator<Item = &'b str>) -> Outcome<Vec<String>> {
        let items = self.list(arguments)?;
        Ok(items.iter().filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned)).collect())
    }

    /// Applies an object in it.
    pub fn apply(&self, object: &Value) -> Outcome {
        Ok(self.kubectl(["apply", "-f", "-"]).input(object.to_string()).go()?)
    }

    /// The manifest of a cluster of three, with `changes` merged into its spec.
    pub fn manifest(&self, name: &str, changes: &Value) -> Value {
        let images = &self.target.images;
        let mut spec = json!({"version": images.version, "replicas": 3, "storage": {"size": "512Mi"}});
        if let Some(image) = &images.postgres {
            spec["image"] = image.as_str().into();
        }
        merge(&mut spec, changes);
        json!({"apiVersion": "bellwether.dev/v1", "kind": "PostgresCluster", "metadata": {"name": name}, "spec": spec})
    }

    /// Applies a cluster.
    pub fn cluster(&self, name: &str, changes: &Value) -> Outcome {
        self.apply(&self.manifest(name, changes))
    }

    /// Applies a cluster, and waits as its user would.
    pub fn ready_cluster(&self, name: &str, changes: &Value) -> Outcome {
        self.cluster(name, changes)?;
        self.wait_ready(name)
    }

    /// `kubectl wait --for=condition=Ready`, and for all instances.
    pub fn wait_ready(&self, name: &str) -> Outcome {
        self.wait(name, "condition=Ready")?;
        self.wait(name, "jsonpath={.status.phase}=Ready")
    }

    /// `kubectl wait`.
    pub fn wait(&self, name: &str, condition: &str) -> Outcome {
        let object = format!("postgrescluster/{name}");
        let (how, long) = (format!("--for={condition}"), format!("--timeout={}s", COMES_UP.as_secs()));
        let waiting = self.kubectl(["wait", &how, &object, &long]).within(COMES_UP + Duration::from_secs(10)).go();
        let Err(error) = waiting else { return Ok(()) };
        let status = self.status(name).map(|status| status.to_string()).unwrap_or_default();
        Err(Failure::Wrong(format!("{error}; status: {status}")))
    }

    /// A cluster's status.
    pub fn status(&self, name: &str) -> Outcome<Value> {
        Ok(self.get(["postgrescluster", name])?["status"].clone())
    }

    /// One of its conditions.
    pub fn condition(&self, name: &str, type_: &str) -> Outcome<Condition> {
        let status = self.status(name)?;
        let found = status["conditions"].as_array().into_iter().flatten().find(|condition| condition["type"] == type_);
        let found = found.ok_or_else(|| Failure::Wrong(format!("{name} has no condition {type_}: {status}")))?;
        let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
        Ok(Condition { status: text("status"), reason: text("reason"), message: text("message") })
    }

    /// Waits until a condition has this status and reason, and its message holds these words.
    pub fn says(&self, name: &str, type_: &str, wanted: (&str, &str), words: &str) -> Outcome<Condition> {
        eventually(&format!("{type_}={}/{}", wanted.0, wanted.1), COMES_UP, || {
            let seen = self.condition(name, type_)?;
            same(type_, (seen.status.as_str(), seen.reason.as_str()), wanted)?;
            ensure(seen.message.contains(words), || format!("{:?} doesn't say {words:?}", seen.message))?;
            Ok(seen)
        })
    }

    /// The instance that leads.
    pub fn primary(&self, name: &str) -> Outcome<String> {
        let status = self.status(name)?;
        let primary = status["primary"].as_str().map(str::to_owned);
        primary.ok_or_else(|| Failure::Wrong(format!("{name} has no primary: {status}")))
    }

    /// Asks PostgreSQL as its superuser, inside a pod.
    pub fn sql(&self, pod: &str, database: &str, query: &str) -> Outcome<String> {
        let inside =
            ["psql", "-h", "/run/bellwether/socket", "-U", "postgres", "-d", database, "-v", "ON_ERROR_STOP=1"];
        let run = ["exec", pod, "-c", "postgres", "--"].into_iter().chain(inside).chain(["-tAc", query]);
        Ok(self.kubectl(run).output()?.trim().to_owned())
    }

    /// The UIDs of the volumes' claims, by name.
    pub fn volume_uids(&self) -> Outcome<Vec<(String, String)>> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let claims = self.list(["pvc"])?;
        Ok(claims.iter().map(|claim| (text(&claim["metadata"]["name"]), text(&claim["metadata"]["uid"]))).collect())
    }

    /// Deletes a cluster, and waits until its pods are gone too.
    pub fn delete_cluster(&self, name: &str) -> Outcome {
        self.kubectl(["delete", "postgrescluster", name, "--timeout=60s"]).within(Duration::from_secs(70)).go()?;
        let selector = format!("bellwether.dev/cluster={name}");
        eventually("the pods to be gone", Duration::from_secs(60), || {
            same("pods", self.names(["pods", "-l", &selector])?, Vec::<String>::new())
        })
    }
}

/// Deletes a namespace of ours and waits until it is gone.
pub fn delete(target: &Target, name: &str) -> Outcome {
    let gone = ["delete", "namespace", name, "--ignore-not-found", "--timeout=120s"];
    Ok(target.kubectl(gone).within(Duration::from_secs(130)).go()?)
}

/// Puts the fields of `changes` over those of `base`; null removes one.
fn merge(base: &mut Value, changes: &Value) {
    let Value::Object(fields) = changes else {
        *base = changes.clone();
        return;
    };
    for (field, change) in fields {
        match (change, base.as_object_mut()) {
            (Value::Null, Some(object)) => drop(object.remove(field)),
            (_, _) => merge(&mut base[field], change),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_merged_field_by_field() {
        let mut spec = json!({"replicas": 3, "storage": {"size": "1Gi"}, "image": "x"});
        merge(&mut spec, &json!({"storage": {"onDelete": "Delete"}, "image": null, "replicas": 1}));
        assert_eq!(spec, json!({"replicas": 1, "storage": {"size": "1Gi", "onDelete": "Delete"}}));
    }
}
