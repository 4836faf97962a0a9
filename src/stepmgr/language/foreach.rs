//! `foreach`: one step for each value of a list, a range, the lines of a file or the rows of a CSV
//! file, or for each combination of several.

use super::spec::Scalar;
use super::text::{ReadFile, Wrong, strip_bom};
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use slotd_model::array::MAX_TASK_ID;
use slotd_parse::{array, suggest};
use std::collections::BTreeMap;
use std::fmt;

/// A description that expands to more steps than this is taken for a mistake.
const MOST: usize = 4_000_000;

/// The values by name. The last name varies fastest.
pub(crate) type Foreach = BTreeMap<String, Values>;

/// The source of a name's values.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    List(Vec<Scalar>),
    /// `1-5`, `1-9:2,20`.
    Range(String),
    /// `{ lines = "FILE" }`
    Lines(String),
    /// `{ csv = "FILE" }`: `{row.COLUMN}` for `row = { csv = … }`.
    Csv(String),
}

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum Source {
            Lines,
            Csv,
            Range,
        }

        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Values;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str(
                    "a list, a range such as \"1-5\", { lines = \"FILE\" } or { csv = \"FILE\" }",
                )
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Values, E> {
                Ok(Values::Range(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Values, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = list.next_element()? {
                    values.push(value);
                }
                Ok(Values::List(values))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Values, A::Error> {
                let one = "expected one of lines, csv and range";
                let Some((source, text)) = map.next_entry()? else {
                    return Err(de::Error::custom(format_args!("{one}, found none")));
                };
                if map.next_key::<Source>()?.is_some() {
                    return Err(de::Error::custom(format_args!("{one}, found two")));
                }
                Ok(match source {
                    Source::Lines => Values::Lines(text),
                    Source::Csv => Values::Csv(text),
                    Source::Range => Values::Range(text),
                })
            }
        }

        d.deserialize_any(Reader)
    }
}

/// One combination: each name with its value.
pub(crate) type Row = Vec<(String, String)>;

/// Returns all combinations.
///
/// # Errors
/// Fails if a file cannot be read, a range is invalid, a list is empty, or there are too many
/// combinations.
pub(crate) fn rows(foreach: &Foreach, read: ReadFile) -> Result<Vec<Row>, Wrong> {
    let mut all: Vec<Row> = vec![Vec::new()];
    for (name, values) in foreach {
        let of_name = rows_of(name, values, read)?;
        if of_name.is_empty() {
            let text = format!("foreach: {name} has no values");
            return Err(Wrong::new("foreach", text, "give at least one value, or remove the step"));
        }
        if all.len().saturating_mul(of_name.len()) > MOST {
            let text = format!("foreach: expands to more than {MOST} steps");
            return Err(Wrong::new("foreach", text, "use fewer values"));
        }
        all = all
            .iter()
            .flat_map(|row| of_name.iter().map(|own| [row.as_slice(), own].concat()))
            .collect();
    }
    Ok(all)
}

fn rows_of(name: &str, values: &Values, read: ReadFile) -> Result<Vec<Row>, Wrong> {
    let one = |value: String| vec![(name.to_owned(), value)];
    let text_of = |file: &str| {
        let text = read(file).map_err(|why| {
            Wrong::new("foreach", format!("foreach: {name}: {file}: {why}"), "give a readable file")
        })?;
        Ok::<_, Wrong>(strip_bom(&text).to_owned())
    };
    Ok(match values {
        Values::List(list) => list.iter().map(|value| one(value.0.clone())).collect(),
        Values::Range(range) => {
            let set = array::task_set(range).ok_or_else(|| no_range(name, range))?;
            set.iter().map(|number| one(number.to_string())).collect()
        }
        Values::Lines(file) => text_of(file)?
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(|line| one(line.to_owned()))
            .collect(),
        Values::Csv(file) => csv_rows(name, file, &text_of(file)?)?,
    })
}

fn no_range(name: &str, range: &str) -> Wrong {
    let is_large = |number: &str| {
        number.parse::<u64>().map_or(!number.is_empty(), |number| number > MAX_TASK_ID.into())
    };
    let (fault, hint) = if range.split(|c: char| !c.is_ascii_digit()).any(is_large) {
        ("too large", format!("the largest number is {MAX_TASK_ID}"))
    } else {
        (
            "not a valid range",
            "use \"1-5\", \"1-9:2\", \"1,4,7\" or a list: [\"a\", \"b\"]".to_owned(),
        )
    };
    Wrong::new("foreach", format!("foreach: {name} = {range:?} is {fault}"), hint)
}

fn csv_rows(name: &str, file: &str, text: &str) -> Result<Vec<Row>, Wrong> {
    let refuse = |error: csv::Error| {
        Wrong::new(
            "foreach",
            format!("foreach: {name}: {file}: {error}"),
            "every row needs as many columns as the header",
        )
    };
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
    let columns = reader.headers().map_err(refuse)?.clone();
    let mut rows = Vec::new();
    for (at, record) in reader.records().enumerate() {
        let record = record.map_err(refuse)?;
        let mut row = vec![(name.to_owned(), (at + 1).to_string())];
        row.extend(
            columns
                .iter()
                .zip(&record)
                .map(|(column, cell)| (format!("{name}.{column}"), cell.to_owned())),
        );
        rows.push(row);
    }
    Ok(rows)
}

/// How to treat braces that name no `foreach` value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Braces {
    /// An error: nothing else interprets braces in this value.
    Wrong,
    /// They belong to the shell, awk and the like. A name close to a foreach name is still taken
    /// for a typo.
    Shell,
}

/// Rejects braces that look like a `foreach` name but match none. `known` lists the foreach names.
///
/// # Errors
/// Fails at the first such braces.
pub(crate) fn check_braces(
    key: &'static str,
    text: &str,
    known: &[&str],
    braces: Braces,
) -> Result<(), Wrong> {
    for (at, _) in text.match_indices('{') {
        let Some((word, _)) = text[at + 1..].split_once('}') else { break };
        let is_shell_variable = text[..at].ends_with('$') && braces == Braces::Shell;
        if known.contains(&word) || is_shell_variable {
            continue;
        }
        let of_row = word.split_once('.').filter(|(row, _)| known.contains(row));
        let is_name = !word.is_empty()
            && word.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '-'));
        let is_near = || is_name && suggest::nearest(word, known.iter().copied()).is_some();
        if braces == Braces::Shell && of_row.is_none() && !is_near() {
            continue;
        }
        let shown = format!("{{{}}}", slotd_parse::error::shown(word));
        let text = format!("{key}: unknown placeholder {shown}");
        let mut hint = match known {
            [] => "this step has no foreach: add one, or remove the braces".to_owned(),
            known => suggest::one_of("placeholders", word, known.iter().copied()),
        };
        if braces == Braces::Shell {
            hint.push_str(&format!(" (to keep the braces, add spaces: {{ {word} }})"));
        }
        return Err(Wrong::new(key, text, hint));
    }
    Ok(())
}

/// Replaces each `{name}` with its value. Other braces stay as they are, for the shell or awk.
pub(crate) fn fill(text: &str, row: &[(String, String)]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let known = after.split_once('}').and_then(|(name, tail)| {
            let value = row.iter().find(|(known, _)| known == name)?;
            Some((value.1.as_str(), tail))
        });
        match known {
            Some((value, tail)) => {
                out.push_str(value);
                rest = tail;
            }
            None => {
                out.push('{');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_placeholders_are_errors_outside_shell_text() {
        let hint = |text: &str, braces| {
            let checked = check_braces("name", text, &["rate", "row", "row.id", "n"], braces);
            checked.err().map(|wrong| (wrong.text, wrong.hint.unwrap_or_default()))
        };
        let wrong = |word: &str, hint: &str| {
            Some((format!("name: unknown placeholder {word}"), hint.to_owned()))
        };
        assert_eq!(hint("fit-{rate}-{n}-{row.id}", Braces::Wrong), None);
        assert_eq!(hint("fit-{rat}", Braces::Wrong), wrong("{rat}", "did you mean rate?"));
        assert_eq!(
            hint("{n}{m}", Braces::Wrong),
            wrong("{m}", "placeholders: rate, row, row.id, n")
        );
        assert_eq!(hint("x{}", Braces::Wrong), wrong("{}", "placeholders: rate, row, row.id, n"));
        assert_eq!(hint("{a b", Braces::Wrong), None);
        for text in [
            "awk '{print}'",
            "echo {a,b} {1..3} ${rat} ${x:-{n}}",
            "f() { rat; }",
            "{}",
            "{m}",
            "{n.x",
            "{ rat }",
        ] {
            assert_eq!(hint(text, Braces::Shell), None, "{text}");
        }
        let blank = |word: &str| format!(" (to keep the braces, add spaces: {{ {word} }})");
        assert_eq!(
            hint("fit {n} {rat}", Braces::Shell),
            wrong("{rat}", &format!("did you mean rate?{}", blank("rat")))
        );
        assert_eq!(
            hint("fit {row.no}", Braces::Shell),
            wrong("{row.no}", &format!("did you mean row.id?{}", blank("row.no")))
        );
        let none = check_braces("name", "fit-{n}", &[], Braces::Wrong).unwrap_err();
        assert_eq!(none.hint.unwrap(), "this step has no foreach: add one, or remove the braces");
    }
}
