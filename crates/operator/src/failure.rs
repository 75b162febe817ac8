//! What can go wrong between us and the API server, by what is to be done about it.

use bellwether_core::check::Violation;

use crate::port::CallError;

/// Why a reconcile did not get to its end.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Worth trying again by itself: the network, an overloaded or restarting API server, a conflict.
    #[error("{doing}: {cause}; it is tried again")]
    Transient {
        /// What was being done.
        doing: String,
        /// What came back.
        cause: String,
    },
    /// The API server understood and said no: a missing permission, a quota, a value it doesn't take. Said in a condition, and
    /// tried again slowly, because what is missing may be given without any change of ours.
    #[error("{doing}: refused by the API server: {cause}")]
    Refused {
        /// What was being done.
        doing: String,
        /// What came back; for a missing permission it names verb and resource.
        cause: String,
    },
    /// Volumes were refused to become larger. Everything else was done.
    #[error("refused by the API server: {}", .0.join("; "))]
    NotGrown(Vec<String>),
    /// The world changed under the plan. Not an error: it is looked at afresh.
    #[error("{doing}: the world has changed since it was planned ({cause})")]
    Overtaken {
        /// What was being done.
        doing: String,
        /// What is different.
        cause: String,
    },
    /// The plan breaks an invariant. Nothing of it was carried out.
    #[error("the plan was not carried out, this is a bug: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Forbidden(Vec<Violation>),
    /// A Secret's contents could not be made.
    #[error("{doing}: {cause}")]
    Secret {
        /// What was being made.
        doing: String,
        /// Why it could not be.
        cause: String,
    },
}

impl Failure {
    /// From a request that got no good answer.
    pub fn of(doing: impl Into<String>, error: CallError) -> Self {
        let doing = doing.into();
        match error {
            CallError::Refused { code: 409 | 412, message: cause } => Self::Overtaken { doing, cause },
            // 404 to a write: the namespace is gone or the kind isn't served.
            CallError::Refused { code: 400 | 401 | 403 | 404 | 405 | 413 | 415 | 422, message: cause } => {
                Self::Refused { doing, cause }
            }
            CallError::Refused { message: cause, .. } | CallError::Unanswered { cause } => {
                Self::Transient { doing, cause }
            }
        }
    }

    /// One word for it: a label of metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Transient { .. } => "transient",
            Self::Refused { .. } | Self::NotGrown(_) => "refused",
            Self::Overtaken { .. } => "overtaken",
            Self::Forbidden(_) => "forbidden",
            Self::Secret { .. } => "secret",
        }
    }

    /// Whether it is tried again after a pause that grows. What was overtaken is looked at afresh.
    pub fn is_retried(&self) -> bool {
        !matches!(self, Self::Overtaken { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: u16, message: &str) -> Failure {
        Failure::of("apply Secret a-ca", CallError::Refused { code, message: message.into() })
    }

    #[test]
    fn a_missing_permission_is_named_with_its_verb() {
        let failure = answer(403, r#"secrets is forbidden: User "x" cannot create resource "secrets""#);
        assert!(matches!(failure, Failure::Refused { .. }));
        assert!(failure.to_string().contains("cannot create resource"), "{failure}");
    }

    #[test]
    fn an_overloaded_server_is_tried_again() {
        for code in [429, 500, 503, 504] {
            assert!(matches!(answer(code, ""), Failure::Transient { .. }), "{code}");
        }
    }

    #[test]
    fn a_conflict_is_not_an_error() {
        assert!(matches!(answer(409, ""), Failure::Overtaken { .. }));
    }
}
