//! What `up` says when it can't do what it is asked: what is in the way, and what to do.

use std::net::TcpListener;

use bellwether_api::v1::PostgresCluster;
use bellwether_api::versions::SUPPORTED;
use bellwether_postgres::installation;
use kube::Api;

use crate::home::{Home, eventually};

const CANNOT_START: Option<i32> = Some(3);

#[tokio::test]
async fn a_second_up_on_the_same_directory_is_refused_and_the_first_goes_on() {
    let home = Home::up(&["--no-cluster"]).await;
    let (code, said) = home.refused(&["--no-cluster"]);
    assert_eq!(code, CANNOT_START, "{said}");
    assert!(said.contains(&format!("pid {}", home.pid())) && said.contains("--data-dir"), "{said}");
    home.client().await;
}

#[test]
fn a_busy_port_is_named_with_who_has_it_and_the_fix() {
    let home = Home::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, said) = home.refused(&["--no-cluster", "--listen", &address]);
    assert_eq!(code, CANNOT_START, "{said}");
    assert!(said.contains(&address) && said.contains(&format!("pid {}", std::process::id())), "{said}");
    assert!(said.contains("--listen"), "{said}");
}

#[test]
fn a_bad_manifest_is_refused_with_file_field_value_and_fix() {
    let home = Home::new();
    let file = home.path().with_extension("yaml");
    let manifest =
        "apiVersion: bellwether.dev/v1\nkind: PostgresCluster\nmetadata: {name: bad}\nspec: {replicas: 11}\n";
    std::fs::write(&file, manifest).unwrap();
    let name = file.display().to_string();
    let (code, said) = home.refused(&["-f", &name]);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(code, CANNOT_START, "{said}");
    for part in [name.as_str(), "spec.replicas", "11"] {
        assert!(said.contains(part), "{part} is not in: {said}");
    }
}

#[tokio::test]
async fn a_version_that_is_not_installed_gets_a_condition_with_what_is() {
    let installed = installation::find_all();
    let missing = SUPPORTED.iter().find(|version| installed.iter().all(|there| there.major != version.major));
    let Some(missing) = missing else { return };
    let home = Home::up(&["--version", missing.major, "--replicas", "1"]).await;
    let api: Api<PostgresCluster> = Api::default_namespaced(home.client().await);
    let says_so = || async {
        let status = api.get("demo").await.ok()?.status?;
        let ready = status.conditions.into_iter().find(|condition| condition.type_ == "Ready")?;
        (ready.status == "False" && ready.reason == "ImageUnavailable").then_some(ready.message)
    };
    let message = eventually("the condition names the image", says_so).await;
    assert!(message.contains(missing.major), "{message}");
    assert!(installed.iter().all(|there| message.contains(&there.full_version)), "{message}");
}
