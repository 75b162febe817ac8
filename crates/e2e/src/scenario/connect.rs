//! An application in another pod connects with nothing but the `-app` Secret, over TLS that it verifies in full.

use std::time::Duration;

use serde_json::{Value, json};

use crate::failure::{Outcome, ensure, eventually, same};
use crate::namespace::Namespace;
use crate::world::World;

pub fn over_tls(world: &World) -> Outcome {
    let namespace = world.namespace("connect")?;
    namespace.ready_cluster("demo", &json!({}))?;
    namespace.apply(&client(&namespace, "demo"))?;
    namespace.kubectl(["wait", "--for=condition=Ready", "pod/client", "--timeout=50s"]).go()?;

    let asked =
        "select current_user || ' ' || ssl || ' ' || pg_is_in_recovery() from pg_stat_ssl where pid = pg_backend_pid()";
    same("by parts", psql(&namespace, &parts("host", "verify-full"), asked)?.as_str(), "app true false")?;
    same(
        "by URI",
        in_client(&namespace, &format!("psql \"$(cat /app/uri)\" -tAc \"{asked}\""))?.as_str(),
        "app true false",
    )?;
    let host = in_client(&namespace, "cat /app/host")?;
    for (service, recovery) in [("rw", "false"), ("ro", "true")] {
        let other =
            parts("host", "verify-full").replace("$(cat /app/host)", &host.replace("-rw.", &format!("-{service}.")));
        same(service, psql(&namespace, &other, asked)?, format!("app true {recovery}"))?;
    }
    psql(&namespace, &parts("host", "verify-full"), "create table orders as select 1 as id")?;
    same("rows", psql(&namespace, &parts("host", "verify-full"), "select count(*) from orders")?.as_str(), "1")?;

    let bare = psql(&namespace, &parts("host", "disable"), "select 1").err().map(|e| e.to_string()).unwrap_or_default();
    ensure(bare.contains("no encryption") || bare.contains("SSL"), || format!("without TLS: {bare:?}"))?;
    let other_name = parts("host", "verify-full").replace("$(cat /app/host)", &address(&namespace)?);
    let lie = psql(&namespace, &other_name, "select 1").err().map(|error| error.to_string()).unwrap_or_default();
    ensure(lie.contains("does not match host name"), || format!("by an address that no certificate names: {lie:?}"))
}

/// The Service's own address: reached, but not what the certificate says.
fn address(namespace: &Namespace<'_>) -> Outcome<String> {
    let service = namespace.get(["service", "demo-rw"])?;
    Ok(service["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned())
}

fn parts(host: &str, mode: &str) -> String {
    let words = [
        format!("host=$(cat /app/{host})"),
        "port=$(cat /app/port) dbname=$(cat /app/dbname) user=$(cat /app/username)".to_owned(),
        format!("password=$(cat /app/password) sslmode={mode} sslrootcert=/app/ca.crt"),
    ];
    words.join(" ")
}

fn psql(namespace: &Namespace<'_>, connection: &str, query: &str) -> Outcome<String> {
    // A Service's endpoints reach a node's proxy within a second or so.
    eventually("an answer", Duration::from_secs(10), || {
        in_client(namespace, &format!("psql \"{connection}\" -v ON_ERROR_STOP=1 -tAc \"{query}\""))
    })
}

/// What a shell in that pod prints.
pub fn in_client(namespace: &Namespace<'_>, script: &str) -> Outcome<String> {
    Ok(namespace.kubectl(["exec", "client", "--", "sh", "-c", script]).output()?.trim().to_owned())
}

/// A pod with PostgreSQL's client and the application's Secret of a cluster; it passes Pod Security `restricted`.
pub fn client(namespace: &Namespace<'_>, cluster: &str) -> Value {
    let image = namespace.manifest("any", &json!({}))["spec"]["image"].clone();
    let image = if image.is_null() { json!("postgres:17") } else { image };
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "client"},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 999, "fsGroup": 999, "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [{
                "name": "client", "image": image, "command": ["sleep", "infinity"],
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
                "volumeMounts": [{"name": "app", "mountPath": "/app", "readOnly": true}],
            }],
            "volumes": [{"name": "app", "secret": {"secretName": format!("{cluster}-app")}}],
        },
    })
}
