//! One object in a cache: as JSON while its owner is being looked at, as text the rest of the time.
//!
//! A tree of JSON takes more memory than its text, and of a thousand clusters a few are looked at in any one moment.

use std::sync::Arc;

use serde_json::Value;

use super::version;

#[derive(Debug)]
pub(super) struct Kept {
    version: u64,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Open(Arc<Value>),
    Packed(Box<str>),
}

impl Kept {
    pub(super) fn new(object: Arc<Value>) -> Self {
        Self { version: version(&object), form: Form::Open(object) }
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// The object, which stays open: whoever asks again gets the same one, and sees by that that nothing changed.
    pub(super) fn open(&mut self) -> Arc<Value> {
        let object = self.read();
        self.form = Form::Open(object.clone());
        object
    }

    /// The object, for one look.
    pub(super) fn read(&self) -> Arc<Value> {
        match &self.form {
            Form::Open(object) => object.clone(),
            // The text was written from such a value, so it can be read.
            Form::Packed(text) => Arc::new(serde_json::from_str(text).unwrap_or_default()),
        }
    }

    pub(super) fn pack(&mut self) {
        if let Form::Open(object) = &self.form {
            self.form = Form::Packed(object.to_string().into_boxed_str());
        }
    }

    #[cfg(test)]
    pub(super) fn is_packed(&self) -> bool {
        matches!(self.form, Form::Packed(_))
    }
}
