//! Determines from the text of a script whether it launches its own tasks or reads its rank.
//!
//! This is a scanner, not a shell. It recognizes words, quotes, comments, here-documents and the
//! start of commands, and expands nothing. It misses programs that are named by a variable or in
//! another file.

use crate::shell_command::{OTHER_SHELLS, SHELLS, base};
use slotd_model::batch_tasks::ScriptTasks;

/// Programs that start the tasks of a job.
const LAUNCHERS: [&str; 11] = [
    "srun",
    "mpirun",
    "mpiexec",
    "orterun",
    "prterun",
    "prun",
    "torchrun",
    "accelerate",
    "deepspeed",
    "parallel",
    "ray",
];

/// Launchers with MPI-specific names: `mpirun.openmpi`, `mpiexec.hydra`, `mpirun_rsh`.
const VARIED: [&str; 2] = ["mpirun", "mpiexec"];

/// Suffixes of files that begin with the name of a launcher but are not programs.
const NO_PROGRAM: [&str; 4] = [".log", ".out", ".err", ".txt"];

/// Launchers as modules: `python -m torch.distributed.run`.
const MODULES: [&str; 4] =
    ["torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "torchrun"];

const RANK: [&str; 2] = ["SLURM_PROCID", "SLURM_LOCALID"];
const COUNT: [&str; 3] = ["SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE"];

/// Words that may precede a command.
const RESERVED: [&str; 12] =
    ["if", "then", "elif", "else", "do", "while", "until", "!", "{", "}", "fi", "done"];

/// Commands that run another command: from their arguments, or from a quoted argument.
const WRAPPERS: [&str; 28] = [
    "time", "exec", "command", "builtin", "eval", "nohup", "nice", "ionice", "env", "timeout",
    "stdbuf", "setsid", "xargs", "taskset", "numactl", "sudo", "strace", "trap", "sh", "bash",
    "dash", "zsh", "ksh", "flock", "xvfb-run", "coproc", "watch", "find",
];

/// The arguments of find that a command follows.
const FIND_ACTIONS: [&str; 4] = ["-exec", "-execdir", "-ok", "-okdir"];

/// Interpreters of other languages, without version numbers.
const INTERPRETERS: [&str; 7] = ["python", "perl", "R", "Rscript", "ruby", "julia", "node"];

/// Commands that take assignments as arguments.
const DECLARATIONS: [&str; 4] = ["export", "declare", "local", "readonly"];

/// The maximum nesting depth of scripts in quoted arguments (`sh -c '…'`).
const MAX_DEPTH: usize = 8;

/// Classifies a script by the launchers it calls and the variables it reads.
///
/// In a shell script, and in a file without `#!`, a launcher counts in command position, after
/// commands that run others (`time`, `timeout 60`, `bash -c "…"`), and at the beginning of a
/// variable's value (`LAUNCH="srun -n 4"`), because such variables exist to be run. In other
/// languages, it counts at the beginning of a string (`subprocess.run(["srun", …])`). A
/// here-document is part of the script if a shell or an interpreter reads it.
///
/// A variable counts if its value is read: `$NAME` and `${NAME…}`, in arithmetic, and by the usual
/// lookups of other languages (`environ["NAME"]`, `getenv("NAME")`, `$ENV{NAME}`).
pub fn script_tasks(script: &str) -> ScriptTasks {
    let first = script.lines().next().unwrap_or("");
    let (calls, code, foreign) = match first.strip_prefix("#!") {
        Some(line) if !names_a_shell(line) => {
            let is_code = |line: &&str| !line.trim_start().starts_with('#');
            let code: String =
                script.lines().filter(is_code).flat_map(|line| [line, "\n"]).collect();
            (quoted_call(&code), String::new(), code)
        }
        _ => {
            let Scanned { commands, code, foreign } = scan(script);
            (
                commands
                    .iter()
                    .find_map(|command| call(command, 0))
                    .or_else(|| quoted_call(&foreign)),
                code,
                foreign,
            )
        }
    };
    let is_read = |name: &&&str| {
        reads_of(&code, name).any(|before| in_shell(before) || in_lookup(before))
            || reads_of(&foreign, name).any(|before| before.ends_with(['"', '\'', '$', '{', '.']))
    };
    let reads = |names: &[&str]| names.iter().find(is_read).map(|name| (*name).to_owned());
    calls
        .map(|name| ScriptTasks::Calls(name.to_owned()))
        .or_else(|| reads(&RANK).map(ScriptTasks::ReadsRank))
        .or_else(|| reads(&COUNT).map(ScriptTasks::ReadsCount))
        .unwrap_or_default()
}

/// Recognizes `/bin/bash -l`, `/usr/bin/env bash` and `/usr/bin/env -S FOO=1 bash -e`.
fn names_a_shell(interpreter: &str) -> bool {
    let mut words = interpreter.split_whitespace();
    let mut program = words.next().map(base);
    if program == Some("env") {
        program = words.find(|word| !word.starts_with('-') && !word.contains('=')).map(base);
    }
    program.is_some_and(|program| SHELLS.contains(&program) || OTHER_SHELLS.contains(&program))
}

fn launcher(word: &str) -> Option<&'static str> {
    let word = base(with_default(word));
    let is_one = |name: &&str| match word.strip_prefix(*name) {
        Some("") => true,
        Some(rest) => {
            VARIED.contains(name)
                && rest.starts_with(['.', '_'])
                && !NO_PROGRAM.iter().any(|end| rest.ends_with(end))
        }
        None => false,
    };
    LAUNCHERS.into_iter().find(is_one)
}

/// Returns the first word of the default in `${MPIRUN:-mpirun}`, and other words unchanged.
fn with_default(word: &str) -> &str {
    let Some(inside) = word.strip_prefix("${") else { return word };
    let rest = inside.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    match rest.strip_prefix(':').unwrap_or(rest).strip_prefix(['-', '=']) {
        Some(default) => default.trim_end_matches('}').split_whitespace().next().unwrap_or(""),
        None => word,
    }
}

/// Returns the program that `which srun`, `command -v srun` or `type -P srun` looks up.
fn looked_for(words: &[Word]) -> Option<&str> {
    let words: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    match words.as_slice() {
        ["which", name] | ["command", "-v", name] | ["type", "-P" | "-p", name] => Some(name),
        _ => None,
    }
}

/// Returns, for each occurrence of a variable's name as a whole word, the part of the line before
/// it.
fn reads_of<'a>(code: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    let in_name = |c: char| c.is_alphanumeric() || c == '_';
    code.lines()
        .flat_map(move |line| {
            line.match_indices(name).map(move |(at, _)| (&line[..at], &line[at + name.len()..]))
        })
        .filter(move |(before, after)| !before.ends_with(in_name) && !after.starts_with(in_name))
        .map(|(before, _)| before)
}

/// Recognizes `$NAME`, `${NAME`, `${#NAME`, and any mention within `((…))`.
fn in_shell(before: &str) -> bool {
    let sign = before.strip_suffix(['#', '!']).unwrap_or(before);
    let dollar = before.strip_suffix('$').or_else(|| sign.strip_suffix("${"));
    let in_arithmetic =
        || before.rsplit_once("((").is_some_and(|(_, inside)| !inside.contains("))"));
    dollar.map_or_else(in_arithmetic, |before| !before.ends_with('\\'))
}

/// Recognizes `environ["NAME"]`, `getenv("NAME")`, `$ENV{NAME}` and `printenv NAME`.
fn in_lookup(before: &str) -> bool {
    let bare = before.trim_end_matches(['"', '\'', '\\']);
    (bare.len() < before.len() && bare.ends_with(['[', '(']))
        || bare.ends_with("ENV{")
        || before.ends_with("printenv ")
}

/// Returns the first launcher at the beginning of a string.
fn quoted_call(code: &str) -> Option<&'static str> {
    let starts = code.match_indices(['"', '\'', '`']).map(|(at, _)| &code[at + 1..]);
    starts
        .filter_map(|text| {
            launcher(text.split(|c: char| c.is_whitespace() || "\"'`".contains(c)).next()?)
        })
        .next()
}

/// Returns the launcher that a simple command runs.
fn call(words: &[Word], depth: usize) -> Option<&'static str> {
    let mut words = words.iter();
    let first = loop {
        let word = words.next()?;
        match assigned(&word.text) {
            Some(value) => {
                if let Some(name) = value.split_whitespace().next().and_then(launcher) {
                    return Some(name);
                }
            }
            None if !word.quoted && RESERVED.contains(&word.text.as_str()) => {}
            None => break word,
        }
    };
    let rest = words.as_slice();
    let second = rest.first().map(|word| word.text.as_str());
    let name = base(&first.text);
    if let Some(name) = launcher(name) {
        return Some(name);
    }
    if DECLARATIONS.contains(&name) {
        return rest
            .iter()
            .find_map(|word| launcher(assigned(&word.text)?.split_whitespace().next()?));
    }
    let as_module = || {
        let pairs = rest.windows(2).filter(|pair| pair[0].text == "-m");
        pairs.filter_map(|pair| MODULES.into_iter().find(|module| *module == pair[1].text)).next()
    };
    // `command -v srun` runs nothing; `uv run`, `docker run` and `apptainer exec` run a command.
    let asks = name == "command" && matches!(second, Some("-v" | "-V"));
    if asks || !(WRAPPERS.contains(&name) || matches!(second, Some("run" | "exec"))) {
        return as_module();
    }
    let inside = |word: &Word| match launcher(&word.text) {
        None if word.quoted && depth < MAX_DEPTH => {
            scan(&word.text).commands.iter().find_map(|c| call(c, depth + 1))
        }
        found => found,
    };
    let of_find = |word: &Word| name == "find" && !FIND_ACTIONS.contains(&word.text.as_str());
    rest.iter().skip_while(|word| of_find(word)).find_map(inside).or_else(as_module)
}

/// Returns the value of `NAME=value`, `NAME+=value` or `NAME[i]=value`.
fn assigned(word: &str) -> Option<&str> {
    let (name, value) = word.split_once('=')?;
    let name = name.strip_suffix('+').unwrap_or(name);
    let name = name.split_once('[').map_or(name, |(name, _)| name);
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then_some(value)
}

#[derive(Debug, Default)]
struct Word {
    text: String,
    quoted: bool,
}

/// The simple commands of a shell script, its text without comments, and the text that is passed to
/// interpreters of other languages.
#[derive(Debug, Default)]
struct Scanned {
    commands: Vec<Vec<Word>>,
    code: String,
    foreign: String,
}

/// The kind of program that reads a here-document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    Shell,
    Interpreter,
    /// A program that treats it as data. The shell expands variables unless the delimiter is
    /// quoted.
    Other {
        is_quoted: bool,
    },
}

#[derive(Debug)]
struct HereDoc {
    end: String,
    reader: Reader,
}

/// An unfinished command, and whether it is inside double quotes.
#[derive(Debug, Default)]
struct Open {
    words: Vec<Word>,
    word: Option<Word>,
    in_quotes: bool,
    /// The next word is the target of a redirection.
    is_target: bool,
    /// The character that ends it, for `$(`, `(` and a backquote.
    end: Option<char>,
}

impl Open {
    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().text.push(c);
    }

    fn quote(&mut self) {
        self.word.get_or_insert_default().quoted = true;
    }

    fn end_word(&mut self) {
        let word = self.word.take();
        if !(word.is_some() && std::mem::take(&mut self.is_target)) {
            self.words.extend(word);
        }
    }

    fn end_command(&mut self, scanned: &mut Scanned) {
        self.end_word();
        self.is_target = false;
        if !self.words.is_empty() {
            scanned.commands.push(std::mem::take(&mut self.words));
        }
    }
}

/// The state of a scan.
struct Scanner<'a> {
    text: &'a str,
    /// The offset of the first unread byte.
    at: usize,
    scanned: Scanned,
    now: Open,
    outer: Vec<Open>,
    /// The here-documents that begin after this line.
    heredocs: Vec<HereDoc>,
}

fn scan(text: &str) -> Scanned {
    let (now, outer) = (Open::default(), Vec::new());
    let mut scanner =
        Scanner { text, at: 0, scanned: Scanned::default(), now, outer, heredocs: Vec::new() };
    while let Some(c) = scanner.rest().chars().next() {
        let from = scanner.at;
        if c == '#' && scanner.now.word.is_none() && !scanner.now.in_quotes {
            scanner.skip(scanner.rest().find('\n').unwrap_or(text.len()));
        } else {
            scanner.skip(c.len_utf8());
            scanner.take(c);
            let taken = if c == '\n' { "\n" } else { &text[from..scanner.at] };
            scanner.scanned.code.push_str(taken);
        }
    }
    // A file may end without a newline and within open constructs.
    let Scanner { mut scanned, now, outer, .. } = scanner;
    for mut open in outer.into_iter().chain([now]) {
        open.end_command(&mut scanned);
    }
    scanned
}

impl<'a> Scanner<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip(&mut self, bytes: usize) {
        self.at = (self.at + bytes).min(self.text.len());
    }

    /// Begins a nested command.
    fn open(&mut self, end: char) {
        self.outer
            .push(std::mem::replace(&mut self.now, Open { end: Some(end), ..Open::default() }));
    }

    fn end_command(&mut self) {
        self.now.end_command(&mut self.scanned);
    }

    /// Ends a nested command. `$(which srun)` is treated as srun itself.
    fn close(&mut self) {
        let before = self.scanned.commands.len();
        self.end_command();
        self.now = self.outer.pop().unwrap_or_default();
        let last = self.scanned.commands[before..].last();
        if let (Some(word), Some(name)) =
            (&mut self.now.word, last.and_then(|words| looked_for(words)))
            && let Some(start) = word.text.strip_suffix('$')
        {
            word.text = format!("{start}{name}");
        }
    }

    /// Drops the words read so far, because they are not a command.
    fn drop_words(&mut self) {
        self.now = Open { end: self.now.end, ..Open::default() };
    }

    /// Consumes a character, and the quote, comment or expansion that it begins.
    fn take(&mut self, c: char) {
        let rest = self.rest();
        match c {
            '\\' => {
                let next = rest.chars().next();
                self.skip(next.map_or(0, char::len_utf8));
                next.filter(|next| *next != '\n').into_iter().for_each(|next| self.now.push(next));
            }
            '"' => {
                self.now.quote();
                self.now.in_quotes = !self.now.in_quotes;
            }
            '\'' if !self.now.in_quotes => {
                self.now.quote();
                let inside = &rest[..rest.find('\'').unwrap_or(rest.len())];
                inside.chars().for_each(|c| self.now.push(c));
                self.skip(inside.len() + 1);
            }
            '$' if rest.starts_with("((") => self.skip(rest.find("))").map_or(0, |end| end + 2)),
            // `$#` and `${#x}` do not begin comments.
            '$' if rest.starts_with('#') => self.skip(1),
            '$' if rest.starts_with('(') => {
                self.skip(1);
                self.now.push('$');
                self.open(')');
            }
            '`' if self.now.end == Some('`') => self.close(),
            '`' => {
                self.now.push('$');
                self.open('`');
            }
            _ if self.now.in_quotes => self.now.push(c),
            '(' if self.now.word.is_some() && rest.starts_with(')') => {
                // `f()` defines a function; a command follows.
                self.skip(1);
                self.drop_words();
            }
            '(' => {
                self.end_command();
                self.open(')');
            }
            ')' if self.now.end == Some(')') => self.close(),
            // The end of a pattern in `case`.
            ')' => self.drop_words(),
            '<' | '>' => self.redirection(c),
            '&' if rest.starts_with('>') => self.now.end_word(),
            '\n' => {
                self.end_command();
                self.heredoc_bodies();
            }
            ';' | '&' | '|' => self.end_command(),
            c if c.is_whitespace() => self.now.end_word(),
            c => self.now.push(c),
        }
    }

    fn redirection(&mut self, c: char) {
        let rest = self.rest();
        if c == '<' && rest.starts_with("<<") {
            self.skip(2);
            self.now.end_word();
            self.now.is_target = true;
        } else if c == '<' && rest.starts_with('<') {
            self.now.end_word();
            let line = rest[1..].trim_start_matches(['-', ' ']);
            let end: String = line
                .chars()
                .take_while(|c| !c.is_whitespace() && !";|&<>()".contains(*c))
                .collect();
            let bare = end.replace(['"', '\'', '\\'], "");
            let reader = reader(&self.now.words, bare != end);
            self.heredocs.push(HereDoc { end: bare, reader });
            self.skip(rest.len() - line.len() + end.len());
        } else if rest.starts_with('(') {
            self.skip(1);
            self.open(')');
        } else {
            // The number in `2>file` belongs to the redirection.
            if self
                .now
                .word
                .as_ref()
                .is_some_and(|word| word.text.bytes().all(|b| b.is_ascii_digit()))
            {
                self.now.word = None;
            }
            self.now.end_word();
            self.now.is_target = true;
            self.skip(usize::from(rest.starts_with(['>', '&', '|'])));
        }
    }

    /// Skips here-documents and their delimiters after a line. Here-documents for shells are
    /// scanned like the rest of the script.
    fn heredoc_bodies(&mut self) {
        for HereDoc { end, reader } in std::mem::take(&mut self.heredocs) {
            if reader == Reader::Shell {
                return;
            }
            let lines = self.rest().split_inclusive('\n');
            let lines = lines
                .take_while(|line| line.trim_end_matches('\n').trim_start_matches('\t') != end);
            let body = &self.rest()[..lines.map(str::len).sum()];
            match reader {
                Reader::Interpreter => self.scanned.foreign.push_str(body),
                Reader::Other { is_quoted: false } => self.scanned.code.extend(["\n", body]),
                Reader::Other { is_quoted: true } | Reader::Shell => {}
            }
            self.skip(body.len());
            let rest = self.rest();
            self.skip(rest.find('\n').map_or(rest.len(), |end| end + 1));
        }
    }
}

/// Returns the reader of a here-document that follows these words of a command.
fn reader(words: &[Word], is_quoted: bool) -> Reader {
    let mut names = words.iter().map(|word| base(&word.text));
    let is_interpreter = |name: &str| {
        INTERPRETERS.contains(&name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'))
    };
    match names.find(|name| SHELLS.contains(name) || is_interpreter(name)) {
        Some(name) if SHELLS.contains(&name) => Reader::Shell,
        Some(_) => Reader::Interpreter,
        None => Reader::Other { is_quoted },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn calls(script: &str) -> bool {
        matches!(script_tasks(script), ScriptTasks::Calls(_))
    }

    #[test]
    fn launchers_count_in_command_position() {
        for script in [
            "srun hostname",
            "  /usr/bin/srun hostname",
            "\"srun\" x",
            "\\srun x",
            "$SLURM_ROOT/bin/srun x",
            "module load cuda; srun x",
            "a && srun x",
            "a || srun x &",
            "cat x | srun cat",
            "! srun x",
            "if srun x; then y; fi",
            "if a\nthen srun x\nfi",
            "for i in 1 2 3; do srun x $i; done",
            "for ((i=0; i<3; i++)); do srun x; done",
            "while ! srun x; do sleep 1; done",
            "FOO=1 BAR=\"a b\" srun x",
            "time srun x",
            "exec srun x",
            "timeout -k 5 60 srun x",
            "env A=1 srun x",
            "xargs -n1 srun -n1 < list",
            "x=$(srun hostname)",
            "x=\"$(date) $(srun hostname)\"",
            "echo `srun hostname`",
            "( srun x )",
            "{ srun x; }",
            "f() { srun x; }; f",
            "case $1 in a) srun x;; esac",
            "> out srun x",
            "srun>out x",
            "a 2>&1 | srun cat",
            "diff <(srun a) <(srun b)",
            "cat <<EOF > f\ntext\nEOF\nsrun x",
            "cat <<-'EOF'\n\ttext\n\tEOF\nsrun x",
            "a <<< \"text\"\nsrun x",
            "x=$((1 << 2)); srun x",
            "a \\\n  && srun x",
            "LAUNCH=\"srun --mpi=pmix\"; $LAUNCH ./a",
            "export LAUNCH='srun -n 4'",
            "cmd=(srun -n 4 x)\n\"${cmd[@]}\"",
            "bash -c 'cd x && srun y'",
            "trap 'srun cleanup' EXIT",
            "eval \"srun $ARGS\"",
            "echo ${#x}; srun x",
            "echo $# # a comment\nsrun x",
            "echo it\\'s; srun x",
            "command -v mpirun && mpirun x",
            "python -m torch.distributed.run --nproc_per_node 2 train.py",
            "uv run torchrun train.py",
            "apptainer exec image.sif mpirun x",
            "mpirun.openmpi -n 2 x",
            "/usr/bin/mpirun.mpich x",
            "mpiexec.hydra x",
            "mpiexec.slurm x",
            "mpirun_rsh -np 2 x",
            "prterun x",
            "$(which srun) x",
            "\"$(command -v srun 2>/dev/null)\" x",
            "`which mpirun` x",
            "${MPIRUN:-mpirun} x",
            "\"${LAUNCH-srun -n 2}\" x",
            "flock F srun x",
            "flock F -c 'srun x'",
            "find . -name '*.in' -exec srun x {} \\;",
            "xvfb-run -a srun x",
            "coproc srun x",
            "watch -n 5 srun x",
            "bash <<EOF\nsrun x\nEOF",
            "env A=1 sh -s <<'EOF'\ncd a\nsrun x\nEOF",
            "python3 - <<EOF\nos.system('srun x')\nEOF",
            "srun",
        ] {
            assert!(calls(script), "{script}");
        }
        for name in LAUNCHERS {
            assert_eq!(
                script_tasks(&format!("#!/bin/sh\n{name} x\n")),
                ScriptTasks::Calls(name.to_owned())
            );
        }
    }

    #[test]
    fn launchers_do_not_count_elsewhere() {
        for script in [
            "",
            "# srun x",
            "#SBATCH -J srun",
            "echo hello # srun x",
            "echo srun",
            "echo 'srun x'",
            "echo \"run it by srun x\"",
            "echo \"\nsrun x\n\"",
            "cat <<EOF\nsrun x\nEOF",
            "cat <<'EOF' | wc\nsrun x\nEOF\necho y",
            "cat <<A <<B\nsrun\nA\nsrun\nB\n",
            "a <<< srun",
            "a > srun",
            "which srun",
            "command -v srun",
            "type mpirun >/dev/null",
            "module load parallel",
            "pip install ray accelerate",
            "srun_all x",
            "my-srun x",
            "./srun.sh",
            "x=\"not srun\"",
            "NOTE='use srun x'",
            "for x in srun a; do echo $x; done",
            "case $1 in\n  srun) echo x;;\nesac",
            "srun() { echo x; }",
            "echo ${srun}",
            "echo $((srun + 1))",
            "python train.py --launcher srun",
            "mpirunner x",
            "srun.old x",
            "LOG=mpirun.log",
            "find . -name srun -print",
            "echo $(which srun)",
            "if [ -n \"$(which srun)\" ]; then echo x; fi",
            "${srun:-x} y",
            "cat > job.sh <<'EOF'\nbash\nsrun x\nEOF",
            "python3 - <<EOF\nsrun = 1\nEOF",
        ] {
            assert!(!calls(script), "{script}");
        }
    }

    #[test]
    fn in_other_languages_launchers_count_at_the_beginning_of_a_string() {
        let python = |line: &str| script_tasks(&format!("#!/usr/bin/env python3\n{line}\n"));
        for line in [
            "subprocess.run([\"srun\", \"x\"])",
            "os.system('/usr/bin/mpirun x')",
            "exec(`torchrun`)",
        ] {
            assert!(matches!(python(line), ScriptTasks::Calls(_)), "{line}");
        }
        for line in
            ["srun_count = 1; mysrun(); x = 'srun-like.srun.py'", "import ray", "# \"srun\""]
        {
            assert_eq!(python(line), ScriptTasks::Silent, "{line}");
        }
        assert_eq!(
            python("r = os.environ['SLURM_PROCID']"),
            ScriptTasks::ReadsRank("SLURM_PROCID".to_owned())
        );
    }

    #[test]
    fn launchers_outrank_variables_and_ranks_outrank_counts() {
        let rank = |name: &str| ScriptTasks::ReadsRank(name.to_owned());
        let count = |name: &str| ScriptTasks::ReadsCount(name.to_owned());
        for (script, tasks) in [
            ("srun x $SLURM_PROCID", ScriptTasks::Calls("srun".to_owned())),
            ("make -j $SLURM_NTASKS OUT=${SLURM_PROCID}", rank("SLURM_PROCID")),
            ("python - <<EOF\nprint(os.environ['SLURM_LOCALID'])\nEOF", rank("SLURM_LOCALID")),
            ("make -j $SLURM_NTASKS", count("SLURM_NTASKS")),
            ("make -j$((SLURM_NTASKS * 2))", count("SLURM_NTASKS")),
            ("make -j \"${SLURM_NPROCS:-1}\"", count("SLURM_NPROCS")),
            ("sh -c 'echo $SLURM_TASKS_PER_NODE'", count("SLURM_TASKS_PER_NODE")),
            ("# $SLURM_PROCID\necho $SLURM_NTASKS_PER_NODE $MY_SLURM_NTASKS", ScriptTasks::Silent),
            ("./app", ScriptTasks::Silent),
            ("echo \"rank ${SLURM_PROCID:-0}\"", rank("SLURM_PROCID")),
            ("if ((SLURM_PROCID == 0)); then x; fi", rank("SLURM_PROCID")),
            ("cat <<EOF\n$SLURM_LOCALID\nEOF", rank("SLURM_LOCALID")),
            ("bash <<EOF\necho $SLURM_LOCALID\nEOF", rank("SLURM_LOCALID")),
            ("python -c 'import os; print(os.environ[\"SLURM_PROCID\"])'", rank("SLURM_PROCID")),
            (
                "python -c \"import os; print(os.getenv(\\\"SLURM_PROCID\\\"))\"",
                rank("SLURM_PROCID"),
            ),
            ("Rscript - <<'EOF'\nSys.getenv('SLURM_PROCID')\nEOF", rank("SLURM_PROCID")),
            ("perl -e 'print $ENV{SLURM_PROCID}'", rank("SLURM_PROCID")),
            ("#!/usr/bin/perl\nprint $ENV{SLURM_PROCID};", rank("SLURM_PROCID")),
            ("#!/usr/bin/python3\nx = 'no SLURM_PROCID'", ScriptTasks::Silent),
            ("r=$(printenv SLURM_PROCID)", rank("SLURM_PROCID")),
            ("unset SLURM_PROCID SLURM_LOCALID", ScriptTasks::Silent),
            ("echo 'SLURM_PROCID is not set'; echo \"no SLURM_LOCALID\"", ScriptTasks::Silent),
            ("echo \\$SLURM_PROCID \"\\${SLURM_LOCALID}\"", ScriptTasks::Silent),
            ("cat <<EOF\nSLURM_PROCID\nEOF", ScriptTasks::Silent),
            ("cat <<'EOF'\n$SLURM_PROCID\nEOF", ScriptTasks::Silent),
            ("echo $((1 + 1)) SLURM_PROCID", ScriptTasks::Silent),
        ] {
            assert_eq!(script_tasks(script), tasks, "{script}");
        }
    }

    #[test]
    fn shells_are_recognized_by_name() {
        for head in [
            "#!/bin/bash",
            "#!/bin/sh -e",
            "#! /usr/bin/env bash",
            "#!/usr/bin/env -S A=1 zsh -e",
            "#!/bin/csh -f",
            "#!/bin/tcsh",
            "#!/usr/bin/env fish",
            "",
        ] {
            assert!(calls(&format!("{head}\nsrun hostname\n")), "{head}");
            assert!(!calls(&format!("{head}\necho 'srun' # srun\n")), "{head}");
        }
    }

    proptest! {
        #[test]
        fn srun_on_the_last_line_is_found(
            lines in prop::collection::vec("[a-rt-z0-9 =./-]{0,30}", 0..10)
        ) {
            let script = format!("{}\nsrun x", lines.join("\n"));
            prop_assert!(calls(&script), "missed");
        }

        #[test]
        fn no_text_breaks_the_scan(text in "(srun|[ \\n'\"`$(){}<>&|;#=\\\\-]|EOF|<<|é|\\$\\(|\\$\\{){0,60}|.*") {
            let _ = script_tasks(&text);
            let _ = script_tasks(&format!("#!{text}"));
        }
    }

    #[test]
    fn deep_nesting_is_scanned_in_one_pass() {
        for piece in ["$(", "(", "`", "\"${", "\"$(", "((", "<(", "'", "<<", "{", "${'", "sh -c \""]
        {
            let _ = script_tasks(&piece.repeat(100_000));
        }
    }
}
