//! The environment that a job receives: `--export`, `--export-file` (sbatch man page).
//!
//! This module only parses the text. The values of plain names are taken from the submitter's
//! environment later.

use crate::error::{SpecError, shown};
use slotd_model::request::ExportSpec;

/// Parses `ALL`, `NONE`, `NIL`, the empty string (no variables), `NAME`, `KEY=VALUE`, or a
/// comma-separated list of them.
///
/// Without `ALL`, only the listed variables are exported. Quotes group, as in a shell, and are
/// dropped: `NEW='a,b'`. Names and values keep their order, and a name may occur twice.
///
/// # Errors
/// Fails with `Invalid --export specification: …` for a missing name or an unclosed quote.
pub fn parse(text: &str) -> Result<ExportSpec, SpecError> {
    let invalid = || SpecError::invalid_option("--export", text);
    let mut spec = ExportSpec { all: false, names: Vec::new(), set: Vec::new() };
    for item in items(text).ok_or_else(invalid)? {
        match item {
            Item { name, value: None } if name.is_empty() => {}
            Item { name, value: None } if name.eq_ignore_ascii_case("ALL") => spec.all = true,
            Item { name, value: None }
                if ["NONE", "NIL"].iter().any(|none| name.eq_ignore_ascii_case(none)) => {}
            Item { name, value: None } => spec.names.push(name),
            Item { name, value: Some(_) } if name.is_empty() => return Err(invalid()),
            Item { name, value: Some(value) } => spec.set.push((name, value)),
        }
    }
    Ok(spec)
}

struct Item {
    name: String,
    value: Option<String>,
}

/// Splits a list into its elements and drops quotes. Returns `None` if a quote is not closed.
fn items(text: &str) -> Option<Vec<Item>> {
    let mut items = Vec::new();
    let mut item = Item { name: String::new(), value: None };
    let mut quote = None;
    for c in text.chars() {
        match (quote, c) {
            (Some(q), c) if q == c => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, ',') => {
                items.push(std::mem::replace(&mut item, Item { name: String::new(), value: None }))
            }
            // Also inside quotes, because names do not contain `=`: `'NEW=a,b'`.
            (_, '=') if item.value.is_none() => item.value = Some(String::new()),
            (_, '\0') => return None,
            _ => item.value.as_mut().unwrap_or(&mut item.name).push(c),
        }
    }
    items.push(item);
    quote.is_none().then_some(items)
}

/// Parses the variables of an `--export-file`.
///
/// Entries have the form `NAME=value` and end with NUL (`env -0`, Slurm's format) or, if the file
/// contains no NUL, with a newline. In the line format, blank lines and `#` comments are skipped,
/// and a leading `export ` and quotes around a whole value are dropped.
///
/// # Errors
/// Fails with `--export-file entry 3 is not NAME=VALUE: …`, or `… is not UTF-8: …`.
pub fn parse_file(content: &[u8]) -> Result<Vec<(String, String)>, SpecError> {
    let by_nul = content.contains(&0);
    let mut set = Vec::new();
    for (i, entry) in content.split(|&b| b == if by_nul { 0 } else { b'\n' }).enumerate() {
        let malformed = |entry: &str| {
            SpecError::value(format!(
                "--export-file entry {} is not NAME=VALUE: {}",
                i + 1,
                shown(entry)
            ))
        };
        let entry = std::str::from_utf8(entry).map_err(|_| {
            let text = String::from_utf8_lossy(entry);
            SpecError::value(format!(
                "--export-file entry {} is not UTF-8: {}",
                i + 1,
                shown(&text)
            ))
        })?;
        let pair = if by_nul {
            // A newline that was typed after `env -0 > file`.
            if entry.trim().is_empty() {
                continue;
            }
            entry.split_once('=')
        } else {
            let line = entry.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let line = line.strip_prefix("export ").map_or(line, str::trim_start);
            line.split_once('=').map(|(name, value)| (name, unquoted(value)))
        };
        match pair {
            Some((name, value)) if !name.is_empty() => {
                set.push((name.to_string(), value.to_string()))
            }
            _ => return Err(malformed(entry)),
        }
    }
    Ok(set)
}

fn unquoted(value: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some(inner) = value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return inner;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Prints a value in a form that [`parse`] reads back: `ALL,FOO=9,NEW='a,b'`, or `NONE`.
    fn print(spec: &ExportSpec) -> String {
        let all = spec.all.then(|| "ALL".to_string());
        let names = spec.names.iter().map(|name| quoted(name));
        let set =
            spec.set.iter().map(|(name, value)| format!("{}={}", quoted(name), quoted(value)));
        let items: Vec<String> = all.into_iter().chain(names).chain(set).collect();
        if items.is_empty() { "NONE".to_string() } else { items.join(",") }
    }

    fn quoted(text: &str) -> String {
        if !text.contains([',', '\'', '"', ' ', '\t', '\n']) {
            return text.to_string();
        }
        // Put a single quote inside double quotes.
        text.split('\'').map(|part| format!("'{part}'")).collect::<Vec<_>>().join("\"'\"")
    }

    fn spec(all: bool, names: &[&str], set: &[(&str, &str)]) -> Result<ExportSpec, SpecError> {
        Ok(ExportSpec {
            all,
            names: names.iter().map(|n| n.to_string()).collect(),
            set: set.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect(),
        })
    }

    #[test]
    fn every_slurm_form_parses() {
        assert_eq!(parse("ALL"), spec(true, &[], &[]));
        assert_eq!(parse("all"), spec(true, &[], &[]));
        assert_eq!(parse("NONE"), spec(false, &[], &[]));
        assert_eq!(parse("NIL"), spec(false, &[], &[]));
        assert_eq!(parse(""), spec(false, &[], &[]));
        assert_eq!(parse("FOO"), spec(false, &["FOO"], &[]));
        assert_eq!(parse("FOO,BAR"), spec(false, &["FOO", "BAR"], &[]));
        assert_eq!(parse("ALL,FOO=9"), spec(true, &[], &[("FOO", "9")]));
        assert_eq!(parse("NONE,FOO=9"), spec(false, &[], &[("FOO", "9")]));
        assert_eq!(
            parse("FOO=bar,HELLO=world"),
            spec(false, &[], &[("FOO", "bar"), ("HELLO", "world")])
        );
        assert_eq!(parse("FOO=9,NEW='a,b'"), spec(false, &[], &[("FOO", "9"), ("NEW", "a,b")]));
        assert_eq!(parse("ALL,'NEW=a,b'"), spec(true, &[], &[("NEW", "a,b")]));
        assert_eq!(
            parse("A=x=y,B=,C=\"it's, so\""),
            spec(false, &[], &[("A", "x=y"), ("B", ""), ("C", "it's, so")])
        );
    }

    #[test]
    fn a_missing_name_or_an_open_quote_is_refused() {
        for text in ["=x", "A=1,=2", "A='b", "A=\"b,c", "A=\0"] {
            let error = parse(text).expect_err(text);
            assert_eq!(
                error.to_string(),
                format!("Invalid --export specification: {}", shown(text))
            );
        }
    }

    #[test]
    fn file_entries_end_with_nul_or_newline() {
        let pairs = |set: &[(&str, &str)]| -> Result<Vec<(String, String)>, SpecError> {
            Ok(set.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect())
        };
        assert_eq!(parse_file(b"A=1\0B=two\nlines\0"), pairs(&[("A", "1"), ("B", "two\nlines")]));
        assert_eq!(parse_file(b"A=1\0\n"), pairs(&[("A", "1")]));
        assert_eq!(
            parse_file(b"# made by hand\n\nA=1\nexport B=\"two words\"\r\n C='x'\nD=a'b\n"),
            pairs(&[("A", "1"), ("B", "two words"), ("C", "x"), ("D", "a'b")])
        );
        assert_eq!(parse_file(b""), pairs(&[]));
        for (content, text) in [
            (b"A=1\nfoo\n".as_slice(), "--export-file entry 2 is not NAME=VALUE: foo"),
            (b"=1", "--export-file entry 1 is not NAME=VALUE: =1"),
            (b"A=1\0B=\xff\0", "--export-file entry 2 is not UTF-8: B=\u{fffd}"),
        ] {
            assert_eq!(parse_file(content).map_err(|e| e.to_string()), Err(text.to_string()));
        }
    }

    proptest! {
        #[test]
        fn a_printed_export_reads_back(
            all: bool,
            names in prop::collection::vec("[A-Z_]{5,9}", 0..4),
            set in prop::collection::vec(("[A-Z_][A-Z0-9_]{0,9}", "[^\\x00]*|[,'\" =a]{0,9}"), 0..4),
        ) {
            let spec = ExportSpec { all, names, set };
            prop_assert_eq!(parse(&print(&spec)), Ok(spec));
        }

        #[test]
        fn no_text_breaks_the_parsers(text in "[A-C=,'\"\\\\]{0,20}|.*", bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(spec) = parse(&text) {
                prop_assert_eq!(parse(&print(&spec)), Ok(spec));
            }
            let _ = parse_file(text.as_bytes());
            let _ = parse_file(&bytes);
        }
    }
}
