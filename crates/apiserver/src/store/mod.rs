//! The synchronous store: objects, revisions, history for watches, and the rules of the Kubernetes API.
