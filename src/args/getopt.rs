//! Emulates GNU `getopt_long`, whose behavior every Slurm client relies on.
//!
//! It splits the words of a command line: unique prefixes (`--job` for `--jobs`), attached and
//! joined short options (`-uroot`, `-nu USER`), values in the next word, whatever they look like,
//! and operands before options. It returns each option by its full name and does not interpret
//! values.

use crate::args::error::{CliError, Mark};
use crate::args::table::{Given, Kind, Operand, Options, Row, Takes};
use clap::{ArgAction, Command};
use slotd_parse::suggest;
use std::borrow::Cow;

mod take_out;

pub use take_out::Remaining;

/// Whether options may follow operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operands {
    /// The first operand ends the options. This applies to sbatch, srun and salloc, whose operands
    /// are a command with options of its own.
    EndOptions,
    /// Options and operands may be mixed until `--`.
    Anywhere,
    /// The command takes no operands: a word that is not an option is an error.
    None,
}

/// A scanned command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scanned {
    pub options: Vec<Given>,
    pub operands: Vec<Operand>,
}

/// An error of getopt, worded as in glibc.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GetoptError {
    /// The word as given, and the nearest known name.
    UnknownLong(String, Option<String>),
    UnknownShort(char),
    Ambiguous {
        word: String,
        possibilities: Vec<String>,
    },
    MissingLong(String),
    MissingShort(char),
    UnwantedValue(String),
}

impl std::fmt::Display for GetoptError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            GetoptError::UnknownLong(word, _) => write!(f, "unrecognized option '{word}'"),
            GetoptError::UnknownShort(letter) => write!(f, "invalid option -- '{letter}'"),
            GetoptError::Ambiguous { word, possibilities } => {
                write!(f, "option '{word}' is ambiguous; possibilities:")?;
                possibilities.iter().try_for_each(|name| write!(f, " '--{name}'"))
            }
            GetoptError::MissingLong(name) => write!(f, "option '--{name}' requires an argument"),
            GetoptError::MissingShort(letter) => {
                write!(f, "option requires an argument -- '{letter}'")
            }
            GetoptError::UnwantedValue(name) => {
                write!(f, "option '--{name}' doesn't allow an argument")
            }
        }
    }
}

impl GetoptError {
    /// Returns the error as the command prints it, with the nearest option and the pointer to
    /// `--help`. `place` names the source of the option.
    pub fn refuse(&self, mark: Mark, place: &str, command: &str, exit: i32) -> CliError {
        let refusal = CliError::new(mark, exit, format!("{place}{self}"));
        let refusal = match self {
            GetoptError::UnknownLong(_, Some(meant)) => {
                refusal.hint(format!("did you mean --{meant}?"))
            }
            _ => refusal,
        };
        refusal.and(Mark::Bare, format!("Try \"{command} --help\" for more information"))
    }
}

/// The options of a command.
#[derive(Debug, Clone)]
pub struct Grammar {
    pub rows: Cow<'static, [Row]>,
    /// Options that are not in the definition.
    extras: Vec<Row>,
    /// Whether `--flag=` is accepted as `--flag`. Tools that generate directives from tables leave
    /// such words.
    pub lenient_flags: bool,
}

impl Grammar {
    /// Returns the options and operands of a struct.
    pub fn of<T: Options>() -> Self {
        Grammar::with(T::table().into())
    }

    fn with(rows: Cow<'static, [Row]>) -> Self {
        Grammar { rows, extras: Vec::new(), lenient_flags: false }
    }

    /// Returns all options and operands.
    fn all(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().chain(&self.extras)
    }

    /// Returns the options of a clap definition, which includes those without effect.
    pub fn of_definition(command: &Command) -> Self {
        let row = |arg: &clap::Arg| {
            let short = arg.get_short();
            let name = arg.get_long().map(str::to_owned).or(short.map(String::from))?;
            let takes = match (arg.get_action().takes_values(), arg.get_num_args()) {
                (false, _) => Takes::Nothing,
                (true, Some(range)) if range.min_values() == 0 => Takes::Maybe,
                (true, _) => Takes::Value,
            };
            let kind = match arg.get_action() {
                ArgAction::Append => Kind::List,
                ArgAction::Count => Kind::Count,
                ArgAction::Set => Kind::One,
                _ => Kind::Flag,
            };
            let aliases = arg.get_all_aliases().unwrap_or_default().into_iter();
            Some(Row {
                id: arg.get_id().to_string().into(),
                name: name.into(),
                aliases: aliases.map(|alias| alias.to_owned().into()).collect(),
                short,
                short_alias: arg.get_all_short_aliases().and_then(|all| all.first().copied()),
                takes,
                kind,
                default_missing: None,
                overrides: Vec::new(),
            })
        };
        let options = command.get_arguments().filter(|arg| !arg.is_positional());
        Grammar::with(options.filter_map(row).collect())
    }

    /// Adds an option that is not in the definition.
    pub fn add(&mut self, name: &'static str, short: Option<char>, takes: Takes) {
        let mut row = Row::of_field(name, Kind::One);
        row.set_long(Some(name));
        self.extras.push(Row { short, takes, ..row });
    }

    /// Returns the kind of value of an option by its full name, or `None` if there is no such
    /// option.
    pub fn takes(&self, name: &str) -> Option<Takes> {
        self.all().find(|known| known.name == name).map(|known| known.takes)
    }

    /// Returns whether occurrences of the option accumulate.
    pub fn adds_up(&self, name: &str) -> bool {
        self.all().any(|known| known.name == name && known.adds_up())
    }

    /// Returns whether the option may be repeated and its value is a list. clap receives each
    /// element as a separate occurrence.
    pub fn is_list(&self, name: &str) -> bool {
        self.all().any(|known| known.name == name && known.kind == Kind::List)
    }

    /// Scans the words of a command line without the command's name.
    pub fn scan(&self, words: &[String], operands: Operands) -> Result<Scanned, GetoptError> {
        let mut found = Scanned::default();
        let mut before = None;
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word == "--" {
                found
                    .operands
                    .extend(words.map(|text| Operand { text: text.clone(), after: None }));
                break;
            }
            if let Some(body) = word.strip_prefix("--") {
                found.options.push(self.long(body, &mut words)?);
            } else if let Some(letters) =
                word.strip_prefix('-').filter(|letters| !letters.is_empty())
            {
                self.letters(letters, &mut words, &mut found.options)?;
            } else {
                found.operands.push(Operand { text: word.clone(), after: before });
                if operands == Operands::EndOptions {
                    found
                        .operands
                        .extend(words.map(|text| Operand { text: text.clone(), after: None }));
                    break;
                }
                before = None;
                continue;
            }
            before = found.options.len().checked_sub(1);
        }
        Ok(found)
    }

    /// Parses a word without its dashes: `name`, `name=value`, or a prefix of a name.
    fn long<'a>(
        &self,
        body: &str,
        rest: &mut impl Iterator<Item = &'a String>,
    ) -> Result<Given, GetoptError> {
        let (name, attached) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (body, None),
        };
        let known = self.by_name(name, body)?;
        let full = known.name.to_string();
        let value = match (known.takes, attached) {
            (Takes::Nothing, None) => None,
            (Takes::Nothing, Some(value)) if value.is_empty() && self.lenient_flags => None,
            (Takes::Nothing, Some(_)) => return Err(GetoptError::UnwantedValue(full)),
            (Takes::Maybe, attached) => attached,
            (Takes::Value, Some(value)) => Some(value),
            (Takes::Value, None) => match rest.next() {
                Some(next) => Some(next.clone()),
                None => return Err(GetoptError::MissingLong(full)),
            },
        };
        Ok(Given { name: full, value, short: false })
    }

    fn by_name(&self, name: &str, body: &str) -> Result<&Row, GetoptError> {
        let has = |known: &&Row, test: &dyn Fn(&str) -> bool| {
            known.name.chars().count() > 1
                && (test(&known.name) || known.aliases.iter().any(|alias| test(alias)))
        };
        if let Some(known) = self.all().find(|known| has(known, &|full| full == name)) {
            return Ok(known);
        }
        let mut possible: Vec<&Row> =
            self.all().filter(|known| has(known, &|full| full.starts_with(name))).collect();
        match possible.as_slice() {
            [] => {
                let names = self.all().map(|known| &*known.name).filter(|name| name.len() > 1);
                let meant = suggest::nearest(name, names).map(str::to_owned);
                Err(GetoptError::UnknownLong(format!("--{body}"), meant))
            }
            [one] => Ok(one),
            _ => {
                possible.sort_by(|a, b| a.name.cmp(&b.name));
                Err(GetoptError::Ambiguous {
                    word: format!("--{body}"),
                    possibilities: possible
                        .into_iter()
                        .map(|known| known.name.to_string())
                        .collect(),
                })
            }
        }
    }

    fn letters<'a>(
        &self,
        letters: &str,
        rest: &mut impl Iterator<Item = &'a String>,
        into: &mut Vec<Given>,
    ) -> Result<(), GetoptError> {
        let mut chars = letters.chars();
        while let Some(letter) = chars.next() {
            let Some(known) =
                self.all().find(|known| [known.short, known.short_alias].contains(&Some(letter)))
            else {
                return Err(GetoptError::UnknownShort(letter));
            };
            let attached = Some(chars.as_str()).filter(|text| !text.is_empty()).map(str::to_owned);
            let (value, ends_word) = match known.takes {
                Takes::Nothing => (None, false),
                Takes::Maybe => (attached, true),
                Takes::Value => match attached.or_else(|| rest.next().cloned()) {
                    Some(value) => (Some(value), true),
                    None => return Err(GetoptError::MissingShort(letter)),
                },
            };
            into.push(Given { name: known.name.to_string(), value, short: true });
            if ends_word {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, Command};
    use proptest::prelude::*;

    fn command() -> Command {
        Command::new("t")
            .arg(Arg::new("time").long("time").short('t').action(ArgAction::Set))
            .arg(Arg::new("time-min").long("time-min").action(ArgAction::Set))
            .arg(Arg::new("hold").long("hold").short('H').action(ArgAction::SetTrue))
            .arg(Arg::new("noheader").long("noheader").short('n').action(ArgAction::SetTrue))
            .arg(Arg::new("user").long("user").short('u').action(ArgAction::Set).alias("uid-list"))
            .arg(
                Arg::new("exclusive")
                    .long("exclusive")
                    .action(ArgAction::Set)
                    .num_args(0..=1)
                    .require_equals(true),
            )
            .arg(
                Arg::new("immediate")
                    .long("immediate")
                    .short('I')
                    .action(ArgAction::Set)
                    .num_args(0..=1),
            )
            .arg(Arg::new("jobs").long("jobs").short('j').action(ArgAction::Append))
            .arg(Arg::new("operands").num_args(0..))
    }

    /// Returns an option in its longest spelling.
    fn word(given: &Given) -> String {
        let dashes = if given.name.chars().count() == 1 { "-" } else { "--" };
        match &given.value {
            Some(value) => format!("{dashes}{}={value}", given.name),
            None => format!("{dashes}{}", given.name),
        }
    }

    fn scan(line: &[&str]) -> Result<Scanned, GetoptError> {
        scan_as(line, Operands::Anywhere)
    }

    fn scan_as(line: &[&str], operands: Operands) -> Result<Scanned, GetoptError> {
        let words: Vec<String> = line.iter().map(|word| (*word).to_owned()).collect();
        Grammar::of_definition(&command()).scan(&words, operands)
    }

    fn words(line: &[&str]) -> Vec<String> {
        let found = scan(line).expect("a good line");
        found.options.iter().map(word).chain(found.operands.into_iter().map(|o| o.text)).collect()
    }

    #[test]
    fn all_spellings_of_a_value_are_equivalent() {
        for line in [&["-t5"][..], &["-t", "5"], &["--time=5"], &["--time", "5"]] {
            assert_eq!(words(line), ["--time=5"], "{line:?}");
        }
    }

    #[test]
    fn joined_letters_are_separate_options() {
        assert_eq!(words(&["-nu", "USER"]), ["--noheader", "--user=USER"]);
        assert_eq!(words(&["-Hnuroot"]), ["--hold", "--noheader", "--user=root"]);
    }

    #[test]
    fn a_value_may_begin_with_a_dash() {
        assert_eq!(words(&["--time", "-5"]), ["--time=-5"]);
        assert_eq!(words(&["-t", "--hold"]), ["--time=--hold"]);
    }

    #[test]
    fn a_unique_prefix_of_a_name_is_enough() {
        assert_eq!(words(&["--job", "1"]), ["--jobs=1"]);
        assert_eq!(words(&["--ho"]), ["--hold"]);
        assert_eq!(words(&["--time-m=3"]), ["--time-min=3"]);
        assert_eq!(words(&["--uid", "3"]), ["--user=3"]);
    }

    #[test]
    fn an_ambiguous_prefix_error_lists_the_possibilities() {
        let error = scan(&["--tim=5"]).expect_err("ambiguous");
        assert_eq!(
            error.refuse(Mark::Plain, "", "sbatch", 255).text("sbatch"),
            "sbatch: option '--tim=5' is ambiguous; possibilities: '--time' '--time-min'\n\
             Try \"sbatch --help\" for more information\n"
        );
    }

    #[test]
    fn an_unknown_option_error_suggests_the_nearest_one() {
        let text = |word| {
            scan(&[word])
                .expect_err("unknown")
                .refuse(Mark::Error, "line 3: ", "sbatch", 255)
                .text("sbatch")
        };
        assert_eq!(
            text("--tiem=5"),
            "sbatch: error: line 3: unrecognized option '--tiem=5'\n  hint: did you mean --time?\n\
             Try \"sbatch --help\" for more information\n"
        );
        assert!(!text("--nosuch").contains("hint"));
    }

    #[test]
    fn errors_match_glibc() {
        let text = |line: &[&str]| scan(line).expect_err("an error").to_string();
        assert_eq!(text(&["--nosuch"]), "unrecognized option '--nosuch'");
        assert_eq!(text(&["--nosuch=1"]), "unrecognized option '--nosuch=1'");
        assert_eq!(text(&["-Y"]), "invalid option -- 'Y'");
        assert_eq!(text(&["--time"]), "option '--time' requires an argument");
        assert_eq!(text(&["-t"]), "option requires an argument -- 't'");
        assert_eq!(text(&["--hold=1"]), "option '--hold' doesn't allow an argument");
    }

    #[test]
    fn an_optional_value_must_be_attached() {
        assert_eq!(words(&["--exclusive", "user"]), ["--exclusive", "user"]);
        assert_eq!(words(&["--exclusive=user"]), ["--exclusive=user"]);
        assert_eq!(words(&["-I1", "x"]), ["--immediate=1", "x"]);
        assert_eq!(words(&["-I", "1"]), ["--immediate", "1"]);
    }

    #[test]
    fn options_may_follow_operands_if_the_command_allows_it() {
        assert_eq!(words(&["12", "--time", "5", "13"]), ["--time=5", "12", "13"]);
        let found = scan_as(&["-H", "cmd", "-t", "5"], Operands::EndOptions).expect("a good line");
        assert_eq!(found.options.len(), 1);
        assert_eq!(
            found.operands.iter().map(|o| o.text.as_str()).collect::<Vec<_>>(),
            ["cmd", "-t", "5"]
        );
    }

    #[test]
    fn two_dashes_end_the_options_and_one_is_an_operand() {
        assert_eq!(words(&["--", "-t", "5"]), ["-t", "5"]);
        assert_eq!(words(&["-"]), ["-"]);
    }

    #[test]
    fn an_operand_records_the_option_before_it() {
        let found = scan(&["-H", "x", "-n", "--", "y"]).expect("a good line");
        assert_eq!(found.operands[0].after, Some(0));
        assert_eq!(found.operands[1].after, None);
    }

    #[test]
    fn a_flag_may_have_an_empty_value_if_lenient() {
        let mut grammar = Grammar::of_definition(&command());
        grammar.lenient_flags = true;
        let found = grammar.scan(&["--hold=".to_owned()], Operands::Anywhere).expect("lenient");
        assert_eq!(word(&found.options[0]), "--hold");
    }

    proptest! {
        #[test]
        fn no_words_panic(line in proptest::collection::vec("[-=a-zA-Z0-9 ]{0,12}", 0..8)) {
            let grammar = Grammar::of_definition(&command());
            let _ = grammar.scan(&line, Operands::Anywhere);
            let _ = grammar.scan(&line, Operands::EndOptions);
        }

        /// Formatting the result of a scan and scanning it again gives the same result.
        #[test]
        fn scanning_is_idempotent(line in proptest::collection::vec("-?-?[tHnuIj]?(time|hold|jobs|x)?=?[a-z]{0,3}", 0..6)) {
            let grammar = Grammar::of_definition(&command());
            if let Ok(first) = grammar.scan(&line, Operands::Anywhere) {
                let mut again: Vec<String> = first.options.iter().map(word).collect();
                again.push("--".to_owned());
                again.extend(first.operands.iter().map(|o| o.text.clone()));
                let second = grammar.scan(&again, Operands::Anywhere).expect("its own spelling");
                prop_assert_eq!(
                    first.options.iter().map(word).collect::<Vec<_>>(),
                    second.options.iter().map(word).collect::<Vec<_>>()
                );
                prop_assert_eq!(
                    first.operands.into_iter().map(|o| o.text).collect::<Vec<_>>(),
                    second.operands.into_iter().map(|o| o.text).collect::<Vec<_>>()
                );
            }
        }
    }
}
