//! Rewords errors of the JSON and TOML parsers for people who write steps.

use slotd_parse::suggest;

/// Rewords a serde error, with a hint if there is one. `table` is the format's word for a group of
/// keys and values: a table or an object.
pub fn in_words(message: &str, table: &str) -> (String, Option<String>) {
    let quoted = |text: &str| text.split('`').nth(1).map(str::to_owned);
    // An unknown variant is an unknown key of a table with a single key.
    if let Some(rest) =
        message.strip_prefix("unknown field ").or_else(|| message.strip_prefix("unknown variant "))
        && let Some(word) = quoted(rest)
    {
        let known: Vec<&str> = rest.split('`').skip(3).step_by(2).collect();
        return (format!("unknown key {word:?}"), Some(suggest::one_of("keys", &word, known)));
    }
    if let Some(key) = message.strip_prefix("missing field ").and_then(quoted) {
        return (format!("missing key {key:?}"), None);
    }
    if let Some(key) = message.strip_prefix("duplicate field ").and_then(quoted) {
        return (format!("duplicate key {key:?}"), Some("remove one of them".to_owned()));
    }
    let wrong = ["invalid type: ", "invalid value: "]
        .into_iter()
        .find_map(|start| message.strip_prefix(start));
    if let Some((found, wanted)) = wrong.and_then(|rest| rest.rsplit_once(", expected ")) {
        return (
            format!("expected {}, found {}", expected(wanted, table), value(found, table)),
            None,
        );
    }
    (syntax(message).map_or_else(|| message.to_owned(), str::to_owned), None)
}

/// Returns the name of the expected type.
fn expected<'a>(wanted: &'a str, table: &'a str) -> &'a str {
    match wanted {
        "a sequence" => "a list",
        "a map" | "an object" => table,
        "a boolean" => "true or false",
        "u32" => "a whole number, 0 or more",
        other => other,
    }
}

/// Returns a description of the value found.
fn value(found: &str, table: &str) -> String {
    match found.split_once(' ') {
        Some(("integer", number)) | Some(("floating", number)) => {
            format!("the number {}", number.trim_start_matches("point ").trim_matches('`'))
        }
        Some(("boolean", truth)) => truth.trim_matches('`').to_owned(),
        Some(("string", text)) => format!("the string {text}"),
        _ => match found {
            "map" => table.to_owned(),
            "sequence" => "a list".to_owned(),
            other => other.to_owned(),
        },
    }
}

/// Rewords a JSON syntax error.
fn syntax(message: &str) -> Option<&'static str> {
    Some(match message {
        "EOF while parsing an object" => "the line ends inside an object",
        "EOF while parsing a list" => "the line ends inside a list",
        "EOF while parsing a string" => {
            "the line ends inside a string: the closing quote is missing"
        }
        "EOF while parsing a value" => "the line ends where a value is expected",
        "trailing characters" => "unexpected text after the object",
        "trailing comma" => "trailing comma",
        "key must be a string" => "expected a key in double quotes",
        "expected value" => {
            "expected a value: a string in double quotes, a number, a list or an object"
        }
        "expected ident" => "expected true, false or null",
        "expected `,` or `}`" => "expected a comma or the end of the object (})",
        "expected `,` or `]`" => "expected a comma or the end of the list (])",
        "expected `:`" => "expected a colon between the key and its value",
        "invalid escape" => "invalid escape: write \\\\ for a backslash",
        "control character (\\u0000-\\u001F) found while parsing a string" => {
            "a string contains a control character, such as a tab: write \\t, \\n or \\u001b"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::spec::StepSpec;

    #[test]
    fn json_errors_are_reworded() {
        for (text, reworded) in [
            (r#"{"dir": 5}"#, "expected a string, found the number 5"),
            (r#"{"dir": 1.5}"#, "expected a string, found the number 1.5"),
            (r#"{"dir": {}}"#, "expected a string, found an object"),
            (r#"{"dir": []}"#, "expected a string, found a list"),
            (r#"{"cpus": []}"#, "expected a string or a number, found a list"),
            (r#"{"env": true}"#, "expected an object, found true"),
            (
                r#"{"retry": "x"}"#,
                "expected a number or a table with times and delay, found the string \"x\"",
            ),
            (r#"{"retry": {"delay": 5}}"#, "missing key \"times\""),
            (
                r#"{"retry": {"times": -1}}"#,
                "expected a whole number, 0 or more, found the number -1",
            ),
            (
                r#"{"retry": {"times": "a, expected b"}}"#,
                "expected a whole number, 0 or more, found the string \"a, expected b\"",
            ),
            (r#"{"dir": "a", "dir": "b"}"#, "duplicate key \"dir\""),
            (r#"{"foreach": {"n": {}}}"#, "expected one of lines, csv and range, found none"),
            (
                r#"{"foreach": {"n": {"lines": "a", "csv": "b"}}}"#,
                "expected one of lines, csv and range, found two",
            ),
            (r#"{"foreach": {"n": {"lines": 5}}}"#, "expected a string, found the number 5"),
            (r#"{"foreach": {"n": {"line": "a"}}}"#, "unknown key \"line\""),
            (r#"{"dir": "#, "the line ends where a value is expected"),
            (r#"{"dir": "a"#, "the line ends inside a string: the closing quote is missing"),
            (r#"{"dir": "a"} x"#, "unexpected text after the object"),
            (r#"{dir: 1}"#, "expected a key in double quotes"),
            (
                r#"{"dir": 'a'}"#,
                "expected a value: a string in double quotes, a number, a list or an object",
            ),
            (r#"{"dir": "a" "b"}"#, "expected a comma or the end of the object (})"),
            (r#"{"dir" "b"}"#, "expected a colon between the key and its value"),
            (r#"{"dir": "\d"}"#, "invalid escape: write \\\\ for a backslash"),
            (
                "{\"dir\": \"\t\"}",
                "a string contains a control character, such as a tab: write \\t, \\n or \\u001b",
            ),
        ] {
            let error = serde_json::from_str::<StepSpec>(text).unwrap_err().to_string();
            let message = error.rsplit_once(" at line ").map_or(&*error, |(message, _)| message);
            assert_eq!(in_words(message, "an object").0, reworded, "{text}: {error}");
        }
    }
}
