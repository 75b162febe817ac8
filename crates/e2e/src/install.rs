//! Installs the operator as users do: the chart by a real Helm, or the plain manifest by kubectl.
//!
//! Nothing here changes what is installed but the image's name, and that in the way the documentation tells users to.

use std::path::PathBuf;
use std::time::Duration;

use harness::command::Run;
use serde_json::Value;

use crate::failure::{Failure, Outcome, eventually, same};
use crate::target::Target;

/// Where the operator runs.
pub const NAMESPACE: &str = "bellwether-system";
/// Its Deployment.
pub const OPERATOR: &str = "bellwether-operator";
/// The name of the Helm release.
const RELEASE: &str = "bellwether";
/// What is waited for pods of the operator.
const PATIENCE: Duration = Duration::from_secs(120);

/// A Helm command in the operator's namespace.
pub fn helm<'a>(target: &Target, arguments: impl IntoIterator<Item = &'a str>) -> Run {
    Run::new(&target.helm, arguments.into_iter().chain(["--namespace", NAMESPACE]))
        .env("KUBECONFIG", &target.kubeconfig)
        .within(PATIENCE)
}

fn chart(target: &Target) -> String {
    target.sources.join("deploy/chart/bellwether").display().to_string()
}

/// `helm upgrade --install` of this image, for all namespaces or for these.
pub fn by_helm(target: &Target, image: &str, namespaces: &[&str]) -> Outcome {
    let (repository, tag) = split(image);
    let watched = format!("watchNamespaces={{{}}}", namespaces.join(","));
    let (repository, tag) = (format!("image.repository={repository}"), format!("image.tag={tag}"));
    let mut arguments = vec!["upgrade", "--install", RELEASE];
    let chart = chart(target);
    arguments.extend([chart.as_str(), "--create-namespace", "--set", &repository, "--set", &tag]);
    // Definitions that the plain manifest's users applied belong to no release until one takes them over. A release that is there is
    // upgraded as it is.
    if helm(target, ["status", RELEASE]).go().is_err() {
        arguments.extend(["--take-ownership", "--force-conflicts"]);
    }
    if !namespaces.is_empty() {
        arguments.extend(["--set", &watched]);
    }
    helm(target, arguments).go()?;
    rolled_out(target)
}

/// `helm uninstall`, and the operator's pods gone.
pub fn remove_helm(target: &Target) -> Outcome {
    helm(target, ["uninstall", RELEASE, "--ignore-not-found"]).go()?;
    stopped(target)
}

/// Removes the operator, however an earlier run installed it.
pub fn remove_any(target: &Target) -> Outcome {
    helm(target, ["uninstall", RELEASE, "--ignore-not-found"]).go()?;
    remove_manifest(target)
}

/// The plain manifest.
pub fn by_manifest(target: &Target) -> Outcome {
    let definitions = target.sources.join("deploy/crds").display().to_string();
    // The same the other way round: those that a release installed are Helm's until somebody insists.
    let there = target.kubectl(["get", "crd", "postgresclusters.bellwether.dev", "--ignore-not-found", "-o", "name"]);
    let insist = (!there.output()?.trim().is_empty()).then_some("--force-conflicts");
    target.kubectl(["apply", "--server-side", "-f", &definitions].into_iter().chain(insist)).go()?;
    target.kubectl(["apply", "-f", "-"]).input(manifest(target)?).go()?;
    rolled_out(target)
}

/// Deletes what the plain manifest made; definitions are in another file, and stay.
pub fn remove_manifest(target: &Target) -> Outcome {
    let delete = ["delete", "--ignore-not-found", "-f", "-"];
    target.kubectl(delete).input(manifest(target)?).within(PATIENCE).go()?;
    stopped(target)
}

/// The manifest with the image under test in the place of the released one.
fn manifest(target: &Target) -> Outcome<String> {
    let path: PathBuf = target.sources.join("deploy/bellwether.yaml");
    let text = std::fs::read_to_string(&path).map_err(harness::Error::file(&path))?;
    let released = text.lines().find_map(|line| line.trim().strip_prefix("image: "));
    let released = released.ok_or_else(|| Failure::Wrong(format!("no image in {}", path.display())))?;
    Ok(text.replace(released, &target.images.operator))
}

fn split(image: &str) -> (&str, &str) {
    // A colon before the last slash belongs to the registry's port.
    let name = image.rfind('/').map_or(0, |slash| slash + 1);
    image[name..].rfind(':').map_or((image, "latest"), |colon| (&image[..name + colon], &image[name + colon + 1..]))
}

/// Waits until all operators are the newest and ready.
pub fn rolled_out(target: &Target) -> Outcome {
    let deployment = format!("deployment/{OPERATOR}");
    let wait = ["-n", NAMESPACE, "rollout", "status", &deployment, "--timeout=120s"];
    Ok(target.kubectl(wait).within(PATIENCE + Duration::from_secs(5)).go()?)
}

/// The operator's pods.
pub fn pods(target: &Target) -> Outcome<Vec<Value>> {
    target.list(["-n", NAMESPACE, "pods", "-l", "app.kubernetes.io/name=bellwether"])
}

/// Waits until no operator runs.
fn stopped(target: &Target) -> Outcome {
    eventually("the operators to be gone", PATIENCE, || same("operators", pods(target)?.len(), 0))
}

/// Whether an operator is installed at all.
pub fn installed(target: &Target) -> Outcome<bool> {
    let found = target.kubectl(["-n", NAMESPACE, "get", "deployment", OPERATOR, "--ignore-not-found", "-o", "name"]);
    Ok(!found.output()?.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn the_tag_is_told_from_a_registrys_port() {
        assert_eq!(split("bellwether.dev/operator:0.1.0"), ("bellwether.dev/operator", "0.1.0"));
        assert_eq!(split("localhost:5000/operator:a"), ("localhost:5000/operator", "a"));
        assert_eq!(split("localhost:5000/operator"), ("localhost:5000/operator", "latest"));
    }
}
