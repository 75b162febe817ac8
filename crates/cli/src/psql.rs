//! `bellwether psql`: a session with a cluster as the application's user, from wherever its API can be reached.
//!
//! psql connects to a port of ours on loopback; behind it is the instance's, directly or through the API server ([`crate::ask`]). TLS is psql's own,
//! to the instance, whose certificate it verifies. Never: the password in psql's arguments or environment (it reads a file that only we may), or
//! that file left behind.

use std::io;
use std::process::{ExitCode, Stdio};

use bellwether_api::names::Names;
use bellwether_core::contract::POSTGRES_PORT;
use bellwether_core::object::Kind;
use bellwether_core::observed::Pod;
use bellwether_embedded::connection::{Connection, ConnectionError};
use bellwether_operator::look::look;
use bellwether_operator::port::CallError;
use bellwether_postgres::installation;
use bellwether_runtime::watch::Key;
use kube::Client;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::Psql;
use crate::ask::{self, NoWay};
use crate::cluster::{ClusterError, Space};
use crate::exit::Exit;
use crate::{bring_up, output};

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("{0}")]
    Call(#[from] CallError),
    #[error("the Secret with user and password: {0}")]
    Connection(#[from] ConnectionError),
    #[error("{0} has no primary; `bellwether status {0}` says why, and --instance connects to another")]
    NoPrimary(String),
    #[error(
        "psql can't be run: {0}; it is in PostgreSQL's client package, on Debian or Ubuntu: apt-get install postgresql-client"
    )]
    NoPsql(io::Error),
    #[error("{what}: {why}")]
    Io { what: &'static str, why: io::Error },
}

/// Runs it; the exit code is psql's.
pub fn run(options: &Psql) -> ExitCode {
    let mut code = None;
    let exit = bring_up::block_on(async {
        Ok(match psql(options).await {
            Ok(ended) => {
                code = Some(ended);
                Exit::Ok
            }
            Err(error) => {
                output::error(&error.to_string());
                Exit::Failed
            }
        })
    });
    code.map_or(exit, ExitCode::from)
}

async fn psql(options: &Psql) -> Result<u8, Refused> {
    let space = Space::at(&options.place).await?;
    let key = Key { namespace: space.namespace.clone(), name: options.cluster.clone() };
    let look = look(&space.client, &key, &[Kind::Pod, Kind::Lease]).await?;
    let missing = || ClusterError::NoCluster { cluster: key.name.clone(), namespace: key.namespace.clone() };
    let cluster = look.observed.cluster.known().ok_or_else(missing)?;
    let status = || cluster.status.as_ref().and_then(|status| status.primary.as_deref());
    let primary = || look.observed.leader().or_else(status).ok_or_else(|| Refused::NoPrimary(key.name.clone()));
    let name = match &options.instance {
        Some(name) => name.as_str(),
        None => primary()?,
    };
    let pods = &look.observed.pods.items;
    let no_instance = || ClusterError::NoInstance {
        instance: name.to_owned(),
        namespace: key.namespace.clone(),
        there: pods.keys().cloned().collect(),
    };
    let pod = pods.get(name).ok_or_else(no_instance)?.clone();
    let files = tempfile::tempdir().map_err(|why| Refused::Io { what: "a directory for psql's files", why })?;
    let connection = Connection::of(&space.client, files.path(), &key.namespace, &key.name).await?;
    let listener =
        TcpListener::bind("127.0.0.1:0").await.map_err(|why| Refused::Io { what: "a port on loopback", why })?;
    let port = listener.local_addr().map_err(|why| Refused::Io { what: "a port on loopback", why })?.port();
    let carrying = tokio::spawn(carry(listener, space.client.clone(), key.namespace.clone(), pod));
    let ended = session(options, &connection, &Names::of(&key.name).host(name, &key.namespace), port).await;
    carrying.abort();
    ended
}

/// Runs psql to its end. Ctrl-C is psql's.
async fn session(options: &Psql, connection: &Connection, host: &str, port: u16) -> Result<u8, Refused> {
    let caught = |kind| signal(kind).map_err(|why| Refused::Io { what: "a signal", why });
    let _ours_to_ignore = caught(SignalKind::interrupt())?;
    let mut told_to_end = caught(SignalKind::terminate())?;
    let start = |program: &std::path::Path| {
        let mut command = Command::new(program);
        command.args(&options.arguments).envs(connection.environment()).kill_on_drop(true);
        command.env("PGHOST", host).env("PGHOSTADDR", "127.0.0.1").env("PGPORT", port.to_string());
        command.stdin(Stdio::inherit()).stdout(Stdio::inherit()).stderr(Stdio::inherit()).spawn()
    };
    let installed = || installation::find_all().last().map(|newest| newest.program("psql"));
    let started = match start("psql".as_ref()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => match installed() {
            Some(program) => start(&program),
            None => Err(error),
        },
        started => started,
    };
    let mut running = started.map_err(Refused::NoPsql)?;
    let status = tokio::select! {
        status = running.wait() => status.map_err(Refused::NoPsql)?,
        // It is ended when it is dropped, and its files go.
        _ = told_to_end.recv() => return Ok(1),
    };
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// Carries every connection to the instance: psql opens another to cancel a statement.
async fn carry(listener: TcpListener, client: Client, namespace: String, pod: Pod) {
    while let Ok((mut local, _)) = listener.accept().await {
        let (client, namespace, pod) = (client.clone(), namespace.clone(), pod.clone());
        tokio::spawn(async move {
            match ask::to(&client, &namespace, &pod, POSTGRES_PORT).await {
                Ok(mut far) => drop(tokio::io::copy_bidirectional(&mut local, &mut far).await),
                Err(NoWay::Refused(why) | NoWay::Unreachable(why)) => output::error(&format!("{}: {why}", pod.name)),
            }
        });
    }
}
