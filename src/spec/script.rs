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
/// * In a shell script, and in a text without `#!`, the word `srun`, or a path that ends in `/srun`, counts where a
///   command may stand: also after `if`, `!`, `&&` and assignments, inside `$(…)` and functions, and among the
///   arguments of commands that run others (`time`, `exec`, `timeout 60`, `bash -c "…"`, `trap '…'`). It counts at
///   the beginning of a variable's value too (`LAUNCH="srun --mpi=pmix"`), since such variables are there to be run.
///   Comments, other strings, here-documents and arguments (`echo srun`) do not count.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn scripts_that_slurm_refuses_are_refused_with_its_texts() {
        let text = |script: &[u8]| check(script).map_err(|e| (e.to_string(), e.exit_code()));
        assert_eq!(text(b"#!/bin/sh\necho\n"), Ok(()));
        assert_eq!(text(b"#!/usr/bin/env python3\n\xff"), Ok(()));
        assert_eq!(text(b""), Err(("Batch script is empty!".to_string(), 1)));
        assert_eq!(text(b" \n"), Err(("Batch script contains only whitespace!".to_string(), 1)));
        assert_eq!(
            text(b"echo hi\n"),
            Err((
                "This does not look like a batch script.  The first\nline must start with #! followed by the path to \
                 an interpreter.\nFor instance: #!/bin/sh"
                    .to_string(),
                1
            ))
        );
        assert_eq!(
            text(b"#!/bin/sh\r\necho\r\n"),
            Err((
                "Batch script contains DOS line breaks (\\r\\n)\ninstead of expected UNIX line breaks (\\n)."
                    .to_string(),
                1
            ))
        );
        assert!(check(b"#!/bin/sh\n\0").is_err_and(|e| e.to_string().contains("NULL character")));
    }

    #[test]
    fn a_shell_script_is_read_as_shell() {
        for head in ["#!/bin/bash", "#!/bin/sh -e", "#! /usr/bin/env bash", "#!/usr/bin/env -S A=1 zsh -e", ""] {
            assert!(starts_steps(&format!("{head}\nsrun hostname\n")), "{head}");
            assert!(!starts_steps(&format!("{head}\necho 'srun' # srun\n")), "{head}");
        }
    }

    #[test]
    fn in_another_language_any_word_srun_counts() {
        assert!(starts_steps("#!/usr/bin/env python3\nsubprocess.run([\"srun\", \"x\"])\n"));
        assert!(starts_steps("#!/usr/bin/perl\nsystem('/usr/bin/srun x');\n"));
        assert!(!starts_steps("#!/usr/bin/env python3\nsrun_count = 1; mysrun(); x = 'srun-like.srun.py'\n"));
        assert!(!starts_steps("#!/usr/bin/env python3\nprint('hello')\n"));
    }

    proptest! {
        #[test]
        fn no_script_breaks_the_checks(script in ".*", bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = check(&bytes);
            let _ = starts_steps(&script);
            let _ = starts_steps(&format!("#!{script}"));
        }
    }
}
