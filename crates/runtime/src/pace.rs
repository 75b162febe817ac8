//! Decides when the next request to the API server may be sent: so many a second, fewer after it has said that it is too much, and
//! none before the time that it asked for.
//!
//! From: what was sent, which answers were 429, what they said in `Retry-After`, and the time. Each 429 halves the rate, which then
//! grows back slowly. Never: a request before the time that the API server asked for; a burst right after it said no; a worker
//! held for long (it is told, and the queue tries again later); a renewal of the leader's Lease that waits here (it does not come
//! this way: see [`paced`]).
//!
//! [`Rules`] is pure: time is an argument. [`Pace`] puts a lock around it, and [`paced`] puts it before a client.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{HeaderMap, Request, Response, StatusCode, header};
use kube::Client;
use kube::client::Body;
use tokio::time::Instant;
use tower::BoxError;

use crate::bucket::Bucket;
use crate::leader::Office;

/// Requests a second, as long as nobody objects. Eight workers with answers after two milliseconds would send four thousand, more
/// than one tenant of an API server should; a tenth of it is far more than a quiet operator sends.
pub const FULL_RATE: u32 = 400;
/// So many at once: half a second's worth, so that a cluster that comes up alone never waits.
pub const BURST: u32 = 200;
/// By so much the rate grows each second: it is full again after a minute and a half. It never falls below this either, because it
/// is not halved more than once a second: somebody has to notice that the API server is well again.
const GROWTH: f64 = 5.0;
/// Requests that were on their way together are refused together. That is one overload and not several.
const ONE_OVERLOAD: Duration = Duration::from_secs(1);
/// What is waited after a refusal that does not say for how long. API servers say one second.
const USUAL_PAUSE: Duration = Duration::from_secs(1);
/// Longer than this nobody is kept waiting by one answer: whoever asks for an hour may be well in a minute, and watches must be
/// begun before liveness takes them for dead.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A worker is held for so long at most. It has a deadline of fifteen seconds for the whole request, and other clusters to look after.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// The rules of the pace, without waiting.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    bucket: Bucket,
    /// When the rate was last lowered, and to what.
    lowered: Option<(Instant, f64)>,
    /// The API server asked for silence up to here.
    silent_until: Option<Instant>,
}

impl Default for Rules {
    fn default() -> Self {
        let every = Duration::from_secs(1) / FULL_RATE;
        Self { bucket: Bucket::new(BURST, every), lowered: None, silent_until: None }
    }
}

impl Rules {
    /// Requests a second.
    pub fn rate(&self, now: Instant) -> f64 {
        let full = f64::from(FULL_RATE);
        self.lowered.map_or(full, |(at, to)| {
            let grown = GROWTH * now.saturating_duration_since(at).as_secs_f64();
            (to + grown).min(full)
        })
    }

    /// Whether a request may be sent now; if not, when to ask again.
    pub fn turn(&mut self, now: Instant) -> Result<(), Instant> {
        if let Some(until) = self.silent_until(now) {
            return Err(until);
        }
        if self.lowered.is_some() {
            self.bucket.refill(self.every(now), now);
        }
        if self.bucket.take(now) { Ok(()) } else { Err(self.bucket.ready_at(now)) }
    }

    /// Until when the API server asked to be left alone, if that is not over.
    pub fn silent_until(&self, now: Instant) -> Option<Instant> {
        self.silent_until.filter(|until| now < *until)
    }

    /// The API server said that it is too much, and perhaps for how long to leave it alone.
    pub fn refused(&mut self, pause: Option<Duration>, now: Instant) {
        self.pause(pause.unwrap_or(USUAL_PAUSE), now);
        if self.lowered.is_some_and(|(at, _)| now < at + ONE_OVERLOAD) {
            return;
        }
        self.lowered = Some((now, self.rate(now) / 2.0));
        // What was saved up was saved up for a server that is well.
        self.bucket.refill(self.every(now), now);
        self.bucket.empty(now);
    }

    /// The API server asked to be left alone for so long.
    pub fn pause(&mut self, pause: Duration, now: Instant) {
        let until = now + pause.min(LONGEST_PAUSE);
        self.silent_until = Some(self.silent_until.map_or(until, |old| old.max(until)));
    }

    fn every(&self, now: Instant) -> Duration {
        Duration::from_secs_f64(1.0 / self.rate(now))
    }
}

/// The pace of all requests of one process.
#[derive(Debug, Default)]
pub struct Pace {
    rules: Mutex<Rules>,
    waited: AtomicU64,
    given_up: AtomicU64,
}

/// A request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    /// It would have had to wait for too long.
    #[error("not sent: the API server is to be left alone for another {} s", .0.as_secs_f32())]
    Held(Duration),
    /// While it waited, the office was lost.
    #[error("not sent: another operator may lead by now")]
    NotInOffice,
}

impl Pace {
    /// Requests a second that are sent now.
    pub fn rate(&self) -> f64 {
        self.rules().rate(Instant::now())
    }

    /// How many requests waited before they were sent.
    pub fn waited(&self) -> u64 {
        self.waited.load(Ordering::Relaxed)
    }

    /// How many requests were not sent because they would have had to wait for too long.
    pub fn given_up(&self) -> u64 {
        self.given_up.load(Ordering::Relaxed)
    }

    /// Waits until the API server need not be left alone. Work that is begun before that only fails.
    pub async fn silence_over(&self) {
        loop {
            let until = self.rules().silent_until(Instant::now());
            let Some(until) = until else { return };
            tokio::time::sleep_until(until).await;
        }
    }

    /// The API server said that it is too much, and perhaps for how long to leave it alone.
    pub fn refused(&self, pause: Option<Duration>) {
        self.rules().refused(pause, Instant::now());
    }

    /// Waits until a request may be sent, if that is not longer than `patience`.
    async fn turn(&self, patience: Duration) -> Result<(), NotSent> {
        let began = Instant::now();
        let mut waited = false;
        loop {
            let now = Instant::now();
            let turn = self.rules().turn(now);
            let Err(at) = turn else { return Ok(()) };
            if at > began + patience {
                self.given_up.fetch_add(1, Ordering::Relaxed);
                return Err(NotSent::Held(at - now));
            }
            if !std::mem::replace(&mut waited, true) {
                self.waited.fetch_add(1, Ordering::Relaxed);
            }
            tokio::time::sleep_until(at).await;
        }
    }

    fn answered(&self, code: StatusCode, headers: &HeaderMap) {
        match (code, retry_after(headers)) {
            (StatusCode::TOO_MANY_REQUESTS, pause) => self.refused(pause),
            (StatusCode::SERVICE_UNAVAILABLE, Some(pause)) => self.rules().pause(pause, Instant::now()),
            _ => {}
        }
    }

    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// In seconds. It may be a date too, but no API server writes one.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// A client that sends what `client` would, at this pace and only while the office is held. Whatever must not wait, such as the
/// renewal of the leader's Lease, is sent by `client` itself.
pub fn paced(client: &Client, pace: &Arc<Pace>, office: &Office) -> Client {
    let (inner, pace, office) = (client.clone(), pace.clone(), office.clone());
    let service = tower::service_fn(move |request| {
        let (inner, pace, office) = (inner.clone(), pace.clone(), office.clone());
        async move { send(&inner, &pace, &office, request).await }
    });
    Client::new(service, client.default_namespace())
}

async fn send(
    client: &Client,
    pace: &Pace,
    office: &Office,
    request: Request<Body>,
) -> Result<Response<Body>, BoxError> {
    pace.turn(patience(&request)).await?;
    // It was asked before too, but that may be seconds ago.
    if !office.held() {
        return Err(NotSent::NotInOffice.into());
    }
    let response = client.send(request).await?;
    pace.answered(response.status(), response.headers());
    Ok(response)
}

/// Nobody is held by a list or a watch but itself, and who gives up would only come back.
fn patience(request: &Request<Body>) -> Duration {
    match request.extensions().get::<&'static str>() {
        Some(&("list" | "watch")) => LONGEST_PAUSE * 2,
        _ => PATIENCE,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::api::{Api, ListParams};
    use proptest::prelude::*;

    use super::*;
    use crate::loopback::{Answer, Server};
    use crate::traffic::{Answered, Traffic};

    fn seconds(s: u64) -> Duration {
        Duration::from_secs(s)
    }
    fn near(rate: f64, wanted: f64) -> bool {
        (rate - wanted).abs() < 1e-6
    }
    /// How many may be sent in this time.
    fn sent(rules: &mut Rules, from: Instant, time: Duration) -> u32 {
        let (mut now, mut sent) = (from, 0);
        while now < from + time {
            match rules.turn(now) {
                Ok(()) => sent += 1,
                Err(later) => now = later,
            }
        }
        sent
    }

    #[test]
    fn a_well_server_gets_a_burst_and_then_the_full_rate() {
        let (mut rules, now) = (Rules::default(), Instant::now());
        assert_eq!(sent(&mut rules, now, seconds(2)), BURST + 2 * FULL_RATE - 1);
    }

    #[test]
    fn a_refusal_halves_the_rate_once_and_it_grows_back() {
        let (mut rules, now) = (Rules::default(), Instant::now());
        for _ in 0..8 {
            rules.refused(Some(seconds(1)), now);
        }
        assert!(near(rules.rate(now), 200.0), "those that were on their way count as one: {}", rules.rate(now));
        assert!(near(rules.rate(now + seconds(10)), 250.0));
        rules.refused(None, now + seconds(10));
        assert!(near(rules.rate(now + seconds(10)), 125.0));
        assert!(near(rules.rate(now + seconds(3600)), 400.0));
    }

    #[test]
    fn nothing_is_sent_before_the_time_that_was_asked_for() {
        let (mut rules, now) = (Rules::default(), Instant::now());
        rules.refused(Some(seconds(7)), now);
        rules.refused(Some(seconds(2)), now + seconds(1));
        assert_eq!(rules.turn(now + seconds(4)), Err(now + seconds(7)), "the longer one counts");
        assert_eq!(rules.turn(now + seconds(7)), Ok(()));
    }

    #[test]
    fn nobody_asks_for_more_than_a_minute() {
        let (mut rules, now) = (Rules::default(), Instant::now());
        rules.refused(Some(seconds(86_400)), now);
        assert_eq!(rules.turn(now), Err(now + LONGEST_PAUSE));
    }

    #[test]
    fn there_is_no_burst_after_a_refusal() {
        let (mut rules, now) = (Rules::default(), Instant::now());
        rules.refused(Some(Duration::ZERO), now);
        let sent = sent(&mut rules, now, Duration::from_millis(100));
        assert!(sent <= 21, "{sent} were sent at once at two hundred a second");
    }

    #[test]
    fn who_was_refused_again_and_again_goes_on_as_soon_as_that_ends() {
        let (mut rules, mut now) = (Rules::default(), Instant::now());
        for _ in 0..20 {
            rules.refused(Some(seconds(1)), now);
            now += seconds(1);
        }
        // From some ten requests a second, and five more each second.
        assert!(sent(&mut rules, now, seconds(5)) >= 80);
    }

    proptest! {
        #[test]
        fn the_rate_stays_between_its_bounds(gaps in prop::collection::vec(0u64..5_000, 1..100)) {
            let (mut rules, mut now) = (Rules::default(), Instant::now());
            for gap in gaps {
                now += Duration::from_millis(gap);
                rules.refused(None, now);
                prop_assert!((GROWTH..=f64::from(FULL_RATE)).contains(&rules.rate(now)));
            }
        }
    }

    /// A server that refuses the first request, and asks to be left alone for so long.
    async fn overloaded(pause: u64) -> Server {
        let refusal = format!("retry-after: {pause}\r\n");
        Server::start(move |number, _| match number {
            0 => Answer::new(429, r#"{"kind":"Status","code":429,"reason":"TooManyRequests"}"#).with_header(&refusal),
            _ => Answer::new(
                200,
                r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}"#,
            ),
        })
        .await
    }
    fn pods(client: Client) -> Api<Pod> {
        Api::namespaced(client, "shop")
    }

    #[tokio::test]
    async fn who_was_refused_sends_nothing_until_the_time_is_over_but_the_lease_goes_on() {
        let server = overloaded(30).await;
        let (client, pace) = (server.client(), Arc::<Pace>::default());
        let pods_paced = pods(paced(&client, &pace, &Office::always()));
        pods_paced.get("orders-1").await.unwrap_err();
        let error = pods_paced.get("orders-2").await.unwrap_err();
        assert!(format!("{error:?}").contains("Held"), "{error:?}");
        assert_eq!((server.requests(), pace.given_up()), (1, 1), "the second one was not sent");
        assert!(pace.rate() < f64::from(FULL_RATE) * 0.6, "{}", pace.rate());
        // As the renewal of the Lease is sent.
        pods(client).list(&ListParams::default()).await.unwrap();
        assert_eq!(server.requests(), 2);
    }

    #[tokio::test]
    async fn a_list_waits_for_the_time_that_was_asked_for() {
        let server = overloaded(1).await;
        let (pace, traffic) = (Arc::<Pace>::default(), Arc::<Traffic>::default());
        let pods = pods(paced(&server.observed(&traffic), &pace, &Office::always()));
        pods.list(&ListParams::default()).await.unwrap_err();
        pods.list(&ListParams::default()).await.unwrap();
        assert_eq!((server.requests(), pace.waited()), (2, 1));
        let codes: Vec<_> = traffic.answers().into_keys().collect();
        assert_eq!(
            codes,
            [("list", Answered::Code(200)), ("list", Answered::Code(429))],
            "it is still seen what is sent"
        );
    }

    #[tokio::test]
    async fn what_waited_is_not_sent_by_one_who_leads_no_more() {
        let server = overloaded(30).await;
        let (_keeper, office) = Office::vacant();
        let pods = pods(paced(&server.client(), &Arc::default(), &office));
        let error = pods.get("orders-1").await.unwrap_err();
        assert!(format!("{error:?}").contains("NotInOffice"), "{error:?}");
        assert_eq!(server.requests(), 0);
    }
}
