//! A place in an object that is being read.

/// Where in an object: written out only where somebody is told of it.
#[derive(Clone, Copy)]
pub(super) enum At<'a> {
    Start(&'a str),
    Field(&'a At<'a>, &'a str),
    Item(&'a At<'a>, usize),
}

impl At<'_> {
    /// Whether it is the metadata of the object.
    pub(super) fn is_metadata(&self) -> bool {
        matches!(self, At::Start("metadata") | At::Field(At::Start(""), "metadata"))
    }
}

impl std::fmt::Display for At<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            At::Start(path) => f.write_str(path),
            At::Field(At::Start(""), field) => f.write_str(field),
            At::Field(above, field) => write!(f, "{above}.{field}"),
            At::Item(above, index) => write!(f, "{above}[{index}]"),
        }
    }
}
