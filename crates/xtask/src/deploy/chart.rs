//! The generated files of the chart: which object is in which template, and under which condition.

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::slots::{Place, Slot, slot, template};
use super::values::Values;
use super::{NAMESPACE_SLOT, access, network, workload};
use crate::generate::File;
use crate::yaml;

/// The oldest Kubernetes that the types are of.
const KUBERNETES: &str = ">=1.34.0-0";

/// The generated files of the chart.
pub fn files(values: &Values) -> Result<Vec<File>, String> {
    let file = |path, content| File { path, content };
    Ok(vec![
        file("deploy/chart/bellwether/Chart.yaml", about()?),
        file("deploy/chart/bellwether/values.schema.json", schema()?),
        file("deploy/chart/bellwether/templates/_helpers.tpl", format!("{COMMENT}{HELPERS}")),
        file("deploy/chart/bellwether/templates/crds.yaml", crds()?),
        file("deploy/chart/bellwether/templates/rbac.yaml", rbac()?),
        file("deploy/chart/bellwether/templates/operator.yaml", operator(values)?),
        file("deploy/chart/bellwether/templates/networkpolicy.yaml", policy(values)?),
        file("deploy/chart/bellwether/templates/servicemonitor.yaml", monitor()?),
    ])
}

fn about() -> Result<String, String> {
    yaml::document(&json!({
        "apiVersion": "v2",
        "name": "bellwether",
        "description": "PostgreSQL on Kubernetes, run the way a careful DBA would",
        "type": "application",
        "version": env!("CARGO_PKG_VERSION"),
        "appVersion": env!("CARGO_PKG_VERSION"),
        "kubeVersion": KUBERNETES,
        "keywords": ["postgresql", "database", "operator"],
        "annotations": { "licenses": "Apache-2.0" },
    }))
}

/// What Helm checks values against. In the dialect that its validators know best.
fn schema() -> Result<String, String> {
    let schema = SchemaSettings::draft07().into_generator().into_root_schema_for::<Values>();
    let schema = serde_json::to_value(&schema).map_err(|why| format!("values.schema.json: {why}"))?;
    Ok(format!("{:#}\n", yaml::sorted(&schema)))
}

/// A comment of Helm's: nothing of it is in what is rendered.
const COMMENT: &str = "{{- /* Made by `make generate`; changes here are lost. */ -}}\n";

const HELPERS: &str = r#"
{{- /* The operator's image, by digest where one is given. Database pods copy the agent from the same. */ -}}
{{- define "bellwether.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- /* Environment variables that are there only when their value is set. */ -}}
{{- define "bellwether.env" -}}
{{- with .Values.watchNamespaces }}
- name: BELLWETHER_NAMESPACES
  value: {{ join "," . | quote }}
{{- end }}
{{- with .Values.log }}
- name: BELLWETHER_LOG
  value: {{ . | quote }}
{{- end }}
{{- end -}}

{{- /* A certificate of the user's own: where it is mounted, and from which Secret. */ -}}
{{- define "bellwether.args" -}}
{{- if .Values.tlsSecret }}
- --tls-certificate=/etc/bellwether/tls/tls.crt
- --tls-key=/etc/bellwether/tls/tls.key
{{- end }}
{{- end -}}

{{- define "bellwether.volumeMounts" -}}
{{- if .Values.tlsSecret }}
- name: tls
  mountPath: /etc/bellwether/tls
  readOnly: true
{{- end }}
{{- end -}}

{{- define "bellwether.volumes" -}}
{{- with .Values.tlsSecret }}
- name: tls
  secret:
    secretName: {{ . | quote }}
    defaultMode: 0444
{{- end }}
{{- end -}}

{{- /* Ports of the API server, as a network policy has them. */ -}}
{{- define "bellwether.apiServerPorts" -}}
{{- range .Values.networkPolicy.apiServerPorts }}
- port: {{ . | int }}
  protocol: TCP
{{- end }}
{{- end -}}
"#;

/// In `templates` and not in `crds`, so that an upgrade of the release upgrades them; kept when it is uninstalled, because deleting
/// a definition deletes every object of its kind.
fn crds() -> Result<String, String> {
    let mut documents = String::new();
    for mut crd in super::crds() {
        crd["metadata"]["annotations"]["helm.sh/resource-policy"] = json!("keep");
        documents += &document(&crd, &[])?;
    }
    Ok(format!("{COMMENT}{{{{- if .Values.crds.install }}}}\n{documents}{{{{- end }}}}\n"))
}

fn rbac() -> Result<String, String> {
    let [cluster_role, cluster_binding] = access::everywhere();
    let [role, binding] = access::in_one();
    let [role_slots, binding_slots] = access::in_one_slots();
    let [leader, leader_binding] = access::leader();
    let [leader_slots, leader_binding_slots] = access::leader_slots();
    let parts = [
        document(&access::account(), &access::account_slots())?,
        document(&leader, &leader_slots)?,
        document(&leader_binding, &leader_binding_slots)?,
        "{{- with .Values.watchNamespaces }}\n{{- range . }}\n".to_owned(),
        document(&role, &role_slots)?,
        document(&binding, &binding_slots)?,
        "{{- end }}\n{{- else }}\n".to_owned(),
        document(&cluster_role, &[])?,
        document(&cluster_binding, &access::everywhere_slots())?,
        "{{- end }}\n".to_owned(),
    ];
    Ok(format!("{COMMENT}{}", parts.concat()))
}

fn operator(values: &Values) -> Result<String, String> {
    let here = || [slot("/metadata/namespace", Slot::Value(NAMESPACE_SLOT.to_owned()))];
    let parts = [
        document(&workload::metrics_service(), &here())?,
        document(&workload::disruption_budget(), &here())?,
        document(&workload::deployment(values), &workload::deployment_slots())?,
    ];
    Ok(format!("{COMMENT}{}", parts.concat()))
}

fn policy(values: &Values) -> Result<String, String> {
    let policy = document(&network::policy(values), &network::policy_slots())?;
    Ok(format!("{COMMENT}{{{{- if .Values.networkPolicy.enabled }}}}\n{policy}{{{{- end }}}}\n"))
}

fn monitor() -> Result<String, String> {
    let monitor = document(&network::service_monitor(), &network::service_monitor_slots())?;
    Ok(format!("{COMMENT}{{{{- if .Values.serviceMonitor.enabled }}}}\n{monitor}{{{{- end }}}}\n"))
}

fn document(object: &Value, places: &[Place]) -> Result<String, String> {
    Ok(format!("---\n{}", template(object, places)?))
}
