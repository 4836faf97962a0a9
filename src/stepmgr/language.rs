//! The three formats for steps: lines of shell commands, TOML and JSON lines.
//!
//! Each is parsed into [`spec::StepSpec`], with a field per key, and then expanded into
//! [`StepDef`]s. The input is accepted as a whole or not at all. The caller provides the function
//! that reads files named in it (`foreach`).

use super::def::StepDef;

pub mod expand;
mod foreach;
pub mod json;
pub mod lines;
pub mod spec;
mod text;
mod toml_file;
mod words;

use expand::Expander;
pub use text::{Fault, ReadFile, strip_bom};
pub use words::in_words;

/// The format of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Lines,
    Toml,
    Json,
}

impl Form {
    /// Determines the format from the file name, or else from how the text begins.
    pub fn of(name: &str, text: &str) -> Form {
        match name.rsplit_once('.').map(|(_, end)| end) {
            Some("toml") => Form::Toml,
            Some("json" | "jsonl" | "ndjson") => Form::Json,
            _ => Form::guess(text).unwrap_or(Form::Lines),
        }
    }

    /// Guesses the format from the first line that is neither empty nor a comment; `None` if the
    /// text has no such line. In shell, a space follows `{`, `[` and `[[`.
    pub fn guess(text: &str) -> Option<Form> {
        let line = strip_bom(text)
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

/// Returns whether an object begins with `"name": …` or is empty.
fn begins_with_key(object: &str) -> bool {
    let key = object.strip_prefix('"').and_then(|rest| rest.split_once('"'));
    object.starts_with('}') || key.is_some_and(|(_, value)| value.trim_start().starts_with(':'))
}

/// Parses all steps in `text`. `file` names it in errors. `last` is the last number used in a
/// generated step name, and is updated.
///
/// # Errors
/// Fails at the first error in it.
pub fn parse(
    form: Form,
    file: &str,
    text: &str,
    read: ReadFile,
    last: &mut u32,
) -> Result<Vec<StepDef>, Fault> {
    let text = strip_bom(text);
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
        parse(form, "f", text, &|_| Err("no files here".into()), &mut 0)
    }

    #[test]
    fn format_is_guessed_from_the_first_line() {
        let forms = |texts: &[&str]| texts.iter().map(|text| Form::guess(text)).collect::<Vec<_>>();
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
    fn invalid_values_are_reported_with_key_and_hint() {
        let step = |rest: &str| format!("[[step]]\ncommand = 'x {{n}}'\n{rest}\n");
        for (rest, text, hint) in [
            (
                "cpus = 'lots'",
                "cpus = \"lots\" is not a valid number",
                "use a whole number, 0 or more: cpus = 2",
            ),
            (
                "gpus = 1.5",
                "gpus = \"1.5\" is not a valid number",
                "use a whole number, 0 or more: gpus = 2",
            ),
            (
                "ntasks = 0",
                "ntasks = \"0\" is not a valid number",
                "use a whole number, 1 or more: ntasks = 2",
            ),
            (
                "on_failure = 'halt'",
                "on_failure = \"halt\" is not a valid value",
                "values: skip, continue, stop",
            ),
            (
                "on_failure = 'continu'",
                "on_failure = \"continu\" is not a valid value",
                "did you mean continue?",
            ),
            ("foreach = { n = { line = 'f' } }", "unknown key \"line\"", "did you mean lines?"),
            (
                "foreach = { n = '1-9999999' }",
                "foreach: n = \"1-9999999\" is too large",
                "the largest number is 4000000",
            ),
            ("dir = 5", "`dir = 5`: expected a string, found the number 5", ""),
            ("name = 'a-{m}'", "name: unknown placeholder {m}", "this step has no foreach"),
            (
                "name = 'a'\nforeach = { n = '1-2' }",
                "name = \"a\": every step of the foreach would have this name",
                "include a",
            ),
            (
                "env = { A = '{rat}' }\nforeach = { rate = [1] }",
                "env: unknown placeholder {rat}",
                "did you mean rate?",
            ),
            (
                "foreach = { n = { lines = 'f' } }",
                "foreach: n: f: no files here",
                "give a readable file",
            ),
            ("retry = { delay = 3 }", "missing key \"times\"", ""),
            (
                "retry = { times = 'x' }",
                "`retry = { times = 'x' }`: expected a whole number, 0 or more, found the string \"x\"",
                "",
            ),
            ("foreach = { n = '5-1' }", "foreach: n = \"5-1\" is not a valid range", "use \"1-5\""),
        ] {
            let fault = parsed(Form::Toml, &step(rest)).unwrap_err();
            assert_eq!((fault.text.as_str(), fault.line), (text, 3));
            assert!(fault.hint.unwrap_or_default().starts_with(hint));
        }
        for (line, text, hint) in [
            (
                "[]",
                "expected an object, found a list",
                "write one object per line: {\"command\": \"…\"}",
            ),
            ("5", "column 1: expected an object, found the number 5", ""),
            (
                "{",
                "column 1: the line ends inside an object",
                "write one object per line: {\"command\": \"…\"}",
            ),
            (
                "{\"command\": \"x\", \"cpus\": \"lots\"}",
                "cpus = \"lots\" is not a valid number",
                "use a whole number, 0 or more: cpus = 2",
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
    fn wrong_table_brackets_and_long_names_are_explained() {
        for (text, line, message, hint) in [
            (
                "[step]\ncommand = 'x'",
                1,
                "`[step]`: expected a list, found a table",
                "start each step with [[step]]",
            ),
            (
                "[[defaults]]\ncpus = 1\n[[step]]\ncommand = 'x'",
                1,
                "`[[defaults]]`: expected a table, found a list",
                "use single brackets: [defaults]",
            ),
        ] {
            let fault = parsed(Form::Toml, text).unwrap_err();
            assert_eq!(
                (fault.text.as_str(), fault.line, fault.hint.as_deref()),
                (message, line, Some(hint))
            );
        }
        let name = "n".repeat(5000);
        let fault = parsed(Form::Json, &format!("\n{{\"name\": \"{name}\", \"command\": \"x\"}}"))
            .unwrap_err();
        let message = format!("f: line 2: name = \"{}...\" is too long: 5000 bytes", &name[..200]);
        assert_eq!(
            (fault.to_string(), fault.hint.unwrap()),
            (message, "at most 1024 bytes".to_owned())
        );
    }

    #[test]
    fn byte_order_mark_is_ignored() {
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
    fn foreach_values_are_filled_in_everywhere() {
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
    fn generated_names_continue_from_the_last_number() {
        let mut last = 0;
        let mut names = |form, text: &str| {
            let steps = parse(form, "f", text, &|_| Err("".into()), &mut last).unwrap();
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
