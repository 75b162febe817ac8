//! What a plan is made of: actions with their reasons and preconditions, and what it waits on.

use std::collections::BTreeMap;
use std::fmt;

use bellwether_api::v1::BackupStatus;
use jiff::Timestamp;

use crate::build::secret::SecretKind;
use crate::object::{Desired, Kind};

/// One thing to do, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    /// What to do.
    pub effect: Effect,
    /// Why, in one sentence.
    pub why: String,
}

/// Something done to the world. All are idempotent; those that destroy carry the identity and version of what they were
/// decided on.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Server-side apply: make the object so.
    Apply(Desired),
    /// Create it; an object of that name which is already there is left alone and looked at again.
    Create(Desired),
    /// Make or complete a Secret.
    Issue(SecretOrder),
    /// Annotate a volume.
    AnnotateVolume {
        /// Which volume, as it was seen.
        target: Target,
        /// Annotations to set.
        annotations: BTreeMap<String, String>,
    },
    /// Annotate a pod.
    AnnotatePod {
        /// The pod's name.
        name: String,
        /// Its UID.
        uid: String,
        /// Annotations to set.
        annotations: BTreeMap<String, String>,
    },
    /// Let a volume grow. Not every storage class can: nothing may depend on it.
    GrowVolume {
        /// The volume's name.
        name: String,
        /// Its UID.
        uid: String,
        /// The new size.
        size: String,
    },
    /// Delete a pod.
    DeletePod(Target),
    /// Delete a pod that is made anew on its volume: it runs with an earlier spec.
    RestartPod(Target),
    /// Ask the primary to hand over, by an annotation on the Lease; or withdraw that.
    AskSwitchover {
        /// The Lease, as it was seen.
        target: Target,
        /// To whom, and when it was asked.
        wish: Option<(String, Timestamp)>,
    },
    /// Delete a volume, and the data on it.
    DeleteVolume(Target),
    /// Make a pod that verifies a backup.
    CreateVerifier(Desired),
    /// Delete a pod that verified a backup.
    DeleteVerifier(Target),
    /// Say what becomes of a backup.
    BackupStatus {
        /// The backup, as it was seen: whoever has yet to see that it is over must not say otherwise.
        target: Target,
        /// All that is said of it.
        status: Box<BackupStatus>,
    },
}

/// An object as it was seen. The API server refuses when it is another or has changed since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its version.
    pub resource_version: String,
}

/// A Secret to be made or completed.
#[derive(Clone, Debug, PartialEq)]
pub struct SecretOrder {
    /// Which.
    pub kind: SecretKind,
    /// Its metadata and type.
    pub shape: Desired,
    /// What goes into it.
    pub content: Content,
    /// What happens to contents that are there.
    pub existing: Existing,
}

/// What happens to a Secret's existing contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// They stay, and what is missing is added.
    Keep,
    /// Certificates are issued anew; the authority keeps its key, so that what it issued stays valid.
    Renew,
}

/// What goes into a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A certificate authority.
    Authority {
        /// Its common name.
        common_name: String,
        /// When it expires.
        not_after: Timestamp,
    },
    /// A certificate for servers.
    ServerCertificate {
        /// Host names that it covers.
        names: Vec<String>,
        /// When it expires.
        not_after: Timestamp,
    },
    /// A certificate for a client.
    ClientCertificate {
        /// Its common name: the database role.
        common_name: String,
        /// When it expires.
        not_after: Timestamp,
    },
    /// A role with a password.
    Password {
        /// The role.
        username: String,
    },
    /// What an application needs to connect.
    Application {
        /// The host of the read-write Service.
        host: String,
        /// The database.
        database: String,
        /// The role.
        username: String,
        /// Secret and key of a password that the user supplies.
        password_from: Option<(String, String)>,
        /// Whether it takes the place of one that is there.
        password_anew: bool,
    },
}

impl Effect {
    /// Whether something of the database is gone afterwards. What a verification restored is a copy of what is in the store.
    pub fn destroys(&self) -> bool {
        matches!(self, Self::DeletePod(_) | Self::RestartPod(_) | Self::DeleteVolume(_))
    }

    /// Whether nothing that comes after it needs it, so that a refusal holds nothing up.
    pub fn stands_alone(&self) -> bool {
        match self {
            Self::GrowVolume { .. } | Self::BackupStatus { .. } => true,
            Self::CreateVerifier(_) | Self::DeleteVerifier(_) => true,
            Self::Create(desired) => desired.kind == Kind::Backup,
            Self::Apply(desired) => {
                matches!(desired.kind, Kind::Service | Kind::EndpointSlice | Kind::PodDisruptionBudget)
            }
            _ => false,
        }
    }

    /// Kind and name of what it is done to.
    pub fn target(&self) -> (Kind, &str) {
        match self {
            Self::Apply(desired) | Self::Create(desired) | Self::CreateVerifier(desired) => {
                (desired.kind, &desired.name)
            }
            Self::Issue(order) => (Kind::Secret, &order.shape.name),
            Self::AnnotateVolume { target, .. } | Self::DeleteVolume(target) => {
                (Kind::PersistentVolumeClaim, &target.name)
            }
            Self::GrowVolume { name, .. } => (Kind::PersistentVolumeClaim, name),
            Self::AnnotatePod { name, .. } => (Kind::Pod, name),
            Self::DeletePod(target) | Self::RestartPod(target) | Self::DeleteVerifier(target) => {
                (Kind::Pod, &target.name)
            }
            Self::AskSwitchover { target, .. } => (Kind::Lease, &target.name),
            Self::BackupStatus { target, .. } => (Kind::Backup, &target.name),
        }
    }

    fn verb(&self) -> &'static str {
        match self {
            Self::Apply(_) => "apply",
            Self::Create(_) | Self::CreateVerifier(_) => "create",
            Self::Issue(order) if order.existing == Existing::Renew => "renew",
            Self::Issue(_) => "issue",
            Self::AnnotateVolume { .. } | Self::AnnotatePod { .. } => "annotate",
            Self::GrowVolume { .. } => "grow",
            Self::RestartPod(_) => "restart",
            Self::AskSwitchover { wish: Some(_), .. } => "ask for a switchover on",
            Self::AskSwitchover { wish: None, .. } => "withdraw the switchover from",
            Self::DeletePod(_) | Self::DeleteVolume(_) | Self::DeleteVerifier(_) => "delete",
            Self::BackupStatus { .. } => "say of",
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = self.target();
        write!(f, "{} {kind} {name}", self.verb())
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.effect, self.why)
    }
}

/// Why nothing more happens now. Shown to users word for word, so each says what would end the wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitingOn {
    /// These kinds have not been seen completely.
    Sight(Vec<String>),
    /// Objects of an earlier cluster of this name are still being removed.
    Leftovers(Vec<String>),
    /// Volumes are still being removed.
    Volumes(Vec<String>),
    /// Volume claims that were asked for.
    Claims(Vec<String>),
    /// Pods are still stopping.
    Stopping(Vec<String>),
    /// The Secret that the spec names for the owner's password.
    OwnerPassword {
        /// The Secret.
        secret: String,
        /// Its key.
        key: String,
    },
    /// An instance that leaves, and is still a member of the election.
    Membership(String),
    /// An instance that leaves, and whose replication slot is still there.
    Slot(String),
    /// An instance that must not be removed while it may lead.
    LeaderUnsure(String),
    /// The instance that initialises the database, and what it says.
    Bootstrap(String, Option<String>),
    /// The instance that restores the database, and what it says.
    Restore(String, Option<String>),
    /// What the database is to be restored from, which is not there: why not.
    Source(String),
    /// Instances that join or come back, each with what it is doing.
    Joins(Vec<(String, String)>),
    /// The primary, which nobody can replace yet.
    Primary(Option<String>),
    /// A primary that is fenced, and that nobody else can replace.
    Fenced(String),
    /// Instances that are fenced: a rollout would have one instance less to rely on.
    Unfenced(Vec<String>),
    /// Instances that have not read the parameters as they are.
    Parameters(Vec<String>),
    /// Commits that would wait, or do, without this instance.
    Commits(String),
    /// Other standbys: commits need this one, which is to leave.
    Needed(String),
    /// The primary, which restarts in place with lower values of these.
    Lowered(String, Vec<String>),
    /// Standbys, which have not replayed yet that their primary has lower values.
    Replayed(Vec<String>),
    /// The primary, which is to hand over, and what it says.
    Handover(String, Option<String>),
    /// A person who wants no new step.
    Resume,
}

impl fmt::Display for WaitingOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = |name: &str, message: &Option<String>| match message {
            Some(message) => format!("{name} ({message})"),
            None => name.to_owned(),
        };
        match self {
            Self::Sight(kinds) => write!(f, "a complete view of {}", kinds.join(", ")),
            Self::Leftovers(objects) => write!(f, "removal of what an earlier cluster left: {}", objects.join(", ")),
            Self::Volumes(names) => write!(f, "removal of volumes {}", names.join(", ")),
            Self::Claims(names) => write!(f, "volume claims {}", names.join(", ")),
            Self::Stopping(names) => write!(f, "{} to stop", names.join(", ")),
            Self::OwnerPassword { secret, key } => write!(f, "key {key} in Secret {secret}"),
            Self::Membership(name) => write!(f, "the primary to let {name} leave the members of the election"),
            Self::Slot(name) => write!(f, "the replication slot of {name} to be dropped"),
            Self::LeaderUnsure(name) => write!(f, "certainty that {name} does not lead"),
            Self::Bootstrap(name, message) => write!(f, "{} to initialise the database", said(name, message)),
            Self::Restore(name, message) => write!(f, "{} to restore the database", said(name, message)),
            Self::Source(why) => write!(f, "something to restore the database from: {why}"),
            Self::Joins(names) => {
                let names: Vec<_> = names.iter().map(|(name, doing)| format!("{name} ({doing})")).collect();
                write!(f, "{} to serve readers", names.join(", "))
            }
            Self::Primary(Some(name)) => write!(f, "{name} to accept writes again"),
            Self::Primary(None) => write!(f, "a primary"),
            Self::Unfenced(names) => write!(f, "the fence on {} to be lifted", names.join(", ")),
            Self::Parameters(names) => write!(f, "{} to read spec.parameters as they are", names.join(", ")),
            Self::Commits(name) => write!(f, "enough standbys for commits on {name}"),
            Self::Needed(name) => write!(f, "more standbys to stream: commits need {name} until then"),
            Self::Lowered(name, parameters) => {
                write!(f, "{name} to restart in place with lower {}", parameters.join(", "))
            }
            Self::Replayed(names) => write!(f, "{} to replay that the primary has lower values", names.join(", ")),
            Self::Handover(name, message) => write!(f, "{} to hand over", said(name, message)),
            Self::Resume => write!(f, "the annotation {} to be removed", bellwether_api::labels::PAUSED),
            Self::Fenced(name) => write!(f, "the fence on {name} to be lifted, or a standby that can take over"),
        }
    }
}

/// Something a person may want to know, as a Kubernetes Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Whether it is bad news.
    pub warning: bool,
    /// A word for machines.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
}
