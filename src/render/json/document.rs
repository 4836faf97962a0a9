//! What all documents share.

use crate::model::Timestamp;
use crate::render::ctx::VERSION;
use serde_json::{Map, Value};

/// An object of these members.
pub fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Object(members.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
}

/// The document with one list.
pub fn document(plugin: &str, list: &str, records: Vec<Value>) -> Value {
    document_of(plugin, list, Value::Array(records))
}

/// The document with one member of any shape.
pub fn document_of(plugin: &str, name: &str, value: Value) -> Value {
    let version = object([("major", 22.into()), ("minor", 5.into()), ("micro", 8.into())]);
    let mut members = Map::new();
    let meta = object([
        ("plugin", object([("type", plugin.into()), ("name", "slotd".into())])),
        ("Slurm", object([("version", version), ("release", VERSION.into())])),
    ]);
    members.insert("meta".to_owned(), meta);
    members.insert("errors".to_owned(), Value::Array(Vec::new()));
    members.insert(name.to_owned(), value);
    Value::Object(members)
}

/// Seconds since 1970; 0 for none.
pub fn epoch(t: Option<Timestamp>) -> Value {
    t.map_or(0, Timestamp::as_secs).into()
}

/// The text, empty for none.
pub fn or_empty(text: Option<&str>) -> Value {
    text.unwrap_or_default().into()
}

/// The same of a value.
pub fn text_of(value: Option<&impl ToString>) -> Value {
    value.map(ToString::to_string).unwrap_or_default().into()
}

/// Minutes of a time limit, a short one rounded up; `null` for none.
pub fn minutes(secs: Option<u64>) -> Value {
    secs.map_or(Value::Null, |s| s.div_ceil(60).into())
}

/// The document as text, indented, with a line break at its end.
pub fn text(value: &Value) -> String {
    // A tree of maps with text keys can always be written.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}
