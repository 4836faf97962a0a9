//! The configuration file of `srun --multi-prog`, which assigns a program to each rank (srun man
//! page, "MULTIPLE PROGRAM CONFIGURATION").

use crate::error::{SpecError, shown};
use std::iter::Peekable;

/// Returns the commands of `ntasks` ranks. `text` is the content of `file`. `args`, the
/// command-line arguments after the file name, are appended to each command.
///
/// A line is `ranks program arguments…`. Ranks are a comma-separated list of numbers and ranges, or
/// `*` for all remaining ranks, which must come last. `%t` is the rank, and `%o` its index in the
/// line's list; any other character after a `%` is dropped with it, as in Slurm. Single quotes and
/// backslashes prevent interpretation. A backslash at the end of a line continues it; lines that
/// begin with `#` are comments.
///
/// # Errors
/// Fails with Slurm's error text and the line number for a line without a program, for malformed
/// ranks, for a rank that does not exist, and for a rank with two lines or none.
pub fn parse(
    text: &str,
    file: &str,
    ntasks: u32,
    args: &[String],
) -> Result<Vec<Vec<String>>, SpecError> {
    let mut commands: Vec<Option<Vec<String>>> = vec![None; ntasks as usize];
    let mut rest_is_given = false;
    for (number, line) in lines(text) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let invalid = |why: LineError| {
            SpecError::value(format!("{why}\nLine {number} of configuration file {file} invalid"))
        };
        let (ranks, program) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        let taken = if ranks == "*" {
            rest_is_given = true;
            (0u32..ntasks)
                .map(|rank| (rank, rank))
                .filter(|(_, rank)| commands[*rank as usize].is_none())
                .collect()
        } else if rest_is_given {
            return Err(invalid(LineError::RestNotLast));
        } else {
            let ranks = ranks_of(ranks, ntasks).map_err(invalid)?;
            (0u32..).zip(ranks).collect::<Vec<_>>()
        };
        for (place, rank) in taken {
            let words = words(program, rank, place)
                .ok_or_else(|| invalid(LineError::OpenQuote(shown(program))))?;
            if words.is_empty() {
                return Err(invalid(LineError::NoProgram(shown(ranks))));
            }
            match commands.get_mut(rank as usize) {
                Some(slot @ None) => {
                    *slot = Some(words.into_iter().chain(args.iter().cloned()).collect())
                }
                _ => return Err(invalid(LineError::Twice(rank))),
            }
        }
    }
    let missing = |rank| {
        SpecError::value(format!("Configuration file {file} invalid, no record for task id {rank}"))
    };
    commands
        .into_iter()
        .enumerate()
        .map(|(rank, command)| command.ok_or_else(|| missing(rank)))
        .collect()
}

/// An error in a line. It has Slurm's text if Slurm reports the same error.
#[derive(Debug, thiserror::Error)]
enum LineError {
    #[error("Task range specification with asterisk must be last")]
    RestNotLast,
    #[error("Unclosed single quote, write \\' for a literal one: {0}")]
    OpenQuote(String),
    #[error("No executable program specified for the task range ({0})")]
    NoProgram(String),
    #[error("Duplicate record for task {0}")]
    Twice(u32),
    #[error("Invalid task range specification ({0})")]
    NoRange(String),
    #[error("Invalid task id, {0} < 0")]
    Negative(String),
    #[error("Invalid task range, {0}-{1}")]
    Backwards(u32, u32),
    #[error("Invalid task id, {0} >= ntasks")]
    NoTask(u32),
}

/// Returns the logical lines, each with the number of its last line.
fn lines(text: &str) -> Vec<(usize, String)> {
    let mut out = Vec::new();
    let mut open: Option<String> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let whole = open.take().unwrap_or_default() + line;
        match whole.strip_suffix('\\') {
            Some(begun) => open = Some(begun.to_owned()),
            None => out.push((number, whole)),
        }
    }
    out.extend(open.map(|line| (text.lines().count(), line)));
    out
}

/// Returns the ranks of a list, in order.
fn ranks_of(text: &str, ntasks: u32) -> Result<Vec<u32>, LineError> {
    let unreadable = || LineError::NoRange(shown(text));
    let rank = |digits: &str| {
        if digits.bytes().all(|b| b.is_ascii_digit()) {
            digits.parse::<u32>().map_err(|_| unreadable())
        } else {
            Err(unreadable())
        }
    };
    let mut ranks = Vec::new();
    for item in text.split(',').filter(|item| !item.is_empty()) {
        let (first, last) = match item.split_once('-') {
            Some(("", _)) => return Err(LineError::Negative(shown(item))),
            Some((first, last)) => (rank(first)?, rank(last)?),
            None => (rank(item)?, rank(item)?),
        };
        if last < first {
            return Err(LineError::Backwards(first, last));
        }
        if last >= ntasks {
            return Err(LineError::NoTask(last));
        }
        ranks.extend(first..=last);
        // A longer list must contain a rank twice.
        if ranks.len() > ntasks as usize {
            break;
        }
    }
    Ok(ranks)
}

/// Splits a command into words for one rank. Returns `None` if a quote is not closed.
fn words(program: &str, rank: u32, place: u32) -> Option<Vec<String>> {
    let mut out = Vec::new();
    let mut chars = program.chars().peekable();
    while chars.next_if(|c| c.is_whitespace()).is_some() || chars.peek().is_some() {
        if chars.peek().is_some_and(|c| !c.is_whitespace()) {
            out.push(word(&mut chars, rank, place)?);
        }
    }
    Some(out)
}

fn word(chars: &mut Peekable<std::str::Chars>, rank: u32, place: u32) -> Option<String> {
    let mut out = String::new();
    while let Some(c) = chars.next_if(|c| !c.is_whitespace()) {
        match c {
            '\'' => loop {
                match chars.next()? {
                    '\'' => break,
                    kept => out.push(kept),
                }
            },
            '\\' => out.extend(chars.next()),
            '%' => match chars.next() {
                Some('t') => out.push_str(&rank.to_string()),
                Some('o') => out.push_str(&place.to_string()),
                _ => {}
            },
            c => out.push(c),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn commands(text: &str, ntasks: u32) -> Result<Vec<Vec<String>>, String> {
        parse(text, "m.conf", ntasks, &[]).map_err(|error| error.to_string())
    }

    #[test]
    fn each_rank_gets_its_program() {
        assert_eq!(
            commands("# ranks\n1,0 echo zero %o\n3 echo task:%t\n* echo rest %o\n", 4).unwrap(),
            [
                vec!["echo", "zero", "1"],
                vec!["echo", "zero", "0"],
                vec!["echo", "rest", "2"],
                vec!["echo", "task:3"]
            ]
        );
        assert_eq!(commands("*\techo a \\\n  b\n\n* echo c", 1).unwrap(), [["echo", "a", "b"]]);
    }

    #[test]
    fn command_line_arguments_follow_those_of_the_file() {
        let args = ["two words", "%t"].map(str::to_owned);
        assert_eq!(
            parse("* echo %t", "m.conf", 1, &args).unwrap(),
            [["echo", "0", "two words", "%t"]]
        );
    }

    #[test]
    fn quotes_and_percent_signs_parse_as_in_slurm() {
        for (text, words) in [
            ("'a %t' b\\ c d'e f'g 'x\\y' \\%t", &["a %t", "b c", "de fg", "x\\y", "%t"][..]),
            ("a'' '' b", &["a", "", "b"]),
            (
                "'%t%%' 5%% %d %Y- '+%Y' \"q\" a\\\\b x\\ty %",
                &["%t%%", "5", "", "-", "+%Y", "\"q\"", "a\\b", "xty", ""],
            ),
            ("\\' b 'a\\'b", &["'", "b", "a\\b"]),
            ("%%t %%%t 'a'%t'%t' \"a b\"", &["t", "0", "a0%t", "\"a", "b\""]),
            ("a # b;  ", &["a", "#", "b;"]),
        ] {
            assert_eq!(
                commands(&format!("* ./args {text}\n"), 1).unwrap()[0][1..],
                *words,
                "{text}"
            );
        }
    }

    #[test]
    fn errors_name_the_line() {
        let line = |number: u32, why: &str| {
            format!("{why}\nLine {number} of configuration file m.conf invalid")
        };
        for (text, error) in [
            ("0 a\n0 b\n1 c\n", line(2, "Duplicate record for task 0")),
            ("0,0 a\n", line(1, "Duplicate record for task 0")),
            ("0-5 a\n", line(1, "Invalid task id, 5 >= ntasks")),
            ("0-4294967295 a\n", line(1, "Invalid task id, 4294967295 >= ntasks")),
            ("-1 a\n", line(1, "Invalid task id, -1 < 0")),
            ("1-0 a\n", line(1, "Invalid task range, 1-0")),
            ("#\nx a\n", line(2, "Invalid task range specification (x)")),
            ("[0-1] a\n", line(1, "Invalid task range specification ([0-1])")),
            ("* a \\\n b\n1 a\n", line(3, "Task range specification with asterisk must be last")),
            ("0\n1 a\n", line(1, "No executable program specified for the task range (0)")),
            ("0 a\n", "Configuration file m.conf invalid, no record for task id 1".to_owned()),
            ("", "Configuration file m.conf invalid, no record for task id 0".to_owned()),
        ] {
            assert_eq!(commands(text, 2), Err(error), "{text}");
        }
        assert!(
            commands("* echo 'a\n", 1)
                .unwrap_err()
                .ends_with("Line 1 of configuration file m.conf invalid")
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,80}", tasks in 1u32..20) {
            let _ = parse(&text, "m.conf", tasks, &[]);
        }

        #[test]
        fn a_quoted_word_is_kept_verbatim(word in "[^'\n\r]{0,20}") {
            prop_assert_eq!(&commands(&format!("* a '{word}' b"), 1).unwrap()[0][1], &word);
        }
    }
}
