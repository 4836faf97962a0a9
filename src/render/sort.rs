//! `-S/--sort`: the columns by which rows are sorted, and the direction of each.

use crate::Ctx;
use crate::field::{FormatError, Need, Place, Table, by_code, by_own_name};
use crate::value::{Key, Value};
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
        let mut order = Order::by(self.clone());
        rows.iter().for_each(|row| order.add(row, 0, ctx));
        let mut unsorted: Vec<_> = rows.drain(..).map(Some).collect();
        let sorted = order.places().into_iter();
        rows.extend(sorted.filter_map(|place| unsorted[place as usize].take()));
    }
}

/// The value of a row by which it is sorted, computed once instead of once per comparison.
#[derive(Debug, Clone, Copy)]
enum Kept {
    Nothing,
    Number(i64),
    /// The number of a text in [`Texts`].
    Text(u32),
}

/// The texts among the values. Equal ones that follow each other, such as states and partitions,
/// are stored once.
#[derive(Debug, Clone, Default)]
struct Texts {
    all: Vec<String>,
    /// The last text of each sort key.
    last: Vec<u32>,
}

impl Texts {
    /// Stores the value for the sort key with this number.
    fn keep(&mut self, key: usize, value: &Value<'_>) -> Kept {
        let text = match value.key() {
            Key::Nothing => return Kept::Nothing,
            Key::Number(number) => return Kept::Number(number),
            Key::Text(text) => text,
        };
        if self.last.len() <= key {
            self.last.resize(key + 1, u32::MAX);
        }
        if self.all.get(self.last[key] as usize).is_none_or(|last| last != text) {
            self.last[key] = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
            self.all.push(text.to_owned());
        }
        Kept::Text(self.last[key])
    }

    fn compare(&self, a: Kept, b: Kept) -> Ordering {
        match (a, b) {
            (Kept::Text(a), Kept::Text(b)) if a == b => Ordering::Equal,
            _ => self.key(a).cmp(&self.key(b)),
        }
    }

    fn key(&self, kept: Kept) -> Key<'_> {
        match kept {
            Kept::Nothing => Key::Nothing,
            Kept::Number(number) => Key::Number(number),
            Kept::Text(text) => Key::Text(&self.all[text as usize]),
        }
    }
}

/// The order of rows that arrive in batches.
#[derive(Debug, Clone)]
pub struct Order<T: Table> {
    sort: Sort<T>,
    /// For each row, one value per sort key.
    values: Vec<Kept>,
    texts: Texts,
    /// For each row, the number that decides between rows with equal values.
    numbers: Vec<u32>,
    /// The positions of the rows to leave out.
    forgotten: HashSet<u32>,
}

impl<T: Table> Order<T> {
    pub fn by(sort: Sort<T>) -> Self {
        let (values, texts, numbers, forgotten) = Default::default();
        Order { sort, values, texts, numbers, forgotten }
    }

    /// Adds the next row.
    pub fn add(&mut self, row: &T::Row<'_>, number: u32, ctx: &Ctx) {
        for (place, key) in self.sort.keys.iter().enumerate() {
            let value = T::fields()[key.field].value(row, ctx);
            self.values.push(self.texts.keep(place, &value));
        }
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
            self.compare(a, b).then(first.cmp(&second))
        });
        places
    }

    fn compare(&self, a: &[Kept], b: &[Kept]) -> Ordering {
        let by = |((a, b), key): ((&Kept, &Kept), &SortKey)| {
            let order = self.texts.compare(*a, *b);
            if key.descends { order.reverse() } else { order }
        };
        let mut orders = a.iter().zip(b).zip(&self.sort.keys).map(by);
        orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Field;
    use crate::fixture::ctx;
    use proptest::prelude::*;

    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    struct Pairs;

    type F = Field<Pairs>;

    static FIELDS: &[F] = &[
        F::new(&["Text"], "TEXT", |r, _| r.0.as_str().into()).code("t"),
        F::new(&["Number"], "NUMBER", |r, _| r.1.map_or(Value::NONE, Value::from)).code("n"),
    ];

    impl Table for Pairs {
        type Row<'a> = &'a (String, Option<u32>);

        fn fields() -> &'static [F] {
            FIELDS
        }
    }

    proptest! {
        #[test]
        fn rows_are_sorted_by_their_keys_and_stay_in_order_otherwise(
            rows in proptest::collection::vec(("[ab]{0,2}", proptest::option::of(0u32..3)), 0..20),
            text_descends: bool,
            number_descends: bool,
        ) {
            let sign = |descends| if descends { "-" } else { "" };
            let text = format!("{}t,{}n", sign(text_descends), sign(number_descends));
            let sort = Sort::<Pairs>::parse(&text).unwrap();
            let mut sorted: Vec<&(String, Option<u32>)> = rows.iter().collect();
            sort.apply(&mut sorted, &ctx());
            let mut expected: Vec<&(String, Option<u32>)> = rows.iter().collect();
            expected.sort_by(|a, b| {
                let turned = |order: Ordering, descends| if descends { order.reverse() } else { order };
                turned(a.0.cmp(&b.0), text_descends).then(turned(a.1.cmp(&b.1), number_descends))
            });
            let same = sorted.iter().zip(&expected).all(|(a, b)| std::ptr::eq(*a, *b));
            prop_assert!(same, "{text}: {sorted:?} {expected:?}");
        }
    }
}
