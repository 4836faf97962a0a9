//! Documents whose records arrive in batches.

use crate::json::document::{Indent, document, text};
use crate::json::newer;
use crate::json::yaml::{item, yaml};
use serde_json::{Value, json};

/// The output format of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Json,
    Yaml,
}

/// The Slurm release whose shape a document has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shape {
    /// OpenAPI v0.0.38.
    #[default]
    Slurm22,
    /// data_parser v0.0.40.
    Slurm23,
}

/// A document with one list.
#[derive(Debug)]
pub struct Parts {
    form: Form,
    shape: Shape,
    empty: Value,
    /// The text before and after the records.
    before: String,
    after: String,
    has_records: bool,
    /// The text of the records that were added last.
    out: Vec<u8>,
}

/// The nesting depth of the records: in a list that is a member of the document.
const DEPTH: usize = 2;

/// The separators before the first record and before the others.
const INDENT: &[u8] = b"    ";
const NEXT: &[u8] = b",\n    ";

/// A placeholder for the records. No other text in a document equals it.
const MARK: &str = "the records go here";

impl Parts {
    /// Creates a document like [`document`], without records.
    pub fn new(plugin: &str, list: &str, (form, shape): (Form, Shape)) -> Parts {
        let of = |records| match shape {
            Shape::Slurm22 => document(plugin, list, records),
            Shape::Slurm23 => newer::document(document(plugin, list, records)),
        };
        let marked = of(vec![json!(MARK)]);
        let (whole, line) = match form {
            Form::Json => (text(&marked), format!("    \"{MARK}\"")),
            Form::Yaml => (yaml(&marked), item(&json!(MARK))),
        };
        let (before, after) = whole.split_once(&line).unwrap_or((&whole, ""));
        let (before, after) = (before.to_owned(), after.to_owned());
        let (empty, out) = (of(Vec::new()), Vec::new());
        Parts { form, shape, empty, before, after, has_records: false, out }
    }

    /// Adds records and returns the text that can be printed now.
    pub fn add<R: Indent>(&mut self, records: impl IntoIterator<Item = R>) -> &[u8] {
        let out = &mut self.out;
        out.clear();
        for record in records {
            let is_first = !std::mem::replace(&mut self.has_records, true);
            if is_first {
                out.extend_from_slice(self.before.as_bytes());
            }
            if self.form == Form::Json {
                out.extend_from_slice(if is_first { INDENT } else { NEXT });
            }
            match (self.form, self.shape) {
                (Form::Json, Shape::Slurm22) => record.write_at(DEPTH, out),
                (Form::Json, Shape::Slurm23) => {
                    newer::record(json!(record)).write_at(DEPTH, out);
                }
                (Form::Yaml, Shape::Slurm22) => out.extend(item(&json!(record)).into_bytes()),
                (Form::Yaml, Shape::Slurm23) => {
                    out.extend(item(&newer::record(json!(record))).into_bytes())
                }
            }
        }
        out
    }

    /// Returns the rest of the text.
    pub fn end(self) -> String {
        match (self.has_records, self.form) {
            (true, _) => self.after,
            (false, Form::Json) => text(&self.empty),
            (false, Form::Yaml) => yaml(&self.empty),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_in_parts_is_the_document() {
        let records: Vec<Value> = (0..5)
            .map(|n| json!({ "id": n, "text": "a\nb", "list": [1, {"x": []}], "none": null }))
            .collect();
        for count in [0, 1, 5] {
            for (form, write) in [(Form::Json, text as fn(&Value) -> String), (Form::Yaml, yaml)] {
                let whole = write(&document("plugin", "jobs", records[..count].to_vec()));
                let mut parts = Parts::new("plugin", "jobs", (form, Shape::Slurm22));
                let written = records[..count]
                    .chunks(2)
                    .map(|some| parts.add(some).to_vec())
                    .collect::<Vec<_>>()
                    .concat();
                assert_eq!(
                    String::from_utf8(written).unwrap() + &parts.end(),
                    whole,
                    "{count} {form:?}"
                );
            }
        }
    }
}
