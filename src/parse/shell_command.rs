//! Determines where the shell started by a command line reads its commands.

/// Shells with a syntax that the script scanner understands.
pub const SHELLS: [&str; 9] =
    ["sh", "bash", "dash", "zsh", "ksh", "ksh93", "mksh", "ash", "busybox"];

/// Shells with other languages. Their commands look the same.
pub(crate) const OTHER_SHELLS: [&str; 3] = ["fish", "csh", "tcsh"];

/// The place where a shell reads its commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commands<'a> {
    /// Standard input, usually a user's terminal.
    Stdin,
    /// A file.
    File(&'a str),
    /// An argument (`-c`).
    Argument,
}

/// Returns the last component of a path.
pub fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Returns where the shell started by these words reads its commands, or `None` if they start
/// neither a known shell nor the user's own.
pub fn commands_of<'a>(words: &'a [String], own_shell: &str) -> Option<Commands<'a>> {
    let (program, rest) = words.split_first()?;
    let name = base(program);
    if !(SHELLS.contains(&name) || OTHER_SHELLS.contains(&name) || name == base(own_shell)) {
        return None;
    }
    let mut rest = rest.iter().map(String::as_str);
    while let Some(word) = rest.next() {
        match word {
            "-" | "--" => return Some(rest.next().map_or(Commands::Stdin, Commands::File)),
            "--rcfile" | "--init-file" => drop(rest.next()),
            "--command" => return Some(Commands::Argument),
            _ if word.starts_with("--") => {}
            _ => match word.strip_prefix(['-', '+']) {
                Some(letters) if letters.contains('c') => return Some(Commands::Argument),
                Some(letters) if letters.contains('s') => return Some(Commands::Stdin),
                // `-o pipefail`, `-O extglob`
                Some(letters) if letters.contains(['o', 'O']) => drop(rest.next()),
                Some(_) => {}
                None => return Some(Commands::File(word)),
            },
        }
    }
    Some(Commands::Stdin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_a_file_its_argument_or_standard_input() {
        let stdin = Some(Commands::Stdin);
        let file = Some(Commands::File("a.sh"));
        for (line, commands) in [
            ("bash", stdin),
            ("/bin/zsh -il", stdin),
            ("fish", stdin),
            ("/opt/nu", stdin),
            ("bash --rcfile x --login", stdin),
            ("bash -eo pipefail", stdin),
            ("sh -s a b", stdin),
            ("bash a.sh b", file),
            ("sh -e a.sh -c", file),
            ("bash -o pipefail a.sh", file),
            ("dash -- a.sh", file),
            ("bash -lc a.sh", Some(Commands::Argument)),
            ("./a.sh", None),
            ("python3", None),
            ("", None),
        ] {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            assert_eq!(commands_of(&words, "/usr/bin/nu"), commands, "{line}");
        }
    }
}
