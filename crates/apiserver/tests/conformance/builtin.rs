//! The built-in kinds that we use: their defaults, their rules, their peculiarities.

use serde_json::json;

use crate::reply::{names, uid};
use crate::runner::cases;
use crate::world::{Patch, World};

cases![
    string_data_of_a_secret_is_encoded,
    the_data_of_a_secret_must_be_base64,
    a_tls_secret_needs_both_keys,
    a_service_gets_defaults_and_an_address,
    a_headless_service_has_no_address,
    a_service_needs_ports_with_names_when_there_are_several,
    a_pod_gets_defaults,
    a_pod_with_a_bad_volume_is_refused,
    a_pod_without_containers_is_refused,
    a_claim_gets_defaults_and_is_pending,
    a_claim_grows_and_never_shrinks,
    a_disruption_budget_is_checked,
    a_job_gets_defaults_and_a_selector,
    an_endpoint_slice_is_checked,
    the_address_type_of_a_slice_stays,
    an_event_of_the_new_group_is_seen_in_the_old,
    an_event_is_selected_by_what_it_is_about,
    a_namespace_is_active_and_named_by_a_label,
    a_lease_keeps_microseconds,
    a_lease_is_checked,
    owner_references_are_checked,
    a_node_is_cluster_scoped,
];

async fn string_data_of_a_secret_is_encoded(w: World) {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"},
        "data": {"user": "YXBw", "password": "b2xk"}, "stringData": {"password": "new"},
    });
    let secret = w.post(&w.core("secrets"), &secret).await.code(201).object();
    assert_eq!(secret["data"], json!({"user": "YXBw", "password": "bmV3"}), "stringData wins");
    assert!(secret.get("stringData").is_none(), "{secret}");
    assert_eq!(secret["type"], "Opaque");
}

async fn the_data_of_a_secret_must_be_base64(w: World) {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {"k": "not base64!"}});
    w.post(&w.core("secrets"), &secret).await.refused(400, "BadRequest").mentioning(&["illegal base64 data"]);
}

async fn a_tls_secret_needs_both_keys(w: World) {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": "x"},
    });
    let refusal = w.post(&w.core("secrets"), &secret).await.refused(422, "Invalid");
    assert_eq!(refusal.cause("data[tls.key]", "FieldValueRequired"), "Required value");
}

async fn a_service_gets_defaults_and_an_address(w: World) {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": [{"port": 5432}]},
    });
    let service = w.post(&w.core("services"), &service).await.code(201).object();
    let spec = &service["spec"];
    assert_eq!(spec["type"], "ClusterIP");
    assert_eq!(spec["sessionAffinity"], "None");
    assert_eq!(spec["internalTrafficPolicy"], "Cluster");
    assert_eq!(spec["ports"], json!([{"port": 5432, "protocol": "TCP", "targetPort": 5432}]));
    let address = spec["clusterIP"].as_str().unwrap_or_default();
    assert!(address.parse::<std::net::IpAddr>().is_ok(), "{spec}");
    assert_eq!(spec["clusterIPs"][0], address);
    assert_eq!(service["status"], json!({"loadBalancer": {}}));
    let other =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "b"}, "spec": {"ports": [{"port": 1}]}});
    let other = w.post(&w.core("services"), &other).await.code(201).object();
    assert_ne!(other["spec"]["clusterIP"], spec["clusterIP"], "each has its own");
}

async fn a_headless_service_has_no_address(w: World) {
    let service =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"clusterIP": "None"}});
    let service = w.post(&w.core("services"), &service).await.code(201).object();
    assert_eq!(service["spec"]["clusterIP"], "None");
    assert_eq!(service["spec"]["clusterIPs"], json!(["None"]));
}

async fn a_service_needs_ports_with_names_when_there_are_several(w: World) {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": [{"port": 1}, {"port": 2}]},
    });
    let refusal = w.post(&w.core("services"), &service).await.refused(422, "Invalid");
    refusal.cause("spec.ports[0].name", "FieldValueRequired");
    refusal.cause("spec.ports[1].name", "FieldValueRequired");
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {}});
    let refusal = w.post(&w.core("services"), &service).await.refused(422, "Invalid");
    refusal.cause("spec.ports", "FieldValueRequired");
}

async fn a_pod_gets_defaults(w: World) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
        "spec": {"automountServiceAccountToken": false, "containers": [{
            "name": "main", "image": "example.com/main", "ports": [{"containerPort": 5432}],
            "readinessProbe": {"httpGet": {"port": 8443, "scheme": "HTTPS", "path": "/readyz"}},
        }]},
    });
    let pod = w.post(&format!("{}?dryRun=All", w.core("pods")), &pod).await.code(201).object();
    let spec = &pod["spec"];
    assert_eq!(spec["restartPolicy"], "Always");
    assert_eq!(spec["dnsPolicy"], "ClusterFirst");
    assert_eq!(spec["schedulerName"], "default-scheduler");
    assert_eq!(spec["terminationGracePeriodSeconds"], 30);
    assert_eq!(spec["securityContext"], json!({}));
    let container = &spec["containers"][0];
    assert_eq!(container["imagePullPolicy"], "Always", "of an image without a tag");
    assert_eq!(container["terminationMessagePath"], "/dev/termination-log");
    assert_eq!(container["terminationMessagePolicy"], "File");
    assert_eq!(container["resources"], json!({}));
    assert_eq!(container["ports"][0]["protocol"], "TCP");
    let probe = &container["readinessProbe"];
    assert_eq!((&probe["periodSeconds"], &probe["timeoutSeconds"]), (&json!(10), &json!(1)));
    assert_eq!((&probe["successThreshold"], &probe["failureThreshold"]), (&json!(1), &json!(3)));
    assert_eq!(pod["status"]["phase"], "Pending");
    assert_eq!(pod["status"]["qosClass"], "BestEffort");
}

async fn a_pod_with_a_bad_volume_is_refused(w: World) {
    let mut pod = w.pod("a");
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "missing", "mountPath": "/data"}]);
    let refusal = w.post(&w.core("pods"), &pod).await.refused(422, "Invalid");
    assert_eq!(
        refusal.cause("spec.containers[0].volumeMounts[0].name", "FieldValueNotFound"),
        "Not found: \"missing\""
    );
}

async fn a_pod_without_containers_is_refused(w: World) {
    let mut pod = w.pod("a");
    pod["spec"]["containers"] = json!([]);
    let refusal = w.post(&w.core("pods"), &pod).await.refused(422, "Invalid");
    assert_eq!(refusal.cause("spec.containers", "FieldValueRequired"), "Required value");
}

fn claim(size: &str) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "nobody", "resources": {"requests": {"storage": size}}},
    })
}

async fn a_claim_gets_defaults_and_is_pending(w: World) {
    let claim = w.post(&w.core("persistentvolumeclaims"), &claim("1Gi")).await.code(201).object();
    assert_eq!(claim["spec"]["volumeMode"], "Filesystem");
    assert_eq!(claim["status"]["phase"], "Pending");
    let finalizers = claim["metadata"]["finalizers"].clone();
    assert_eq!(finalizers, json!(["kubernetes.io/pvc-protection"]));
    w.patch(Patch::Merge, &w.core("persistentvolumeclaims/a"), &json!({"metadata": {"finalizers": null}}))
        .await
        .code(200);
}

async fn a_claim_grows_and_never_shrinks(w: World) {
    w.post(&w.core("persistentvolumeclaims"), &claim("2Gi")).await.code(201);
    let path = w.core("persistentvolumeclaims/a");
    let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "2Gi"}}});
    w.patch(Patch::Merge, &format!("{path}/status"), &bound).await.code(200);
    let size = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
    let refusal = w.patch(Patch::Merge, &path, &size("1Gi")).await.refused(422, "Invalid");
    refusal.mentioning(&["spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"]);
    w.patch(Patch::Merge, &path, &json!({"metadata": {"finalizers": null}})).await.code(200);
}

async fn a_disruption_budget_is_checked(w: World) {
    let budget = |spec: serde_json::Value| json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "a"}, "spec": spec});
    let path = w.group("policy/v1", "poddisruptionbudgets");
    let both = budget(json!({"minAvailable": 1, "maxUnavailable": 1}));
    w.post(&path, &both)
        .await
        .refused(422, "Invalid")
        .mentioning(&["minAvailable and maxUnavailable cannot be both set"]);
    let good = budget(json!({"minAvailable": "50%", "selector": {"matchLabels": {"app": "a"}}}));
    let object = w.post(&path, &good).await.code(201).object();
    assert_eq!(object["spec"]["minAvailable"], "50%");
    assert_eq!(object["metadata"]["generation"], 1);
}

async fn a_job_gets_defaults_and_a_selector(w: World) {
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"},
        "spec": {"suspend": true, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "main:1"}]}}},
    });
    let job = w.post(&w.group("batch/v1", "jobs"), &job).await.code(201).object();
    let spec = &job["spec"];
    assert_eq!((&spec["parallelism"], &spec["completions"], &spec["backoffLimit"]), (&json!(1), &json!(1), &json!(6)));
    assert_eq!(spec["completionMode"], "NonIndexed");
    assert_eq!(spec["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"], uid(&job));
    assert_eq!(spec["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"], "a");
    let always = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "b"},
        "spec": {"template": {"spec": {"containers": [{"name": "main", "image": "main:1"}]}}},
    });
    w.post(&w.group("batch/v1", "jobs"), &always)
        .await
        .refused(422, "Invalid")
        .mentioning(&["spec.template.spec.restartPolicy"]);
}

fn slice() -> serde_json::Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "a", "labels": {"kubernetes.io/service-name": "a"}},
        "addressType": "IPv4", "ports": [{"name": "postgres", "port": 5432}],
        "endpoints": [{"addresses": ["10.1.0.1"], "conditions": {"ready": true}, "targetRef": {"kind": "Pod", "name": "a-1"}}],
    })
}

async fn an_endpoint_slice_is_checked(w: World) {
    let path = w.group("discovery.k8s.io/v1", "endpointslices");
    let object = w.post(&path, &slice()).await.code(201).object();
    assert_eq!(object["ports"][0]["protocol"], "TCP");
    assert_eq!(object["metadata"]["generation"], 1);
    let mut bad = slice();
    bad["metadata"]["name"] = json!("b");
    bad["endpoints"][0]["addresses"] = json!(["not-an-address"]);
    let refusal = w.post(&path, &bad).await.refused(422, "Invalid");
    refusal.mentioning(&["endpoints[0].addresses[0]: Invalid value: \"not-an-address\""]);
    bad["addressType"] = json!("Carrier");
    w.post(&path, &bad).await.refused(422, "Invalid").mentioning(&["addressType: Unsupported value: \"Carrier\""]);
}

async fn the_address_type_of_a_slice_stays(w: World) {
    w.post(&w.group("discovery.k8s.io/v1", "endpointslices"), &slice()).await.code(201);
    let patch = json!({"addressType": "FQDN", "endpoints": []});
    let refusal = w.patch(Patch::Merge, &w.group("discovery.k8s.io/v1", "endpointslices/a"), &patch).await;
    refusal.refused(422, "Invalid").mentioning(&["addressType: Invalid value: \"FQDN\": field is immutable"]);
}

async fn an_event_of_the_new_group_is_seen_in_the_old(w: World) {
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "a"},
        "eventTime": "2026-01-02T03:04:05.678901Z", "reportingController": "example.com/tester", "reportingInstance": "t-1",
        "action": "Testing", "reason": "Tested", "type": "Normal", "note": "it was tested",
        "regarding": {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "namespace": w.ns},
    });
    w.post(&w.group("events.k8s.io/v1", "events"), &event).await.code(201);
    let old = w.get(&w.core("events/a")).await.code(200).object();
    assert_eq!(old["kind"], "Event");
    assert_eq!(old["apiVersion"], "v1");
    assert_eq!(old["message"], "it was tested");
    assert_eq!(old["involvedObject"]["name"], "x");
    assert_eq!(old["reportingComponent"], "example.com/tester");
    assert_eq!(old["eventTime"], "2026-01-02T03:04:05.678901Z");
    let new = w.get(&w.group("events.k8s.io/v1", "events/a")).await.code(200).object();
    assert_eq!(new["note"], "it was tested");
}

async fn an_event_is_selected_by_what_it_is_about(w: World) {
    for name in ["x", "y"] {
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("about-{name}")},
            "involvedObject": {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "namespace": w.ns},
            "reason": "Tested", "message": "m", "type": "Normal",
        });
        w.post(&w.core("events"), &event).await.code(201);
    }
    let selector = "fieldSelector=involvedObject.name%3Dy,involvedObject.kind%3DConfigMap";
    assert_eq!(names(&w.get(&format!("{}?{selector}", w.core("events"))).await.object()), ["about-y"]);
}

async fn a_namespace_is_active_and_named_by_a_label(w: World) {
    let namespace = w.get(&format!("/api/v1/namespaces/{}", w.ns)).await.object();
    assert_eq!(namespace["status"]["phase"], "Active");
    assert_eq!(namespace["metadata"]["labels"]["kubernetes.io/metadata.name"], w.ns.as_str());
    assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
}

async fn a_lease_keeps_microseconds(w: World) {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"},
        "spec": {"holderIdentity": "x", "renewTime": "2026-01-02T03:04:05.678901Z"},
    });
    let lease = w.post(&w.group("coordination.k8s.io/v1", "leases"), &lease).await.code(201).object();
    assert_eq!(lease["spec"]["renewTime"], "2026-01-02T03:04:05.678901Z");
}

async fn a_lease_is_checked(w: World) {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"},
        "spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1},
    });
    let refusal = w.post(&w.group("coordination.k8s.io/v1", "leases"), &lease).await.refused(422, "Invalid");
    refusal.cause("spec.leaseDurationSeconds", "FieldValueInvalid");
    refusal.cause("spec.leaseTransitions", "FieldValueInvalid");
}

async fn owner_references_are_checked(w: World) {
    let mut body = w.config_map("a", &json!({}));
    body["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": ""}]);
    let refusal = w.post(&w.core("configmaps"), &body).await.refused(422, "Invalid");
    refusal.mentioning(&["metadata.ownerReferences.uid: Invalid value: \"\": must not be empty"]);
    let owner = |n: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": n, "uid": n, "controller": true});
    body["metadata"]["ownerReferences"] = json!([owner("x"), owner("y")]);
    w.post(&w.core("configmaps"), &body)
        .await
        .refused(422, "Invalid")
        .mentioning(&["Only one reference can have Controller set to true"]);
}

async fn a_node_is_cluster_scoped(w: World) {
    let name = format!("node-{}", w.id);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    let object = w.post("/api/v1/nodes", &node).await.code(201).object();
    w.discard(format!("/api/v1/nodes/{name}"));
    assert!(object["metadata"].get("namespace").is_none(), "{object}");
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.7"}]}});
    let object = w.patch(Patch::Strategic, &format!("/api/v1/nodes/{name}/status"), &status).await.code(200).object();
    assert_eq!(object["status"]["addresses"][0]["address"], "10.0.0.7");
}
