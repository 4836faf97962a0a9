//! The three ways to write steps down, and what they have in common: lines of shell commands, TOML,
//! JSON lines.
//!
//! All of them become [`spec::StepSpec`], one key a field, and then [`StepDef`]s by `expand`. A
//! text is understood as a whole or not at all. Files that a text names (`foreach`) are read by the
//! caller's function.

use super::def::StepDef;

pub mod expand;
pub mod foreach;
pub mod json;
pub mod lines;
pub mod spec;
mod text;
pub mod toml_file;
mod words;

use expand::Expander;
pub use text::{Fault, ReadFile, unmarked};
pub use words::in_words;

/// Where steps were written and what the text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Lines,
    Toml,
    Json,
}

impl Form {
    /// By the name of a file, or else by how the text begins.
    pub fn of(name: &str, text: &str) -> Form {
        match name.rsplit_once('.').map(|(_, end)| end) {
            Some("toml") => Form::Toml,
            Some("json" | "jsonl" | "ndjson") => Form::Json,
            _ => Form::begun_by(text).unwrap_or(Form::Lines),
        }
    }

    /// By the first line that says something; `None`: none does. A shell wants a blank after its
    /// own `{`, `[` and `[[`.
    pub fn begun_by(text: &str) -> Option<Form> {
        let line = unmarked(text)
            .lines()
            .map(str::trim)
            .find(|line| !line.is_empty() && !line.starts_with('#'))?;
        let is_blank = |rest: &str| rest.starts_with(char::is_whitespace);
        Some(match line.strip_prefix('{') {
            Some(object) if !is_blank(object) || begins_with_key(object.trim_start()) => Form::Json,
            Some(_) => Form::Lines,
            None => match line.strip_prefix("[[").or_else(|| line.strip_prefix('[')) {
                Some(list) if list.starts_with(['{', '"', ']']) => Form::Json,
                Some(table) if !is_blank(table) => Form::Toml,
                Some(_) | None => Form::Lines,
            },
        })
    }
}

/// `"name": …`, or the end of an object without any key.
fn begins_with_key(object: &str) -> bool {
    let key = object.strip_prefix('"').and_then(|rest| rest.split_once('"'));
    object.starts_with('}') || key.is_some_and(|(_, value)| value.trim_start().starts_with(':'))
}

/// The steps of a text. `file` names it in errors. `last` is the last number in the name of a step
/// that had none, and is so again afterwards.
///
/// # Errors
/// The first thing in it that makes no sense.
pub fn parse(
    form: Form,
    file: &str,
    text: &str,
    read: ReadFile,
    last: &mut u32,
) -> Result<Vec<StepDef>, Fault> {
    let text = unmarked(text);
    let mut expander = Expander::new(file, read, last);
    match form {
        Form::Lines => lines::parse(text, &mut expander)?,
        Form::Toml => toml_file::parse(text, &mut expander)?,
        Form::Json => json::parse(text, &mut expander)?,
    }
    Ok(expander.steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(form: Form, text: &str) -> Result<Vec<StepDef>, Fault> {
        parse(form, "f", text, &|_| Err("no files here".to_owned()), &mut 0)
    }

    #[test]
    fn a_text_is_what_its_first_line_says_and_a_shells_brackets_are_a_shells() {
        let forms =
            |texts: &[&str]| texts.iter().map(|text| Form::begun_by(text)).collect::<Vec<_>>();
        let shell = [
            "{ echo x; }",
            "{ \"a b\"; }",
            "[ -e x ] && y",
            "[[ -e x ]] && y",
            "# {}\n\n true",
            "{\techo; }",
        ];
        assert_eq!(forms(&shell), [Some(Form::Lines); 6]);
        let json = [
            "{\"command\": \"x\"}",
            " { \"name\" : \"a\"}",
            "{}",
            "{ }",
            "{name: 1}",
            "[]",
            "[{}]",
            "{",
        ];
        assert_eq!(forms(&json), [Some(Form::Json); 8]);
        assert_eq!(forms(&["[defaults]", "# steps\n[[step]]\n"]), [Some(Form::Toml); 2]);
        assert_eq!(forms(&["", "\n# nothing"]), [None; 2]);
        assert_eq!(Form::of("a.toml", "{}"), Form::Toml);
    }

    #[test]
    fn what_makes_no_sense_is_named_with_its_key_and_what_would_be_right() {
        let step = |rest: &str| format!("[[step]]\ncommand = 'x {{n}}'\n{rest}\n");
        for (rest, text, hint) in [
            (
                "cpus = 'lots'",
                "cpus = \"lots\" is no number of that kind",
                "a whole number from 0: cpus = 2",
            ),
            (
                "gpus = 1.5",
                "gpus = \"1.5\" is no number of that kind",
                "a whole number from 0: gpus = 2",
            ),
            (
                "ntasks = 0",
                "ntasks = \"0\" is no number of that kind",
                "a whole number from 1: ntasks = 2",
            ),
            (
                "on_failure = 'halt'",
                "on_failure = \"halt\" is not known",
                "values: skip, continue, stop",
            ),
            (
                "on_failure = 'continu'",
                "on_failure = \"continu\" is not known",
                "did you mean continue?",
            ),
            ("foreach = { n = { line = 'f' } }", "unknown key \"line\"", "did you mean lines?"),
            (
                "foreach = { n = '1-9999999' }",
                "foreach: n = \"1-9999999\" is too large",
                "numbers up to 4000000",
            ),
            ("dir = 5", "`dir = 5`: a text is expected here, and not the number 5", ""),
            ("name = 'a-{m}'", "name: {m} stands for nothing", "this step has no foreach"),
            (
                "name = 'a'\nforeach = { n = '1-2' }",
                "name = \"a\": all steps of a foreach would have this name",
                "put a",
            ),
            (
                "env = { A = '{rat}' }\nforeach = { rate = [1] }",
                "env: {rat} stands for nothing",
                "did you mean rate?",
            ),
            (
                "foreach = { n = { lines = 'f' } }",
                "foreach: n: f: no files here",
                "name a file that can be read",
            ),
            ("retry = { delay = 3 }", "the key \"times\" is missing", ""),
            (
                "retry = { times = 'x' }",
                "`retry = { times = 'x' }`: a whole number from 0 is expected here, and not the text \"x\"",
                "",
            ),
            ("foreach = { n = '5-1' }", "foreach: n = \"5-1\" is no range", "ranges: "),
        ] {
            let fault = parsed(Form::Toml, &step(rest)).unwrap_err();
            assert_eq!((fault.text.as_str(), fault.line), (text, 3));
            assert!(fault.hint.unwrap_or_default().starts_with(hint));
        }
        for (line, text, hint) in [
            (
                "[]",
                "an object is expected here, and not a list",
                "each line is one object: {\"command\": \"…\"}",
            ),
            ("5", "column 1: an object is expected here, and not the number 5", ""),
            (
                "{",
                "column 1: the line ends within an object",
                "each line is one object: {\"command\": \"…\"}",
            ),
            (
                "{\"command\": \"x\", \"cpus\": \"lots\"}",
                "cpus = \"lots\" is no number of that kind",
                "a whole number from 0: cpus = 2",
            ),
        ] {
            let fault = parsed(Form::Json, line).unwrap_err();
            assert_eq!(
                (fault.text.as_str(), fault.hint.as_deref().unwrap_or_default()),
                (text, hint)
            );
        }
    }

    #[test]
    fn tables_in_the_wrong_brackets_and_long_names_are_told_in_words() {
        for (text, line, said, hint) in [
            (
                "[step]\ncommand = 'x'",
                1,
                "`[step]`: a list is expected here, and not a table",
                "each step begins with [[step]]",
            ),
            (
                "[[defaults]]\ncpus = 1\n[[step]]\ncommand = 'x'",
                1,
                "`[[defaults]]`: a table is expected here, and not a list",
                "there is one table of defaults: [defaults]",
            ),
        ] {
            let fault = parsed(Form::Toml, text).unwrap_err();
            assert_eq!(
                (fault.text.as_str(), fault.line, fault.hint.as_deref()),
                (said, line, Some(hint))
            );
        }
        let name = "n".repeat(5000);
        let fault = parsed(Form::Json, &format!("\n{{\"name\": \"{name}\", \"command\": \"x\"}}"))
            .unwrap_err();
        let said = format!("f: line 2: name = \"{}...\" is too long: 5000 bytes", &name[..200]);
        assert_eq!(
            (fault.to_string(), fault.hint.unwrap()),
            (said, "at most 1024 bytes".to_owned())
        );
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_text() {
        let json = "{\"name\": \"a\", \"command\": \"x\"}";
        for text in ["x", json, "[[step]]\ncommand = 'x'"] {
            let marked = format!("\u{feff}{text}");
            let form = Form::of("steps", &marked);
            assert_eq!(form, Form::of("steps", text));
            assert_eq!(parsed(form, &marked).unwrap(), parsed(form, text).unwrap());
        }
        let text = |file: &str| {
            Ok(if file == "l" { "\u{feff}1\n2\n" } else { "\u{feff}id\n1\n2\n" }.to_owned())
        };
        for values in
            ["v = { lines = 'l' } }\nname = '{v}'", "v = { csv = 'c' } }\nname = '{v.id}'"]
        {
            let toml = format!("[[step]]\ncommand = 'x'\nforeach = {{ {values}");
            let steps = parse(Form::Toml, "f", &toml, &text, &mut 0).unwrap();
            assert_eq!(steps.iter().map(|step| &*step.name).collect::<Vec<_>>(), ["1", "2"]);
        }
    }

    #[test]
    fn values_of_foreach_stand_in_all_texts() {
        let text = "[[step]]\nname = '{n}'\ncommand = 'x'\nforeach = { n = '1-2' }\ncpus = '{n}'\nmem = '{n}G'\ntime = '{n}'";
        let steps = parsed(Form::Toml, text).unwrap();
        let of = |step: &StepDef| {
            (step.settings.ask.cpus, step.settings.ask.mem_mb, step.settings.time_secs)
        };
        assert_eq!(
            steps.iter().map(of).collect::<Vec<_>>(),
            [(1, Some(1024), Some(60)), (2, Some(2048), Some(120))]
        );
    }

    #[test]
    fn names_that_are_made_go_on_from_the_last_number() {
        let mut last = 0;
        let mut names = |form, text: &str| {
            let steps = parse(form, "f", text, &|_| Err(String::new()), &mut last).unwrap();
            steps.iter().map(|step| step.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(Form::Lines, "true\n\n# none\ntrue"), ["true-1", "true-4"]);
        assert_eq!(names(Form::Lines, "true\nfalse"), ["true-5", "false-6"]);
        assert_eq!(
            names(Form::Json, "{\"command\": \"true\", \"foreach\": {\"n\": \"1-2\"}}"),
            ["true-7-1", "true-7-2"]
        );
    }
}
