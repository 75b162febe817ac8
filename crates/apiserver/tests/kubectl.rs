//! A real kubectl against our server: what people type, and what they read.
//!
//! Skipped, with the reason printed, where no kubectl is installed. Each test has a server, a namespace and a home directory of its
//! own: kubectl keeps what it discovered in `$HOME/.kube/cache`, and must not find another server's there.

#![allow(clippy::print_stderr, reason = "a skipped test says why")]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use bellwether_apiserver::http::{Running, Server, ServerConfig};
use serde_json::Value;

const CLUSTER: &str = "
apiVersion: bellwether.dev/v1
kind: PostgresCluster
metadata: {name: orders}
spec:
  version: \"17\"
  replicas: 3
  storage: {size: 100Gi, storageClass: ssd}
  backup: {schedule: \"0 2 * * *\", retention: 7d}
";

/// A server, and a kubectl that talks to it.
struct Kubectl {
    program: PathBuf,
    home: tempfile::TempDir,
    server: Running,
}

impl Kubectl {
    /// None where no kubectl is installed.
    async fn start(test: &str) -> Option<Kubectl> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let Some(program) = std::env::split_paths(&path).map(|dir| dir.join("kubectl")).find(|file| file.is_file())
        else {
            eprintln!("{test}: skipped, no kubectl in PATH");
            return None;
        };
        let server = Server::start(ServerConfig::in_memory()).await.expect("a server");
        let home = tempfile::tempdir().expect("a home directory");
        fs::write(home.path().join("config"), server.admin_kubeconfig().expect("a kubeconfig"))
            .expect("the kubeconfig is written");
        Some(Kubectl { program, home, server })
    }

    /// The same with our CRD applied and established.
    async fn with_crd(test: &str) -> Option<Kubectl> {
        let kubectl = Kubectl::start(test).await?;
        let crd = serde_json::to_string(&bellwether_api::v1::crd()).expect("a CRD");
        kubectl.given(&["apply", "-f", "-"], &crd);
        kubectl.ok(&["wait", "--for=condition=Established", "crd/postgresclusters.bellwether.dev", "--timeout=10s"]);
        Some(kubectl)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).env("HOME", self.home.path()).env("KUBECONFIG", self.home.path().join("config"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = self.command(arguments).spawn().expect("kubectl starts");
        child.stdin.take().expect("its stdin").write_all(input.as_bytes()).expect("it reads");
        child.wait_with_output().expect("it ends")
    }

    /// Runs with an input; it must succeed.
    fn given(&self, arguments: &[&str], input: &str) -> String {
        let output = self.run(arguments, input);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "kubectl {arguments:?}: {}\n{out}\n{err}", output.status);
        format!("{out}{err}")
    }

    /// Runs; it must succeed.
    fn ok(&self, arguments: &[&str]) -> String {
        self.given(arguments, "")
    }

    /// Runs; it must fail. Returns what it says.
    fn refused(&self, arguments: &[&str], input: &str) -> String {
        let output = self.run(arguments, input);
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(!output.status.success(), "kubectl {arguments:?} succeeded:\n{text}");
        text
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.ok(arguments)).expect("JSON")
    }
}

/// The cells of a line of `kubectl get`.
fn cells(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// A kubectl that is still running; it does not outlive its test.
struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_applied_shown_changed_and_deleted() {
    let Some(kubectl) = Kubectl::with_crd("a_cluster_is_applied_shown_changed_and_deleted").await else { return };
    assert_eq!(kubectl.given(&["apply", "-f", "-"], CLUSTER), "postgrescluster.bellwether.dev/orders created\n");
    assert_eq!(kubectl.given(&["apply", "-f", "-"], CLUSTER), "postgrescluster.bellwether.dev/orders unchanged\n");

    let table = kubectl.ok(&["get", "pgc"]);
    let mut lines = table.lines();
    let header = cells(lines.next().expect("a header"));
    assert_eq!(header[..3], ["NAME", "VERSION", "REPLICAS"], "{table}");
    assert_eq!(cells(lines.next().expect("a row"))[..3], ["orders", "17", "3"], "{table}");

    let yaml = kubectl.ok(&["get", "pgc", "orders", "-o", "yaml"]);
    assert!(yaml.contains("schedule: 0 2 * * *"), "{yaml}");

    kubectl.ok(&["scale", "pgc/orders", "--replicas=5"]);
    assert_eq!(kubectl.json(&["get", "pgc", "orders", "-o", "json"])["spec"]["replicas"], 5);
    kubectl.ok(&["patch", "pgc", "orders", "--type=merge", "-p", r#"{"spec":{"replicas":2}}"#]);
    kubectl.ok(&[
        "patch",
        "pgc",
        "orders",
        "--type=json",
        "-p",
        r#"[{"op":"test","path":"/spec/replicas","value":2},{"op":"replace","path":"/spec/replicas","value":1}]"#,
    ]);
    assert_eq!(kubectl.ok(&["get", "pgc", "orders", "-o", "jsonpath={.spec.replicas}"]), "1");

    kubectl.ok(&["label", "pgc", "orders", "team=shop"]);
    kubectl.ok(&["annotate", "pgc", "orders", "note=hello"]);
    assert!(kubectl.ok(&["get", "pgc", "-l", "team=shop", "-o", "name"]).contains("orders"));
    assert_eq!(kubectl.ok(&["get", "pgc", "-l", "team=other", "-o", "name"]), "");

    let described = kubectl.ok(&["describe", "pgc", "orders"]);
    assert!(described.contains("Kind:         PostgresCluster") && described.contains("note: hello"), "{described}");
    assert_eq!(kubectl.ok(&["delete", "pgc", "orders"]), "postgrescluster.bellwether.dev \"orders\" deleted\n");
    assert!(
        kubectl
            .refused(&["get", "pgc", "orders"], "")
            .contains(r#"postgresclusters.bellwether.dev "orders" not found"#)
    );
    kubectl.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_side_apply_keeps_owners_apart() {
    let Some(kubectl) = Kubectl::with_crd("server_side_apply_keeps_owners_apart").await else { return };
    let applied = kubectl.given(&["apply", "--server-side", "--field-manager=alice", "-f", "-"], CLUSTER);
    assert_eq!(applied, "postgrescluster.bellwether.dev/orders serverside-applied\n");
    let other = CLUSTER.replace("replicas: 3", "replicas: 5");
    let refused = kubectl.refused(&["apply", "--server-side", "--field-manager=bob", "-f", "-"], &other);
    assert!(refused.contains(r#"conflict with "alice": .spec.replicas"#), "{refused}");
    kubectl.given(&["apply", "--server-side", "--field-manager=bob", "--force-conflicts", "-f", "-"], &other);
    assert_eq!(kubectl.ok(&["get", "pgc", "orders", "-o", "jsonpath={.spec.replicas}"]), "5");
    kubectl.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_diff_shows_what_an_apply_would_change_and_changes_nothing() {
    let Some(kubectl) = Kubectl::with_crd("a_diff_shows_what_an_apply_would_change_and_changes_nothing").await else {
        return;
    };
    kubectl.given(&["apply", "-f", "-"], CLUSTER);
    let wanted = CLUSTER.replace("replicas: 3", "replicas: 5");
    let output = kubectl.run(&["diff", "-f", "-"], &wanted);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("-  replicas: 3") && text.contains("+  replicas: 5"), "{text}");
    assert_eq!(kubectl.run(&["diff", "--server-side", "--force-conflicts", "-f", "-"], &wanted).status.code(), Some(1));
    assert_eq!(kubectl.run(&["diff", "-f", "-"], CLUSTER).status.code(), Some(0));
    assert_eq!(kubectl.ok(&["get", "pgc", "orders", "-o", "jsonpath={.spec.replicas}"]), "3");
    assert!(
        kubectl
            .server
            .audit()
            .writes_by("")
            .iter()
            .all(|entry| entry.verb != "patch" || entry.resource != "postgresclusters")
    );
    kubectl.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_refused_with_the_field_before_and_at_the_server() {
    let Some(kubectl) = Kubectl::with_crd("bad_input_is_refused_with_the_field_before_and_at_the_server").await else {
        return;
    };
    let zero = kubectl.refused(&["apply", "-f", "-"], &CLUSTER.replace("replicas: 3", "replicas: 0"));
    assert!(zero.contains("spec.replicas"), "{zero}");
    let misspelt = kubectl.refused(&["apply", "-f", "-"], &CLUSTER.replace("replicas: 3", "replica: 3"));
    assert!(misspelt.contains(r#"unknown field "spec.replica""#), "{misspelt}");
    kubectl.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_and_api_resources_know_our_kind() {
    let Some(kubectl) = Kubectl::with_crd("explain_and_api_resources_know_our_kind").await else { return };
    // First, because it makes kubectl forget what it discovered before the CRD came.
    let resources = kubectl.ok(&["api-resources", "--api-group=bellwether.dev"]);
    let row = resources.lines().nth(1).map(cells).unwrap_or_default();
    assert_eq!(row[..2], ["postgresclusters", "pgc"], "{resources}");
    let explained = kubectl.ok(&["explain", "pgc.spec.replicas"]);
    assert!(
        explained.contains("KIND:       PostgresCluster") && explained.contains("FIELD: replicas <integer>"),
        "{explained}"
    );
    let recursive = kubectl.ok(&["explain", "postgrescluster", "--recursive"]);
    assert!(recursive.contains("storageClass"), "{recursive}");
    assert!(kubectl.ok(&["explain", "pod.spec.containers"]).contains("terminationMessagePath"));
    assert!(kubectl.ok(&["api-versions"]).contains("bellwether.dev/v1"));
    assert!(kubectl.ok(&["version"]).contains("Server Version: v1."));
    kubectl.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn built_in_kinds_are_created_patched_and_listed() {
    let Some(kubectl) = Kubectl::start("built_in_kinds_are_created_patched_and_listed").await else { return };
    kubectl.ok(&["create", "namespace", "shop"]);
    kubectl.ok(&["create", "configmap", "settings", "-n", "shop", "--from-literal=a=1"]);
    kubectl.ok(&["patch", "configmap", "settings", "-n", "shop", "--type=strategic", "-p", r#"{"data":{"b":"2"}}"#]);
    let data = kubectl.json(&["get", "configmap", "settings", "-n", "shop", "-o", "json"])["data"].clone();
    assert_eq!(data, serde_json::json!({"a": "1", "b": "2"}));
    kubectl.ok(&["create", "secret", "generic", "password", "-n", "shop", "--from-literal=password=x"]);
    let secrets = kubectl.ok(&["get", "secrets", "-n", "shop"]);
    assert_eq!(cells(secrets.lines().nth(1).unwrap_or_default())[..3], ["password", "Opaque", "1"], "{secrets}");
    let everywhere = kubectl.ok(&["get", "configmaps", "-A"]);
    assert!(everywhere.lines().any(|line| cells(line).starts_with(&["shop", "settings", "2"])), "{everywhere}");

    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: db, namespace: shop}\nspec: {ports: [{name: pg, port: 5432}]}\n";
    kubectl.given(&["apply", "-f", "-"], service);
    kubectl.given(&["apply", "-f", "-"], &service.replace("5432", "5433"));
    let services = kubectl.ok(&["get", "services", "-n", "shop"]);
    assert!(services.contains("5433/TCP"), "{services}");
    assert!(kubectl.ok(&["describe", "service", "db", "-n", "shop"]).contains("5433/TCP"));
    kubectl.ok(&["delete", "namespace", "shop", "--timeout=20s"]);
    assert!(kubectl.refused(&["get", "namespace", "shop"], "").contains("not found"));
    kubectl.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_prints_changes_as_they_happen() {
    let Some(kubectl) = Kubectl::with_crd("a_watch_prints_changes_as_they_happen").await else { return };
    kubectl.given(&["apply", "-f", "-"], CLUSTER);
    let mut watch =
        Background(kubectl.command(&["get", "pgc", "-w", "--output-watch-events"]).spawn().expect("kubectl starts"));
    let mut lines = BufReader::new(watch.0.stdout.take().expect("its output")).lines();
    let mut next = || cells(&lines.next().expect("a line").expect("text"))[..4].join(" ");
    assert_eq!(next(), "EVENT NAME VERSION REPLICAS");
    assert_eq!(next(), "ADDED orders 17 3");
    kubectl.ok(&["scale", "pgc/orders", "--replicas=4"]);
    assert_eq!(next(), "MODIFIED orders 17 4");
    kubectl.ok(&["delete", "pgc", "orders"]);
    assert_eq!(next(), "DELETED orders 17 4");
    kubectl.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_when_the_condition_comes() {
    let Some(kubectl) = Kubectl::with_crd("a_wait_ends_when_the_condition_comes").await else { return };
    kubectl.given(&["apply", "-f", "-"], CLUSTER);
    let waiting = kubectl
        .command(&["wait", "--for=condition=Ready", "pgc/orders", "--timeout=20s"])
        .spawn()
        .expect("kubectl starts");
    let condition = r#"{"status":{"conditions":[{"type":"Ready","status":"True","reason":"Ready","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}"#;
    kubectl.ok(&["patch", "pgc", "orders", "--subresource=status", "--type=merge", "-p", condition]);
    let output = waiting.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "postgrescluster.bellwether.dev/orders condition met\n");
    kubectl.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn permissions_are_asked_granted_and_refused() {
    let Some(kubectl) = Kubectl::start("permissions_are_asked_granted_and_refused").await else { return };
    kubectl.ok(&["create", "serviceaccount", "reader"]);
    kubectl.ok(&["create", "role", "reads", "--verb=get,list", "--resource=configmaps"]);
    kubectl.ok(&["create", "rolebinding", "reads", "--role=reads", "--serviceaccount=default:reader"]);
    assert_eq!(kubectl.ok(&["auth", "can-i", "delete", "pods"]).trim(), "yes");
    let reader = "--as=system:serviceaccount:default:reader";
    assert_eq!(kubectl.ok(&["auth", "can-i", "list", "configmaps", reader]).trim(), "yes");
    assert_eq!(kubectl.refused(&["auth", "can-i", "list", "secrets", reader], "").trim(), "no");
    assert!(kubectl.ok(&["auth", "can-i", "--list", reader]).contains("configmaps"));

    let config = kubectl.home.path().join("reader");
    fs::write(&config, kubectl.server.kubeconfig_for_service_account("default", "reader").expect("a kubeconfig"))
        .expect("written");
    let config = format!("--kubeconfig={}", config.display());
    kubectl.ok(&["get", "configmaps", &config]);
    let refused = kubectl.refused(&["get", "secrets", &config], "");
    let wording = r#"secrets is forbidden: User "system:serviceaccount:default:reader" cannot list resource "secrets" in API group "" in the namespace "default""#;
    assert!(refused.contains(wording), "{refused}");
    assert_eq!(kubectl.server.audit().refusals_of("system:serviceaccount:default:reader").len(), 1);

    let token = kubectl.ok(&["create", "token", "reader"]);
    let with_token = |arguments: &[&str]| {
        let config = fs::read_to_string(kubectl.home.path().join("config")).expect("the kubeconfig");
        let without_certificate: String =
            config.lines().filter(|line| !line.contains("client-")).map(|line| format!("{line}\n")).collect();
        let path = kubectl.home.path().join("anonymous");
        fs::write(&path, without_certificate).expect("written");
        let path = format!("--kubeconfig={}", path.display());
        kubectl.run(&[&[path.as_str()], arguments].concat(), "")
    };
    assert!(with_token(&["--token", token.trim(), "get", "configmaps"]).status.success());
    kubectl.ok(&["delete", "serviceaccount", "reader"]);
    let gone = with_token(&["--token", token.trim(), "get", "configmaps"]);
    assert!(!gone.status.success() && String::from_utf8_lossy(&gone.stderr).contains("Unauthorized"), "{gone:?}");
    kubectl.server.shutdown().await;
}
