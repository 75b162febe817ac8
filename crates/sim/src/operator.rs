//! The operator: its real process, caches, queue of one and pass, over the API as it reaches it.
//!
//! Each request of a pass is an event: it travels, is carried out or not, and its answer travels back or is lost. The process can die
//! before, during and after any of them; the next one begins with empty caches.

use bellwether_operator::Settings;
use bellwether_operator::port::simulated::{Operator as Process, Pass, Step, Watch, lost, serve};
use bellwether_operator::port::{Answer, Request, Verb};
use bellwether_runtime::queue::{Outcome, retry_after};
use bellwether_runtime::watch::{Key, Namespaces};

use crate::api::{CLUSTER, NAMESPACE};
use crate::queue::Time;
use crate::world::{CrashAt, What, World};

/// How long a call may take.
const PATIENCE: Time = 5_000;

/// The operator's process.
pub struct Operator {
    process: Process,
    watches: Vec<Watch>,
    key: Key,
    /// Which life.
    life: u32,
    /// Until when it is dead.
    dead_until: Time,
    /// A pass that waits for the answer to its request, and the request's number.
    pass: Option<(Pass, u64)>,
    /// Counts requests: an answer to an earlier one means nothing.
    number: u64,
    /// News are on their way.
    news_due: bool,
    /// Something changed since the last pass began.
    dirty: bool,
    /// Passes that failed in a row.
    failures: u32,
    /// The write before, during or after which it is to die.
    pub crash_at_write: Option<CrashAt>,
    /// Passes made.
    pub passes: u64,
}

fn settings() -> Settings {
    Settings { namespaces: Namespaces::Only([NAMESPACE.to_owned()].into()), ..Settings::default() }
}

impl Operator {
    /// A process that has just started.
    pub fn start(seed: u64) -> Self {
        let process = Process::start(settings(), seed);
        Self {
            watches: process.watches(),
            process,
            key: Key { namespace: NAMESPACE.to_owned(), name: CLUSTER.to_owned() },
            life: 0,
            dead_until: 0,
            pass: None,
            number: 0,
            news_due: false,
            dirty: false,
            failures: 0,
            crash_at_write: None,
            passes: 0,
        }
    }
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operator")
            .field("in_pass", &self.pass.is_some())
            .field("news_due", &self.news_due)
            .field("dirty", &self.dirty)
            .field("failures", &self.failures)
            .field("passes", &self.passes)
            .finish_non_exhaustive()
    }
}

/// What happens to the operator.
pub enum Turn {
    /// Its watches bring news.
    News,
    /// A pass is due, whatever changed.
    Look,
    /// A request arrives at the API.
    Arrives(Box<Request>, u64),
    /// Its answer arrives.
    Answer(Box<Answer>, u64),
}

impl World {
    /// Something changed: the operator's watches bring it.
    pub fn wake_operator(&mut self) {
        if !self.operator.news_due {
            self.operator.news_due = true;
            let slowest = if self.api.stale { 8_000 } else { self.operator_lag };
            let life = self.operator.life;
            self.within(5, slowest, What::Operator(life, Turn::News));
        }
    }

    /// It dies, and another one starts later.
    pub fn crash_operator(&mut self, down: Time) {
        self.note(|_| "the operator crashes".to_owned());
        let operator = Operator::start(self.rng.draw());
        let (life, passes) = (self.operator.life + 1, self.operator.passes);
        self.operator = Operator { life, passes, dead_until: self.now + down, news_due: true, ..operator };
        self.after(down, What::Operator(life, Turn::News));
    }

    /// Something happens to the operator.
    pub fn operate(&mut self, life: u32, turn: Turn) {
        if let Turn::Arrives(request, number) = turn {
            // What is on its way arrives, whoever sent it.
            return self.request_arrives(life, &request, number);
        }
        if life != self.operator.life || self.now < self.operator.dead_until {
            return;
        }
        match turn {
            Turn::News => self.news(),
            Turn::Look => {
                self.operator.dirty = true;
                self.begin_pass();
            }
            Turn::Answer(answer, number) => self.resume_pass(*answer, number),
            Turn::Arrives(..) => {}
        }
    }

    fn operator_reaches_api(&self) -> bool {
        self.api.down == 0 && self.net.connected(self.net.operator(), self.net.api())
    }

    fn news(&mut self) {
        let life = self.operator.life;
        if !self.operator_reaches_api() {
            return self.within(500, 1_500, What::Operator(life, Turn::News));
        }
        self.operator.news_due = false;
        for watch in &mut self.operator.watches {
            for event in watch.news(&self.api.store) {
                self.operator.dirty |= !watch.deliver(event).is_empty();
            }
        }
        self.begin_pass();
    }

    fn begin_pass(&mut self) {
        if !self.operator.dirty || self.operator.pass.is_some() {
            return;
        }
        self.operator.dirty = false;
        self.operator.passes += 1;
        let step = self.operator.process.begin(&self.operator.key, self.timestamp());
        self.stepped(step);
    }

    fn stepped(&mut self, step: Step) {
        let life = self.operator.life;
        match step {
            Step::Asks(pass, request) => {
                self.operator.number += 1;
                let number = self.operator.number;
                self.operator.pass = Some((pass, number));
                self.ask(request, number);
            }
            Step::Done(Outcome::Done(again)) => {
                self.operator.failures = 0;
                if let Some(again) = again {
                    let after = Time::try_from(again.as_millis()).unwrap_or(Time::MAX / 2);
                    self.after(after.max(1), What::Operator(life, Turn::Look));
                }
                self.begin_pass();
            }
            Step::Done(Outcome::Retry { jitter }) => {
                self.operator.failures += 1;
                let after = retry_after(self.operator.failures, jitter);
                self.after(Time::try_from(after.as_millis()).unwrap_or(5_000), What::Operator(life, Turn::Look));
            }
        }
    }

    fn ask(&mut self, request: Request, number: u64) {
        let life = self.operator.life;
        let writes = !matches!(request.verb, Verb::Get);
        let crash = if writes { self.operator.crash_at_write.take() } else { None };
        if crash == Some(CrashAt::Before) {
            return self.crash_operator(2_000);
        }
        let (here, api) = (self.net.operator(), self.net.api());
        let lost_answer = Turn::Answer(Box::new(lost()), number);
        match self.net.transit(here, api, &mut self.rng) {
            Some(delay) if self.api.down == 0 => {
                let service = self.rng.between(1, 6);
                self.after(delay + service, What::Operator(life, Turn::Arrives(Box::new(request), number)));
            }
            _ if self.api.late && writes => {
                self.faults.fired("late write");
                self.within(PATIENCE, 30_000, What::Operator(life, Turn::Arrives(Box::new(request), number)));
            }
            _ => {}
        }
        self.after(PATIENCE, What::Operator(life, lost_answer));
        match crash {
            // Its request is on its way.
            Some(CrashAt::During) => self.crash_operator(2_000),
            Some(CrashAt::After) => self.operator.crash_at_write = crash,
            _ => {}
        }
    }

    fn request_arrives(&mut self, life: u32, request: &Request, number: u64) {
        if self.api.down > 0 {
            return;
        }
        let before = self.api.store.revision();
        let now = self.timestamp();
        let answer = serve(&mut self.api.store, request, now);
        if self.api.store.revision() != before {
            self.note(|_| format!("operator: {request}"));
            self.api.wrote(|| format!("the operator: {request}"));
            if matches!(request.verb, Verb::Delete { .. }) {
                while self.api.store.collect_garbage(now) {}
            }
        }
        self.look_around();
        if life != self.operator.life {
            return;
        }
        if self.operator.crash_at_write == Some(CrashAt::After) && !matches!(request.verb, Verb::Get) {
            return self.crash_operator(2_000);
        }
        if self.api.answers_lost && !matches!(request.verb, Verb::Get) && self.rng.chance(300) {
            self.faults.fired("lost answer");
            return;
        }
        if let Some(delay) = self.net.transit(self.net.api(), self.net.operator(), &mut self.rng) {
            self.after(delay, What::Operator(life, Turn::Answer(Box::new(answer), number)));
        }
    }

    fn resume_pass(&mut self, answer: Answer, number: u64) {
        if self.operator.pass.as_ref().is_none_or(|(_, waits)| *waits != number) {
            return;
        }
        if let Some((pass, _)) = self.operator.pass.take() {
            let step = pass.resume(answer);
            self.stepped(step);
        }
    }
}
