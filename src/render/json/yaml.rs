//! The documents of `--json` as YAML. Only the writing, and only of what JSON can hold.

use serde_json::Value;
use std::fmt::Write;

/// The document in block style; texts are always in double quotes, with JSON's escapes, which are
/// YAML's too.
pub fn yaml(value: &Value) -> String {
    let mut out = "%YAML 1.1\n---\n".to_owned();
    block(&mut out, value, 0);
    out
}

/// One item of a list that is a member of the document.
pub(super) fn item(value: &Value) -> String {
    let mut out = String::new();
    block(&mut out, &Value::Array(vec![value.clone()]), 1);
    out
}

/// A value that begins at the start of a line.
fn block(out: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (key, member) in members {
                let _ = write!(out, "{indent}{}:", quoted_key(key));
                after(out, member, depth + 1);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                let _ = write!(out, "{indent}-");
                after(out, item, depth + 1);
            }
        }
        value => {
            let _ = writeln!(out, "{indent}{}", scalar(value));
        }
    }
}

/// A value after a key or a dash: on the same line where it is no list.
fn after(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(m) if !m.is_empty() => {
            out.push('\n');
            block(out, value, depth);
        }
        Value::Array(a) if !a.is_empty() => {
            out.push('\n');
            block(out, value, depth);
        }
        // Scalars, and empty lists and maps, are written as in JSON.
        value => {
            let _ = writeln!(out, " {}", scalar(value));
        }
    }
}

/// As in JSON, but for the characters of a text that JSON takes as they are and YAML does not: DEL,
/// the controls above it (NEL among them, which YAML would read as a line break), the other breaks
/// and the byte order mark.
fn scalar(value: &Value) -> String {
    let json = value.to_string();
    let is_strange = |c: char| {
        matches!(
            c,
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
        )
    };
    if !json.contains(is_strange) {
        return json;
    }
    json.chars().fold(String::new(), |mut text, c| {
        if is_strange(c) {
            let _ = write!(text, "\\u{:04x}", u32::from(c));
        } else {
            text.push(c);
        }
        text
    })
}

fn quoted_key(key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let plain = plain && !key.starts_with(|c: char| c.is_ascii_digit());
    if plain { key.to_owned() } else { scalar(&Value::from(key)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn maps_lists_and_scalars() {
        let value = json!({
            "a": { "empty": [], "n": 1, "none": null }, "list": [{ "x": true, "y": 0.5 }, "a: \"b\"\n"],
            "min nodes": {},
        });
        assert_eq!(
            yaml(&value),
            "%YAML 1.1\n---\na:\n  empty: []\n  n: 1\n  none: null\nlist:\n  -\n    x: true\n    y: 0.5\n  - \"a: \\\"b\\\"\\n\"\n\"min nodes\": {}\n"
        );
    }

    #[test]
    fn what_yaml_does_not_take_as_it_is_is_escaped() {
        let value = json!({ "a": "x\u{1}\u{7f}\u{85}\u{9f}\u{a0}\u{2028}\u{feff}é€" });
        let text = yaml(&value);
        assert_eq!(
            text,
            "%YAML 1.1\n---\na: \"x\\u0001\\u007f\\u0085\\u009f\u{a0}\\u2028\\ufeffé€\"\n"
        );
    }

    #[test]
    fn a_scalar_alone_is_a_document() {
        assert_eq!(yaml(&Value::Null), "%YAML 1.1\n---\nnull\n");
    }
}
