//! The reader of constraints.

use crate::Constraint;

/// The maximum nesting depth of parentheses.
const MAX_DEPTH: usize = 32;

/// Reads `a`, `a&b`, `a,b` (the same), `a|b`, `(a&b)|c`, `[a|b]`, `a*1` or `!a`.
pub fn constraint(text: &str) -> Option<Constraint> {
    let mut parser = Parser { text, pos: 0 };
    parser.any(0).filter(|_| parser.peek().is_none())
}

struct Parser<'a> {
    text: &'a str,
    pos: usize,
}

impl Parser<'_> {
    /// Skips whitespace and returns the next character.
    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.pos..];
        let trimmed = rest.trim_start();
        self.pos += rest.len() - trimmed.len();
        trimmed.chars().next()
    }

    fn take(&mut self, wanted: &[char]) -> bool {
        match self.peek() {
            Some(c) if wanted.contains(&c) => {
                self.pos += c.len_utf8();
                true
            }
            _ => false,
        }
    }

    fn any(&mut self, depth: usize) -> Option<Constraint> {
        let mut parts = Vec::new();
        loop {
            match self.all(depth)? {
                Constraint::Any(inner) => parts.extend(inner),
                part => parts.push(part),
            }
            if !self.take(&['|']) {
                break;
            }
        }
        Some(if parts.len() == 1 { parts.swap_remove(0) } else { Constraint::Any(parts) })
    }

    fn all(&mut self, depth: usize) -> Option<Constraint> {
        let mut parts = Vec::new();
        loop {
            match self.one(depth)? {
                Constraint::All(inner) => parts.extend(inner),
                part => parts.push(part),
            }
            if !self.take(&['&', ',']) {
                break;
            }
        }
        Some(if parts.len() == 1 { parts.swap_remove(0) } else { Constraint::All(parts) })
    }

    fn one(&mut self, depth: usize) -> Option<Constraint> {
        if depth > MAX_DEPTH {
            return None;
        }
        if self.take(&['!']) {
            return Some(Constraint::Not(Box::new(self.one(depth + 1)?)));
        }
        for (open, close) in [('(', ')'), ('[', ']')] {
            if self.take(&[open]) {
                let inner = self.any(depth + 1)?;
                return self.take(&[close]).then_some(inner);
            }
        }
        self.peek()?;
        let rest = &self.text[self.pos..];
        let special = |c: char| c.is_whitespace() || c.is_control() || "&|,()[]!*".contains(c);
        let name = &rest[..rest.find(special).unwrap_or(rest.len())];
        if name.is_empty() {
            return None;
        }
        self.pos += name.len();
        let mut nodes = 1;
        if self.take(&['*']) {
            let rest = &self.text[self.pos..];
            let digits = &rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())];
            nodes = digits.parse().ok().filter(|&nodes| nodes > 0)?;
            self.pos += digits.len();
        }
        Some(Constraint::Feature { name: name.to_string(), nodes })
    }
}
