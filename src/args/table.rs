//! The options of a command, as the fields of a struct.
//!
//! [`options!`] takes a struct with clap's attributes. clap makes the help, the man page and the
//! completions from them. The words of a command line do not pass through clap: from the same
//! attributes, the macro also makes the rows of [`Grammar`](crate::args::getopt::Grammar) and a
//! function that reads the fields from the options found. Without clap, `sbatch --hold` takes
//! 1.67 ms instead of 1.81 ms (measured in turns on two cores).

use crate::args::value::{BadValue, Parse, Why};
use slotd_model::read::split_outside_brackets;
use std::borrow::Cow;
use std::sync::OnceLock;

/// A struct of options.
pub trait Options: clap::Args + Sized {
    /// Appends a row for each field, in their order.
    fn rows(rows: &mut Vec<Row>);

    /// Returns all rows. They are created only once, since the daemon parses many command lines.
    fn table() -> &'static [Row];

    /// Reads the fields, in the order of the rows. A field whose value is refused gets its default;
    /// see [`Values::refused`].
    fn read(values: &mut Values<'_>) -> Self;
}

/// The rows of a struct, once they exist.
pub type Table = OnceLock<Vec<Row>>;

pub fn rows_of<T: Options>() -> Vec<Row> {
    let mut rows = Vec::with_capacity(128);
    T::rows(&mut rows);
    rows
}

/// The kind of an option, which follows from the type of its field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Flag,
    /// A flag whose occurrences are counted.
    Count,
    /// A value. The last occurrence wins.
    One,
    /// A comma-separated list. Occurrences add up.
    List,
}

/// The value of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    Nothing,
    /// A required value: attached, or in the next word.
    Value,
    /// An optional value, which must be attached.
    Maybe,
}

/// An option of a command, or its operands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The name of the field.
    pub id: Cow<'static, str>,
    /// The full name, or the letter if there is none. Empty for the operands.
    pub name: Cow<'static, str>,
    pub aliases: Vec<Cow<'static, str>>,
    pub short: Option<char>,
    pub short_alias: Option<char>,
    pub takes: Takes,
    pub kind: Kind,
    /// The value of an option that was given without one.
    pub default_missing: Option<&'static str>,
    /// The IDs of earlier options that this one replaces.
    pub overrides: Vec<&'static str>,
}

impl Row {
    /// Returns the row of a field, which holds the operands unless it gets a name or a letter.
    pub fn of_field(id: &'static str, kind: Kind) -> Row {
        let takes = match kind {
            Kind::Flag | Kind::Count => Takes::Nothing,
            Kind::One | Kind::List => Takes::Value,
        };
        Row {
            id: id.into(),
            name: "".into(),
            aliases: Vec::new(),
            short: None,
            short_alias: None,
            takes,
            kind,
            default_missing: None,
            overrides: Vec::new(),
        }
    }

    /// Sets the long name, by default the field's with hyphens.
    pub fn set_long(&mut self, name: Option<&'static str>) {
        self.name = match (name, &self.id) {
            (Some(name), _) => name.into(),
            (None, id) if id.contains('_') => id.replace('_', "-").into(),
            (None, id) => id.clone(),
        };
    }

    /// Names an option without a long name after its letter.
    pub fn name_by_letter(&mut self) {
        if let (true, Some(letter)) = (self.name.is_empty(), self.short) {
            self.name = letter.to_string().into();
        }
    }

    pub fn is_operands(&self) -> bool {
        self.name.is_empty()
    }

    /// Returns the long name, empty if there is none.
    pub fn long(&self) -> &str {
        if self.name.chars().nth(1).is_some() { &self.name } else { "" }
    }

    /// Returns whether occurrences accumulate, as for lists and counters.
    pub fn adds_up(&self) -> bool {
        matches!(self.kind, Kind::Count | Kind::List)
    }
}

/// An option that was given, under its full name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    pub name: String,
    pub value: Option<String>,
    /// Whether it was given as a letter.
    pub short: bool,
}

impl Given {
    /// Splits the value, a comma-separated list, into one option per element. Commas in brackets
    /// belong to an element. An empty list has no elements.
    pub fn elements(&self) -> Vec<Given> {
        split_outside_brackets(self.value.as_deref().unwrap_or_default(), |c| c == ',')
            .into_iter()
            .map(|(element, _)| element.trim())
            .filter(|element| !element.is_empty())
            .map(|element| Given { value: Some(element.to_owned()), ..self.clone() })
            .collect()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operand {
    pub text: String,
    /// The option given by the preceding word, as an index into `options`.
    pub after: Option<usize>,
}

/// The type of a field.
pub trait FieldKind {
    const KIND: Kind;
}

/// A field that is read with a parser of type `P`.
pub trait Field<P>: FieldKind {
    fn take(taken: Taken<'_>, parser: &P) -> Self;
}

/// The parser of fields without `value_parser`.
pub struct Plain;

impl Parse<String> for Plain {
    fn parse(&self, text: &str, _: &str) -> Result<String, Why> {
        Ok(text.to_owned())
    }
}

/// An option with an optional value: `Some(None)` without one.
impl Parse<Option<String>> for Plain {
    fn parse(&self, text: &str, _: &str) -> Result<Option<String>, Why> {
        Ok(Some(text.to_owned()))
    }

    fn missing(&self) -> Option<Option<String>> {
        Some(None)
    }
}

impl FieldKind for bool {
    const KIND: Kind = Kind::Flag;
}

impl Field<Plain> for bool {
    fn take(taken: Taken<'_>, _: &Plain) -> Self {
        !taken.words.is_empty()
    }
}

impl FieldKind for u8 {
    const KIND: Kind = Kind::Count;
}

impl Field<Plain> for u8 {
    fn take(taken: Taken<'_>, _: &Plain) -> Self {
        u8::try_from(taken.words.len()).unwrap_or(u8::MAX)
    }
}

impl<T> FieldKind for Option<T> {
    const KIND: Kind = Kind::One;
}

impl<T, P: Parse<T>> Field<P> for Option<T> {
    fn take(taken: Taken<'_>, parser: &P) -> Self {
        taken.parse(parser).pop()
    }
}

impl<T> FieldKind for Vec<T> {
    const KIND: Kind = Kind::List;
}

impl<T, P: Parse<T>> Field<P> for Vec<T> {
    fn take(taken: Taken<'_>, parser: &P) -> Self {
        taken.parse(parser)
    }
}

/// An occurrence of an option, or an operand.
#[derive(Clone)]
struct Word {
    /// Its place among the words, the operands last.
    place: usize,
    /// `None` for an option without a value.
    value: Option<String>,
}

/// The options found, for [`Options::read`].
pub struct Values<'a> {
    rows: &'a [Row],
    /// By row.
    found: Vec<Vec<Word>>,
    next: usize,
    /// The first refused value by its place.
    refused: Option<(usize, BadValue)>,
}

impl<'a> Values<'a> {
    /// `list` is in order of increasing precedence. An option clears those that it overrides.
    pub fn new<'g>(
        rows: &'a [Row],
        list: impl ExactSizeIterator<Item = &'g Given>,
        operands: &[Operand],
    ) -> Self {
        let mut found = vec![Vec::new(); rows.len()];
        let count = list.len();
        for (place, given) in list.enumerate() {
            let Some(at) = rows.iter().position(|row| row.name == given.name) else { continue };
            for id in &rows[at].overrides {
                let overridden = rows.iter().position(|row| row.id == *id);
                overridden.into_iter().for_each(|other| found[other].clear());
            }
            match rows[at].kind {
                Kind::List => found[at].extend(
                    given.elements().into_iter().map(|Given { value, .. }| Word { place, value }),
                ),
                Kind::Flag | Kind::Count | Kind::One => {
                    found[at].push(Word { place, value: given.value.clone() });
                }
            }
        }
        if let Some(at) = rows.iter().position(Row::is_operands) {
            found[at].extend(
                operands.iter().enumerate().map(|(i, operand)| Word {
                    place: count + i,
                    value: Some(operand.text.clone()),
                }),
            );
        }
        Values { rows, found, next: 0, refused: None }
    }

    /// Returns the occurrences for the next row.
    pub fn next(&mut self) -> Taken<'_> {
        let at = self.next;
        self.next += 1;
        Taken {
            row: &self.rows[at],
            words: std::mem::take(&mut self.found[at]),
            refused: &mut self.refused,
        }
    }

    /// Returns the first value in the order of the words that its parser refused.
    pub fn refused(self) -> Option<BadValue> {
        self.refused.map(|(_, bad)| bad)
    }
}

/// The occurrences of an option, or the operands.
pub struct Taken<'a> {
    row: &'a Row,
    words: Vec<Word>,
    refused: &'a mut Option<(usize, BadValue)>,
}

impl Taken<'_> {
    /// Parses the values and notes the first one that is refused.
    fn parse<T>(self, parser: &impl Parse<T>) -> Vec<T> {
        let Taken { row, words, refused } = self;
        // Most options of a command are not given.
        if words.is_empty() {
            return Vec::new();
        }
        let option = row.long();
        let spelling = format!("--{option}");
        let mut parsed = Vec::with_capacity(words.len());
        for Word { place, value } in words {
            let text = match (value, row.default_missing) {
                (Some(text), _) => text,
                (None, Some(text)) => text.to_owned(),
                (None, None) => {
                    parsed.extend(parser.missing());
                    continue;
                }
            };
            match parser.parse(&text, &spelling) {
                Ok(value) => parsed.push(value),
                Err(why) => {
                    if refused.as_ref().is_none_or(|(first, _)| place < *first) {
                        let option = option.to_owned();
                        *refused = Some((place, BadValue { option, value: text, why }));
                    }
                    break;
                }
            }
        }
        parsed
    }
}

/// Defines a struct of options with clap's attributes and implements [`Options`] for it. A field has
/// its documentation, then either `#[arg(…)]` or `#[command(flatten)]`.
macro_rules! options {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $(
                $(#[doc = $doc:tt])*
                $(#[arg $arg:tt])?
                $(#[command $command:tt])?
                $field_vis:vis $field:ident: $type:ty
            ),* $(,)?
        }
    ) => {
        $(#[$meta])*
        $vis struct $name {
            $(
                $(#[doc = $doc])*
                $(#[arg $arg])?
                $(#[command $command])?
                $field_vis $field: $type
            ),*
        }

        impl $crate::args::table::Options for $name {
            fn rows(rows: &mut Vec<$crate::args::table::Row>) {
                $($crate::args::table::row!(
                    rows $field $type, $(arg $arg)? $(command $command)?
                );)*
            }

            fn table() -> &'static [$crate::args::table::Row] {
                static TABLE: $crate::args::table::Table = $crate::args::table::Table::new();
                TABLE.get_or_init($crate::args::table::rows_of::<Self>)
            }

            fn read(values: &mut $crate::args::table::Values<'_>) -> Self {
                $name {
                    $($field: $crate::args::table::field!(
                        values $type, $(arg $arg)? $(command $command)?
                    )),*
                }
            }
        }
    };
}

/// Appends the row of a field.
macro_rules! row {
    ($rows:ident $field:ident $type:ty, arg (skip)) => {};
    ($rows:ident $field:ident $type:ty, command $flatten:tt) => {
        <$type as $crate::args::table::Options>::rows($rows)
    };
    ($rows:ident $field:ident $type:ty, arg ($($arg:tt)*)) => {{
        let kind = <$type as $crate::args::table::FieldKind>::KIND;
        let mut row = $crate::args::table::Row::of_field(stringify!($field), kind);
        $crate::args::table::row!(@ row $($arg)*);
        row.name_by_letter();
        $rows.push(row);
    }};
    (@ $row:ident) => {};
    (@ $row:ident short $(, $($rest:tt)*)?) => {
        $row.short = $row.id.chars().next();
        $crate::args::table::row!(@ $row $($($rest)*)?);
    };
    (@ $row:ident short = $letter:expr $(, $($rest:tt)*)?) => {
        $row.short = Some($letter);
        $crate::args::table::row!(@ $row $($($rest)*)?);
    };
    (@ $row:ident short_alias = $letter:expr $(, $($rest:tt)*)?) => {
        $row.short_alias = Some($letter);
        $crate::args::table::row!(@ $row $($($rest)*)?);
    };
    (@ $row:ident long $(, $($rest:tt)*)?) => {
        $row.set_long(None);
        $crate::args::table::row!(@ $row $($($rest)*)?);
    };
    (@ $row:ident long = $name:expr $(, $($rest:tt)*)?) => {
        $row.set_long(Some($name));
        $crate::args::table::row!(@ $row $($($rest)*)?);
    };
    (@ $row:ident alias = $name:expr $(, $($rest:tt)*)?) => {
        $row.aliases.push($name.into());
        $crate::args::table::row!(@ $row $($($rest)*)?);
    };
    (@ $row:ident num_args = 0..=1 $(, $($rest:tt)*)?) => {
        $row.takes = $crate::args::table::Takes::Maybe;
        $crate::args::table::row!(@ $row $($($rest)*)?);
    };
    (@ $row:ident default_missing_value = $text:expr $(, $($rest:tt)*)?) => {
        $row.default_missing = Some($text);
        $crate::args::table::row!(@ $row $($($rest)*)?);
    };
    (@ $row:ident overrides_with = $id:expr $(, $($rest:tt)*)?) => {
        $row.overrides.push($id);
        $crate::args::table::row!(@ $row $($($rest)*)?);
    };
    (@ $row:ident overrides_with_all = $ids:expr $(, $($rest:tt)*)?) => {
        $row.overrides.extend($ids);
        $crate::args::table::row!(@ $row $($($rest)*)?);
    };
    // For clap alone.
    (@ $row:ident $key:ident = $value:expr $(, $($rest:tt)*)?) => {
        $crate::args::table::row!(@ $row $($($rest)*)?);
    };
}

/// Reads a field.
macro_rules! field {
    ($values:ident $type:ty, arg (skip)) => {
        Default::default()
    };
    ($values:ident $type:ty, command $flatten:tt) => {
        <$type as $crate::args::table::Options>::read($values)
    };
    ($values:ident $type:ty, arg ($($arg:tt)*)) => {
        <$type as $crate::args::table::Field<_>>::take(
            $values.next(),
            &$crate::args::table::field!(@ $($arg)*),
        )
    };
    (@) => {
        $crate::args::table::Plain
    };
    (@ value_parser = $parser:expr $(, $($rest:tt)*)?) => {
        $parser
    };
    (@ $key:ident = $value:expr $(, $($rest:tt)*)?) => {
        $crate::args::table::field!(@ $($($rest)*)?)
    };
    (@ $key:ident $(, $($rest:tt)*)?) => {
        $crate::args::table::field!(@ $($($rest)*)?)
    };
}

pub(crate) use {field, options, row};
