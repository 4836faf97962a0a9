//! The columns of a command. Each is one entry of the command's field table; formats, views and
//! sort orders refer to these entries.

use crate::Ctx;
use crate::job_facts::FactOf;
use crate::tone::Tone;
use crate::value::Value;
use std::fmt;

/// A command's field table.
pub trait Table: fmt::Debug + Clone + Copy + Default + PartialEq + Eq + 'static {
    /// The data of one line.
    type Row<'a>;

    /// Whether names may be abbreviated, as with sacct. The first field that matches is used.
    const ABBREVIATED: bool = false;

    /// The text that `%all` prints after each code that is a capital letter.
    const AFTER_CAPITALS: &'static str = "";

    /// Whether the command lists the fields for `--helpformat`.
    const HAS_HELPFORMAT: bool = false;

    /// Returns every field. `--helpformat` and `%all` sort them; abbreviations are matched in this
    /// order.
    fn fields() -> &'static [Field<Self>];

    /// Returns the cell for a fact about the job of this line.
    fn fact<'r>(_row: &'r Self::Row<'_>, _fact: FactOf) -> Value<'r> {
        Value::NONE
    }

    /// Returns Slurm's message for an unknown field.
    fn unknown(place: Place, word: &str) -> String {
        match place {
            Place::Code | Place::Name | Place::LongName | Place::WideName => {
                format!("Invalid job format specification: {word}")
            }
            Place::Sort => format!("Invalid sort specification: {word}"),
        }
    }
}

/// The places where a field can be named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A letter in `-o`.
    Code,
    /// A name in `-o`.
    Name,
    /// A name in `-O`.
    LongName,
    /// A name in sacct's `-o`.
    WideName,
    /// `-S`
    Sort,
}

impl Place {
    /// Describes the syntax that is accepted there.
    const fn form(self) -> &'static str {
        match self {
            Place::Code => "%[.][width]letter, with any text between",
            Place::Name => "names, separated by commas",
            Place::LongName => "name[:[.]width], separated by commas",
            Place::WideName => "name[%[-]width], separated by commas",
            Place::Sort => "[-]letter or [-]name, separated by commas",
        }
    }
}

/// Reads a value from a row.
pub type Get<T> = for<'a, 'r> fn(&'r <T as Table>::Row<'a>, &'r Ctx) -> Value<'r>;

/// The source of a field's value.
#[derive(Debug, Clone, Copy)]
enum Source<T: Table> {
    Row(Get<T>),
    /// A fact about the job, from [`job_facts`](crate::job_facts).
    Fact(FactOf),
}

/// One column of a command.
#[derive(Debug, Clone, Copy)]
pub struct Field<T: Table> {
    /// The letters after `%`.
    pub codes: &'static str,
    /// Slurm's names (`-O`, sacct's `-o`). The first one is shown to users.
    pub names: &'static [&'static str],
    /// Names in slotd's own lists after `-o`, which take precedence over Slurm's there.
    pub own_names: &'static [&'static str],
    pub header: &'static str,
    /// The default width; left-justified if negative.
    pub width: i32,
    pub cut: Cut,
    pub need: Need,
    /// Whether `--helpformat` lists it. Fields of later Slurm releases are not listed.
    pub is_listed: bool,
    /// Whether its text is shortened first when a table is wider than the terminal.
    pub yields: bool,
    /// Returns the tone of a cell with this text.
    tone: fn(&str) -> Tone,
    source: Source<T>,
}

/// How a column shortens text that is wider than the column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Truncates all text.
    Always,
    /// Prints values in full (numbers, Slurm's durations) and truncates the header.
    Header,
    /// Truncates nothing (Slurm's lists of nodes).
    Never,
    /// Truncates a `(Reason)` but not a list of nodes.
    Reason,
    /// Truncates, but keeps the mark of the default partition: `c*`.
    Star,
}

/// The data that a column needs beyond a normal query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    Nothing,
    /// Less than a normal query: a brief query is enough.
    Brief,
    /// A forecast of the start times of pending jobs.
    Plan,
    /// The files of the standard streams.
    Paths,
    /// A line for each partition.
    Partition,
}

impl<T: Table> Field<T> {
    /// Creates a column that is 20 wide in `-O` and truncates its text.
    pub const fn new(names: &'static [&'static str], header: &'static str, get: Get<T>) -> Self {
        Self::from(names, header, Source::Row(get))
    }

    /// Creates a column like [`Self::new`] for a fact about the job.
    pub const fn fact(names: &'static [&'static str], header: &'static str, fact: FactOf) -> Self {
        Self::from(names, header, Source::Fact(fact))
    }

    const fn from(names: &'static [&'static str], header: &'static str, source: Source<T>) -> Self {
        Field {
            codes: "",
            names,
            own_names: &[],
            header,
            width: -20,
            cut: Cut::Always,
            need: Need::Nothing,
            is_listed: true,
            yields: false,
            tone: |_| Tone::Plain,
            source,
        }
    }

    #[must_use]
    pub const fn code(mut self, codes: &'static str) -> Self {
        self.codes = codes;
        self
    }

    #[must_use]
    pub const fn own(mut self, names: &'static [&'static str]) -> Self {
        self.own_names = names;
        self
    }

    #[must_use]
    pub const fn width(mut self, width: i32) -> Self {
        self.width = width;
        self
    }

    #[must_use]
    pub const fn cut(mut self, cut: Cut) -> Self {
        self.cut = cut;
        self
    }

    #[must_use]
    pub const fn needs(mut self, need: Need) -> Self {
        self.need = need;
        self
    }

    /// Marks the column as available from a brief query.
    #[must_use]
    pub const fn brief(mut self) -> Self {
        self.need = Need::Brief;
        self
    }

    #[must_use]
    pub const fn unlisted(mut self) -> Self {
        self.is_listed = false;
        self
    }

    /// Shortens this column before others when a table is wider than the terminal.
    #[must_use]
    pub(crate) const fn yielding(mut self) -> Self {
        self.yields = true;
        self
    }

    /// Colours the cells by their text.
    #[must_use]
    pub(crate) const fn toned(mut self, tone: fn(&str) -> Tone) -> Self {
        self.tone = tone;
        self
    }

    /// Returns the tone of a cell with this text.
    pub(crate) fn tone(&self, cell: &str) -> Tone {
        (self.tone)(cell)
    }

    /// Returns the value of this column in a row.
    pub fn value<'r>(&self, row: &'r T::Row<'_>, ctx: &'r Ctx) -> Value<'r> {
        match self.source {
            Source::Row(get) => get(row, ctx),
            Source::Fact(fact) => T::fact(row, fact),
        }
    }

    /// Returns the heading in a table with bars.
    pub fn title(&self) -> &'static str {
        if self.header.is_empty() { self.name().unwrap_or_default() } else { self.header }
    }

    /// Returns the name for messages.
    fn name(&self) -> Option<&'static str> {
        self.names.iter().chain(self.own_names).copied().next()
    }
}

/// Returns the field with this letter.
pub(crate) fn by_code<T: Table>(code: char) -> Option<usize> {
    T::fields().iter().position(|f| f.codes.contains(code))
}

/// Returns the field with this Slurm name. Case, `-` and `_` are ignored.
pub fn by_name<T: Table>(name: &str) -> Option<usize> {
    let fields = T::fields();
    let is = |f: &Field<T>| f.names.iter().any(|n| same_name(n, name));
    let begins = |f: &Field<T>| {
        let start =
            |n: &&str| n.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        T::ABBREVIATED && !name.is_empty() && f.names.iter().any(start)
    };
    fields.iter().position(is).or_else(|| fields.iter().position(begins))
}

/// Returns the field with this name in a list after `-o`. slotd's own names come before Slurm's.
pub(crate) fn by_own_name<T: Table>(name: &str) -> Option<usize> {
    let own = |f: &Field<T>| f.own_names.iter().any(|n| same_name(n, name));
    T::fields().iter().position(own).or_else(|| by_name::<T>(name))
}

/// Returns whether two field names are equal, ignoring case, `-` and `_`.
fn same_name(a: &str, b: &str) -> bool {
    fn letters(name: &str) -> impl Iterator<Item = u8> {
        name.bytes().filter(|c| !matches!(c, b'-' | b'_')).map(|c| c.to_ascii_lowercase())
    }
    letters(a).eq(letters(b))
}

/// An unknown field: Slurm's message and the accepted names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FormatError {
    /// Slurm's text, with the offending word.
    pub message: String,
    /// The offending word.
    pub word: String,
    /// The accepted names, for suggestions.
    pub names: Vec<&'static str>,
    /// The accepted syntax, or where to find the names.
    pub hint: String,
}

impl FormatError {
    pub fn unknown<T: Table>(place: Place, word: &str) -> Self {
        let fields = T::fields();
        let mut codes: Vec<char> = fields.iter().flat_map(|f| f.codes.chars()).collect();
        codes.sort_by_key(|c| (c.to_ascii_lowercase(), *c));
        let mut names: Vec<&'static str> = Vec::new();
        for name in fields.iter().filter_map(Field::name) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.sort_by_key(|name| name.to_ascii_lowercase());
        let listed = match place {
            Place::Code => format!("letters: {}", codes.into_iter().collect::<String>()),
            _ if T::HAS_HELPFORMAT => "--helpformat lists the names".to_owned(),
            _ => format!("names: {}", names.join(", ")),
        };
        let hint = format!("{}; {listed}", place.form());
        FormatError { message: T::unknown(place, word), word: word.to_owned(), names, hint }
    }
}

/// Returns Slurm's field names for `--helpformat`, four per line.
pub fn helpformat<T: Table>() -> String {
    let listed = T::fields().iter().filter(|f| f.is_listed);
    four_per_line(listed.filter_map(|f| f.names.first().copied()))
}

/// Returns these names in alphabetical order, four per line.
pub fn four_per_line<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.collect();
    names.sort_by_key(|name| name.to_ascii_lowercase());
    let line = |four: &[&str]| {
        four.iter().map(|name| format!("{name:<19}")).collect::<Vec<_>>().join(" ") + "\n"
    };
    names.chunks(4).map(line).collect()
}
