//! Writes the documents of `--json` as YAML, limited to values that JSON can hold.

use serde_json::Value;
use std::fmt::Write;

/// Returns the document in block style. Texts are always in double quotes with JSON's escapes,
/// which YAML shares.
pub fn yaml(value: &Value) -> String {
    let mut out = "%YAML 1.1\n---\n".to_owned();
    block(&mut out, value, 0);
    out
}

/// Returns one item of a list that is a member of the document.
pub(super) fn item(value: &Value) -> String {
    let mut out = String::new();
    block(&mut out, &Value::Array(vec![value.clone()]), 1);
    out
}

/// Writes a value that begins at the start of a line.
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

/// Writes a value after a key or a dash, on the same line unless it is a list or a map.
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

/// Formats a scalar as in JSON, but also escapes the characters that YAML does not accept: DEL, the
/// control characters above it (including NEL, which YAML reads as a line break), the other line
/// breaks, and the byte order mark.
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
    fn characters_that_yaml_rejects_are_escaped() {
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
