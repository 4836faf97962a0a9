//! `-S/--sort`: the columns by which rows are sorted, and the direction of each.

use crate::Ctx;
use crate::field::{FormatError, Need, Place, Table, by_code, by_own_name};
use crate::value::Value;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::marker::PhantomData;

/// A sort order: the most significant column first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sort<T: Table> {
    keys: Vec<SortKey>,
    table: PhantomData<T>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SortKey {
    field: usize,
    descends: bool,
}

impl<T: Table> Sort<T> {
    /// Parses `P,t,-p`: letters of `-o`, each optionally after `+` or `-`, with or without commas;
    /// or field names.
    ///
    /// # Errors
    /// Fails on a word that is neither a field name nor a sequence of column letters.
    pub fn parse(text: &str) -> Result<Self, FormatError> {
        let mut keys = Vec::new();
        for word in text.split(',').map(str::trim) {
            let name = word.trim_start_matches(['+', '-']);
            // A single letter is always a code: `t` is the state, not a name.
            let is_code = name.chars().nth(1).is_none();
            match if is_code { None } else { by_own_name::<T>(name) } {
                Some(field) => keys.push(SortKey { field, descends: word.starts_with('-') }),
                None => push_codes::<T>(&mut keys, word)?,
            }
        }
        Ok(Sort { keys, table: PhantomData })
    }

    /// Returns whether the order depends on a column with this need.
    pub fn needs(&self, need: Need) -> bool {
        self.keys.iter().any(|key| T::fields()[key.field].need == need)
    }

    /// Returns whether a brief query provides everything that the order depends on.
    pub fn is_brief(&self) -> bool {
        self.keys.iter().all(|key| T::fields()[key.field].need == Need::Brief)
    }

    /// Sorts the rows. The sort is stable.
    pub fn apply(&self, rows: &mut Vec<T::Row<'_>>, ctx: &Ctx) {
        if self.keys.is_empty() {
            return;
        }
        // Compute each value once instead of once per comparison.
        let values = |row: &T::Row<'_>| self.values(row, ctx).collect::<Vec<_>>();
        let mut keyed: Vec<_> =
            std::mem::take(rows).into_iter().map(|row| (values(&row), row)).collect();
        keyed.sort_by(|(a, _), (b, _)| self.compare(a, b));
        rows.extend(keyed.into_iter().map(|(_, row)| row));
    }

    fn values(&self, row: &T::Row<'_>, ctx: &Ctx) -> impl Iterator<Item = Value> {
        self.keys.iter().map(move |key| T::fields()[key.field].value(row, ctx))
    }

    fn compare(&self, a: &[Value], b: &[Value]) -> Ordering {
        let by = |((a, b), key): ((&Value, &Value), &SortKey)| {
            let order = a.key().cmp(&b.key());
            if key.descends { order.reverse() } else { order }
        };
        a.iter()
            .zip(b)
            .zip(&self.keys)
            .map(by)
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }
}

/// The order of rows that arrive in batches.
#[derive(Debug, Clone)]
pub struct Order<T: Table> {
    sort: Sort<T>,
    /// For each row, one value per sort key.
    values: Vec<Value>,
    /// For each row, the number that decides between rows with equal values.
    numbers: Vec<u32>,
    /// The positions of the rows to leave out.
    forgotten: HashSet<u32>,
}

impl<T: Table> Order<T> {
    pub fn by(sort: Sort<T>) -> Self {
        Order { sort, values: Vec::new(), numbers: Vec::new(), forgotten: HashSet::new() }
    }

    /// Adds the next row.
    pub fn add(&mut self, row: &T::Row<'_>, number: u32, ctx: &Ctx) {
        self.values.extend(self.sort.values(row, ctx));
        self.numbers.push(number);
    }

    /// Leaves out the rows with these numbers that were added so far.
    pub fn forget(&mut self, numbers: &HashSet<u32>) {
        let rows = (0..).zip(&self.numbers);
        self.forgotten
            .extend(rows.filter(|(_, number)| numbers.contains(number)).map(|(row, _)| row));
    }

    /// Returns the sorted rows, each by its position among the added rows, from 0. The sort is
    /// stable.
    pub fn places(&self) -> Vec<u32> {
        let keys = self.sort.keys.len();
        let row = |place: u32| {
            let place = place as usize;
            (&self.values[place * keys..(place + 1) * keys], self.numbers[place])
        };
        let all = (0..).take(self.numbers.len());
        let mut places: Vec<u32> = all.filter(|place| !self.forgotten.contains(place)).collect();
        places.sort_by(|a, b| {
            let ((a, first), (b, second)) = (row(*a), row(*b));
            self.sort.compare(a, b).then(first.cmp(&second))
        });
        places
    }
}

fn push_codes<T: Table>(keys: &mut Vec<SortKey>, word: &str) -> Result<(), FormatError> {
    let mut letters: Vec<char> = word.chars().filter(|c| c.is_alphabetic()).collect();
    let count = letters.len();
    letters.sort_unstable();
    letters.dedup();
    // Nobody sorts by a column twice, so a repeated letter means a misspelled name.
    if letters.len() < count {
        return Err(FormatError::unknown::<T>(Place::Sort, word.trim_start_matches(['+', '-'])));
    }
    let mut descends = false;
    for c in word.chars() {
        match c {
            '+' | ' ' | '%' => descends = false,
            '-' => descends = true,
            c => {
                // Slurm does not sort by columns without a header.
                let field = by_code::<T>(c).filter(|field| !T::fields()[*field].header.is_empty());
                // The word was meant as a name.
                let field = field.ok_or_else(|| {
                    FormatError::unknown::<T>(Place::Sort, word.trim_start_matches(['+', '-']))
                })?;
                keys.push(SortKey { field, descends });
                descends = false;
            }
        }
    }
    Ok(())
}
