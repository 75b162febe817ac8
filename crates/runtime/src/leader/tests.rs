//! Candidates against one Lease behind an API that can be slow or gone, in virtual time.

use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

/// One Lease. A request is carried out half-way through its latency.
#[derive(Default)]
struct Fake {
    lease: Mutex<Option<Value>>,
    latency: Mutex<Duration>,
    down: Mutex<bool>,
    /// Rights were taken away.
    without_rights: Mutex<bool>,
}

impl Fake {
    fn set_latency(&self, latency: Duration) {
        *self.latency.lock().unwrap() = latency;
    }
    fn set_down(&self, down: bool) {
        *self.down.lock().unwrap() = down;
    }
    fn field(&self, name: &str) -> Value {
        self.lease.lock().unwrap().as_ref().map_or(Value::Null, |lease| lease["spec"][name].clone())
    }

    async fn answer(self: Arc<Self>, request: Request<Body>) -> Result<Response<Body>, std::io::Error> {
        let watch = request.uri().query().unwrap_or_default().contains("watch=true");
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
        let half = *self.latency.lock().unwrap() / 2;
        tokio::time::sleep(half).await;
        if *self.down.lock().unwrap() {
            std::future::pending::<()>().await;
        }
        let (code, answer) = match watch {
            true => (403, refusal(403)),
            false if parts.uri.path().ends_with("selfsubjectaccessreviews") => {
                let allowed = !*self.without_rights.lock().unwrap();
                (201, json!({"spec": {}, "status": {"allowed": allowed}}))
            }
            false => self.carry_out(&parts.method, &body),
        };
        tokio::time::sleep(half).await;
        let response = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
        response.map_err(std::io::Error::other)
    }

    fn carry_out(&self, method: &Method, body: &[u8]) -> (u16, Value) {
        let mut stored = self.lease.lock().unwrap();
        let version = stored.as_ref().map(|lease| lease["metadata"]["resourceVersion"].as_str().unwrap().to_owned());
        if *method == Method::GET {
            return stored.clone().map_or((404, refusal(404)), |lease| (200, lease));
        }
        let mut sent: Value = serde_json::from_slice(body).unwrap();
        let seen = sent["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        if seen != version {
            return (409, refusal(409));
        }
        let next = version.map_or(0, |version| version.parse::<u64>().unwrap()) + 1;
        sent["metadata"]["resourceVersion"] = next.to_string().into();
        *stored = Some(sent.clone());
        (200, sent)
    }
}

fn refusal(code: u16) -> Value {
    let reason = if code == 404 { "NotFound" } else { "Conflict" };
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "no"})
}

struct Runner {
    office: Office,
    release: CancellationToken,
    task: JoinHandle<Result<(), Lost>>,
}

fn start(fake: &Arc<Fake>, identity: &str) -> Runner {
    let fake = fake.clone();
    let client = Client::new(tower::service_fn(move |request| fake.clone().answer(request)), "default");
    let election = Election {
        namespace: "system".into(),
        name: "operator".into(),
        identity: identity.into(),
        timing: Timing::default(),
    };
    let (keeper, office) = Office::vacant();
    let release = CancellationToken::new();
    let task = tokio::spawn(campaign(client, election, keeper, release.clone()));
    Runner { office, release, task }
}

/// Lets time go by and watches that never more than one may act. Returns how long anybody could.
async fn watch_over(runners: &[&Runner], time: Duration) -> Duration {
    let tick = Duration::from_millis(100);
    let (start, mut led) = (Instant::now(), Duration::ZERO);
    while start.elapsed() < time {
        tokio::time::sleep(tick).await;
        let acting = runners.iter().filter(|runner| runner.office.held()).count();
        assert!(acting <= 1, "two act at once after {:?}", start.elapsed());
        led += tick * u32::try_from(acting).unwrap();
    }
    led
}

#[tokio::test(start_paused = true)]
async fn note_9_an_hour_of_a_slow_api_server_makes_nobody_exit_and_nobody_pause() {
    let fake = Arc::<Fake>::default();
    let (mut a, b) = (start(&fake, "a"), start(&fake, "b"));
    a.office.taken().await;
    fake.set_latency(Duration::from_millis(4500));
    let led = watch_over(&[&a, &b], HOUR).await;
    assert!(!a.task.is_finished() && !b.task.is_finished());
    assert!(led >= HOUR - Duration::from_secs(1), "it led for {led:?} only");
    assert_eq!(fake.field("leaseTransitions"), 0);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_too_slow_to_lead_by_makes_nobody_exit_either() {
    let fake = Arc::<Fake>::default();
    let (mut a, b) = (start(&fake, "a"), start(&fake, "b"));
    a.office.taken().await;
    fake.set_latency(Duration::from_millis(8000));
    watch_over(&[&a, &b], HOUR).await;
    assert!(!a.task.is_finished() && !b.task.is_finished());
    fake.set_latency(Duration::ZERO);
    let led = watch_over(&[&a, &b], Duration::from_secs(60)).await;
    assert!(led > Duration::from_secs(30), "{led:?}");
}

#[tokio::test(start_paused = true)]
async fn nobody_acts_and_nobody_exits_while_the_api_server_is_gone_and_the_holder_goes_on_after_it() {
    let fake = Arc::<Fake>::default();
    let (mut a, b) = (start(&fake, "a"), start(&fake, "b"));
    a.office.taken().await;
    fake.set_down(true);
    let led = watch_over(&[&a, &b], HOUR).await;
    assert!(led <= Timing::default().renew + Duration::from_secs(1), "{led:?}");
    fake.set_down(false);
    let led = watch_over(&[&a, &b], Duration::from_secs(120)).await;
    assert!(led > Duration::from_secs(60), "{led:?}");
    assert!(!a.task.is_finished() && !b.task.is_finished());
    assert_eq!((fake.field("holderIdentity"), fake.field("leaseTransitions")), (json!("a"), json!(0)));
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_dies_is_succeeded_when_its_lease_has_run_out_and_not_before() {
    let fake = Arc::<Fake>::default();
    let (mut a, mut b) = (start(&fake, "a"), start(&fake, "b"));
    a.office.taken().await;
    watch_over(&[&a, &b], Duration::from_secs(60)).await;
    a.task.abort();
    let died = Instant::now();
    b.office.taken().await;
    let timing = Timing::default();
    assert!(died.elapsed() >= timing.lease - timing.retry && died.elapsed() <= timing.lease + timing.retry * 2);
    assert_eq!((fake.field("holderIdentity"), fake.field("leaseTransitions")), (json!("b"), json!(1)));
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_at_the_next_look() {
    let fake = Arc::<Fake>::default();
    let (mut a, mut b) = (start(&fake, "a"), start(&fake, "b"));
    a.office.taken().await;
    a.release.cancel();
    assert_eq!(a.task.await.unwrap(), Ok(()));
    assert!(!a.office.held());
    let released = Instant::now();
    b.office.taken().await;
    assert!(released.elapsed() <= Timing::default().retry);
}

#[tokio::test(start_paused = true)]
async fn who_was_robbed_of_the_right_to_the_lease_does_not_try_to_give_it_back() {
    let fake = Arc::<Fake>::default();
    let mut a = start(&fake, "a");
    a.office.taken().await;
    *fake.without_rights.lock().unwrap() = true;
    a.release.cancel();
    assert_eq!(a.task.await.unwrap(), Ok(()));
    assert_eq!(fake.field("holderIdentity"), "a", "it ends by itself");
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_released_even_while_a_renewal_is_under_way() {
    let fake = Arc::<Fake>::default();
    let mut a = start(&fake, "a");
    a.office.taken().await;
    fake.set_latency(Duration::from_secs(1));
    let renewed = fake.field("renewTime");
    // It was carried out and is not answered yet.
    while fake.field("renewTime") == renewed {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    a.release.cancel();
    assert_eq!(a.task.await.unwrap(), Ok(()));
    assert_eq!(fake.field("holderIdentity"), Value::Null);
}

#[tokio::test(start_paused = true)]
async fn who_is_robbed_stops_and_says_by_whom() {
    let fake = Arc::<Fake>::default();
    let mut a = start(&fake, "a");
    a.office.taken().await;
    {
        let mut lease = fake.lease.lock().unwrap();
        let lease = lease.as_mut().unwrap();
        lease["spec"]["holderIdentity"] = "thief".into();
        lease["metadata"]["resourceVersion"] = "77".into();
    }
    let lost = a.task.await.unwrap().unwrap_err();
    assert_eq!(lost.holder, "thief");
    assert!(!a.office.held());
}
