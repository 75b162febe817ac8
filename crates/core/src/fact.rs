//! What we know of the world: known, absent, or unknown. An unknown never triggers a destructive action.

/// A fact about the world. "We could not look" is not "it is not there".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fact<T> {
    /// We looked, and this is it.
    Known(T),
    /// We looked, and it is not there.
    Absent,
    /// We could not look, or have not yet.
    #[default]
    Unknown,
}

impl<T> Fact<T> {
    /// The value, if it is known.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Absent | Self::Unknown => None,
        }
    }
    /// Whether we looked and it is not there.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }
    /// Whether we could not look.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown)
    }
    /// A successful look-up's answer.
    pub fn looked_up(found: Option<T>) -> Self {
        found.map_or(Self::Absent, Self::Known)
    }
    /// The same fact about something derived from the value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Fact<U> {
        match self {
            Self::Known(value) => Fact::Known(f(value)),
            Self::Absent => Fact::Absent,
            Self::Unknown => Fact::Unknown,
        }
    }
}
