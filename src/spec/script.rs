//! Batch scripts as texts: whether Slurm would take one, and whether it starts steps of its own.
//!
//! Nothing is executed here, and no file is read.

use crate::spec::error::SpecError;
use crate::spec::shell_words;

/// The shells whose scripts are read as shell.
const SHELLS: [&str; 9] = ["sh", "bash", "dash", "zsh", "ksh", "ksh93", "mksh", "ash", "busybox"];

/// Whether this can be a batch script at all.
///
/// # Errors
/// Slurm's texts (golden ), some of them of several lines; exit code 1.
pub fn check(script: &[u8]) -> Result<(), SpecError> {
    if script.is_empty() {
        return Err(SpecError::value("Batch script is empty!"));
    }
    if script.iter().all(u8::is_ascii_whitespace) {
        return Err(SpecError::value("Batch script contains only whitespace!"));
    }
    if !script.starts_with(b"#!") {
        return Err(SpecError::value(
            "This does not look like a batch script.  The first\n\
             line must start with #! followed by the path to an interpreter.\n\
             For instance: #!/bin/sh",
        ));
    }
    if script.contains(&0) {
        return Err(SpecError::value(
            "The SLURM controller does not allow scripts that\ncontain a NULL character '\\0'.",
        ));
    }
    if script.windows(2).any(|pair| pair == b"\r\n") {
        return Err(SpecError::value(
            "Batch script contains DOS line breaks (\\r\\n)\ninstead of expected UNIX line breaks (\\n).",
        ));
    }
    Ok(())
}

/// Whether srun is among the commands of a script, so that `-n` asks for room for its steps rather than for copies.
///
/// This is a guess from the text, made so that ordinary scripts come out right:
/// * In a shell script the word `srun`, or a path that ends in `/srun`, counts where a command may stand: also after
///   `if`, `!`, `&&`, `time`, `exec`, `timeout 60`, assignments, inside `$(…)` and functions; and at the beginning of
///   a variable's value (`LAUNCH="srun --mpi=pmix"`), since such variables are there to be run. Comments, other
///   strings, here-documents and arguments (`echo srun`) do not count. A script whose `#!` names no interpreter that
///   is known, or has none, is taken by the next rule unless it has none at all, which is shell.
/// * In a script for any other interpreter, any word `srun` counts, in strings too (`subprocess.run(["srun", …])`),
///   since nothing is known of the language.
pub fn starts_steps(script: &str) -> bool {
    let first = script.lines().next().unwrap_or("");
    match first.strip_prefix("#!") {
        Some(line) if !names_a_shell(line) => has_word(script, "srun"),
        _ => shell_words::runs(script, "srun"),
    }
}

/// `/bin/bash -l`, `/usr/bin/env bash`, `/usr/bin/env -S FOO=1 bash -e`.
fn names_a_shell(interpreter: &str) -> bool {
    let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_string();
    let mut words = interpreter.split_whitespace();
    let mut program = words.next().map(base);
    if program.as_deref() == Some("env") {
        program = words.find(|word| !word.starts_with('-') && !word.contains('=')).map(base);
    }
    program.is_some_and(|program| SHELLS.contains(&program.as_str()))
}

/// Whether `word` stands in `text` with nothing before or after it that a name could have.
fn has_word(text: &str, word: &str) -> bool {
    let in_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(in_name) && !text[at + word.len()..].starts_with(in_name))
}
