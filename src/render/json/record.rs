//! Objects with static member names. A document may have a hundred thousand of them, so the names
//! are not copied.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::rc::Rc;

/// The members of an object, in any order.
pub(crate) type Members = Vec<(&'static str, Value)>;

/// Builds [`Members`]: `members! { "name": value, … }`, with values as in `json!`.
macro_rules! members {
    ($($name:literal: $value:expr),* $(,)?) => {
        vec![$(($name, serde_json::json!($value))),*]
    };
}
pub(super) use members;

/// An object whose members are sorted by name, as in all other objects.
#[derive(Debug)]
pub struct Record {
    members: Members,
    /// The indices of the members, in sorted order.
    sorted: Rc<[usize]>,
}

/// Sorts members by name. Records of one kind mostly have the same names, so the order of the last
/// record usually holds for the next one.
#[derive(Debug, Default)]
pub(crate) struct Sorter {
    names: Vec<&'static str>,
    /// The indices of the names, in sorted order.
    sorted: Rc<[usize]>,
}

impl Sorter {
    pub(crate) fn record(&mut self, members: impl IntoIterator<Item = Members>) -> Record {
        let mut all = Members::with_capacity(self.names.len());
        members.into_iter().for_each(|mut some| all.append(&mut some));
        // Compare pointers: an equal string at another address only costs another sort.
        let is_same = |(name, (other, _)): (&&str, &(&str, Value))| std::ptr::eq(*name, *other);
        if self.names.len() != all.len() || !self.names.iter().zip(&all).all(is_same) {
            self.names = all.iter().map(|(name, _)| *name).collect();
            let mut sorted: Vec<usize> = (0..all.len()).collect();
            sorted.sort_unstable_by_key(|place| self.names[*place]);
            self.sorted = sorted.into();
        }
        Record { members: all, sorted: Rc::clone(&self.sorted) }
    }
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.members.len()))?;
        for (name, value) in self.sorted.iter().map(|place| &self.members[*place]) {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl From<Record> for Value {
    fn from(Record { members, .. }: Record) -> Self {
        Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_always_sorted_by_name() {
        let mut sorter = Sorter::default();
        let mut text = |parts: Vec<Members>| serde_json::to_string(&sorter.record(parts)).unwrap();
        let three = |n| vec![members! { "b": n, "c": 0 }, members! { "a": 1 }];
        assert_eq!(text(three(2)), r#"{"a":1,"b":2,"c":0}"#);
        assert_eq!(text(three(3)), r#"{"a":1,"b":3,"c":0}"#);
        assert_eq!(text(vec![members! { "z": 1, "d": 2, "c": 3 }]), r#"{"c":3,"d":2,"z":1}"#);
        assert_eq!(text(vec![members! { "z": 1, "d": 2 }]), r#"{"d":2,"z":1}"#);
        assert_eq!(text(three(4)), r#"{"a":1,"b":4,"c":0}"#);
    }
}
