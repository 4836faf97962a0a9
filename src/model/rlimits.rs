//! The submitter's resource limits, which the job's processes inherit.
//!
//! Every job has ten of them, mostly the same, so they are stored as one short text:
//! `9:-,4:0:-,7:1024:4096`. Each limit consists of the number that `setrlimit` takes, the soft
//! value and, if it differs, the hard value. A hyphen means unlimited.

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cell::RefCell;
use std::fmt::{self, Write};
use std::ops::Deref;
use std::str::FromStr;
use std::sync::Arc;

/// A resource limit: the number that `setrlimit` takes, and the two values. `u64::MAX` means
/// unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
pub struct Rlimit {
    pub resource: u32,
    pub soft: u64,
    pub hard: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Rlimits(Arc<[Rlimit]>);

impl Deref for Rlimits {
    type Target = [Rlimit];

    fn deref(&self) -> &[Rlimit] {
        &self.0
    }
}

impl FromIterator<Rlimit> for Rlimits {
    fn from_iter<I: IntoIterator<Item = Rlimit>>(limits: I) -> Self {
        Rlimits(limits.into_iter().collect())
    }
}

/// The soft or the hard value of a limit.
struct Amount(u64);

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            u64::MAX => f.write_char('-'),
            amount => amount.fmt(f),
        }
    }
}

impl fmt::Display for Rlimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, Rlimit { resource, soft, hard }) in self.iter().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            write!(f, "{comma}{resource}:{}", Amount(*soft))?;
            if hard != soft {
                write!(f, ":{}", Amount(*hard))?;
            }
        }
        Ok(())
    }
}

fn amount(text: &str) -> Option<u64> {
    if text == "-" { Some(u64::MAX) } else { text.parse().ok() }
}

fn limit(text: &str) -> Option<Rlimit> {
    let (resource, values) = text.split_once(':')?;
    let (soft, hard) = values.split_once(':').unwrap_or((values, values));
    Some(Rlimit { resource: resource.parse().ok()?, soft: amount(soft)?, hard: amount(hard)? })
}

impl FromStr for Rlimits {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Ok(Rlimits::default());
        }
        let one = |part| {
            limit(part).ok_or_else(|| {
                format!("{part:?} is not a resource limit: expected NUMBER:SOFT:HARD")
            })
        };
        text.split(',').map(one).collect()
    }
}

impl Serialize for Rlimits {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

thread_local! {
    /// The last text and its limits, which jobs with the same limits share.
    static LAST: RefCell<(String, Rlimits)> = RefCell::default();
}

/// Accepts the text, or the list of records that older versions wrote.
struct Either;

impl<'de> Visitor<'de> for Either {
    type Value = Rlimits;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("resource limits")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Rlimits, E> {
        LAST.with_borrow_mut(|(known, limits)| {
            if known != text {
                *limits = text.parse().map_err(E::custom)?;
                text.clone_into(known);
            }
            Ok(limits.clone())
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Rlimits, A::Error> {
        let mut limits = Vec::with_capacity(10);
        while let Some(limit) = list.next_element()? {
            limits.push(limit);
        }
        Ok(Rlimits(limits.into()))
    }
}

impl<'de> Deserialize<'de> for Rlimits {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values() -> impl Strategy<Value = u64> {
        prop_oneof![Just(u64::MAX), Just(u64::MAX - 1), Just(0), any::<u64>()]
    }

    proptest! {
        #[test]
        fn limits_round_trip(
            limits in prop::collection::vec((any::<u32>(), values(), values()), 0..12)
        ) {
            let limits: Rlimits =
                limits.into_iter().map(|(resource, soft, hard)| Rlimit { resource, soft, hard }).collect();
            prop_assert_eq!(limits.to_string().parse::<Rlimits>(), Ok(limits.clone()));
            let json = serde_json::to_string(&limits).unwrap();
            prop_assert_eq!(serde_json::from_str::<Rlimits>(&json).unwrap(), limits);
        }

        #[test]
        fn any_text_that_parses_round_trips(text in "[0-9:,-]{0,30}") {
            if let Ok(limits) = text.parse::<Rlimits>() {
                prop_assert_eq!(limits.to_string().parse::<Rlimits>(), Ok(limits));
            }
        }
    }

    #[test]
    fn jobs_with_the_same_limits_share_them() {
        let read = |text: &str| serde_json::from_str::<Rlimits>(text);
        let (one, two) = (r#""9:-,4:0:-""#, r#""9:-,4:1:-""#);
        let same = [read(one).unwrap(), read(one).unwrap()];
        assert!(Arc::ptr_eq(&same[0].0, &same[1].0));
        assert_eq!(read(two).unwrap().to_string(), "9:-,4:1:-");
        read(r#""9""#).unwrap_err();
        assert_eq!(read(two).unwrap().to_string(), "9:-,4:1:-");
        assert_eq!(read(r#""""#).unwrap(), Rlimits::default());
        assert_eq!(read(one).unwrap(), same[0]);
    }

    #[test]
    fn records_of_older_versions_are_read_and_written_as_short_text() {
        let old = r#"[{"resource":9,"soft":18446744073709551615,"hard":18446744073709551615},
            {"resource":4,"soft":0,"hard":18446744073709551615},{"resource":7,"soft":1024,"hard":4096}]"#;
        let limits: Rlimits = serde_json::from_str(old).unwrap();
        assert_eq!(serde_json::to_string(&limits).unwrap(), r#""9:-,4:0:-,7:1024:4096""#);
        assert_eq!(limits[1], Rlimit { resource: 4, soft: 0, hard: u64::MAX });
    }

    #[test]
    fn the_error_names_the_invalid_limit() {
        let why = serde_json::from_str::<Rlimits>(r#""9:-,4:x""#).unwrap_err().to_string();
        assert!(why.starts_with(r#""4:x" is not a resource limit"#), "{why}");
    }
}
