//! `docs/reference/backup.md`: what a `Backup` asks for, and what is said of it.

use bellwether_api::v1;
use bellwether_api::v1::fields::backup_fields;

use super::fields::{Kind, columns, documented, sections, status, summary, text};
use super::{HEADER, prose};

const SMALLEST: &str = "\
```yaml
apiVersion: bellwether.dev/v1
kind: Backup
metadata:
  name: before-the-migration
spec:
  cluster: orders
```
";

/// How it goes on: what no single field says.
const LIFE: &str = "\
A backup is `Pending` until an instance takes it: a standby that streams, or the primary where none does. One is taken at a time, the oldest first. A \
failed attempt is made again, by another instance if there is one, at most three times; then the backup is `Failed`, and the next one's turn comes. \
`Completed` means that all of it is in the store, with every segment of the log that it needs; nobody has restored it yet. Then, as \
[`spec.backup.verification`](postgrescluster.md#specbackupverification) or its own `spec.verify` say, it is `Verifying`: a pod restores it from the store alone, \
lets PostgreSQL recover, and checks every file, table, index and page. What comes of that is `Verified`, or `Failed` with the finding.

[`spec.backup.schedule`](postgrescluster.md#specbackupschedule) creates backups called `<cluster>-<yyyymmdd-hhmm>`, by the time in UTC that they are \
for. A new cluster takes its first as soon as it is ready. Of times that were missed, because nobody was there to take a backup, the last is made up for. \
Clusters with the same schedule begin at moments of their own, within a minute of the time and a tenth of the time until the next.

Deleting a backup that is being taken stops it. Deleting one that is over deletes nothing in the store, and deleting the cluster deletes none of its \
backups that are over.

";

/// The page.
pub fn page() -> String {
    let kind = Kind { definition: v1::backup_crd(), schema: v1::backup_schema(), fields: backup_fields() };
    let mut page = format!(
        "{HEADER}\n# Backup\n\n`apiVersion: bellwether.dev/v1`, `kind: Backup`. {}\n\nThis is a whole manifest:\n\n{SMALLEST}\n{LIFE}",
        prose(text(&kind.schema, "description"))
    );
    columns(&mut page, &kind, "backups");
    summary(&mut page, &kind, &documented(&kind));
    sections(&mut page, &kind);
    page.push_str("\n## Status\n\nWritten by Bellwether alone.\n\n");
    status(&mut page, &kind);
    page
}
