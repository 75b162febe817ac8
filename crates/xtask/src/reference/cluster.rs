//! `docs/reference/postgrescluster.md`: every field with its type, default, rules and what happens when it changes.

use bellwether_api::v1;
use bellwether_api::v1::fields::fields;

use super::fields::{Kind, columns, documented, push_rules, sections, status, summary, text};
use super::{HEADER, prose};

const SMALLEST: &str = "\
```yaml
apiVersion: bellwether.dev/v1
kind: PostgresCluster
metadata:
  name: orders
spec:
  replicas: 3
```
";

/// The page.
pub fn page() -> String {
    let kind = Kind { definition: v1::crd(), schema: v1::schema(), fields: fields() };
    let mut page = format!(
        "{HEADER}\n# PostgresCluster\n\n`apiVersion: bellwether.dev/v1`, `kind: PostgresCluster`, short name `pgc`. {}\n\n\
         This is a whole manifest; [examples](../../deploy/examples/) has more:\n\n{SMALLEST}\n\
         A default that was taken is stored in the object, so a new release of Bellwether never changes a running cluster. What \
         can't be acted on is refused when it is written, with the field, the value and what to write instead.\n\n",
        prose(text(&kind.schema, "description"))
    );
    columns(&mut page, &kind, "pgc");
    summary(&mut page, &kind, &documented(&kind));
    page.push_str("\n## Name\n\nThe names of Services, pods and Secrets are made from the cluster's.\n\n");
    push_rules(&mut page, &kind.fields, "metadata.name");
    sections(&mut page, &kind);
    page.push_str(
        "\n## Status\n\nWritten by Bellwether alone. Conditions carry one of these [reasons](reasons.md).\n\n",
    );
    status(&mut page, &kind);
    page
}
