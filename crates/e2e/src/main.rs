//! `e2e`: end-to-end tests of what users install, on a real Kubernetes. `make e2e` builds the images and runs it.
//!
//! A program and not a test target: scenarios share an operator, run in an order, are skipped by name where they can't run, and end
//! with a look at the audit log of all of them.

mod audit;
mod chaos;
mod ended;
mod evidence;
mod failure;
mod figures;
mod install;
mod namespace;
mod output;
mod runner;
mod s3;
mod scenario;
mod target;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use ::chaos::fault::Fault;
use clap::{Args, Parser, Subcommand};
use harness::Layout;

use failure::{Outcome, ensure};
use output::say;
use target::{Home, Images, Target};
use world::World;

/// End-to-end tests on a real Kubernetes.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run scenarios: all, or those whose name contains one of the words.
    Run {
        /// Parts of names.
        filters: Vec<String>,
        /// Chooses what is left to chance; printed where it matters.
        #[arg(long, env = "E2E_SEED")]
        seed: Option<u64>,
        /// Where logs and objects of failed scenarios are kept.
        #[arg(long, env = "E2E_EVIDENCE")]
        evidence: PathBuf,
        #[command(flatten)]
        of: Of,
    },
    /// Measure: apply to Ready, memory, API writes at idle and under load.
    Figures {
        /// How often a cluster is created.
        #[arg(long, default_value_t = 5)]
        creations: u32,
        /// For how many seconds API writes are counted while nothing happens.
        #[arg(long, env = "IDLE", default_value_t = 600)]
        idle: u64,
        /// And for how many under pgbench [default: as long].
        #[arg(long, env = "LOAD")]
        load: Option<u64>,
        #[command(flatten)]
        of: Of,
    },
    /// Hurt a cluster at random, by seed, while the probe writes (docs/proof/failover.md).
    Chaos {
        /// For how many minutes. A round that has begun is ended.
        #[arg(long, default_value_t = 30)]
        minutes: u64,
        /// No more rounds than this.
        #[arg(long)]
        rounds: Option<u64>,
        /// Chooses what is done. The same seed goes on where its records end.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Only these, in turn.
        #[arg(long, value_name = "FAULT", value_delimiter = ',', value_parser = fault)]
        faults: Vec<Fault>,
        /// Where records are appended.
        #[arg(long, value_name = "FILE")]
        records: PathBuf,
        #[command(flatten)]
        of: Of,
    },
    /// List the scenarios.
    List,
}

/// What is tested, and where.
#[derive(Args)]
struct Of {
    /// Somebody's cluster; the harness's own when there is none.
    #[arg(long, env = "E2E_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// The operator's image, where nodes can get it.
    #[arg(long, env = "E2E_IMAGE")]
    image: String,
    /// The same under another name, to upgrade to.
    #[arg(long, env = "E2E_IMAGE_NEXT")]
    image_next: Option<String>,
    /// A PostgreSQL image [default: the operator's own default].
    #[arg(long, env = "E2E_POSTGRES_IMAGE")]
    postgres_image: Option<String>,
    /// The major version in it.
    #[arg(long, env = "E2E_POSTGRES_VERSION", default_value = "17")]
    postgres_version: String,
    /// The probe as one static program; `hack/build bellwether-probe` builds it.
    #[arg(long, env = "E2E_PROBE")]
    probe: Option<PathBuf>,
    /// What is tested, as people use it from where they sit; `hack/build` builds it.
    #[arg(long, env = "E2E_PROGRAM", default_value = "bellwether")]
    program: PathBuf,
    /// A real Helm; `hack/helm` builds one.
    #[arg(long, env = "E2E_HELM", default_value = "helm")]
    helm: PathBuf,
}

impl Of {
    fn target(self) -> Target {
        let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
        let foreign = self.kubeconfig.filter(|path| !path.as_os_str().is_empty());
        Target {
            layout: Layout::from_environment(),
            home: if foreign.is_some() { Home::Foreign } else { Home::Harness },
            kubeconfig: foreign.unwrap_or_else(harness::layout::kubeconfig),
            images: Images {
                operator: self.image,
                next: filled(self.image_next),
                postgres: filled(self.postgres_image),
                version: self.postgres_version,
            },
            program: self.program,
            helm: self.helm,
            probe: self.probe.filter(|path| !path.as_os_str().is_empty()),
            sources: PathBuf::from(env!("BELLWETHER_ROOT")),
        }
    }
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(failure) => {
            output::complain(&failure);
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Outcome<ExitCode> {
    match command {
        Command::List => {
            scenario::ALL.iter().for_each(|scenario| say(scenario.name));
            Ok(ExitCode::SUCCESS)
        }
        Command::Run { filters, seed, evidence, of } => {
            let chosen = scenario::ALL.iter().any(|scenario| runner::chosen(scenario, &filters));
            ensure(chosen, || format!("no scenario's name contains any of {filters:?}; `e2e list` lists them"))?;
            let began = Instant::now();
            let world = World::new(of.target(), seed.unwrap_or_else(today))?;
            let count = runner::run(&world, scenario::ALL, &filters, &evidence);
            world.leave()?;
            say(&format!(
                "{} passed, {} failed, {} skipped ({:.0} s)",
                count.passed,
                count.failed,
                count.skipped,
                began.elapsed().as_secs_f64()
            ));
            Ok(if count.failed == 0 && count.passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Chaos { minutes, rounds, seed, faults, records, of } => {
            let target = of.target();
            ensure(target.home == Home::Harness, || "chaos needs the harness's own nodes".to_owned())?;
            ended::undoes_faults()?;
            let limit = Duration::from_secs(60 * minutes);
            let wanted = chaos::Wanted { limit, rounds, seed, faults: &faults, records: &records };
            let clean = chaos::run(&World::new(target, seed)?, &wanted)?;
            Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Figures { creations, idle, load, of } => {
            let target = of.target();
            ensure(target.home == Home::Harness, || {
                "figures need the harness's own cluster: its audit log".to_owned()
            })?;
            let load = Duration::from_secs(load.unwrap_or(idle));
            figures::measure(&World::new(target, 0)?, creations, Duration::from_secs(idle), load)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn fault(name: &str) -> Result<Fault, String> {
    let all = || Fault::NODES.iter().map(|fault| fault.name()).collect::<Vec<_>>().join(", ");
    Fault::named(name).filter(|fault| Fault::NODES.contains(fault)).ok_or_else(|| format!("there are: {}", all()))
}

/// A seed that is another one next time.
fn today() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
