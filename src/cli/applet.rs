//! Which command was called: by the name of the program, or as the first word after `slotd`.
//!
//! Names are matched exactly, so that a renamed binary (`slotd-1.2`) is `slotd`. Only the definition of the command
//! that was called is ever built.

use std::ffi::OsString;
use std::path::Path;

macro_rules! programs {
    ($($(#[$doc:meta])* $program:ident => $name:literal,)*) => {
        /// The commands that Slurm's users know.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Program { $($(#[$doc])* $program,)* }

        impl Program {
            pub const ALL: &'static [Program] = &[$(Program::$program,)*];

            pub const fn name(self) -> &'static str {
                match self { $(Program::$program => $name,)* }
            }
        }
    };
}

programs! {
    Sbatch => "sbatch",
    Srun => "srun",
    Salloc => "salloc",
    Squeue => "squeue",
    Sacct => "sacct",
    Scontrol => "scontrol",
    Scancel => "scancel",
    Sinfo => "sinfo",
}

impl Program {
    pub fn by_name(name: &str) -> Option<Program> {
        Program::ALL.iter().copied().find(|program| program.name() == name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// The command with its words, its own name first.
    Program(Program, Vec<OsString>),
    /// `slotd` itself, with the words after it.
    Slotd(Vec<OsString>),
}

/// What a process that was started with these words is to be.
pub fn called(argv: Vec<OsString>) -> Call {
    let by_name =
        |word: &OsString| Path::new(word).file_name().and_then(|name| name.to_str()).and_then(Program::by_name);
    if let Some(program) = argv.first().and_then(by_name) {
        return Call::Program(program, argv);
    }
    let words: Vec<OsString> = argv.into_iter().skip(1).collect();
    match words.first().and_then(|word| word.to_str()).and_then(Program::by_name) {
        Some(program) => Call::Program(program, words),
        None => Call::Slotd(words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(words: &[&str]) -> Call {
        called(words.iter().map(OsString::from).collect())
    }

    #[test]
    fn the_name_of_the_link_is_the_command() {
        let words = vec![OsString::from("/usr/local/bin/sbatch"), OsString::from("daemon")];
        assert_eq!(call(&["/usr/local/bin/sbatch", "daemon"]), Call::Program(Program::Sbatch, words));
    }

    #[test]
    fn the_first_word_after_slotd_is_the_command() {
        let words = vec![OsString::from("squeue"), OsString::from("-h")];
        assert_eq!(call(&["slotd", "squeue", "-h"]), Call::Program(Program::Squeue, words.clone()));
        assert_eq!(call(&["./slotd-1.2", "squeue", "-h"]), Call::Program(Program::Squeue, words));
        assert_eq!(call(&["slotd", "daemon"]), Call::Slotd(vec!["daemon".into()]));
        assert_eq!(call(&["sbatch2"]), Call::Slotd(vec![]));
        assert_eq!(call(&[]), Call::Slotd(vec![]));
    }
}
