//! Decides the form of an answer from the `Accept` header.
//!
//! Clients name several and we take the first that we have: kubectl asks for protobuf and then JSON, for a Table and then the
//! object. We have no protobuf; who asks for nothing else gets JSON all the same, which every client can read by its content type.

/// What an answer looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// The object or list itself.
    #[default]
    Plain,
    /// A `Table` in this version of meta.k8s.io.
    Table(MetaVersion),
    /// Only type and metadata.
    PartialMetadata(MetaVersion),
    /// Discovery of all groups in one answer.
    AggregatedDiscovery,
}

/// Versions of meta.k8s.io that clients ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVersion {
    /// `v1`
    V1,
    /// `v1beta1`, from older clients.
    V1Beta1,
}

impl MetaVersion {
    /// `meta.k8s.io/v1`
    pub fn api_version(self) -> &'static str {
        match self {
            MetaVersion::V1 => "meta.k8s.io/v1",
            MetaVersion::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// `application/json`
    #[default]
    Json,
    /// `application/yaml`
    Yaml,
}

/// The chosen form and encoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// What.
    pub form: Form,
    /// How.
    pub encoding: Encoding,
}

/// Chooses; none when the client takes nothing that we have.
pub fn negotiate(header: Option<&str>) -> Option<Accepted> {
    let Some(header) = header.filter(|header| !header.trim().is_empty()) else { return Some(Accepted::default()) };
    let mut asked_for_protobuf = false;
    for range in header.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default().to_ascii_lowercase();
        let parameters: Vec<(&str, &str)> =
            parts.filter_map(|part| part.split_once('=')).map(|(k, v)| (k.trim(), v.trim())).collect();
        let encoding = match media.as_str() {
            "application/json" | "application/*" | "*/*" => Encoding::Json,
            "application/yaml" => Encoding::Yaml,
            "application/vnd.kubernetes.protobuf" => {
                asked_for_protobuf = true;
                continue;
            }
            _ => continue,
        };
        if let Some(form) = form(&parameters) {
            return Some(Accepted { form, encoding });
        }
    }
    asked_for_protobuf.then(Accepted::default)
}

fn form(parameters: &[(&str, &str)]) -> Option<Form> {
    let get = |key: &str| parameters.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
    let meta = || match (get("g"), get("v")) {
        (Some("meta.k8s.io"), Some("v1")) => Some(MetaVersion::V1),
        (Some("meta.k8s.io"), Some("v1beta1")) => Some(MetaVersion::V1Beta1),
        _ => None,
    };
    match get("as") {
        None => Some(Form::Plain),
        Some("Table") => meta().map(Form::Table),
        Some("PartialObjectMetadata" | "PartialObjectMetadataList") => meta().map(Form::PartialMetadata),
        Some("APIGroupDiscoveryList") => {
            (get("g") == Some("apidiscovery.k8s.io") && get("v") == Some("v2")).then_some(Form::AggregatedDiscovery)
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form_of(header: &str) -> Option<Form> {
        negotiate(Some(header)).map(|accepted| accepted.form)
    }

    #[test]
    fn kubectl_get_receives_a_table() {
        let header = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(form_of(header), Some(Form::Table(MetaVersion::V1)));
    }

    #[test]
    fn protobuf_falls_back_to_json() {
        assert_eq!(form_of("application/vnd.kubernetes.protobuf,application/json"), Some(Form::Plain));
        assert_eq!(form_of("application/vnd.kubernetes.protobuf"), Some(Form::Plain));
        let partial = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        assert_eq!(form_of(partial), Some(Form::PartialMetadata(MetaVersion::V1)));
    }

    #[test]
    fn an_unknown_form_is_passed_over_for_the_next() {
        assert_eq!(form_of("application/json;as=Table;g=meta.k8s.io;v=v9, application/json"), Some(Form::Plain));
        let discovery =
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer,application/json";
        assert_eq!(form_of(discovery), Some(Form::AggregatedDiscovery));
    }

    #[test]
    fn nothing_asked_is_json_and_nothing_we_have_is_refused() {
        assert_eq!(negotiate(None), Some(Accepted::default()));
        assert_eq!(negotiate(Some("*/*")), Some(Accepted::default()));
        assert_eq!(negotiate(Some("application/yaml")).unwrap().encoding, Encoding::Yaml);
        assert_eq!(negotiate(Some("text/foo")), None);
    }
}
