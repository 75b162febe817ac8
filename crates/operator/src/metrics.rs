//! What the operator counts, as Prometheus reads it.
//!
//! Every label has a bounded set of values: words of ours, kinds that we watch, HTTP codes. Never: a cluster's name, a message, or
//! anything else that users make up; a thousand clusters must not cost a thousand series.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bellwether_core::object::Kind;
use bellwether_runtime::leader::Office;
use bellwether_runtime::pace::Pace;
use bellwether_runtime::queue::Queue;
use bellwether_runtime::traffic::{Answered, Traffic};
use bellwether_runtime::watch::{Cache, Key};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::caches::Caches;
use crate::failure::Failure;

/// A label and its value.
type Label = [(&'static str, &'static str); 1];

/// From a millisecond, below which nothing is worth telling apart, to minutes.
const SECONDS: [f64; 12] = [0.001, 0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0];

/// How passes end. A counter that is not there before its first event hides that event from whoever computes rates.
const RESULTS: [&str; 6] = ["done", "transient", "refused", "overtaken", "forbidden", "secret"];

/// How often what somebody had changed was put right, by kind.
#[derive(Clone, Debug)]
pub struct Corrections(Family<Label, Counter>);

impl Default for Corrections {
    fn default() -> Self {
        let all = Self(Family::default());
        // What people make is theirs, and is not put right.
        let made = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Backup);
        made.for_each(|kind| drop(all.of(kind)));
        all
    }
}

impl Corrections {
    fn of(&self, kind: Kind) -> Counter {
        let (_, _, _, plural) = kind.coordinates();
        self.0.get_or_create(&[("resource", plural)]).clone()
    }

    /// An object of this kind was put right.
    pub fn count(&self, kind: Kind) {
        self.of(kind).inc();
    }
}

/// The operator's metrics.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    waits: Histogram,
    retries: Counter,
    passes: Family<Label, Counter>,
    durations: Histogram,
}

/// What is asked for when somebody reads the metrics.
#[derive(Debug)]
pub struct Sources {
    /// The queue.
    pub queue: Arc<Queue<Key>>,
    /// The caches.
    pub caches: Caches,
    /// The requests.
    pub traffic: Arc<Traffic>,
    /// How fast they are sent.
    pub pace: Arc<Pace>,
    /// Who leads.
    pub office: Office,
    /// What was put right.
    pub corrections: Corrections,
}

impl Metrics {
    /// All at zero.
    pub fn new(sources: Sources) -> Self {
        let mut registry = Registry::with_prefix("bellwether_operator");
        let seconds = || Histogram::new(SECONDS);
        let (waits, durations) = (seconds(), seconds());
        let (retries, passes) = (Counter::default(), Family::<Label, Counter>::default());
        for result in RESULTS {
            drop(passes.get_or_create(&[("result", result)]));
        }
        registry.register("queue_wait_seconds", "How long clusters were due before they were worked on", waits.clone());
        registry.register("queue_retries", "Passes that failed and are tried again after a pause", retries.clone());
        registry.register("reconciles", "Passes over clusters, by how they ended", passes.clone());
        registry.register("reconcile_seconds", "How long passes over clusters took", durations.clone());
        let corrections = sources.corrections.0.clone();
        registry.register(
            "drift_corrections",
            "Objects that somebody had changed and that were put right",
            corrections,
        );
        registry.register_collector(Box::new(sources));
        Self { registry, waits, retries, passes, durations }
    }

    /// A cluster was taken from the queue after it had been due for so long.
    pub fn taken(&self, waited: Duration) {
        self.waits.observe(waited.as_secs_f64());
    }

    /// A pass is over.
    pub fn passed(&self, took: Duration, ended: Result<(), &Failure>) {
        self.durations.observe(took.as_secs_f64());
        let result = ended.err().map_or("done", Failure::name);
        self.passes.get_or_create(&[("result", result)]).inc();
        if ended.is_err_and(Failure::is_retried) {
            self.retries.inc();
        }
    }

    /// As OpenMetrics text.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl Collector for Sources {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let load = self.queue.load();
        let help = "Clusters in the queue, by state";
        let clusters = [("due", load.due), ("held", load.held), ("later", load.later), ("working", load.working)];
        let clusters =
            clusters.map(|(state, count)| ([("state", state.to_owned())], i64::try_from(count).unwrap_or(0)));
        series(&mut encoder, "queue_clusters", help, clusters.map(|(labels, count)| (labels, ConstGauge::new(count))))?;

        let budget = ConstGauge::new(i64::from(load.budget));
        let help = "Retries that may begin now, of all clusters together";
        budget.encode(encoder.encode_descriptor("queue_retry_budget", help, None, budget.metric_type())?)?;

        let held = ConstGauge::new(i64::from(self.office.held()));
        held.encode(encoder.encode_descriptor("leading", "Whether this operator acts", None, held.metric_type())?)?;

        let by_resource = |count: fn(&Cache) -> u64| {
            let counted = move |cache: &Arc<Cache>| {
                ([("resource", cache.resource.plural.clone())], ConstCounter::new(count(cache)))
            };
            self.caches.all().map(counted)
        };
        let help = "Watches that broke and were begun again, by resource";
        series(&mut encoder, "watch_restarts", help, by_resource(Cache::breaks))?;
        let help = "Watches that were silent for too long and were begun again, by resource";
        series(&mut encoder, "watch_silences", help, by_resource(Cache::silences))?;
        let help = "Looks at objects that could not be read, by resource; the log names them";
        series(&mut encoder, "unreadable_objects", help, by_resource(Cache::unreadable))?;

        let requests = self.traffic.answers().into_iter().map(|((verb, answered), count)| {
            let code = match answered {
                Answered::Code(code) => code.to_string(),
                Answered::Never => "none".to_owned(),
            };
            ([("verb", verb.to_owned()), ("code", code)], ConstCounter::new(count))
        });
        series(&mut encoder, "api_requests", "Requests to the API server, by verb and HTTP code", requests)?;

        let rate = ConstGauge::new(self.pace.rate());
        let help = "Requests to the API server that may be sent in a second; fewer after it said that it is too much";
        rate.encode(encoder.encode_descriptor("api_rate_limit", help, None, rate.metric_type())?)?;
        let held = [("waited", self.pace.waited()), ("not_sent", self.pace.given_up())]
            .map(|(ended, count)| ([("ended", ended.to_owned())], ConstCounter::new(count)));
        series(&mut encoder, "api_held_requests", "Requests that were held back, by how that ended", held)
    }
}

/// One metric with all its labels.
fn series<M: EncodeMetric + TypedMetric, const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = ([(&'static str, String); N], M)>,
) -> Result<(), fmt::Error> {
    let mut encoder = encoder.encode_descriptor(name, help, None, M::TYPE)?;
    for (labels, value) in values {
        value.encode(encoder.encode_family(&labels)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bellwether_runtime::queue::Priority;
    use bellwether_runtime::watch::Namespaces;

    use super::*;

    fn metrics() -> Metrics {
        let queue = Arc::<Queue<Key>>::default();
        queue.add(Key { namespace: "shop".into(), name: "orders".into() }, Priority::Change);
        let caches = Caches::new(&Namespaces::All);
        let (traffic, pace, office) = (Arc::default(), Arc::default(), Office::always());
        let corrections = Corrections::default();
        corrections.count(Kind::Service);
        Metrics::new(Sources { queue, caches, traffic, pace, office, corrections })
    }

    /// The names in a text that begin with ours, without what counters and histograms add to them.
    fn names(text: &str) -> BTreeSet<String> {
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let ours = words.filter_map(|word| word.strip_prefix("bellwether_operator_"));
        let bare = |name: &str| {
            let ending = ["_total", "_bucket", "_count", "_sum"].iter().find_map(|ending| name.strip_suffix(ending));
            ending.unwrap_or(name).to_owned()
        };
        ours.map(bare).collect()
    }

    #[tokio::test]
    async fn the_reference_names_what_is_served_and_nothing_else() {
        let served = names(&metrics().text().unwrap());
        assert_eq!(names(include_str!("../../../docs/reference/metrics.md")), served);
    }

    #[tokio::test]
    async fn everything_is_there_from_the_start_and_no_cluster_is_named() {
        let metrics = metrics();
        metrics.taken(Duration::from_millis(3));
        metrics.passed(Duration::from_millis(30), Ok(()));
        let refused = Failure::Refused { doing: "apply Pod orders-1".into(), cause: "quota".into() };
        metrics.passed(Duration::from_millis(30), Err(&refused));
        let text = metrics.text().unwrap();
        for line in [
            "bellwether_operator_queue_clusters{state=\"due\"} 1",
            "bellwether_operator_queue_clusters{state=\"held\"} 0",
            "bellwether_operator_queue_retry_budget 50",
            "bellwether_operator_queue_wait_seconds_count 1",
            "bellwether_operator_queue_retries_total 1",
            "bellwether_operator_reconciles_total{result=\"done\"} 1",
            "bellwether_operator_reconciles_total{result=\"refused\"} 1",
            "bellwether_operator_reconciles_total{result=\"transient\"} 0",
            "bellwether_operator_reconcile_seconds_count 2",
            "bellwether_operator_leading 1",
            "bellwether_operator_drift_corrections_total{resource=\"services\"} 1",
            "bellwether_operator_drift_corrections_total{resource=\"pods\"} 0",
            "bellwether_operator_watch_restarts_total{resource=\"pods\"} 0",
            "bellwether_operator_watch_silences_total{resource=\"pods\"} 0",
            "bellwether_operator_unreadable_objects_total{resource=\"pods\"} 0",
            "# TYPE bellwether_operator_api_requests counter",
            "bellwether_operator_api_rate_limit 400",
            "bellwether_operator_api_held_requests_total{ended=\"waited\"} 0",
            "bellwether_operator_api_held_requests_total{ended=\"not_sent\"} 0",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("orders"), "{text}");
    }
}
