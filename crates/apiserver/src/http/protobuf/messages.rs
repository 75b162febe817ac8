//! The numbers of the fields, for the kinds that typed clients write.
//!
//! Numbers are part of the API's wire format and never change. Status and managed fields are left out on purpose: the server
//! does not take them from a create or update.

use Kind::{
    BytesMap, Flag, Given, GivenFlag, GivenInt, GivenIntOrText, Int, IntOrText, Many, MicroTime, One, Text, TextMap,
    Texts, Time,
};

/// The fields of a message: number, name in JSON, kind.
pub(super) type Message = &'static [(u64, &'static str, Kind)];

/// How a field is read. Those that are `Given` say something by being there, even when empty.
pub(super) enum Kind {
    Text,
    Texts,
    Int,
    GivenInt,
    Flag,
    GivenFlag,
    TextMap,
    BytesMap,
    Time,
    MicroTime,
    IntOrText,
    GivenIntOrText,
    One(Message),
    Given(Message),
    Many(Message),
}

/// The message of a kind.
pub(super) fn of(api_version: &str, kind: &str) -> Option<Message> {
    Some(match (api_version, kind) {
        ("v1", "Namespace") => &[(1, "metadata", One(OBJECT_META)), (2, "spec", One(&[(1, "finalizers", Texts)]))],
        ("v1", "ServiceAccount") => &[
            (1, "metadata", One(OBJECT_META)),
            (2, "secrets", Many(OBJECT_REFERENCE)),
            (3, "imagePullSecrets", Many(&[(1, "name", Text)])),
            (4, "automountServiceAccountToken", GivenFlag),
        ],
        ("v1", "ConfigMap") => &[
            (1, "metadata", One(OBJECT_META)),
            (2, "data", TextMap),
            (3, "binaryData", BytesMap),
            (4, "immutable", GivenFlag),
        ],
        ("v1", "Secret") => &[
            (1, "metadata", One(OBJECT_META)),
            (2, "data", BytesMap),
            (3, "type", Text),
            (4, "stringData", TextMap),
            (5, "immutable", GivenFlag),
        ],
        ("v1", "Service") => &[(1, "metadata", One(OBJECT_META)), (2, "spec", One(SERVICE_SPEC))],
        ("v1", "Binding") => &[(1, "metadata", One(OBJECT_META)), (2, "target", One(OBJECT_REFERENCE))],
        ("v1", "Event") => EVENT,
        ("coordination.k8s.io/v1", "Lease") => &[(1, "metadata", One(OBJECT_META)), (2, "spec", One(LEASE_SPEC))],
        ("rbac.authorization.k8s.io/v1", "Role") => {
            &[(1, "metadata", One(OBJECT_META)), (2, "rules", Many(POLICY_RULE))]
        }
        ("rbac.authorization.k8s.io/v1", "ClusterRole") => &[
            (1, "metadata", One(OBJECT_META)),
            (2, "rules", Many(POLICY_RULE)),
            (3, "aggregationRule", One(&[(1, "clusterRoleSelectors", Many(LABEL_SELECTOR))])),
        ],
        ("rbac.authorization.k8s.io/v1", "RoleBinding" | "ClusterRoleBinding") => {
            &[(1, "metadata", One(OBJECT_META)), (2, "subjects", Many(SUBJECT)), (3, "roleRef", One(ROLE_REF))]
        }
        ("policy/v1", "PodDisruptionBudget") => {
            &[(1, "metadata", One(OBJECT_META)), (2, "spec", One(DISRUPTION_BUDGET_SPEC))]
        }
        ("policy/v1", "Eviction") => &[(1, "metadata", One(OBJECT_META)), (2, "deleteOptions", Given(DELETE_OPTIONS))],
        ("v1" | "meta.k8s.io/v1" | "policy/v1", "DeleteOptions") => DELETE_OPTIONS,
        ("authentication.k8s.io/v1", "TokenRequest") => {
            &[(1, "metadata", One(OBJECT_META)), (2, "spec", One(TOKEN_REQUEST_SPEC))]
        }
        ("authentication.k8s.io/v1", "SelfSubjectReview") => &[(1, "metadata", One(OBJECT_META))],
        ("authorization.k8s.io/v1", "SelfSubjectAccessReview" | "SubjectAccessReview") => {
            &[(1, "metadata", One(OBJECT_META)), (2, "spec", One(ACCESS_REVIEW_SPEC))]
        }
        ("authorization.k8s.io/v1", "SelfSubjectRulesReview") => {
            &[(1, "metadata", One(OBJECT_META)), (2, "spec", One(&[(1, "namespace", Text)]))]
        }
        _ => return None,
    })
}

const OBJECT_META: Message = &[
    (1, "name", Text),
    (2, "generateName", Text),
    (3, "namespace", Text),
    (5, "uid", Text),
    (6, "resourceVersion", Text),
    (7, "generation", Int),
    (8, "creationTimestamp", Time),
    (9, "deletionTimestamp", Time),
    (10, "deletionGracePeriodSeconds", GivenInt),
    (11, "labels", TextMap),
    (12, "annotations", TextMap),
    (13, "ownerReferences", Many(OWNER_REFERENCE)),
    (14, "finalizers", Texts),
];

const OWNER_REFERENCE: Message = &[
    (1, "kind", Text),
    (3, "name", Text),
    (4, "uid", Text),
    (5, "apiVersion", Text),
    (6, "controller", GivenFlag),
    (7, "blockOwnerDeletion", GivenFlag),
];

const OBJECT_REFERENCE: Message = &[
    (1, "kind", Text),
    (2, "namespace", Text),
    (3, "name", Text),
    (4, "uid", Text),
    (5, "apiVersion", Text),
    (6, "resourceVersion", Text),
    (7, "fieldPath", Text),
];

const LABEL_SELECTOR: Message = &[(1, "matchLabels", TextMap), (2, "matchExpressions", Many(LABEL_REQUIREMENT))];
const LABEL_REQUIREMENT: Message = &[(1, "key", Text), (2, "operator", Text), (3, "values", Texts)];

const SERVICE_SPEC: Message = &[
    (1, "ports", Many(SERVICE_PORT)),
    (2, "selector", TextMap),
    (3, "clusterIP", Text),
    (4, "type", Text),
    (5, "externalIPs", Texts),
    (7, "sessionAffinity", Text),
    (8, "loadBalancerIP", Text),
    (9, "loadBalancerSourceRanges", Texts),
    (10, "externalName", Text),
    (11, "externalTrafficPolicy", Text),
    (12, "healthCheckNodePort", Int),
    (13, "publishNotReadyAddresses", Flag),
    (14, "sessionAffinityConfig", One(&[(1, "clientIP", One(&[(1, "timeoutSeconds", GivenInt)]))])),
    (17, "ipFamilyPolicy", Text),
    (18, "clusterIPs", Texts),
    (19, "ipFamilies", Texts),
    (20, "allocateLoadBalancerNodePorts", GivenFlag),
    (21, "loadBalancerClass", Text),
    (22, "internalTrafficPolicy", Text),
    (23, "trafficDistribution", Text),
];

const SERVICE_PORT: Message = &[
    (1, "name", Text),
    (2, "protocol", Text),
    (3, "port", Int),
    (4, "targetPort", IntOrText),
    (5, "nodePort", Int),
    (6, "appProtocol", Text),
];

const EVENT: Message = &[
    (1, "metadata", One(OBJECT_META)),
    (2, "involvedObject", One(OBJECT_REFERENCE)),
    (3, "reason", Text),
    (4, "message", Text),
    (5, "source", One(&[(1, "component", Text), (2, "host", Text)])),
    (6, "firstTimestamp", Time),
    (7, "lastTimestamp", Time),
    (8, "count", Int),
    (9, "type", Text),
    (10, "eventTime", MicroTime),
    (11, "series", One(&[(1, "count", Int), (2, "lastObservedTime", MicroTime)])),
    (12, "action", Text),
    (13, "related", One(OBJECT_REFERENCE)),
    (14, "reportingComponent", Text),
    (15, "reportingInstance", Text),
];

const LEASE_SPEC: Message = &[
    (1, "holderIdentity", Text),
    (2, "leaseDurationSeconds", GivenInt),
    (3, "acquireTime", MicroTime),
    (4, "renewTime", MicroTime),
    (5, "leaseTransitions", GivenInt),
    (6, "strategy", Text),
    (7, "preferredHolder", Text),
];

const POLICY_RULE: Message = &[
    (1, "verbs", Texts),
    (2, "apiGroups", Texts),
    (3, "resources", Texts),
    (4, "resourceNames", Texts),
    (5, "nonResourceURLs", Texts),
];
const SUBJECT: Message = &[(1, "kind", Text), (2, "apiGroup", Text), (3, "name", Text), (4, "namespace", Text)];
const ROLE_REF: Message = &[(1, "apiGroup", Text), (2, "kind", Text), (3, "name", Text)];

const DISRUPTION_BUDGET_SPEC: Message = &[
    (1, "minAvailable", GivenIntOrText),
    (2, "selector", Given(LABEL_SELECTOR)),
    (3, "maxUnavailable", GivenIntOrText),
    (4, "unhealthyPodEvictionPolicy", Text),
];

const DELETE_OPTIONS: Message = &[
    (1, "gracePeriodSeconds", GivenInt),
    (2, "preconditions", One(&[(1, "uid", Text), (2, "resourceVersion", Text)])),
    (3, "orphanDependents", GivenFlag),
    (4, "propagationPolicy", Text),
    (5, "dryRun", Texts),
];

const TOKEN_REQUEST_SPEC: Message = &[
    (1, "audiences", Texts),
    (3, "boundObjectRef", One(&[(1, "kind", Text), (2, "apiVersion", Text), (3, "name", Text), (4, "uid", Text)])),
    (4, "expirationSeconds", GivenInt),
];

const ACCESS_REVIEW_SPEC: Message = &[
    (1, "resourceAttributes", One(RESOURCE_ATTRIBUTES)),
    (2, "nonResourceAttributes", One(&[(1, "path", Text), (2, "verb", Text)])),
    (3, "user", Text),
    (4, "groups", Texts),
    (6, "uid", Text),
];

const RESOURCE_ATTRIBUTES: Message = &[
    (1, "namespace", Text),
    (2, "verb", Text),
    (3, "group", Text),
    (4, "version", Text),
    (5, "resource", Text),
    (6, "subresource", Text),
    (7, "name", Text),
];
