//! Rejects the phrases that make comments, messages and test names hard to read: inverted
//! openings ("What is free is given out", "Of a job the first"), and picture words in the place of
//! the field's own ("told", "seats", "is over").
//!
//! It catches the worst habits only. A text without a finding is not yet good English.

use std::fs;
use std::path::{Path, PathBuf};

/// First words of a sentence that begin a clause where a noun belongs. A question may begin so.
const OPENINGS: [&str; 36] = [
    "what",
    "of",
    "who",
    "whoever",
    "whatever",
    "whose",
    "whom",
    "whichever",
    "wherever",
    "where a",
    "where an",
    "where it",
    "where no",
    "where nobody",
    "where none",
    "where nothing",
    "where one",
    "where such",
    "where that",
    "where the",
    "where there",
    "where they",
    "where this",
    "for who",
    "for whom",
    "for whoever",
    "to whom",
    "by whom",
    "with what",
    "that which",
    "those of",
    "those who",
    "such a",
    "so many",
    "so much",
    "none of what",
];

/// Words and phrases that have a plain counterpart: report, notify, send, end, fix, CPU, delete.
const PHRASES: [&str; 34] = [
    "tell",
    "tells",
    "told",
    "telling",
    "hears",
    "heard",
    "mend",
    "mends",
    "mended",
    "mending",
    "gives out",
    "given out",
    "gave out",
    "goes away",
    "go away",
    "went away",
    "gone away",
    "is over",
    "are over",
    "was over",
    "whosoever",
    "whomsoever",
    "whereof",
    "broom",
    "deeds",
    "parcel",
    "fate",
    "hindsight",
    "seats",
    "for ever",
    "nobody knows",
    "so many",
    "of whom",
    "he who",
];

/// Sentences that may stay: part of a path, and part of the sentence.
const EXCEPTIONS: [(&str, &str); 1] =
    // A constructor.
    [("sys/proc.rs", "of this process")];

struct Found {
    path: PathBuf,
    line: usize,
    sentence: String,
}

fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            found.push(path);
        }
    }
}

/// The comments of a file as paragraphs, each with the number of its first line.
fn comments(text: &str) -> Vec<(usize, String)> {
    let mut paragraphs: Vec<(usize, String)> = Vec::new();
    let (mut is_open, mut is_example) = (false, false);
    for (number, line) in text.lines().enumerate() {
        let Some(words) = line.trim_start().strip_prefix("//") else {
            (is_open, is_example) = (false, false);
            if let Some((code, comment)) = line.split_once(" // ")
                && code.matches('"').count() % 2 == 0
            {
                paragraphs.push((number + 1, comment.to_owned()));
            }
            continue;
        };
        let words = words.trim_start_matches(['/', '!']).trim();
        if words.starts_with("```") {
            is_example = !is_example;
        }
        let begins = ["* ", "- ", "| ", "# ", "## "].iter().any(|mark| words.starts_with(mark));
        let has_end = words.is_empty() || words.starts_with("```");
        if is_example || has_end {
            is_open = false;
        } else if let (true, false, Some((_, open))) = (is_open, begins, paragraphs.last_mut()) {
            open.push(' ');
            open.push_str(words);
        } else {
            let words = words.trim_start_matches(['*', '-', '|', '#', ' ']);
            paragraphs.push((number + 1, words.to_owned()));
            is_open = true;
        }
    }
    paragraphs
}

/// The string literals of a file that look like prose: four words or more.
fn strings(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let bytes = text.as_bytes();
    let (mut at, mut line) = (0, 1);
    while at < bytes.len() {
        match bytes[at] {
            b'\n' => line += 1,
            b'/' if bytes[at..].starts_with(b"//") => {
                at += bytes[at..].iter().position(|byte| *byte == b'\n').unwrap_or(0).max(1);
                continue;
            }
            // A quoted character, as far as it is not a lifetime.
            b'\'' if bytes.get(at + 1) == Some(&b'\\') => {
                at += 2 + bytes[at + 2..].iter().position(|byte| *byte == b'\'').unwrap_or(0);
            }
            b'\'' if bytes.get(at + 2) == Some(&b'\'') => at += 2,
            b'"' => {
                let hashes = bytes[..at].iter().rev().take_while(|byte| **byte == b'#').count();
                let is_raw = at > hashes && bytes[at - hashes - 1] == b'r';
                let end = if is_raw {
                    let mark = format!("\"{}", "#".repeat(hashes));
                    text[at + 1..].find(&mark).map_or(bytes.len(), |end| at + 1 + end)
                } else {
                    let mut end = at + 1;
                    while end < bytes.len() && bytes[end] != b'"' {
                        end += if bytes[end] == b'\\' { 2 } else { 1 };
                    }
                    end.min(bytes.len())
                };
                let content = &text[at + 1..end];
                if content.split_whitespace().count() > 3 {
                    let words: Vec<&str> = content.split_whitespace().collect();
                    found.push((line, words.join(" ").replace("\\ ", "")));
                }
                line += content.matches('\n').count();
                at = end;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// The names of tests as sentences.
fn names(text: &str) -> Vec<(usize, String)> {
    let lines = text.lines().enumerate();
    lines
        .filter_map(|(number, line)| {
            let (_, rest) = line.split_once("fn ")?;
            let (name, _) = rest.split_once("()")?;
            (name.len() > 12 && !name.contains(' ')).then(|| (number + 1, name.replace('_', " ")))
        })
        .collect()
}

fn sentences(paragraph: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = paragraph;
    while let Some(end) = rest
        .match_indices(['.', ':', ';', '!'])
        .map(|(at, mark)| at + mark.len())
        .find(|end| rest[*end..].starts_with(' ') && !rest[..*end].ends_with("e.g."))
    {
        found.push(rest[..end].trim());
        rest = &rest[end..];
    }
    found.push(rest.trim());
    found
}

fn has_phrase(sentence: &str, phrase: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '`';
    sentence.match_indices(phrase).any(|(at, _)| {
        !sentence[..at].ends_with(is_word) && !sentence[at + phrase.len()..].starts_with(is_word)
    })
}

/// Whether a sentence has one of the faults. Lower case after a colon or a semicolon goes on with
/// the sentence before and may begin as it likes.
fn is_bad(sentence: &str, is_name: bool) -> bool {
    let lower = sentence.to_lowercase();
    let begins = is_name || sentence.starts_with(char::is_uppercase);
    let is_question = sentence.ends_with('?');
    let opens = |opening: &str| {
        lower.strip_prefix(opening).is_some_and(|rest| rest.starts_with([' ', ',']))
    };
    begins && !is_question && OPENINGS.iter().any(|opening| opens(opening))
        || PHRASES.iter().any(|phrase| has_phrase(&lower, phrase))
}

fn check(path: &Path, found: &mut Vec<Found>) {
    let text = fs::read_to_string(path).unwrap();
    let is_source = !path.starts_with(root().join("tests"));
    let prose = comments(&text).into_iter().chain(if is_source { strings(&text) } else { vec![] });
    let prose = prose.map(|paragraph| (paragraph, false));
    for ((line, paragraph), is_name) in prose.chain(names(&text).into_iter().map(|n| (n, true))) {
        for sentence in sentences(&paragraph) {
            let shown = path.display().to_string();
            let is_exception =
                |(file, part): &(&str, &str)| shown.contains(file) && sentence.contains(part);
            if is_bad(sentence, is_name) && !EXCEPTIONS.iter().any(is_exception) {
                let sentence = sentence.to_owned();
                found.push(Found { path: path.to_owned(), line, sentence });
            }
        }
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn comments_messages_and_test_names_are_plain_english() {
    let mut all = Vec::new();
    for dir in ["src", "tests"] {
        files(&root().join(dir), &mut all);
    }
    all.retain(|path| !path.ends_with("tests/it/english.rs"));
    let mut found = Vec::new();
    all.iter().for_each(|path| check(path, &mut found));
    let lines: Vec<String> = found
        .iter()
        .map(|Found { path, line, sentence }| {
            let path = path.strip_prefix(root()).unwrap_or(path);
            format!("{}:{line}: {sentence}", path.display())
        })
        .collect();
    assert!(lines.is_empty(), "{} sentences to rewrite:\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn the_check_finds_what_it_is_for() {
    let text = "/// What is free\n/// is given out.\nfn a() {} // Of a job.\n/// Returns it.\n\
                let s = \"Who opens the page can act\";\nfn what_was_kept_is_told() {}\n";
    let found = comments(text);
    assert_eq!(found[0], (1, "What is free is given out.".to_owned()));
    assert_eq!(found[1].1, "Of a job.");
    assert!(found[..2].iter().all(|(_, paragraph)| is_bad(paragraph, false)));
    assert!(!is_bad(&found[2].1, false));
    assert_eq!(strings(text), [(5, "Who opens the page can act".to_owned())]);
    assert!(is_bad(&strings(text)[0].1, false) && is_bad(&names(text)[0].1, true));
    assert!(!is_bad("What is that?", false) && !is_bad("A teller, `told`, and untold.", false));
}
