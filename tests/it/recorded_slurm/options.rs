//! The options of the invocations that gave the same result.

use super::record::invocations;
use std::collections::BTreeSet;
use std::fs;

/// An option from the help of its command.
#[derive(Debug)]
struct Known {
    short: Option<char>,
    long: String,
    /// The next word is its value.
    has_value: bool,
    /// Its optional value follows `=` in the same word.
    may_have_value: bool,
}

/// Returns the commands and the long names of their options, in order.
pub fn replayed() -> BTreeSet<(String, String)> {
    invocations()
        .filter(|one| one.mark().is_same_for_all())
        .flat_map(|one| used(&one.command))
        .collect()
}

fn used(script: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for words in commands(script) {
        let mut words = words.iter().map(String::as_str).skip_while(|word| is_assignment(word));
        let Some(command) = words.next() else { continue };
        let Some(known) = known(command) else { continue };
        found.extend(
            options(command, words, &known).into_iter().map(|long| (command.to_owned(), long)),
        );
    }
    found
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=')
        .is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
}

/// Returns whether the operands of this command are another command or a script with its arguments.
fn ends_at_operand(command: &str) -> bool {
    ["sbatch", "srun", "salloc"].contains(&command)
}

fn options<'a>(
    command: &str,
    mut words: impl Iterator<Item = &'a str>,
    known: &[Known],
) -> Vec<String> {
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        if let Some(long) = word.strip_prefix("--") {
            let (name, value) =
                long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            let Some(option) = known.iter().find(|option| option.long == name) else { continue };
            found.push(option.long.clone());
            if option.has_value && value.is_none() {
                words.next();
            }
        } else if let Some(letters) = word.strip_prefix('-') {
            for (at, letter) in letters.char_indices() {
                let Some(option) = known.iter().find(|option| option.short == Some(letter)) else {
                    break;
                };
                found.push(option.long.clone());
                let is_last = at + letter.len_utf8() == letters.len();
                if option.has_value && is_last {
                    words.next();
                }
                if option.has_value || option.may_have_value {
                    break;
                }
            }
        } else if ends_at_operand(command) {
            break;
        }
    }
    found
}

/// Returns the options of a command from its recorded help.
fn known(command: &str) -> Option<Vec<Known>> {
    let path = format!("{}/tests/recorded/help/{command}.txt", env!("CARGO_MANIFEST_DIR"));
    let help = fs::read_to_string(path).ok()?;
    Some(help.lines().filter_map(known_of).collect())
}

/// Parses a line such as `-c, --cpus-per-task <N>  CPUs for each task`.
fn known_of(line: &str) -> Option<Known> {
    let line = line.trim_start();
    let (short, rest) = match line.strip_prefix('-')?.split_once(", --") {
        Some((short, rest)) if short.chars().count() == 1 => (short.chars().next(), rest),
        _ => (None, line.strip_prefix("--")?),
    };
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(rest.len());
    let (long, after) = rest.split_at(end);
    let long = long.to_owned();
    Some(Known {
        short,
        long,
        has_value: after.starts_with(" <"),
        may_have_value: after.starts_with("[="),
    })
}

/// Returns the words of each simple command in a shell script.
fn commands(script: &str) -> Vec<Vec<String>> {
    let mut all = vec![vec![String::new()]];
    let mut quote = None;
    let mut chars = script.chars().peekable();
    while let Some(c) = chars.next() {
        let is_substitution = c == '$' && chars.peek() == Some(&'(') && quote != Some('\'');
        match c {
            _ if is_substitution => {
                chars.next();
                quote = None;
                all.push(vec![String::new()]);
            }
            '\'' | '"' if quote.is_none() => quote = Some(c),
            _ if quote == Some(c) => quote = None,
            ';' | '|' | '&' | '(' | ')' if quote.is_none() => all.push(vec![String::new()]),
            ' ' if quote.is_none() => all.last_mut().expect("a command").push(String::new()),
            _ => all.last_mut().and_then(|words| words.last_mut()).expect("a word").push(c),
        }
    }
    for words in &mut all {
        words.retain(|word| !word.is_empty());
    }
    all
}

#[test]
fn options_are_found_by_their_letters_and_names() {
    let used = |script: &str| {
        used(script)
            .into_iter()
            .map(|(command, long)| format!("{command} {long}"))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        used("A=1 sbatch -H --parsable -t '1-' --wrap true"),
        ["sbatch hold", "sbatch parsable", "sbatch time", "sbatch wrap"]
    );
    assert_eq!(used("srun -n 2 -l sh -c 'exit 3' | sort -u"), ["srun ntasks", "srun label"]);
    assert_eq!(
        used("squeue -h -j 3 -o '%i -x'; scancel 3 -v"),
        ["squeue noheader", "squeue jobs", "squeue format", "scancel verbose"]
    );
    assert_eq!(used("x=\"$(sinfo -o '%c' | head -1)\""), ["sinfo format"]);
    assert_eq!(used("srun -n2 true -x"), ["srun ntasks"]);
}
