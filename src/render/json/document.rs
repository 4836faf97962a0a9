//! What all documents share.

use crate::model::Timestamp;
use crate::render::ctx::VERSION;
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter};
use serde_json::{Map, Serializer, Value, json};

/// The document with one list.
pub fn document(plugin: &str, list: &str, records: Vec<Value>) -> Value {
    document_of(plugin, list, Value::Array(records))
}

/// The document with one member of any shape.
pub fn document_of(plugin: &str, name: &str, value: Value) -> Value {
    json!({
        "meta": {
            "plugin": { "type": plugin, "name": "slotd" },
            "Slurm": { "version": { "major": 22, "minor": 5, "micro": 8 }, "release": VERSION },
        },
        "errors": [],
        (name): value,
    })
}

/// One object with the members of all these.
pub fn merged(parts: impl IntoIterator<Item = Value>) -> Value {
    let members = |part| if let Value::Object(members) = part { members } else { Map::new() };
    Value::Object(parts.into_iter().flat_map(members).collect())
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
pub fn text(value: &impl Serialize) -> String {
    // A tree of maps with text keys can always be written.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

/// Writes a value as the text of a document has it that many levels deep, but for the indentation
/// of its first line and the line break at its end.
pub(super) fn write_nested(out: &mut Vec<u8>, value: &impl Serialize, depth: usize) {
    let mut format = PrettyFormatter::new();
    for _ in 0..depth {
        // It counts the levels that it has begun.
        let _ = format.begin_array(&mut Vec::new());
    }
    // As above, and memory takes all.
    let _ = value.serialize(&mut Serializer::with_formatter(out, format));
}
