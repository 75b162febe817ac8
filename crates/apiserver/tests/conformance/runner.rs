//! Runs the table of cases and says what happened.
//!
//! A runner of our own, because the standard one can neither name what was skipped and why, nor share one server between
//! tests. It speaks the standard one's dialect (filters, `--exact`, `--skip`, `--list`, `--test-threads`, the `test result:` line).
//! Never: counts a case as passed that did not run, or answers success when nothing ran.

use std::cell::RefCell;
use std::io::Write;
use std::panic;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{JoinSet, LocalSet, spawn_local};

use crate::server::{Missing, TestServer};
use crate::world::World;

/// Long enough for a watch, a CRD that must become served and a slow machine; a hang is a failure.
const PATIENCE: Duration = Duration::from_secs(90);

type Body = fn(World) -> Pin<Box<dyn Future<Output = ()>>>;

/// One behaviour of the API.
#[derive(Clone, Copy)]
pub struct Case {
    pub theme: &'static str,
    pub name: &'static str,
    pub needs: Need,
    pub body: Body,
}

/// What a case needs of the server beyond the API itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    Nothing,
    /// Owner garbage collection and the end of namespaces are done by the controller manager.
    Controllers,
    /// A streamed initial list needs storage that reports its progress (etcd 3.4.31, 3.5.13 or newer).
    WatchProgress,
}

/// Lists the cases of a module: `cases![name, other_name needs Controllers]`.
macro_rules! cases {
    ($($name:ident $(needs $need:ident)?),+ $(,)?) => {
        /// The cases of this theme.
        pub fn cases() -> Vec<$crate::runner::Case> {
            vec![$($crate::runner::Case {
                theme: module_path!(),
                name: stringify!($name),
                needs: $crate::runner::need!($($need)?),
                body: |world| Box::pin($name(world)),
            }),+]
        }
    };
}

macro_rules! need {
    () => {
        $crate::runner::Need::Nothing
    };
    ($need:ident) => {
        $crate::runner::Need::$need
    };
}

pub(crate) use {cases, need};

tokio::task_local! {
    static COMPLAINT: RefCell<Option<String>>;
}

/// What the command line asks for.
#[derive(Debug, Default)]
pub struct Selection {
    filters: Vec<String>,
    skips: Vec<String>,
    exact: bool,
    list: bool,
    at_once: Option<usize>,
}

impl Selection {
    pub fn from_args(args: impl Iterator<Item = String>) -> Self {
        let mut selection = Self::default();
        let mut args = args;
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--exact" => selection.exact = true,
                "--list" => selection.list = true,
                "--skip" => selection.skips.extend(args.next()),
                "--test-threads" => selection.at_once = args.next().and_then(|n| n.parse().ok()),
                "--format" | "--color" | "--logfile" => drop(args.next()),
                flag if flag.starts_with("--") => {
                    if let Some(n) = flag.strip_prefix("--test-threads=") {
                        selection.at_once = n.parse().ok();
                    }
                }
                filter => selection.filters.push(filter.to_owned()),
            }
        }
        selection
    }

    fn picks(&self, case: &Case) -> bool {
        let name = full_name(case);
        let matches = |text: &String| if self.exact { name == *text } else { name.contains(text.as_str()) };
        (self.filters.is_empty() || self.filters.iter().any(matches)) && !self.skips.iter().any(matches)
    }
}

enum Verdict {
    Passed,
    Failed(String),
    Skipped(Missing),
}

/// Runs what is selected; the answer is the process's exit code.
pub fn run(cases: &[Case], selection: &Selection) -> i32 {
    let picked: Vec<Case> = cases.iter().copied().filter(|case| selection.picks(case)).collect();
    if selection.list {
        for case in &picked {
            say(&format!("{}: test", full_name(case)));
        }
        return 0;
    }
    if picked.is_empty() {
        return summarise("no server", &[], cases.len(), Duration::ZERO);
    }
    remember_panics();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a tokio runtime");
    let began = Instant::now();
    let (name, verdicts) = runtime.block_on(LocalSet::new().run_until(async {
        let server = TestServer::start().await;
        say(&format!("\nrunning {} tests against {}", picked.len(), server.description()));
        let verdicts = run_all(&server, &picked, selection.at_once.unwrap_or(8)).await;
        let description = server.description();
        server.stop().await;
        (description, verdicts)
    }));
    runtime.shutdown_timeout(Duration::from_secs(5));
    summarise(&name, &verdicts, cases.len() - picked.len(), began.elapsed())
}

async fn run_all(server: &TestServer, picked: &[Case], at_once: usize) -> Vec<(Case, Verdict)> {
    let slots = Arc::new(tokio::sync::Semaphore::new(at_once.max(1)));
    let mut running = JoinSet::new();
    let (mut verdicts, mut worlds) = (Vec::new(), Vec::new());
    for case in picked.iter().copied() {
        if let Err(missing) = server.offers(case.needs) {
            report(&case, &Verdict::Skipped(missing), Duration::ZERO);
            verdicts.push((case, Verdict::Skipped(missing)));
            continue;
        }
        let slots = slots.clone();
        let access = server.access();
        running.spawn_local(async move {
            let _slot = slots.acquire_owned().await.expect("the semaphore is never closed");
            let began = Instant::now();
            let (verdict, world) = match World::create(access, case.name).await {
                Ok(world) => {
                    let verdict = run_one(&case, world.clone()).await;
                    world.clean_up().await;
                    (verdict, Some(world))
                }
                Err(error) => (Verdict::Failed(format!("could not set the case up: {error}")), None),
            };
            report(&case, &verdict, began.elapsed());
            (case, verdict, world)
        });
    }
    while let Some(done) = running.join_next().await {
        let (case, verdict, world) = done.expect("a case's own panic is caught inside it");
        verdicts.push((case, verdict));
        worlds.extend(world);
    }
    for world in worlds {
        world.leave().await;
    }
    verdicts
}

async fn run_one(case: &Case, world: World) -> Verdict {
    let body = (case.body)(world);
    let task = spawn_local(COMPLAINT.scope(RefCell::new(None), async move {
        let outcome = futures::FutureExt::catch_unwind(panic::AssertUnwindSafe(body)).await;
        (outcome.is_ok(), COMPLAINT.with(RefCell::take))
    }));
    let abort = task.abort_handle();
    match tokio::time::timeout(PATIENCE, task).await {
        Ok(Ok((true, _))) => Verdict::Passed,
        Ok(Ok((false, complaint))) => Verdict::Failed(complaint.unwrap_or_else(|| "panicked".to_owned())),
        Ok(Err(error)) => Verdict::Failed(error.to_string()),
        Err(_) => {
            abort.abort();
            Verdict::Failed(format!("did not finish within {} s", PATIENCE.as_secs()))
        }
    }
}

/// Panics of cases are shown with their case, not where they happen to interleave; all others as usual.
fn remember_panics() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let text = format!("{info}");
        if COMPLAINT.try_with(|complaint| complaint.replace(Some(text))).is_err() {
            usual(info);
        }
    }));
}

fn full_name(case: &Case) -> String {
    let theme = case.theme.rsplit("::").next().unwrap_or(case.theme);
    format!("{theme}::{}", case.name)
}

fn report(case: &Case, verdict: &Verdict, took: Duration) {
    let took = format!("{:.2}s", took.as_secs_f64());
    match verdict {
        Verdict::Passed => say(&format!("test {} ... ok ({took})", full_name(case))),
        Verdict::Failed(_) => say(&format!("test {} ... FAILED ({took})", full_name(case))),
        Verdict::Skipped(why) => say(&format!("test {} ... ignored, {why}", full_name(case))),
    }
}

fn summarise(server: &str, verdicts: &[(Case, Verdict)], filtered_out: usize, took: Duration) -> i32 {
    let failed: Vec<_> = verdicts
        .iter()
        .filter_map(|(case, verdict)| match verdict {
            Verdict::Failed(why) => Some((full_name(case), why)),
            _ => None,
        })
        .collect();
    let skipped: Vec<_> = verdicts
        .iter()
        .filter_map(|(case, verdict)| match verdict {
            Verdict::Skipped(why) => Some(format!("{} ({why})", full_name(case))),
            _ => None,
        })
        .collect();
    let passed = verdicts.len() - failed.len() - skipped.len();
    for (name, why) in &failed {
        say(&format!("\n---- {name} ----\n{why}"));
    }
    let ran = passed + failed.len();
    let skips = if skipped.is_empty() { "none skipped".to_owned() } else { format!("skipped: {}", skipped.join(", ")) };
    say(&format!("\nconformance: {ran} ran against {server}; {skips}"));
    // A filter that was meant for another test target picks nothing here, and that is no failure.
    let good = failed.is_empty() && (ran > 0 || filtered_out > 0);
    say(&format!(
        "test result: {}. {passed} passed; {} failed; {} ignored; 0 measured; {filtered_out} filtered out; finished in {:.2}s\n",
        if good { "ok" } else { "FAILED" },
        failed.len(),
        skipped.len(),
        took.as_secs_f64(),
    ));
    i32::from(!good)
}

fn say(line: &str) {
    // A closed pipe is the reader's choice, not a failure of the suite.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
