//! Objects with static member names. A document may have a hundred thousand of them, so neither the
//! names nor most values are copied.

use crate::json::document::{Indent, push_compact, push_line};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::borrow::Cow;
use std::rc::Rc;

/// The members of an object, in any order.
pub(crate) type Members<'a> = Vec<(&'static str, Member<'a>)>;

/// The value of a member.
#[derive(Debug, Clone)]
pub(crate) enum Member<'a> {
    Null,
    Flag(bool),
    Number(i64),
    Text(Cow<'a, str>),
    /// A list or an object.
    Nested(Value),
}

/// Builds [`Members`]: `members! { "name": value, … }`, with values that convert to a [`Member`].
macro_rules! members {
    ($($name:literal: $value:expr),* $(,)?) => {
        vec![$(($name, $crate::json::record::Member::from($value))),*]
    };
}
pub(super) use members;

impl From<bool> for Member<'_> {
    fn from(flag: bool) -> Self {
        Member::Flag(flag)
    }
}

impl From<i32> for Member<'_> {
    fn from(number: i32) -> Self {
        Member::Number(number.into())
    }
}

impl From<u32> for Member<'_> {
    fn from(number: u32) -> Self {
        Member::Number(number.into())
    }
}

impl From<i64> for Member<'_> {
    fn from(number: i64) -> Self {
        Member::Number(number)
    }
}

impl From<u64> for Member<'_> {
    fn from(number: u64) -> Self {
        // JSON has larger numbers than `i64`.
        i64::try_from(number).map_or_else(|_| Member::Nested(number.into()), Member::Number)
    }
}

impl<'a> From<&'a str> for Member<'a> {
    fn from(text: &'a str) -> Self {
        Member::Text(text.into())
    }
}

impl<'a> From<&'a String> for Member<'a> {
    fn from(text: &'a String) -> Self {
        Member::Text(text.into())
    }
}

impl From<String> for Member<'_> {
    fn from(text: String) -> Self {
        Member::Text(text.into())
    }
}

impl From<Value> for Member<'_> {
    fn from(value: Value) -> Self {
        Member::Nested(value)
    }
}

impl<'a, T: Into<Member<'a>>> From<Option<T>> for Member<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Member::Null, Into::into)
    }
}

impl From<Member<'_>> for Value {
    fn from(member: Member<'_>) -> Self {
        match member {
            Member::Null => Value::Null,
            Member::Flag(flag) => flag.into(),
            Member::Number(number) => number.into(),
            Member::Text(text) => text.into(),
            Member::Nested(value) => value,
        }
    }
}

impl Serialize for Member<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Member::Null => to.serialize_unit(),
            Member::Flag(flag) => to.serialize_bool(*flag),
            Member::Number(number) => to.serialize_i64(*number),
            Member::Text(text) => to.serialize_str(text),
            Member::Nested(value) => value.serialize(to),
        }
    }
}

/// An object whose members are sorted by name, as in all other objects.
#[derive(Debug)]
pub struct Record<'a> {
    members: Members<'a>,
    order: Rc<Order>,
}

/// The indices of members in sorted order, each with its name as it is written: `"name": `.
type Order = [(usize, Box<[u8]>)];

/// Sorts members by name. Records of one kind mostly have the same names, so the order of the last
/// record usually holds for the next one.
#[derive(Debug, Default)]
pub(crate) struct Sorter {
    names: Vec<&'static str>,
    order: Rc<Order>,
}

impl Sorter {
    pub(crate) fn record<'a>(
        &mut self,
        members: impl IntoIterator<Item = Members<'a>>,
    ) -> Record<'a> {
        let mut all = Members::with_capacity(self.names.len());
        members.into_iter().for_each(|mut some| all.append(&mut some));
        // Compare pointers: an equal string at another address only costs another sort.
        let is_same =
            |(name, (other, _)): (&&str, &(&str, Member<'_>))| std::ptr::eq(*name, *other);
        if self.names.len() != all.len() || !self.names.iter().zip(&all).all(is_same) {
            self.names = all.iter().map(|(name, _)| *name).collect();
            let mut sorted: Vec<usize> = (0..all.len()).collect();
            sorted.sort_unstable_by_key(|place| self.names[*place]);
            let written = |name: &str| format!("{}: ", Value::from(name)).into_bytes().into();
            self.order =
                sorted.into_iter().map(|place| (place, written(self.names[place]))).collect();
        }
        Record { members: all, order: Rc::clone(&self.order) }
    }
}

impl Serialize for Record<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.members.len()))?;
        for (name, value) in self.order.iter().map(|(place, _)| &self.members[*place]) {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl Indent for Record<'_> {
    fn write_at(&self, depth: usize, out: &mut Vec<u8>) {
        out.push(b'{');
        for (at, (place, name)) in self.order.iter().enumerate() {
            push_line(out, depth + 1, at == 0);
            out.extend_from_slice(name);
            self.members[*place].1.write_at(depth + 1, out);
        }
        if !self.members.is_empty() {
            push_line(out, depth, true);
        }
        out.push(b'}');
    }
}

impl Indent for Member<'_> {
    fn write_at(&self, depth: usize, out: &mut Vec<u8>) {
        match self {
            Member::Nested(value) => value.write_at(depth, out),
            simple => push_compact(out, simple),
        }
    }
}

impl From<Record<'_>> for Value {
    fn from(Record { members, .. }: Record<'_>) -> Self {
        let owned = |(name, value): (&str, Member<'_>)| (name.to_owned(), value.into());
        Value::Object(members.into_iter().map(owned).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_are_always_sorted_by_name() {
        let mut sorter = Sorter::default();
        let mut text =
            |parts: Vec<Members<'_>>| serde_json::to_string(&sorter.record(parts)).unwrap();
        let three = |n| vec![members! { "b": n, "c": 0 }, members! { "a": 1 }];
        assert_eq!(text(three(2)), r#"{"a":1,"b":2,"c":0}"#);
        assert_eq!(text(three(3)), r#"{"a":1,"b":3,"c":0}"#);
        assert_eq!(text(vec![members! { "z": 1, "d": 2, "c": 3 }]), r#"{"c":3,"d":2,"z":1}"#);
        assert_eq!(text(vec![members! { "z": 1, "d": 2 }]), r#"{"d":2,"z":1}"#);
        assert_eq!(text(three(4)), r#"{"a":1,"b":4,"c":0}"#);
    }

    #[test]
    fn member_is_the_same_in_a_document_and_as_a_value() {
        let text = "a\n\"b\"".to_owned();
        let members: Members<'_> = members! {
            "flag": true, "none": None::<u32>, "some": Some(-1i64), "most": u64::MAX,
            "least": i64::MIN, "text": &text, "owned": text.clone(), "word": "größe",
            "list": json!([1, { "x": [] }]), "null": Value::Null,
        };
        let expected = json!({
            "flag": true, "none": null, "some": -1, "most": u64::MAX, "least": i64::MIN,
            "text": text, "owned": text, "word": "größe", "list": [1, { "x": [] }], "null": null,
        });
        let mut sorter = Sorter::default();
        let record = sorter.record([members]);
        assert_eq!(serde_json::to_string(&record).unwrap(), expected.to_string());
        for depth in [0, 2, 30] {
            let (mut ours, mut others) = (Vec::new(), Vec::new());
            record.write_at(depth, &mut ours);
            expected.write_at(depth, &mut others);
            assert_eq!(String::from_utf8(ours), String::from_utf8(others), "{depth}");
        }
        let (mut none, nothing) = (Vec::new(), Sorter::default().record([]));
        nothing.write_at(1, &mut none);
        assert_eq!(none, b"{}");
        assert_eq!(Value::from(record), expected);
    }
}
