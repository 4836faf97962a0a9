//! Takes options out of a command line and leaves its other words as they are.

use super::{GetoptError, Grammar, Operands};
use crate::args::table::{Given, Takes};

/// A command line without some of its options.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remaining {
    /// The other words in their order, as given.
    pub words: Vec<String>,
    /// The number of words before the first operand, if operands end the options.
    pub options: usize,
    /// All options, including those that were taken out.
    pub given: Vec<Given>,
}

impl Remaining {
    /// Returns whether the option was given.
    pub fn has(&self, name: &str) -> bool {
        self.given.iter().any(|given| given.name == name)
    }

    /// Returns the last value of the option.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.given.iter().rev().find(|given| given.name == name)?.value.as_deref()
    }
}

impl Grammar {
    /// Takes the options with these names out of a command line. Keeps unknown words, since another
    /// version of the command may accept them.
    ///
    /// # Errors
    /// Fails if one of these options has no value.
    pub fn take_out(
        &self,
        words: &[String],
        operands: Operands,
        names: &[&str],
    ) -> Result<Remaining, GetoptError> {
        let mut left = Remaining::default();
        let mut at = 0;
        while let Some(word) = words.get(at) {
            let rest = &words[at + 1..];
            if word == "--" {
                left.options = left.words.len();
                left.words.extend_from_slice(&words[at..]);
                return Ok(left);
            }
            let used = if let Some(body) = word.strip_prefix("--") {
                self.take_long(word, body, rest, names, &mut left)?
            } else if let Some(letters) =
                word.strip_prefix('-').filter(|letters| !letters.is_empty())
            {
                self.take_letters(letters, rest, names, &mut left)?
            } else if operands == Operands::EndOptions {
                left.options = left.words.len();
                left.words.extend_from_slice(&words[at..]);
                return Ok(left);
            } else {
                left.words.push(word.clone());
                0
            };
            at += 1 + used;
        }
        left.options = left.words.len();
        Ok(left)
    }

    /// Parses a word that begins with two dashes. Returns the number of words used after it.
    fn take_long(
        &self,
        word: &str,
        body: &str,
        rest: &[String],
        names: &[&str],
        left: &mut Remaining,
    ) -> Result<usize, GetoptError> {
        let mut behind = rest.iter();
        match self.long(body, &mut behind) {
            Ok(given) => {
                let used = rest.len() - behind.len();
                if !names.contains(&given.name.as_str()) {
                    left.words.push(word.to_owned());
                    left.words.extend_from_slice(&rest[..used]);
                }
                left.given.push(given);
                Ok(used)
            }
            Err(GetoptError::MissingLong(name)) if names.contains(&name.as_str()) => {
                Err(GetoptError::MissingLong(name))
            }
            Err(_) => {
                left.words.push(word.to_owned());
                Ok(0)
            }
        }
    }

    /// Parses a word of option letters, the last of which may have a value. Returns the number of
    /// words used after it.
    fn take_letters(
        &self,
        letters: &str,
        rest: &[String],
        names: &[&str],
        left: &mut Remaining,
    ) -> Result<usize, GetoptError> {
        let mut kept = String::from("-");
        let mut used = 0;
        for (at, letter) in letters.char_indices() {
            let known =
                self.all().find(|known| [known.short, known.short_alias].contains(&Some(letter)));
            let Some(known) = known else {
                kept.push_str(&letters[at..]);
                break;
            };
            let is_taken = names.contains(&&*known.name);
            let attached = &letters[at + letter.len_utf8()..];
            let mut given = Given { name: known.name.to_string(), value: None, short: true };
            if known.takes == Takes::Nothing {
                left.given.push(given);
                kept.extend((!is_taken).then_some(letter));
                continue;
            }
            if !attached.is_empty() {
                given.value = Some(attached.to_owned());
            } else if known.takes == Takes::Value {
                match rest.first() {
                    Some(next) => {
                        given.value = Some(next.clone());
                        used = 1;
                    }
                    None if is_taken => return Err(GetoptError::MissingShort(letter)),
                    None => {}
                }
            }
            left.given.push(given);
            if !is_taken {
                kept.push_str(&letters[at..]);
            }
            if kept.len() > 1 {
                left.words.push(kept);
            }
            if !is_taken {
                left.words.extend_from_slice(&rest[..used]);
            }
            return Ok(used);
        }
        if kept.len() > 1 {
            left.words.push(kept);
        }
        Ok(used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, ArgAction, Command};
    use proptest::prelude::*;

    fn grammar() -> Grammar {
        let command = Command::new("t")
            .arg(
                Arg::new("clusters")
                    .long("clusters")
                    .short('M')
                    .alias("cluster")
                    .action(ArgAction::Set),
            )
            .arg(Arg::new("cluster-constraint").long("cluster-constraint").action(ArgAction::Set))
            .arg(Arg::new("noheader").long("noheader").short('h').action(ArgAction::SetTrue))
            .arg(Arg::new("wait").long("wait").short('W').action(ArgAction::SetTrue))
            .arg(Arg::new("user").long("user").short('u').action(ArgAction::Set))
            .arg(
                Arg::new("no-kill")
                    .long("no-kill")
                    .short('k')
                    .action(ArgAction::Set)
                    .num_args(0..=1),
            );
        Grammar::of_definition(&command)
    }

    fn taken(
        line: &[&str],
        operands: Operands,
    ) -> Result<(Vec<String>, Option<String>, usize), GetoptError> {
        let words: Vec<String> = line.iter().map(|word| (*word).to_owned()).collect();
        let left = grammar().take_out(&words, operands, &["clusters"])?;
        let value = left.value("clusters").map(str::to_owned);
        Ok((left.words, value, left.options))
    }

    #[test]
    fn every_spelling_of_the_option_is_taken_out() {
        for (line, left) in [
            (&["-M", "hpc", "-h"][..], &["-h"][..]),
            (&["-Mhpc", "-h"], &["-h"]),
            (&["-hMhpc"], &["-h"]),
            (&["-hM", "hpc", "x"], &["-h", "x"]),
            (&["--clusters=hpc"], &[]),
            (&["--cluster", "hpc", "-u", "-M"], &["-u", "-M"]),
            (&["--cluster=hpc", "-uM", "--user", "-Mx"], &["-uM", "--user", "-Mx"]),
            (&["--clusters", "hpc", "--", "-M", "x"], &["--", "-M", "x"]),
            (&["-Mx", "-Mhpc", "--new=1", "-zM"], &["--new=1", "-zM"]),
            (&["-kM", "-M", "hpc", "-"], &["-kM", "-"]),
        ] {
            let (words, value, _) = taken(line, Operands::Anywhere).unwrap();
            assert_eq!(
                (words.as_slice(), value.as_deref()),
                (left.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>().as_slice(), Some("hpc")),
                "{line:?}"
            );
        }
    }

    #[test]
    fn words_after_the_script_are_not_options() {
        let found = taken(&["-M", "hpc", "-h", "job.sh", "-M", "x"], Operands::EndOptions).unwrap();
        assert_eq!(
            found,
            (["-h", "job.sh", "-M", "x"].map(str::to_owned).to_vec(), Some("hpc".into()), 1)
        );
        let found = taken(&["job.sh", "-M", "x"], Operands::EndOptions).unwrap();
        assert_eq!(found.1, None);
    }

    #[test]
    fn a_missing_value_is_refused() {
        assert_eq!(taken(&["-M"], Operands::Anywhere), Err(GetoptError::MissingShort('M')));
        assert_eq!(
            taken(&["--cluster"], Operands::Anywhere),
            Err(GetoptError::MissingLong("clusters".into()))
        );
        assert_eq!(taken(&["-u"], Operands::Anywhere).unwrap().0, ["-u"]);
    }

    proptest! {
        #[test]
        fn a_line_without_the_option_stays_as_it_is(line in prop::collection::vec("-{0,2}[hukWxz=]{0,3}", 0..6), ends in any::<bool>()) {
            let operands = if ends { Operands::EndOptions } else { Operands::Anywhere };
            let left = grammar().take_out(&line, operands, &["clusters"]).unwrap();
            prop_assert_eq!(left.words, line);
        }

        #[test]
        fn the_option_is_taken_out_anywhere_before_the_operands(before in prop::collection::vec("-[hW]{1,2}|--user=x|--noheader", 0..4), after in prop::collection::vec("-h|[a-z]{1,3}", 0..4)) {
            let line = [before.clone(), vec!["-M".to_owned(), "a,b".to_owned()], after.clone()].concat();
            let left = grammar().take_out(&line, Operands::EndOptions, &["clusters"]).unwrap();
            prop_assert_eq!(left.value("clusters"), Some("a,b"));
            prop_assert_eq!(left.words, [before, after].concat());
        }
    }
}
