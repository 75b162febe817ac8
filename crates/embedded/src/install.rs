//! Puts into the API what a cluster's administrator would install: the CRDs, the operator's role and account.

use bellwether_core::rbac;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleRef, Subject};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::core::ObjectMeta;
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The namespace of the operator's service account.
pub const OPERATOR_NAMESPACE: &str = "bellwether-system";
/// The field manager of what is installed.
const MANAGER: &str = "bellwether-up";

/// Installs everything; what is there and the same is left as it is.
pub async fn install(client: &Client) -> Result<(), kube::Error> {
    for definition in bellwether_api::v1::crds() {
        apply(&Api::<CustomResourceDefinition>::all(client.clone()), &definition).await?;
    }
    for name in [crate::manifest::NAMESPACE, OPERATOR_NAMESPACE] {
        let namespace = Namespace { metadata: named(name), ..Namespace::default() };
        apply(&Api::all(client.clone()), &namespace).await?;
    }
    let account = ServiceAccount { metadata: named(rbac::OPERATOR), ..ServiceAccount::default() };
    apply(&Api::namespaced(client.clone(), OPERATOR_NAMESPACE), &account).await?;
    apply(&Api::<ClusterRole>::all(client.clone()), &rbac::operator_role()).await?;
    apply(&Api::<ClusterRoleBinding>::all(client.clone()), &binding()).await
}

fn binding() -> ClusterRoleBinding {
    ClusterRoleBinding {
        metadata: named(rbac::OPERATOR),
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: "ClusterRole".to_owned(),
            name: rbac::OPERATOR.to_owned(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: rbac::OPERATOR.to_owned(),
            namespace: Some(OPERATOR_NAMESPACE.to_owned()),
            ..Subject::default()
        }]),
    }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

async fn apply<K>(api: &Api<K>, object: &K) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + std::fmt::Debug,
{
    let parameters = PatchParams::apply(MANAGER).force();
    api.patch(&object.name_any(), &parameters, &Patch::Apply(object)).await.map(drop)
}
