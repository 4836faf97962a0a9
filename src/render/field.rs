//! A command's columns: each is one row of its field table, and every format, view and order of
//! rows is made of these.

use crate::render::Ctx;
use crate::render::job_facts::FactOf;
use crate::render::tone::Tone;
use crate::render::value::Value;
use std::fmt;

/// A command's field table.
pub trait Table: fmt::Debug + Clone + Copy + Default + PartialEq + Eq + 'static {
    /// What a line is made of.
    type Row<'a>;

    /// Whether the beginning of a name is enough, as with sacct; the first field that fits is
    /// meant.
    const ABBREVIATED: bool = false;

    /// What `%all` prints after each code that is a capital letter.
    const AFTER_CAPITALS: &'static str = "";

    /// Whether the command lists the fields for `--helpformat`.
    const HAS_HELPFORMAT: bool = false;

    /// Every field. `--helpformat` and `%all` sort them; abbreviations look through them in this
    /// order.
    fn fields() -> &'static [Field<Self>];

    /// The cell of what the job of the line was asked for.
    fn fact(_row: &Self::Row<'_>, _fact: FactOf) -> Value {
        Value::NONE
    }

    /// Slurm's words for something that is no field.
    fn unknown(place: Place, word: &str) -> String {
        match place {
            Place::Code | Place::Name | Place::LongName | Place::WideName => {
                format!("Invalid job format specification: {word}")
            }
            Place::Sort => format!("Invalid sort specification: {word}"),
        }
    }
}

/// Where a field is named.
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
    /// What is accepted there.
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

/// How a row's value is read.
pub type Get<T> = for<'a, 'r, 'c> fn(&'r <T as Table>::Row<'a>, &'c Ctx) -> Value;

/// Where the value of a field comes from.
#[derive(Debug, Clone, Copy)]
enum Source<T: Table> {
    Row(Get<T>),
    /// What the job was asked for, of the table of that.
    Fact(FactOf),
}

/// One column that a command knows.
#[derive(Debug, Clone, Copy)]
pub struct Field<T: Table> {
    /// The letters after `%`.
    pub codes: &'static str,
    /// Slurm's names (`-O`, sacct's `-o`), of which the first is shown to users.
    pub names: &'static [&'static str],
    /// Names in slotd's own lists after `-o`, which win there over Slurm's of the same spelling.
    pub own_names: &'static [&'static str],
    pub header: &'static str,
    /// Of a column where the format gives none; negative: left justified.
    pub width: i32,
    pub cut: Cut,
    pub need: Need,
    /// Whether `--helpformat` lists it: not, where it comes from a release of Slurm later than the
    /// one that is followed.
    pub is_listed: bool,
    /// Whether its text is cut before that of others, where a table is wider than the terminal.
    pub yields: bool,
    /// The tone of a cell with this text.
    tone: fn(&str) -> Tone,
    source: Source<T>,
}

/// What a column that is narrower than its text does with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// It is cut.
    Always,
    /// Values are printed whole (numbers, Slurm's durations); the header is cut.
    Header,
    /// Nothing is cut (Slurm's lists of nodes).
    Never,
    /// `(Reason)` is cut, a list of nodes is not.
    Reason,
    /// It is cut, but the mark of the default partition stays: `c*`.
    Star,
}

/// What a column needs beyond what every query answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    Nothing,
    /// Less than that: a query that is brief answers it, too.
    Brief,
    /// A forecast of the plan, for pending jobs.
    Plan,
    /// The files of the standard streams.
    Paths,
    /// A line for each partition.
    Partition,
}

impl<T: Table> Field<T> {
    /// A column that is 20 wide in `-O`, and is cut where it is narrower than its text.
    pub const fn new(names: &'static [&'static str], header: &'static str, get: Get<T>) -> Self {
        Self::from(names, header, Source::Row(get))
    }

    /// The same of what the job was asked for.
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

    /// A brief query answers it.
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

    /// Its text is cut before that of others, where a table is wider than the terminal.
    #[must_use]
    pub const fn yielding(mut self) -> Self {
        self.yields = true;
        self
    }

    /// Its cells have the tone of what they say.
    #[must_use]
    pub const fn toned(mut self, tone: fn(&str) -> Tone) -> Self {
        self.tone = tone;
        self
    }

    /// The tone of a cell with this text.
    pub fn tone(&self, cell: &str) -> Tone {
        (self.tone)(cell)
    }

    /// Its cell in this row.
    pub fn value(&self, row: &T::Row<'_>, ctx: &Ctx) -> Value {
        match self.source {
            Source::Row(get) => get(row, ctx),
            Source::Fact(fact) => T::fact(row, fact),
        }
    }

    /// What stands above it in a table with bars.
    pub fn title(&self) -> &'static str {
        if self.header.is_empty() { self.name().unwrap_or_default() } else { self.header }
    }

    /// Its name in messages.
    fn name(&self) -> Option<&'static str> {
        self.names.iter().chain(self.own_names).copied().next()
    }
}

/// The field with this letter.
pub fn by_code<T: Table>(code: char) -> Option<usize> {
    T::fields().iter().position(|f| f.codes.contains(code))
}

/// The field with this name of Slurm's. Case, `-` and `_` make no difference.
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

/// The field with this name in a list after `-o`: one of slotd's own, else Slurm's.
pub fn by_own_name<T: Table>(name: &str) -> Option<usize> {
    let own = |f: &Field<T>| f.own_names.iter().any(|n| same_name(n, name));
    T::fields().iter().position(own).or_else(|| by_name::<T>(name))
}

/// Whether two field names are the same but for case, `-` and `_`.
fn same_name(a: &str, b: &str) -> bool {
    fn letters(name: &str) -> impl Iterator<Item = u8> {
        name.bytes().filter(|c| !matches!(c, b'-' | b'_')).map(|c| c.to_ascii_lowercase())
    }
    letters(a).eq(letters(b))
}

/// A field that does not exist: what Slurm says of it, and what there is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FormatError {
    /// Slurm's text, with the offending word.
    pub message: String,
    /// The offending word.
    pub word: String,
    /// The names that could have been meant.
    pub names: Vec<&'static str>,
    /// What is accepted, or where it is listed.
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

/// `--helpformat`: Slurm's names of the fields, four on a line.
pub fn helpformat<T: Table>() -> String {
    let listed = T::fields().iter().filter(|f| f.is_listed);
    let mut names: Vec<&str> = listed.filter_map(|f| f.names.first().copied()).collect();
    names.sort_by_key(|name| name.to_ascii_lowercase());
    let line = |four: &[&str]| {
        four.iter().map(|name| format!("{name:<19}")).collect::<Vec<_>>().join(" ") + "\n"
    };
    names.chunks(4).map(line).collect()
}
