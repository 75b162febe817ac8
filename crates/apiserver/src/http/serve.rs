//! One request, from its headers to its answer: who asks, may they, do it, note it.
//!
//! The order matters: nothing about the API is told to somebody whom we do not know (health and version apart), authorization comes
//! before existence (a 404 must not tell a stranger what is there), and every write and every refusal by RBAC is in the audit log.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use axum::body::Body;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::accept::{self, Accepted, Encoding, Form};
use super::access::{self, Access};
use super::audit::{Audit, AuditEntry};
use super::discovery::Discovery;
use super::openapi::OpenApi;
use super::pods::PodLogs;
use super::rbac::Ask;
use super::respond::{self, Answer};
use super::route::{Path, Query, Route, route};
use super::shared::Shared;
use super::token::Tokens;
use super::user::User;
use super::{body, deprecation, objects, refusal, reviews};
use crate::error::ApiError;
use crate::request::{Subresource, Target};

/// Everything that a request may need.
pub(super) struct App {
    pub shared: Arc<Shared>,
    pub tokens: Tokens,
    pub access: Access,
    pub audit: Arc<Audit>,
    pub logs: RwLock<Option<Arc<dyn PodLogs>>>,
    pub documents: Mutex<Option<Documents>>,
    pub shutdown: CancellationToken,
    pub address: String,
}

/// What is told about the API, for one state of the registry.
#[derive(Clone)]
pub(super) struct Documents {
    generation: u64,
    discovery: Arc<Discovery>,
    openapi: Arc<OpenApi>,
}

/// A request whose sender is known.
pub(super) struct Call {
    pub method: Method,
    pub path: Path,
    pub query: Query,
    pub headers: HeaderMap,
    pub user: User,
    pub agent: String,
    pub accepted: Accepted,
    pub now: Timestamp,
    pub body: Bytes,
}

/// What came of a call, and what the audit log wants to know of it.
pub(super) struct Outcome {
    pub answer: Answer,
    pub changed: bool,
    pub dry_run: bool,
    /// The name that the server gave, where the request had none.
    pub name: Option<String>,
}

impl From<Answer> for Outcome {
    fn from(answer: Answer) -> Outcome {
        Outcome { answer, changed: false, dry_run: false, name: None }
    }
}

/// Answers a request. `certificate` is the user of the connection's verified client certificate.
pub(super) async fn answer(
    app: Arc<App>,
    certificate: Option<User>,
    request: Request<hyper::body::Incoming>,
) -> Answer {
    match handle(&app, certificate, request).await {
        Ok(answer) => answer,
        Err(error) => respond::refusal(&error),
    }
}

async fn handle(
    app: &Arc<App>,
    certificate: Option<User>,
    request: Request<hyper::body::Incoming>,
) -> Result<Answer, ApiError> {
    let route = route(request.uri().path());
    match route {
        Route::Health => return Ok(respond::bytes(200, "text/plain; charset=utf-8", "ok")),
        Route::Version => return Ok(respond::document(200, Encoding::Json, &version())),
        _ => {}
    }
    let now = Timestamp::now();
    let (parts, incoming) = request.into_parts();
    let user = app.authenticate(certificate, &parts.headers, now)?;
    let user = app.impersonate(user, &parts.headers)?;
    let query = Query::parse(parts.uri.query());
    let header = |name| parts.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let accepted = accept::negotiate(header(ACCEPT));
    let agent = header(USER_AGENT).unwrap_or_default().to_owned();
    let Route::Object(path) = route else {
        let ask = Ask::Url { verb: parts.method.as_str().to_ascii_lowercase(), path: parts.uri.path().to_owned() };
        app.authorize(&user, &ask).inspect_err(|error| app.note_refusal(&user, &ask, &agent, error, now))?;
        return app.describe(&route, accepted.unwrap_or_default(), &parts.headers);
    };
    let verb = path.verb(&parts.method, query.flag("watch")).ok_or_else(refusal::method_not_allowed)?;
    let ask = ask(&path, verb, &query);
    app.authorize(&user, &ask).inspect_err(|error| app.note_refusal(&user, &ask, &agent, error, now))?;
    let accepted = accepted.ok_or_else(refusal::not_acceptable)?;
    let body = body::read(incoming).await?;
    let call = Call { method: parts.method, path, query, headers: parts.headers, user, agent, accepted, now, body };
    let outcome = dispatch(app, &call, verb).await;
    app.note(&call, verb, &ask, &outcome);
    outcome.map(|outcome| outcome.answer)
}

/// The RBAC question of a path and verb. A namespace's own name is also its namespace, so that a Role inside it can speak of it.
/// A list or watch whose field selector names one object asks for that object: so a Role with `resourceNames` can allow it.
fn ask(path: &Path, verb: &str, query: &Query) -> Ask {
    let selected = query.get("fieldSelector").and_then(selected_name).filter(|_| path.name.is_none());
    let is_namespace = path.group.is_empty() && path.plural == "namespaces";
    Ask::Resource {
        verb: verb.into(),
        group: path.group.clone(),
        resource: path.plural.clone(),
        subresource: path.subresource.clone(),
        namespace: path.namespace.clone().or_else(|| path.name.clone().filter(|_| is_namespace)),
        name: path.name.clone().or(selected),
    }
}

/// The name that a field selector requires.
fn selected_name(selector: &str) -> Option<String> {
    let name = selector.split(',').find_map(|term| term.trim().strip_prefix("metadata.name="))?;
    Some(name.strip_prefix('=').unwrap_or(name).to_owned()).filter(|name| !name.is_empty())
}

async fn dispatch(app: &Arc<App>, call: &Call, verb: &'static str) -> Result<Outcome, ApiError> {
    if let Some(review) = reviews::find(&call.path) {
        return reviews::answer(app, call, review);
    }
    let path = &call.path;
    let resource = app
        .shared
        .read(|store| store.resource(&path.group, &path.version, &path.plural))
        .ok_or_else(refusal::no_such_path)?;
    let one = path.name.is_some();
    if resource.namespaced && path.namespace.is_none() && (one || verb == "create") {
        return Err(if one { refusal::no_such_path() } else { refusal::method_not_allowed() });
    }
    if !resource.namespaced && path.namespace.is_some() {
        return Err(refusal::no_such_path());
    }
    let subresource = match path.subresource.as_deref() {
        None => Subresource::Main,
        Some("status") if resource.has_status => Subresource::Status,
        Some("scale") if resource.scale.is_some() => Subresource::Scale,
        Some(other) => return super::pods::subresource(app, call, &resource, other, verb).await,
    };
    let deprecated = app.shared.read(|store| deprecation::warning(store, &resource));
    let name = path.name.clone().unwrap_or_default();
    let target = Target { resource, namespace: path.namespace.clone(), name, subresource };
    let outcome = match verb {
        "get" => objects::get(app, call, &target),
        "list" => objects::list(app, call, &target),
        "watch" => objects::watch(app, call, &target),
        "create" if subresource == Subresource::Main => objects::create(app, call, target).await,
        "update" => objects::update(app, call, &target).await,
        "patch" => objects::patch(app, call, &target).await,
        "delete" if subresource == Subresource::Main => objects::delete(app, call, &target).await,
        "deletecollection" => objects::delete_collection(app, call, &target).await,
        _ => Err(refusal::method_not_allowed()),
    };
    outcome.map(|outcome| Outcome { answer: respond::warn(outcome.answer, deprecated.as_slice()), ..outcome })
}

impl App {
    /// A token in the request wins over the connection's certificate.
    fn authenticate(&self, certificate: Option<User>, headers: &HeaderMap, now: Timestamp) -> Result<User, ApiError> {
        let Some(header) = headers.get(AUTHORIZATION) else { return certificate.ok_or_else(refusal::unauthorized) };
        let token = header
            .to_str()
            .ok()
            .and_then(|text| text.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let claims =
            token.and_then(|(_, token)| self.tokens.verify(token.trim(), now)).ok_or_else(refusal::unauthorized)?;
        let account = self.shared.read(|store| {
            let resource = store.resource("", "v1", "serviceaccounts").ok_or_else(refusal::unauthorized)?;
            let (namespace, name) = (Some(claims.namespace.clone()), claims.name.clone());
            store
                .get(&Target { resource, namespace, name, subresource: Subresource::Main })
                .map_err(|_| refusal::unauthorized())
        })?;
        // An account that was deleted and created again is another account.
        if account["metadata"]["uid"] != claims.uid {
            return Err(refusal::unauthorized());
        }
        Ok(User::service_account(&claims.namespace, &claims.name))
    }

    /// `kubectl --as`: who may impersonate acts as the other, and is judged as the other.
    fn impersonate(&self, user: User, headers: &HeaderMap) -> Result<User, ApiError> {
        let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_owned();
        let groups: Vec<String> = headers.get_all("impersonate-group").iter().map(text).collect();
        let Some(name) = headers.get("impersonate-user").map(text) else {
            return if groups.is_empty() {
                Ok(user)
            } else {
                Err(ApiError::bad_request("requested groups without impersonating a user"))
            };
        };
        let ask = |resource: &str, namespace: Option<&str>, name: &str| Ask::Resource {
            verb: "impersonate".into(),
            group: String::new(),
            resource: resource.into(),
            subresource: None,
            namespace: namespace.map(str::to_owned),
            name: Some(name.into()),
        };
        let account = name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
        match account {
            Some((namespace, account)) => self.authorize(&user, &ask("serviceaccounts", Some(namespace), account))?,
            None => self.authorize(&user, &ask("users", None, &name))?,
        }
        for group in &groups {
            self.authorize(&user, &ask("groups", None, group))?;
        }
        Ok(match account {
            Some((namespace, account)) if groups.is_empty() => User::service_account(namespace, account),
            _ => User::new(name, groups),
        })
    }

    pub(super) fn authorize(&self, user: &User, ask: &Ask) -> Result<(), ApiError> {
        if user.is_master() {
            return Ok(());
        }
        let policy = self.shared.read(|store| self.access.policy(store))?;
        access::require(&policy, user, ask)
    }

    fn documents(&self) -> Documents {
        let mut known = self.documents.lock().unwrap_or_else(PoisonError::into_inner);
        let (generation, resources) = self.shared.read(|store| (store.registry_generation(), store.resources()));
        match known.as_ref().filter(|known| known.generation == generation) {
            Some(current) => current.clone(),
            None => {
                let (discovery, openapi) = (Arc::new(Discovery::of(&resources)), Arc::new(OpenApi::of(&resources)));
                known.insert(Documents { generation, discovery, openapi }).clone()
            }
        }
    }

    /// Answers what is asked about the API itself.
    fn describe(&self, route: &Route, accepted: Accepted, headers: &HeaderMap) -> Result<Answer, ApiError> {
        let documents = self.documents();
        let aggregated = accepted.form == Form::AggregatedDiscovery;
        let json = |value: &Value| respond::document(200, accepted.encoding, value);
        Ok(match route {
            Route::CoreVersions | Route::Groups if aggregated => {
                let core = matches!(route, Route::CoreVersions);
                let media = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
                respond::bytes(200, media, documents.discovery.aggregated(core).to_string())
            }
            Route::CoreVersions => json(&json!({
                "kind": "APIVersions", "versions": ["v1"],
                "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": self.address}],
            })),
            Route::Groups => json(&documents.discovery.group_list()),
            Route::Group(group) => json(&documents.discovery.group(group).ok_or_else(refusal::no_such_path)?),
            Route::Resources { group, version } => {
                json(&documents.discovery.resource_list(group, version).ok_or_else(refusal::no_such_path)?)
            }
            Route::OpenApiIndex => json(&documents.openapi.index()),
            Route::OpenApi { group, version } => {
                let document = documents.openapi.document(group, version).ok_or_else(refusal::no_such_path)?;
                let etag = format!("\"{}\"", document.etag);
                if headers.get(http::header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == etag.as_bytes()) {
                    return Ok(respond::bytes(304, "application/json", Body::empty()));
                }
                let mut answer = respond::bytes(200, "application/json", document.body.clone());
                if let Ok(etag) = HeaderValue::from_str(&etag) {
                    answer.headers_mut().insert(http::header::ETAG, etag);
                }
                answer
            }
            _ => return Err(refusal::no_such_path()),
        })
    }

    fn note(&self, call: &Call, verb: &str, ask: &Ask, outcome: &Result<Outcome, ApiError>) {
        let (code, changed, dry_run, given) = match outcome {
            Ok(outcome) => (outcome.answer.status().as_u16(), outcome.changed, outcome.dry_run, outcome.name.clone()),
            Err(error) => (error.code, false, call.query.get("dryRun").is_some(), None),
        };
        let reads = matches!(verb, "get" | "list" | "watch") || reviews::find(&call.path).is_some();
        if reads && code != 403 {
            return;
        }
        self.audit.record(AuditEntry {
            name: call.path.name.clone().or(given),
            changed,
            dry_run,
            ..entry(&call.user, ask, &call.agent, code, call.now)
        });
    }

    fn note_refusal(&self, user: &User, ask: &Ask, agent: &str, error: &ApiError, now: Timestamp) {
        self.audit.record(entry(user, ask, agent, error.code, now));
    }
}

fn entry(user: &User, ask: &Ask, agent: &str, code: u16, time: Timestamp) -> AuditEntry {
    let (verb, group, resource, subresource, namespace, name) = match ask.clone() {
        Ask::Resource { verb, group, resource, subresource, namespace, name } => {
            (verb, group, resource, subresource, namespace, name)
        }
        Ask::Url { verb, path } => (verb, String::new(), path, None, None, None),
    };
    let (user, user_agent) = (user.name.clone(), agent.to_owned());
    AuditEntry {
        time,
        user,
        verb,
        group,
        resource,
        subresource,
        namespace,
        name,
        code,
        user_agent,
        dry_run: false,
        changed: false,
    }
}

fn version() -> Value {
    let (major, minor) = super::VERSION.split_once('.').unwrap_or((super::VERSION, ""));
    json!({
        "major": major, "minor": minor, "gitVersion": format!("v{}.0+bellwether", super::VERSION), "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_selector_by_name_asks_for_that_object_alone() {
        for selector in ["metadata.name=demo", "metadata.name==demo", "a=b,metadata.name=demo"] {
            assert_eq!(selected_name(selector).as_deref(), Some("demo"), "{selector}");
        }
        for selector in ["", "metadata.name!=demo", "metadata.name=", "metadata.namespace=demo"] {
            assert_eq!(selected_name(selector), None, "{selector}");
        }
    }
}
