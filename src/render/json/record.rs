//! Objects of which there may be a hundred thousand in a document: the names of their members are known here, and none of
//! them is copied.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// Members of an object, in any order.
pub type Members = Vec<(&'static str, Value)>;

/// `members! { "name": value, … }`, with values as `json!` takes them.
macro_rules! members {
    ($($name:literal: $value:expr),* $(,)?) => {
        vec![$(($name, serde_json::json!($value))),*]
    };
}
pub(super) use members;

/// An object. It is written in the order of its names, as every other one.
#[derive(Debug)]
pub struct Record(Members);

impl Record {
    pub fn of(members: impl IntoIterator<Item = Members>) -> Record {
        let mut all: Members = members.into_iter().flatten().collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        Record(all)
    }
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl From<Record> for Value {
    fn from(Record(members): Record) -> Self {
        Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }
}
