//! Splits the `#SBATCH` lines of a batch script into words (sbatch man page, "SCRIPT PROCESSING").
//!
//! The words are interpreted by the command line's definition: a directive accepts the options of
//! the command line.

use crate::error::{SpecError, shown};

const MAGIC: &str = "#SBATCH";

/// The words of one `#SBATCH` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directive {
    /// The line number, starting at 1.
    pub line: usize,
    pub words: Vec<String>,
}

/// The reason why `hetjob`, `packjob` and `:` are refused.
pub const NO_COMPONENTS: &str = "heterogeneous jobs need several hosts, but slotd has only one";

/// Returns the directives of a script up to its first command.
///
/// A line that begins with `#SBATCH` is a directive even if no space follows: Slurm accepts
/// `#SBATCH--mem=4G`. Whitespace separates words, and quotes group them. A backslash escapes the
/// next character, also inside quotes. A bare `#` makes the rest of the line a comment, and so does
/// a lone backslash: scripts put one at the end of a line as if the directive continued. Blank
/// lines and comments do not end the search; any other line does.
///
/// # Errors
/// Fails with `line 3: unmatched " in: …` for an unclosed quote. Also fails for Slurm's `#SBATCH
/// hetjob`, because slotd has no heterogeneous jobs.
pub fn directives(script: &str) -> Result<Vec<Directive>, SpecError> {
    let mut found = Vec::new();
    for (i, text) in script.lines().enumerate() {
        let line = i + 1;
        match text.strip_prefix(MAGIC) {
            Some(rest) => {
                let words = words(rest).map_err(|quote| {
                    SpecError::value(format!("line {line}: unmatched {quote} in: {}", shown(text)))
                })?;
                if let Some(word @ ("hetjob" | "packjob" | ":")) = words.first().map(String::as_str)
                {
                    return Err(SpecError::value(format!("line {line}: {NO_COMPONENTS}: {word}")));
                }
                if !words.is_empty() {
                    found.push(Directive { line, words });
                }
            }
            None => {
                let text = text.trim_start();
                if !text.is_empty() && !text.starts_with('#') {
                    break;
                }
            }
        }
    }
    Ok(found)
}

/// Returns a directive that reads back as `word`, or `None` if no line can hold it.
pub fn line_of(word: &str) -> Option<String> {
    let is_plain = |c: char| !c.is_whitespace() && !"'\"#\\".contains(c);
    match word {
        _ if word.contains(['\n', '\r']) => None,
        _ if !word.is_empty() && word.chars().all(is_plain) => Some(format!("{MAGIC} {word}")),
        _ => Some(format!("{MAGIC} \"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))),
    }
}

/// Splits the options of a directive into words. The error is the quote that is not closed.
pub(crate) fn words(text: &str) -> Result<Vec<String>, char> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (None, '\\')
                if word.is_none() && chars.peek().is_none_or(|next| next.is_whitespace()) =>
            {
                break;
            }
            (_, '\\') => word.get_or_insert_default().extend(chars.next()),
            (Some(q), c) if q == c => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                // `--comment ""` has an empty word.
                word.get_or_insert_default();
            }
            (None, '#') => break,
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    match quote {
        Some(quote) => Err(quote),
        None => Ok(words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words_of(script: &str) -> Vec<(usize, Vec<String>)> {
        directives(script).expect("well-formed").into_iter().map(|d| (d.line, d.words)).collect()
    }

    fn one(line: &str) -> Vec<String> {
        words_of(line).into_iter().flat_map(|(_, words)| words).collect()
    }

    #[test]
    fn directives_end_at_the_first_command() {
        let script = "#!/bin/sh\n\
            #SBATCH -J early\n\
            \n\
            # a comment\n\
            \x20\x20\t\n\
            \x20 # an indented one\n\
            #SBATCH --comment=still\n\
            echo hello\n\
            #SBATCH -J late\n";
        let strings = |words: &[&str]| words.iter().map(|w| w.to_string()).collect::<Vec<_>>();
        assert_eq!(
            words_of(script),
            [(2, strings(&["-J", "early"])), (7, strings(&["--comment=still"]))]
        );
    }

    #[test]
    fn words_are_split_as_in_slurm() {
        assert_eq!(one("#SBATCH -N1"), ["-N1"]);
        assert_eq!(one("#SBATCH\t--mem  1G   -n 2  \t"), ["--mem", "1G", "-n", "2"]);
        assert_eq!(one("#SBATCH --parsable            "), ["--parsable"]);
        assert_eq!(one("#SBATCH -J \"name with space\" # trailing"), ["-J", "name with space"]);
        assert_eq!(one("#SBATCH --comment='single q'"), ["--comment=single q"]);
        assert_eq!(one("#SBATCH --comment=a\\ b\\#c\\\"d"), ["--comment=a b#c\"d"]);
        assert_eq!(one("#SBATCH --comment=\"it's #1\""), ["--comment=it's #1"]);
        assert_eq!(
            one("#SBATCH --partition= --comment \"\" -n 1#x"),
            ["--partition=", "--comment", "", "-n", "1"]
        );
    }

    #[test]
    fn the_blank_after_the_magic_word_is_optional() {
        assert_eq!(one("#SBATCH-N1"), ["-N1"]);
        assert_eq!(one("#SBATCH--mem=4G -n 2"), ["--mem=4G", "-n", "2"]);
        assert_eq!(one("#SBATCHING"), ["ING"], "refused later as an unknown option");
    }

    #[test]
    fn a_lone_backslash_ends_a_directive() {
        assert_eq!(words_of("#SBATCH -n 2 \\\n#SBATCH -c 3 \\ \n").len(), 2);
        assert_eq!(one("#SBATCH -n 2 \\"), ["-n", "2"]);
        assert_eq!(one("#SBATCH -n 2 \\ \t"), ["-n", "2"]);
        assert_eq!(one("#SBATCH --comment=a\\"), ["--comment=a"]);
        assert_eq!(one("#SBATCH --comment \\-n"), ["--comment", "-n"]);
    }

    #[test]
    fn other_comments_are_not_directives() {
        for script in [
            "#SBATCH",
            "##SBATCH -n 2",
            " #SBATCH -n 2",
            "#sbatch -n 2",
            "#SBATCH # -n 2",
            "#SBATCH# -n 2",
            "",
        ] {
            assert_eq!(words_of(script), [], "{script}");
        }
    }

    #[test]
    fn an_unclosed_quote_error_names_the_line() {
        let error = directives("#!/bin/sh\n\n#SBATCH -J \"x\n").expect_err("open quote");
        assert_eq!(error.to_string(), "line 3: unmatched \" in: #SBATCH -J \"x");
        assert!(
            directives("#SBATCH hetjob\n")
                .expect_err("hetjob")
                .to_string()
                .starts_with("line 1: heterogeneous")
        );
    }

    proptest! {
        #[test]
        fn quoted_words_read_back(words in prop::collection::vec("[^\\n\\r]{0,12}|[a-z]{1,3}", 1..6)) {
            prop_assume!(words.iter().all(|word| !matches!(word.as_str(), "hetjob" | "packjob" | ":")));
            let lines: Vec<String> = words.iter().filter_map(|word| line_of(word)).collect();
            prop_assert_eq!(one(&lines.join("\n")), words);
        }

        #[test]
        fn no_script_breaks_the_reader(script in "(#SBATCH|[ \\t\\n'\"#\\\\a-c=:-]){0,40}|.*") {
            let _ = directives(&script);
        }
    }
}
