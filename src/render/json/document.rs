//! Functions shared by all documents.

use crate::ctx::VERSION;
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter};
use serde_json::{Map, Serializer, Value, json};
use slotd_model::Timestamp;

/// Returns the document with one list.
pub(crate) fn document(plugin: &str, list: &str, records: Vec<Value>) -> Value {
    document_of(plugin, list, Value::Array(records))
}

/// Returns the document with one member of any shape.
pub(crate) fn document_of(plugin: &str, name: &str, value: Value) -> Value {
    json!({
        "meta": {
            "plugin": { "type": plugin, "name": "slotd" },
            "Slurm": { "version": { "major": 22, "minor": 5, "micro": 8 }, "release": VERSION },
        },
        "errors": [],
        (name): value,
    })
}

/// Merges the members of these objects into one.
pub(crate) fn merged(parts: impl IntoIterator<Item = Value>) -> Value {
    let members = |part| if let Value::Object(members) = part { members } else { Map::new() };
    Value::Object(parts.into_iter().flat_map(members).collect())
}

/// Returns seconds since 1970; 0 for none.
pub(crate) fn epoch(t: Option<Timestamp>) -> Value {
    t.map_or(0, Timestamp::as_secs).into()
}

/// Returns the text; empty for none.
pub(crate) fn or_empty(text: Option<&str>) -> Value {
    text.unwrap_or_default().into()
}

/// Returns the value as text; empty for none.
pub(crate) fn text_of(value: Option<&impl ToString>) -> Value {
    value.map(ToString::to_string).unwrap_or_default().into()
}

/// Returns a time limit in minutes, rounded up; `null` for none.
pub(crate) fn minutes(secs: Option<u64>) -> Value {
    secs.map_or(Value::Null, |s| s.div_ceil(60).into())
}

/// Returns the document as indented text with a trailing line break.
pub fn text(value: &impl Serialize) -> String {
    // A tree of maps with text keys always serializes.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

/// Writes a value with the indentation that it has at a nesting depth of `depth`. Omits the
/// indentation of the first line and the final line break.
pub(super) fn write_nested(out: &mut Vec<u8>, value: &impl Serialize, depth: usize) {
    let mut format = PrettyFormatter::new();
    for _ in 0..depth {
        // The formatter counts the levels that it has begun.
        let _ = format.begin_array(&mut Vec::new());
    }
    // As above, and a write to memory cannot fail.
    let _ = value.serialize(&mut Serializer::with_formatter(out, format));
}
