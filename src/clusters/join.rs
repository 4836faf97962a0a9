//! Joins the outputs of several clusters as Slurm prints them.

use serde_json::Value;

/// How the outputs of a command are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Join {
    /// Each below `CLUSTER: name`.
    Headed,
    /// One after the other, with the cluster in a column of its own.
    Column,
    /// One after the other.
    Plain,
    /// One table (sacct). `header` is false if it has no header.
    Table { header: bool },
    /// One JSON document.
    Json,
}

/// The output of one cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part<'a> {
    pub name: &'a str,
    pub out: &'a [u8],
}

/// A cluster whose output cannot be joined with the others'.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error("cluster {cluster} did not print JSON: {source}")]
    NotJson { cluster: String, source: serde_json::Error },
    #[error("cluster {0} did not print a JSON object")]
    NotAnObject(String),
    #[error(transparent)]
    Unprintable(#[from] serde_json::Error),
}

/// Returns the line above a cluster's output.
pub fn heading(name: &str) -> Vec<u8> {
    format!("CLUSTER: {name}\n").into_bytes()
}

/// Joins outputs in order. `dated`: each output begins with the date (`-l`), which is printed once.
///
/// # Errors
/// Fails if an output is not JSON but has to be.
pub fn join(how: Join, dated: bool, parts: &[Part<'_>]) -> Result<Vec<u8>, JoinError> {
    let mut all = Vec::new();
    match how {
        Join::Headed => {
            let mut date = dated;
            for (i, part) in parts.iter().enumerate() {
                let (first, rest) = if dated { split_line(part.out) } else { (&b""[..], part.out) };
                if i > 0 {
                    all.push(b'\n');
                }
                if std::mem::take(&mut date) {
                    all.extend_from_slice(first);
                }
                all.extend_from_slice(&heading(part.name));
                all.extend_from_slice(rest);
            }
        }
        Join::Column => {
            for part in parts {
                let name: String = part.name.chars().take(10).collect();
                for line in lines(part.out) {
                    all.extend_from_slice(format!("{name:<10} ").as_bytes());
                    all.extend_from_slice(line);
                }
            }
        }
        Join::Plain => parts.iter().for_each(|part| all.extend_from_slice(part.out)),
        Join::Table { header } => all = table(header, parts),
        Join::Json => return json(parts),
    }
    Ok(all)
}

/// Splits into lines that keep their newline.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == b'\n')
}

fn split_line(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| *byte == b'\n').map_or(text.len(), |at| at + 1);
    text.split_at(end)
}

/// Joins tables under the first header. If the first column is the job ID, the rows are sorted by
/// it, and the steps stay below their job.
fn table(header: bool, parts: &[Part<'_>]) -> Vec<u8> {
    let mut all = Vec::new();
    let mut rows: Vec<(Option<u64>, &[u8])> = Vec::new();
    let mut by_id = true;
    for part in parts {
        let mut body = part.out;
        if header {
            let (names, rest) = split_line(body);
            let is_rule = |line: &[u8]| {
                line.starts_with(b"-") && line.iter().all(|byte| b"- \n".contains(byte))
            };
            let (rule, below) = split_line(rest);
            let (head, rest) = if is_rule(rule) {
                (&body[..names.len() + rule.len()], below)
            } else {
                (names, rest)
            };
            if all.is_empty() {
                all.extend_from_slice(head);
            }
            by_id &= head.starts_with(b"JobID");
            body = rest;
        }
        for line in lines(body) {
            let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let id = std::str::from_utf8(&line[..digits]).ok().and_then(|id| id.parse().ok());
            by_id &= id.is_some();
            rows.push((id, line));
        }
    }
    if by_id {
        rows.sort_by_key(|(id, _)| *id);
    }
    rows.iter().for_each(|(_, line)| all.extend_from_slice(line));
    all
}

/// Joins documents: concatenates lists of the same name, and takes everything else from the first
/// document.
fn json(parts: &[Part<'_>]) -> Result<Vec<u8>, JoinError> {
    let mut all: Option<Value> = None;
    for part in parts {
        let one: Value = serde_json::from_slice(part.out)
            .map_err(|source| JoinError::NotJson { cluster: part.name.to_owned(), source })?;
        match (&mut all, one) {
            (None, one) => all = Some(one),
            (Some(Value::Object(all)), Value::Object(one)) => {
                for (key, value) in one {
                    match (all.get_mut(&key), value) {
                        (Some(Value::Array(list)), Value::Array(more)) => list.extend(more),
                        (Some(_), _) => {}
                        (None, value) => drop(all.insert(key, value)),
                    }
                }
            }
            (Some(_), _) => return Err(JoinError::NotAnObject(part.name.to_owned())),
        }
    }
    let text = serde_json::to_vec_pretty(&all.unwrap_or_default())?;
    Ok([text, b"\n".to_vec()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(how: Join, dated: bool, outs: [&str; 2]) -> String {
        let parts = [
            Part { name: "alpha", out: outs[0].as_bytes() },
            Part { name: "a-long-name", out: outs[1].as_bytes() },
        ];
        String::from_utf8(join(how, dated, &parts).unwrap()).unwrap()
    }

    #[test]
    fn each_output_has_a_heading_and_an_empty_line_before() {
        assert_eq!(
            joined(Join::Headed, false, ["ID\n1\n", ""]),
            "CLUSTER: alpha\nID\n1\n\nCLUSTER: a-long-name\n"
        );
    }

    #[test]
    fn the_date_is_printed_once() {
        assert_eq!(
            joined(Join::Headed, true, ["today\nID\n", "today\nID\n"]),
            "today\nCLUSTER: alpha\nID\n\nCLUSTER: a-long-name\nID\n"
        );
    }

    #[test]
    fn a_column_shows_ten_characters_of_the_name() {
        assert_eq!(
            joined(Join::Column, false, [" 1\n 2\n", " 3\n"]),
            "alpha       1\nalpha       2\na-long-nam  3\n"
        );
    }

    #[test]
    fn tables_have_one_header_and_are_sorted_by_job() {
        let first = "JobID  State\n------ -----\n27      X\n27.0    X\n";
        let second = "JobID  State\n------ -----\n15      Y\n34      Y\n";
        assert_eq!(
            joined(Join::Table { header: true }, false, [first, second]),
            "JobID  State\n------ -----\n15      Y\n27      X\n27.0    X\n34      Y\n"
        );
        assert_eq!(
            joined(Join::Table { header: true }, false, ["State\nX\n", "State\nA\n"]),
            "State\nX\nA\n"
        );
        assert_eq!(
            joined(Join::Table { header: false }, false, ["27|a\n", "15|b\n"]),
            "15|b\n27|a\n"
        );
        assert_eq!(joined(Join::Table { header: false }, false, ["b\n", "a\n"]), "b\na\n");
    }

    #[test]
    fn documents_are_joined_with_all_jobs() {
        let all = joined(
            Join::Json,
            false,
            ["{\"meta\": 1, \"jobs\": [1]}", "{\"meta\": 2, \"jobs\": [2, 3]}"],
        );
        let all: Value = serde_json::from_str(&all).unwrap();
        assert_eq!(all, serde_json::json!({"meta": 1, "jobs": [1, 2, 3]}));
        let parts = [Part { name: "a", out: b"error" }];
        let error = join(Join::Json, false, &parts).unwrap_err().to_string();
        assert!(error.contains("cluster a did not print JSON"));
    }
}
