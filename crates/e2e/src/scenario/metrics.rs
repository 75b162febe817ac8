//! The operator's listener, over the network: whoever scrapes it comes from another pod, by the Service's name, over TLS.

use std::time::Duration;

use serde_json::json;

use crate::failure::{Outcome, ensure, eventually};
use crate::install;
use crate::namespace::Namespace;
use crate::scenario::connect::client;
use crate::world::World;

pub fn scraped(world: &World) -> Outcome {
    let namespace = world.namespace("scraped")?;
    namespace.ready_cluster("demo", &json!({"replicas": 1}))?;
    namespace.apply(&client(&namespace, "demo"))?;
    namespace.kubectl(["wait", "--for=condition=Ready", "pod/client", "--timeout=50s"]).go()?;
    let service = format!("{}-metrics.{}.svc", install::OPERATOR, install::NAMESPACE);
    // Only who leads has reconciled anything, and the Service leads to either.
    let metrics = eventually("the leader's metrics", Duration::from_secs(60), || {
        let page = fetch(&namespace, &service, "/metrics")?;
        ensure(page.contains("bellwether_operator_leading 1"), || page.clone())?;
        Ok(page)
    })?;
    for wanted in
        ["200 OK", "application/openmetrics-text", "bellwether_operator_reconciles_total{result=\"done\"}", "# EOF"]
    {
        ensure(metrics.contains(wanted), || format!("no {wanted:?} in {metrics}"))?;
    }
    let ready = fetch(&namespace, &service, "/readyz")?;
    ensure(ready.contains("200 OK") && ready.contains("ready"), || ready.clone())?;
    let absent = fetch(&namespace, &service, "/debug")?;
    ensure(absent.contains("404"), || absent.clone())?;
    let plain =
        format!("printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' | perl -MIO::Socket::INET -e '{}'", plain_text(&service));
    let plain = in_client(&namespace, &plain)?;
    ensure(!plain.contains("bellwether_"), || format!("answered in plain text: {plain}"))
}

/// A page. The certificate is one that the operator made for itself, so nobody vouches for it; that TLS is spoken is what counts.
fn fetch(namespace: &Namespace<'_>, host: &str, path: &str) -> Outcome<String> {
    let request = format!("GET {path} HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: close\\r\\n\\r\\n");
    in_client(
        namespace,
        &format!("printf '{request}' | openssl s_client -quiet -ign_eof -connect {host}:8443 2>/dev/null"),
    )
}

/// A Perl that sends what it reads as it is, and prints what comes back.
fn plain_text(host: &str) -> String {
    format!(
        "my $s = IO::Socket::INET->new(PeerAddr => \"{host}\", PeerPort => 8443, Timeout => 5) or exit 0; \
         print $s join(\"\", <STDIN>); $s->shutdown(1); print <$s>;"
    )
}

fn in_client(namespace: &Namespace<'_>, script: &str) -> Outcome<String> {
    Ok(namespace.kubectl(["exec", "client", "--", "sh", "-c", script]).output()?)
}
