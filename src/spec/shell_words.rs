//! Which commands a shell script runs, as far as its text tells.
//!
//! This is a reader of words, not a shell: nothing is expanded. It knows quotes, comments, here-documents,
//! substitutions and the places where a command may stand, which is what [`crate::spec::script`] needs.

/// Words after which a command follows in the same place.
const RESERVED: [&str; 13] =
    ["if", "then", "elif", "else", "do", "while", "until", "!", "{", "}", "fi", "done", "coproc"];

/// Commands that run the command among their arguments, or in a quoted one.
const WRAPPERS: [&str; 31] = [
    "time",
    "exec",
    "command",
    "builtin",
    "eval",
    "nohup",
    "nice",
    "ionice",
    "env",
    "timeout",
    "stdbuf",
    "setsid",
    "xargs",
    "parallel",
    "watch",
    "taskset",
    "numactl",
    "chrt",
    "sudo",
    "strace",
    "ltrace",
    "catchsegv",
    "trap",
    "unbuffer",
    "prlimit",
    "flock",
    "sh",
    "bash",
    "dash",
    "zsh",
    "ksh",
];

/// Commands whose arguments are assignments.
const DECLARATIONS: [&str; 5] = ["export", "declare", "typeset", "local", "readonly"];

/// Nesting beyond this is no script that a person wrote; what lies deeper is skipped.
const MAX_DEPTH: usize = 100;

/// Whether the shell script `text` runs `program`, by its name or by a path that ends in it.
pub fn runs(text: &str, program: &str) -> bool {
    Reader {
        chars: text.chars().collect(),
        pos: 0,
        program,
        stack: vec![Context::Code(Code::new('\0'))],
        heredocs: vec![],
    }
    .read()
}

/// Where a word stands in its simple command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A command may stand here.
    Command,
    /// An argument of a command that runs another one.
    WrapperArgument,
    /// An argument of `export` and the like.
    DeclarationArgument,
    /// The name after `function`; what follows it is a command again.
    FunctionName,
    Argument,
}

/// What the next word is, apart from its place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Plain,
    /// The file of a redirection.
    Target,
    /// The word that ends a here-document; the flag is `<<-`.
    HeredocEnd(bool),
}

/// Shell text at one depth: the script itself, or the inside of `$(…)`, `(…)` or backquotes.
struct Code {
    /// The character that ends it; NUL for the script itself.
    end: char,
    /// It is a command of its own, `(…)`, and no part of a word.
    subshell: bool,
    place: Place,
    role: Role,
    word: String,
    in_word: bool,
    quoted: bool,
}

impl Code {
    fn new(end: char) -> Self {
        Code {
            end,
            subshell: false,
            place: Place::Command,
            role: Role::Plain,
            word: String::new(),
            in_word: false,
            quoted: false,
        }
    }
}

enum Context {
    Code(Code),
    /// Inside `"…"`.
    DoubleQuotes,
    /// Inside `${…}`.
    Braces,
    /// Inside `((…))`, with so many parentheses open.
    Arithmetic(usize),
}

struct Reader<'a> {
    chars: Vec<char>,
    pos: usize,
    program: &'a str,
    stack: Vec<Context>,
    /// The ends of the here-documents whose text begins after this line, and whether tabs before them are dropped.
    heredocs: Vec<(String, bool)>,
}

impl Reader<'_> {
    fn read(mut self) -> bool {
        while let Some(&c) = self.chars.get(self.pos) {
            self.pos += 1;
            let found = match self.stack.last_mut() {
                Some(Context::Code(_)) => self.code(c),
                Some(Context::DoubleQuotes) => self.double_quotes(c),
                Some(Context::Braces) => self.braces(c),
                Some(Context::Arithmetic(open)) => {
                    match c {
                        '(' => *open += 1,
                        ')' => *open -= 1,
                        _ => {}
                    }
                    if *open == 0 {
                        self.stack.pop();
                    }
                    false
                }
                None => return false,
            };
            if found {
                return true;
            }
        }
        // A file may end without a newline, and with anything still open.
        while !self.stack.is_empty() {
            if self.end_word() {
                return true;
            }
            self.stack.pop();
        }
        false
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.pos + ahead).copied()
    }

    /// The innermost shell text: where words are collected, also from inside quotes.
    fn current(&mut self) -> Option<&mut Code> {
        self.stack.iter_mut().rev().find_map(|context| match context {
            Context::Code(code) => Some(code),
            Context::DoubleQuotes | Context::Braces | Context::Arithmetic(_) => None,
        })
    }

    fn push_char(&mut self, c: char) {
        if let Some(code) = self.current() {
            code.word.push(c);
            code.in_word = true;
        }
    }

    fn enter(&mut self, context: Context) {
        if self.stack.len() < MAX_DEPTH {
            self.stack.push(context);
        }
    }

    fn code(&mut self, c: char) -> bool {
        let (in_word, end) = match self.stack.last() {
            Some(Context::Code(code)) => (code.in_word, code.end),
            _ => return false,
        };
        match c {
            '\\' => {
                let next = self.peek(0);
                self.pos += 1;
                match next {
                    Some('\n') | None => {}
                    Some(next) => self.push_char(next),
                }
            }
            '\'' => {
                self.quote();
                while let Some(c) = self.peek(0) {
                    self.pos += 1;
                    if c == '\'' {
                        break;
                    }
                    self.push_char(c);
                }
            }
            '"' => {
                self.quote();
                self.enter(Context::DoubleQuotes);
            }
            '$' => self.dollar(),
            '`' if end == '`' => return self.leave(),
            '`' => self.enter_backquotes(),
            '#' if !in_word => {
                while self.peek(0).is_some_and(|c| c != '\n') {
                    self.pos += 1;
                }
            }
            '\n' => {
                let found = self.separator();
                self.skip_heredocs();
                return found;
            }
            ' ' | '\t' | '\r' => return self.end_word(),
            '&' if self.peek(0) == Some('>') => return self.end_word(),
            ';' | '&' | '|' => return self.separator(),
            '<' | '>' => return self.redirection(c),
            '(' if in_word && self.peek(0) == Some(')') => {
                // `f()`: a name, whatever it is, and a command after it.
                self.pos += 1;
                self.drop_word();
            }
            '(' => {
                // `x=(srun …)` is a command kept for later.
                let found = self.end_word();
                let at_command = self.current().is_some_and(|code| code.place == Place::Command);
                if at_command && self.peek(0) == Some('(') {
                    self.enter(Context::Arithmetic(1));
                } else {
                    self.enter(Context::Code(Code { subshell: true, ..Code::new(')') }));
                }
                return found;
            }
            ')' if end == ')' => return self.leave(),
            // The end of a pattern in `case`.
            ')' => self.drop_word(),
            c => self.push_char(c),
        }
        false
    }

    /// `in_word` from here on, so that `""` is a word too.
    fn quote(&mut self) {
        if let Some(code) = self.current() {
            (code.in_word, code.quoted) = (true, true);
        }
    }

    fn double_quotes(&mut self, c: char) -> bool {
        match c {
            '"' => {
                self.stack.pop();
            }
            '\\' => {
                if let Some(next) = self.peek(0) {
                    self.pos += 1;
                    if next != '\n' {
                        self.push_char(next);
                    }
                }
            }
            '$' => self.dollar(),
            '`' => self.enter_backquotes(),
            c => self.push_char(c),
        }
        false
    }

    fn braces(&mut self, c: char) -> bool {
        match c {
            '}' => {
                self.stack.pop();
            }
            '\\' => self.pos += 1,
            '\'' => {
                // Inside double quotes an apostrophe is one: only take a quote that ends before the line does.
                let line = self.chars[self.pos..].iter().take_while(|&&c| c != '\n' && c != '}');
                if let Some(length) = line.clone().position(|&c| c == '\'') {
                    self.pos += length + 1;
                }
            }
            '"' => self.enter(Context::DoubleQuotes),
            '$' => self.dollar(),
            '`' => self.enter_backquotes(),
            _ => {}
        }
        false
    }

    /// What follows a `$`: a substitution, or just a name. A `$` stays in the word so that it is no plain one.
    fn dollar(&mut self) {
        self.push_char('$');
        match (self.peek(0), self.peek(1)) {
            (Some('('), Some('(')) => {
                self.pos += 2;
                self.enter(Context::Arithmetic(2));
            }
            (Some('('), _) => {
                self.pos += 1;
                self.enter(Context::Code(Code::new(')')));
            }
            (Some('{'), _) => {
                self.pos += 1;
                self.enter(Context::Braces);
            }
            // `$#` and `$$` are names, no comment and no further substitution.
            (Some(c @ ('#' | '$' | '!' | '?' | '*' | '@' | '-')), _) => {
                self.pos += 1;
                self.push_char(c);
            }
            _ => {}
        }
    }

    fn enter_backquotes(&mut self) {
        self.push_char('$');
        self.enter(Context::Code(Code::new('`')));
    }

    /// The end of the innermost shell text.
    fn leave(&mut self) -> bool {
        let found = self.end_word();
        if self.stack.len() > 1
            && let Some(Context::Code(Code { subshell: true, .. })) = self.stack.pop()
            && let Some(code) = self.current()
        {
            code.place = Place::Command;
        }
        found
    }

    /// Forgets the word that was collected, which is no command; one may follow.
    fn drop_word(&mut self) {
        if let Some(code) = self.current() {
            code.word.clear();
            (code.in_word, code.quoted) = (false, false);
            (code.place, code.role) = (Place::Command, Role::Plain);
        }
    }

    /// The end of a simple command.
    fn separator(&mut self) -> bool {
        let found = self.end_word();
        if let Some(code) = self.current() {
            (code.place, code.role) = (Place::Command, Role::Plain);
        }
        found
    }

    fn redirection(&mut self, c: char) -> bool {
        // `2>file`: the number belongs to the redirection.
        let mut found = false;
        if let Some(code) = self.current() {
            if code.word.chars().all(|c| c.is_ascii_digit()) && !code.quoted {
                code.word.clear();
                code.in_word = false;
            } else {
                found = self.end_word();
            }
        }
        let role = match (c, self.peek(0), self.peek(1)) {
            ('<', Some('<'), Some('<')) => {
                self.pos += 2;
                Role::Target
            }
            ('<', Some('<'), next) => {
                let drops_tabs = next == Some('-');
                self.pos += if drops_tabs { 2 } else { 1 };
                Role::HeredocEnd(drops_tabs)
            }
            (_, Some('('), _) => {
                // `<(srun …)`: a command whose output is a file.
                self.pos += 1;
                self.push_char('$');
                self.enter(Context::Code(Code::new(')')));
                return found;
            }
            (_, Some('>' | '&' | '|'), _) => {
                self.pos += 1;
                Role::Target
            }
            _ => Role::Target,
        };
        if let Some(code) = self.current() {
            code.role = role;
        }
        found
    }

    /// Takes the word that was collected; true where it is the program, run.
    fn end_word(&mut self) -> bool {
        let program = self.program;
        let Some(code) = self.current() else { return false };
        if !code.in_word {
            return false;
        }
        let (word, quoted) = (std::mem::take(&mut code.word), std::mem::take(&mut code.quoted));
        code.in_word = false;
        match std::mem::replace(&mut code.role, Role::Plain) {
            Role::Target => return false,
            Role::HeredocEnd(drops_tabs) => {
                self.heredocs.push((word, drops_tabs));
                return false;
            }
            Role::Plain => {}
        }
        let is_program = |word: &str| word.rsplit('/').next() == Some(program);
        let starts_value =
            |word: &str| assigned(word).and_then(|value| value.split_whitespace().next()).is_some_and(is_program);
        match code.place {
            Place::Argument => false,
            Place::FunctionName => {
                code.place = Place::Command;
                false
            }
            Place::WrapperArgument => is_program(&word) || (quoted && word.split_whitespace().any(is_program)),
            Place::DeclarationArgument => starts_value(&word),
            Place::Command => {
                if is_program(&word) || starts_value(&word) {
                    return true;
                }
                if (!quoted && RESERVED.contains(&word.as_str())) || assigned(&word).is_some() {
                    return false;
                }
                let name = word.rsplit('/').next().unwrap_or("");
                code.place = if name == "function" {
                    Place::FunctionName
                } else if WRAPPERS.contains(&name) {
                    Place::WrapperArgument
                } else if DECLARATIONS.contains(&name) {
                    Place::DeclarationArgument
                } else {
                    Place::Argument
                };
                false
            }
        }
    }

    /// Steps over the texts of the here-documents that the line before has announced.
    fn skip_heredocs(&mut self) {
        for (end, drops_tabs) in std::mem::take(&mut self.heredocs) {
            while self.pos < self.chars.len() {
                let length = self.chars[self.pos..].iter().take_while(|&&c| c != '\n').count();
                let line = &self.chars[self.pos..self.pos + length];
                let tabs = if drops_tabs { line.iter().take_while(|&&c| c == '\t').count() } else { 0 };
                let is_end = line[tabs..].iter().copied().eq(end.chars());
                self.pos = (self.pos + length + 1).min(self.chars.len());
                if is_end {
                    break;
                }
            }
        }
    }
}

/// The value of `NAME=value`, `NAME+=value` or `NAME[i]=value`.
fn assigned(word: &str) -> Option<&str> {
    let (name, value) = word.split_once('=')?;
    let name = name.strip_suffix('+').unwrap_or(name);
    let name = name.split_once('[').map_or(name, |(name, _)| name);
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn srun_counts_where_a_command_may_stand() {
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
            "echo \"${x:-$(srun hostname)}\"",
            "( srun x )",
            "{ srun x; }",
            "f() { srun x; }; f",
            "function f { srun x; }\nf",
            "case $1 in a) srun x;; esac",
            "> out srun x",
            "srun>out x",
            "a 2>&1 | srun cat",
            "diff <(srun a) <(srun b)",
            "cat <<EOF > f\ntext\nEOF\nsrun x",
            "cat <<-'E F'\n\ttext\n\tE F\nsrun x",
            "a <<< \"text\"\nsrun x",
            "x=$((1 << 2)); srun x",
            "((x = 1 << 2)); srun x",
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
            "srun",
        ] {
            assert!(runs(script, "srun"), "{script}");
        }
    }

    #[test]
    fn srun_does_not_count_elsewhere() {
        for script in [
            "",
            "# srun x",
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
            "mpirun -n 4 x srun",
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
        ] {
            assert!(!runs(script, "srun"), "{script}");
        }
    }

    proptest! {
        #[test]
        fn a_last_line_with_srun_is_found_after_plain_lines(lines in prop::collection::vec("[a-rt-z0-9 =./-]{0,30}", 0..10)) {
            let script = format!("{}\nsrun x", lines.join("\n"));
            prop_assert!(runs(&script, "srun"), "missed");
        }

        #[test]
        fn no_text_breaks_the_reader(text in "(srun|[ \\n'\"`$(){}<>&|;#=\\\\-]|EOF|<<|\\$\\(|\\$\\{){0,60}|.*") {
            let _ = runs(&text, "srun");
        }
    }

    #[test]
    fn deep_nesting_is_read_in_one_pass() {
        for piece in ["$(", "(", "`", "\"${", "\"$(", "((", "<(", "'", "<<", "{", "${'"] {
            let _ = runs(&piece.repeat(100_000), "srun");
        }
    }
}
