//! Text in columns: measuring, padding, truncating, and escaping characters that a terminal would
//! interpret.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Returns the width in characters, not bytes: truncating must not split a character.
pub fn width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().count() }
}

/// Appends this many spaces.
pub(crate) fn push_spaces(out: &mut String, count: usize) {
    const SPACES: &str = "                                ";
    let mut left = count;
    while left > SPACES.len() {
        out.push_str(SPACES);
        left -= SPACES.len();
    }
    out.push_str(&SPACES[..left]);
}

/// Appends `text`, padded with spaces to `to` characters. Never truncates.
pub fn pad(out: &mut String, text: &str, to: usize, right: bool) {
    let fill = to.saturating_sub(width(text));
    if right {
        push_spaces(out, fill);
    }
    out.push_str(text);
    if !right {
        push_spaces(out, fill);
    }
}

/// Returns whether the character changes the direction of the text after it, so that a terminal may
/// show a name as another one (Unicode, UAX #9, section 2).
const fn turns_text(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Escapes the control characters of a value in octal (`\\012`). Line breaks are always escaped,
/// since they would split a row in two; other control characters, and those that change the
/// direction of the text, only on a terminal, which would interpret them.
pub fn printable(text: Cow<'_, str>, is_terminal: bool) -> Cow<'_, str> {
    // Almost every text. The rest decides character by character.
    if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return text;
    }
    let is_escaped = |c: char| {
        matches!(c, '\n'..='\r' | '\u{85}')
            || (is_terminal && (c.is_control() && c != '\t' || turns_text(c)))
    };
    if !text.contains(is_escaped) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_escaped(c) {
            // Writing to a string cannot fail.
            let _ = match u32::from(c) {
                code @ ..=0xff => write!(out, "\\{code:03o}"),
                code => write!(out, "\\u{{{code:x}}}"),
            };
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Returns the first `to` characters of `text`.
pub fn cut(text: &str, to: usize) -> &str {
    text.char_indices().nth(to).map_or(text, |(i, _)| &text[..i])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_never_reach_a_terminal() {
        let text = "a\nb\rc\td\u{1b}[2J\u{9b}2J";
        assert_eq!(printable(text.into(), true), "a\\012b\\015c\td\\033[2J\\2332J");
        assert_eq!(printable(text.into(), false), "a\\012b\\015c\td\u{1b}[2J\u{9b}2J");
        assert_eq!(printable("a\u{202e}b\u{2066}c".into(), true), "a\\u{202e}b\\u{2066}c");
        assert_eq!(printable("a\u{202e}b".into(), false), "a\u{202e}b");
        assert_eq!(printable("größe \"x\"".into(), true), "größe \"x\"");
    }

    #[test]
    fn cutting_never_splits_a_character() {
        assert_eq!(cut("größe", 3), "grö");
        assert_eq!(cut("ab", 3), "ab");
    }
}
