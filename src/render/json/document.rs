//! Functions shared by all documents.

use crate::ctx::VERSION;
use serde::Serialize;
use serde_json::{Map, Value, json};
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
pub(crate) fn epoch(t: Option<Timestamp>) -> i64 {
    t.map_or(0, Timestamp::as_secs)
}

/// Returns the value as text; empty for none.
pub(crate) fn text_of(value: Option<&impl ToString>) -> String {
    value.map(ToString::to_string).unwrap_or_default()
}

/// Returns a time limit in minutes, rounded up.
pub(crate) fn minutes(secs: Option<u64>) -> Option<u64> {
    secs.map(|s| s.div_ceil(60))
}

/// Returns the document as indented text with a trailing line break.
pub fn text(value: &impl Serialize) -> String {
    // A tree of maps with text keys always serializes.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

/// A value that is written as indented text, like that of [`text`].
pub trait Indent: Serialize {
    /// Writes the value with the indentation that it has at this nesting depth. Omits the
    /// indentation of the first line and the final line break.
    fn write_at(&self, depth: usize, out: &mut Vec<u8>);
}

impl Indent for Value {
    fn write_at(&self, depth: usize, out: &mut Vec<u8>) {
        match self {
            Value::Array(list) if !list.is_empty() => {
                out.push(b'[');
                for (at, value) in list.iter().enumerate() {
                    push_line(out, depth + 1, at == 0);
                    value.write_at(depth + 1, out);
                }
                push_line(out, depth, true);
                out.push(b']');
            }
            Value::Object(members) if !members.is_empty() => {
                out.push(b'{');
                for (at, (name, value)) in members.iter().enumerate() {
                    push_line(out, depth + 1, at == 0);
                    push_compact(out, name);
                    out.extend_from_slice(b": ");
                    value.write_at(depth + 1, out);
                }
                push_line(out, depth, true);
                out.push(b'}');
            }
            simple => push_compact(out, simple),
        }
    }
}

/// Appends a value without line breaks.
pub(super) fn push_compact(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    // As above, and a write to memory cannot fail.
    let _ = serde_json::to_writer(out, value);
}

impl<T: Indent + ?Sized> Indent for &T {
    fn write_at(&self, depth: usize, out: &mut Vec<u8>) {
        T::write_at(self, depth, out);
    }
}

/// A comma, a line break and spaces.
const NEXT_LINE: &[u8] = b",\n                                        ";

/// Begins a line at this nesting depth, after a comma unless it is the first.
pub(super) fn push_line(out: &mut Vec<u8>, depth: usize, is_first: bool) {
    let (start, end) = (usize::from(is_first), 2 + 2 * depth);
    match NEXT_LINE.get(start..end) {
        Some(line) => out.extend_from_slice(line),
        None => {
            out.extend_from_slice(&NEXT_LINE[start..2]);
            out.resize(out.len() + 2 * depth, b' ');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(30, 60, 3, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                proptest::collection::btree_map(".{0,4}", inner, 0..3)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn nested_value_is_indented_like_a_whole_document(value in any_value(), depth in 0usize..24) {
            let whole = (0..depth).fold(value.clone(), |inner, _| json!([inner]));
            let mut written = Vec::new();
            for level in 0..depth {
                written.extend_from_slice(b"[\n");
                written.extend_from_slice("  ".repeat(level + 1).as_bytes());
            }
            value.write_at(depth, &mut written);
            for level in (0..depth).rev() {
                written.extend_from_slice(b"\n");
                written.extend_from_slice("  ".repeat(level).as_bytes());
                written.extend_from_slice(b"]");
            }
            written.push(b'\n');
            prop_assert_eq!(String::from_utf8(written).unwrap(), text(&whole));
        }
    }
}
