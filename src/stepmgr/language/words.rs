//! What the parsers of JSON and TOML say, in the words of who writes steps down.

use crate::parse::suggest;

/// An error of serde for people, with what would be right where that is known. `table` is what the
/// text calls a group of keys with values: a table, an object.
pub fn in_words(message: &str, table: &str) -> (String, Option<String>) {
    let quoted = |text: &str| text.split('`').nth(1).map(str::to_owned);
    // A variant is what a table of one key names.
    if let Some(rest) =
        message.strip_prefix("unknown field ").or_else(|| message.strip_prefix("unknown variant "))
        && let Some(word) = quoted(rest)
    {
        let known: Vec<&str> = rest.split('`').skip(3).step_by(2).collect();
        return (format!("unknown key {word:?}"), Some(suggest::one_of("keys", &word, known)));
    }
    if let Some(key) = message.strip_prefix("missing field ").and_then(quoted) {
        return (format!("the key {key:?} is missing"), None);
    }
    if let Some(key) = message.strip_prefix("duplicate field ").and_then(quoted) {
        return (
            format!("the key {key:?} stands there twice"),
            Some("leave one of them out".to_owned()),
        );
    }
    let wrong = ["invalid type: ", "invalid value: "]
        .into_iter()
        .find_map(|start| message.strip_prefix(start));
    if let Some((found, wanted)) = wrong.and_then(|rest| rest.rsplit_once(", expected ")) {
        return (
            format!(
                "{} is expected here, and not {}",
                expected(wanted, table),
                value(found, table)
            ),
            None,
        );
    }
    (syntax(message).map_or_else(|| message.to_owned(), str::to_owned), None)
}

/// What should stand there.
fn expected<'a>(wanted: &'a str, table: &'a str) -> &'a str {
    match wanted {
        "a string" => "a text",
        "a sequence" => "a list",
        "a map" | "an object" => table,
        "a boolean" => "true or false",
        "u32" => "a whole number from 0",
        other => other,
    }
}

/// What stands there.
fn value(found: &str, table: &str) -> String {
    match found.split_once(' ') {
        Some(("integer", number)) | Some(("floating", number)) => {
            format!("the number {}", number.trim_start_matches("point ").trim_matches('`'))
        }
        Some(("boolean", truth)) => truth.trim_matches('`').to_owned(),
        Some(("string", text)) => format!("the text {text}"),
        _ => match found {
            "map" => table.to_owned(),
            "sequence" => "a list".to_owned(),
            other => other.to_owned(),
        },
    }
}

/// What is wrong with the signs of JSON.
fn syntax(message: &str) -> Option<&'static str> {
    Some(match message {
        "EOF while parsing an object" => "the line ends within an object",
        "EOF while parsing a list" => "the line ends within a list",
        "EOF while parsing a string" => "the line ends within a text: its closing quote is missing",
        "EOF while parsing a value" => "the line ends where a value is expected",
        "trailing characters" => "something follows the object",
        "trailing comma" => "nothing follows the last comma",
        "key must be a string" => "a key is expected here, in double quotes",
        "expected value" => {
            "a value is expected here: a text in double quotes, a number, a list or an object"
        }
        "expected ident" => "this is neither true nor false nor null",
        "expected `,` or `}`" => "a comma or the end of the object (}) is expected here",
        "expected `,` or `]`" => "a comma or the end of the list (]) is expected here",
        "expected `:`" => "a colon is expected here, between a key and its value",
        "invalid escape" => "this is no escape: write \\\\ for a backslash",
        "control character (\\u0000-\\u001F) found while parsing a string" => {
            "a tab or another control character within a text: write \\t, \\n or \\u001b"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stepmgr::language::spec::StepSpec;

    #[test]
    fn what_is_wrong_with_json_is_said_in_words() {
        for (text, said) in [
            (r#"{"dir": 5}"#, "a text is expected here, and not the number 5"),
            (r#"{"dir": 1.5}"#, "a text is expected here, and not the number 1.5"),
            (r#"{"dir": {}}"#, "a text is expected here, and not an object"),
            (r#"{"dir": []}"#, "a text is expected here, and not a list"),
            (r#"{"cpus": []}"#, "a text or a number is expected here, and not a list"),
            (r#"{"env": true}"#, "an object is expected here, and not true"),
            (
                r#"{"retry": "x"}"#,
                "a number, or a table with times and delay is expected here, and not the text \"x\"",
            ),
            (r#"{"retry": {"delay": 5}}"#, "the key \"times\" is missing"),
            (
                r#"{"retry": {"times": -1}}"#,
                "a whole number from 0 is expected here, and not the number -1",
            ),
            (
                r#"{"retry": {"times": "a, expected b"}}"#,
                "a whole number from 0 is expected here, and not the text \"a, expected b\"",
            ),
            (r#"{"dir": "a", "dir": "b"}"#, "the key \"dir\" stands there twice"),
            (
                r#"{"foreach": {"n": {}}}"#,
                "one of lines, csv and range is expected here, and not nothing",
            ),
            (
                r#"{"foreach": {"n": {"lines": "a", "csv": "b"}}}"#,
                "one of lines, csv and range is expected here, and not two of them",
            ),
            (
                r#"{"foreach": {"n": {"lines": 5}}}"#,
                "a text is expected here, and not the number 5",
            ),
            (r#"{"foreach": {"n": {"line": "a"}}}"#, "unknown key \"line\""),
            (r#"{"dir": "#, "the line ends where a value is expected"),
            (r#"{"dir": "a"#, "the line ends within a text: its closing quote is missing"),
            (r#"{"dir": "a"} x"#, "something follows the object"),
            (r#"{dir: 1}"#, "a key is expected here, in double quotes"),
            (
                r#"{"dir": 'a'}"#,
                "a value is expected here: a text in double quotes, a number, a list or an object",
            ),
            (r#"{"dir": "a" "b"}"#, "a comma or the end of the object (}) is expected here"),
            (r#"{"dir" "b"}"#, "a colon is expected here, between a key and its value"),
            (r#"{"dir": "\d"}"#, "this is no escape: write \\\\ for a backslash"),
            (
                "{\"dir\": \"\t\"}",
                "a tab or another control character within a text: write \\t, \\n or \\u001b",
            ),
        ] {
            let error = serde_json::from_str::<StepSpec>(text).unwrap_err().to_string();
            let message = error.rsplit_once(" at line ").map_or(&*error, |(message, _)| message);
            assert_eq!(in_words(message, "an object").0, said, "{text}: {error}");
        }
    }
}
