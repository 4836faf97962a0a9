//! The file of `srun --multi-prog`: which program each rank runs (srun man page, "MULTIPLE PROGRAM CONFIGURATION").

use crate::spec::error::SpecError;
use crate::spec::hostlist;

/// The command of each of `ntasks` ranks. `args` are the words after the file's name on the command line, for `%@`.
///
/// A line is `ranks program arguments…`; ranks are numbers, ranges, lists or `*` for the rest; `%t` is the rank, `%o`
/// its place in the line's list; a backslash continues a line; `#` begins a comment.
///
/// # Errors
/// A line without a program, unreadable ranks, a rank without a line: with the number of the line.
pub fn parse(text: &str, ntasks: u32, args: &[String]) -> Result<Vec<Vec<String>>, SpecError> {
    let mut commands: Vec<Option<Vec<String>>> = vec![None; ntasks as usize];
    let joined = text.replace("\\\n", " ");
    for (number, line) in (1..).zip(joined.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let words = shlex::split(line).ok_or_else(|| error(number, "unbalanced quotes", line))?;
        let [ranks, program @ ..] = words.as_slice() else { continue };
        if program.is_empty() {
            return Err(error(number, "no program after the ranks", line));
        }
        for (place, rank) in (0u32..).zip(ranks_of(ranks, ntasks).ok_or_else(|| error(number, "bad ranks", ranks))?) {
            let Some(slot) = commands.get_mut(rank as usize) else { continue };
            if slot.is_some() && ranks == "*" {
                continue;
            }
            *slot = Some(filled(program, rank, place, args));
        }
    }
    commands
        .into_iter()
        .enumerate()
        .map(|(rank, command)| {
            command.ok_or_else(|| SpecError::value(format!("no program for task {rank} in the configuration file")))
        })
        .collect()
}

fn error(line: u32, what: &str, value: &str) -> SpecError {
    SpecError::value(format!("line {line} of the configuration file: {what}: {}", crate::spec::error::shown(value)))
}

fn ranks_of(text: &str, ntasks: u32) -> Option<Vec<u32>> {
    if text == "*" {
        return Some((0..ntasks).collect());
    }
    // A list of ranks has the grammar of a bracketed host list.
    let names = hostlist::expand(&format!("[{text}]")).ok()?;
    names.iter().map(|name| name.parse().ok()).collect()
}

fn filled(program: &[String], rank: u32, place: u32, args: &[String]) -> Vec<String> {
    let mut out = Vec::with_capacity(program.len());
    for word in program {
        if word == "%@" {
            out.extend_from_slice(args);
        } else {
            out.push(word.replace("%t", &rank.to_string()).replace("%o", &place.to_string()));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_rank_gets_its_program() {
        let commands = parse("# ranks\n0 echo zero %o\n2-3 echo task:%t\n* hostname\n", 4, &[]).unwrap();
        assert_eq!(
            commands,
            [vec!["echo", "zero", "0"], vec!["hostname"], vec!["echo", "task:2"], vec!["echo", "task:3"]]
        );
    }

    #[test]
    fn a_rank_without_a_program_is_named() {
        assert!(parse("0 true\n", 2, &[]).unwrap_err().to_string().contains("task 1"));
        assert!(parse("0\n", 1, &[]).unwrap_err().to_string().contains("line 1"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,80}", tasks in 1u32..20) {
            let _ = parse(&text, tasks, &[]);
        }
    }
}
