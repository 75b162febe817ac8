//! The roles that need no more than a few lines here.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use bellwether_core::build::AddressType;
use bellwether_core::rbac;
use bellwether_embedded::{kubelet, spawn};
use bellwether_operator::Settings;
use bellwether_operator::listen::{Certificate, Listening};
use bellwether_runtime::leader::{self, Election, Timing};
use bellwether_runtime::traffic::Traffic;
use bellwether_runtime::watch::Namespaces;
use bellwether_runtime::{client, telemetry};
use clap::CommandFactory as _;
use tokio_util::sync::CancellationToken;

use crate::args;
use crate::exit::Exit;
use crate::output;

/// The stage between `up` and a pod's process. Returns only when it failed.
pub fn pod_exec(arguments: &[String]) -> ExitCode {
    let error = spawn::stage(arguments);
    let _nowhere_to_say = writeln!(std::io::stderr(), "bellwether {}: {error}", spawn::STAGE);
    Exit::Failed.into()
}

/// Copies this binary into a directory.
pub fn install_agent(options: &args::InstallAgent) -> ExitCode {
    let target = options.directory.join("bellwether");
    match kubelet::install(&target) {
        Ok(()) => Exit::Ok.into(),
        Err(error) => {
            output::error(&format!("copying the agent to {}: {error}", target.display()));
            Exit::Failed.into()
        }
    }
}

/// Prints the version.
pub fn version() -> ExitCode {
    output::line(concat!("bellwether ", env!("CARGO_PKG_VERSION")));
    Exit::Ok.into()
}

/// Prints what a shell needs to complete our command line.
pub fn completion(options: args::Completion) -> ExitCode {
    let mut script = vec![];
    clap_complete::generate(options.shell, &mut args::Cli::command(), "bellwether", &mut script);
    output::line(String::from_utf8_lossy(&script).trim_end());
    Exit::Ok.into()
}

/// Runs the operator until it is told to stop.
pub fn operator(options: args::Operator) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("the operator's runtime: {error}")),
    };
    if let Err(error) = telemetry::init("operator") {
        return failed(&error.to_string());
    }
    let code = runtime.block_on(async {
        let traffic = Arc::default();
        let client = match client::infer_observed(&traffic).await {
            Ok(client) => client,
            Err(error) => return failed(&error.to_string()),
        };
        let settings = operator_settings(options, traffic);
        let cancel = CancellationToken::new();
        tokio::spawn(cancel_on_signal(cancel.clone()));
        match bellwether_operator::run(client, settings, cancel).await {
            Ok(()) => Exit::Ok.into(),
            Err(error) => failed(&format!("the operator ended: {error}")),
        }
    });
    telemetry::flush();
    code
}

fn operator_settings(options: args::Operator, traffic: Arc<Traffic>) -> Settings {
    let mut settings = Settings::default();
    if let Some(image) = options.image {
        settings.objects.image = image;
    }
    if let Some(host) = options.api_host {
        settings.objects.addresses = AddressType::of(&host);
    }
    if !options.namespaces.is_empty() {
        settings.namespaces = Namespaces::Only(options.namespaces.into_iter().collect());
    }
    settings.objects.postgres_uid = options.postgres_uid;
    settings.election = options.leader_election_namespace.map(|namespace| Election {
        namespace,
        name: rbac::LEADER_LEASE.to_owned(),
        identity: leader::identity(&options.pod_name.unwrap_or_else(host_name)),
        timing: Timing::default(),
    });
    let certificate = match (options.tls_certificate, options.tls_key) {
        (Some(certificate), Some(key)) => Certificate::Files { certificate, key },
        _ => Certificate::Made,
    };
    settings.listening = options.listen.0.map(|address| Listening { address, certificate, traffic });
    settings
}

/// A pod's host name is its name.
fn host_name() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    Some(read.trim()).filter(|name| !name.is_empty()).unwrap_or("operator").to_owned()
}

fn failed(problem: &str) -> ExitCode {
    output::error(problem);
    Exit::Failed.into()
}

async fn cancel_on_signal(cancel: CancellationToken) {
    output::signal().await;
    cancel.cancel();
}
