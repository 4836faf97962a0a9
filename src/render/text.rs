//! Texts in columns: how wide they are, filled up, cut, and without what a terminal would act on.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Characters, since a name cut in the middle of one would not be text any more.
pub fn width(text: &str) -> usize {
    text.chars().count()
}

/// Appends `text`, filled up with blanks to `to` characters, never cut.
pub fn pad(out: &mut String, text: &str, to: usize, right: bool) {
    let fill = to.saturating_sub(width(text));
    if right {
        out.extend(std::iter::repeat_n(' ', fill));
    }
    out.push_str(text);
    if !right {
        out.extend(std::iter::repeat_n(' ', fill));
    }
}

/// A value as it may stand in a line: control characters in octal (`\\012`). What somebody may take
/// for a line break would make two rows of one and is written so always; the others do something to
/// a terminal, and are written so there.
pub fn printable(text: Cow<'_, str>, is_terminal: bool) -> Cow<'_, str> {
    let is_escaped = |c: char| {
        matches!(c, '\n'..='\r' | '\u{85}') || (is_terminal && c.is_control() && c != '\t')
    };
    if !text.contains(is_escaped) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_escaped(c) {
            // Writing to a string does not fail.
            let _ = write!(out, "\\{:03o}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// The first `to` characters of `text`.
pub fn cut(text: &str, to: usize) -> &str {
    text.char_indices().nth(to).map_or(text, |(i, _)| &text[..i])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_nothing_to_a_line_or_a_terminal() {
        let text = "a\nb\rc\td\u{1b}[2J\u{9b}2J";
        assert_eq!(printable(text.into(), true), "a\\012b\\015c\td\\033[2J\\2332J");
        assert_eq!(printable(text.into(), false), "a\\012b\\015c\td\u{1b}[2J\u{9b}2J");
        assert_eq!(printable("größe \"x\"".into(), true), "größe \"x\"");
    }

    #[test]
    fn cutting_never_splits_a_character() {
        assert_eq!(cut("größe", 3), "grö");
        assert_eq!(cut("ab", 3), "ab");
    }
}
