//! The keys of a step, the same in TOML and JSON.

use super::foreach::Foreach;
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;

/// The unvalidated description of a step, or of many with `foreach`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "an object")]
pub struct StepSpec {
    pub name: Option<String>,
    pub command: Option<Words>,
    pub env: BTreeMap<String, Scalar>,
    pub dir: Option<String>,
    /// Per task.
    pub cpus: Option<Scalar>,
    pub mem: Option<Scalar>,
    pub gpus: Option<Scalar>,
    pub ntasks: Option<Scalar>,
    pub time: Option<Scalar>,
    pub after: Option<Words>,
    pub priority: Option<Scalar>,
    pub retry: Option<RetrySpec>,
    pub on_failure: Option<Scalar>,
    pub signal: Option<Scalar>,
    pub stdin: Option<String>,
    pub stdout: Option<String>,
    pub stderr: Option<String>,
    pub foreach: Option<Foreach>,
}

impl StepSpec {
    /// Fills in missing keys from the defaults. Environment variables are merged.
    #[must_use]
    pub fn or(self, defaults: &StepSpec) -> StepSpec {
        let other = defaults.clone();
        let mut env = other.env;
        env.extend(self.env);
        StepSpec {
            name: self.name.or(other.name),
            command: self.command.or(other.command),
            env,
            dir: self.dir.or(other.dir),
            cpus: self.cpus.or(other.cpus),
            mem: self.mem.or(other.mem),
            gpus: self.gpus.or(other.gpus),
            ntasks: self.ntasks.or(other.ntasks),
            time: self.time.or(other.time),
            after: self.after.or(other.after),
            priority: self.priority.or(other.priority),
            retry: self.retry.or(other.retry),
            on_failure: self.on_failure.or(other.on_failure),
            signal: self.signal.or(other.signal),
            stdin: self.stdin.or(other.stdin),
            stdout: self.stdout.or(other.stdout),
            stderr: self.stderr.or(other.stderr),
            foreach: self.foreach.or(other.foreach),
        }
    }
}

/// A string or a list of strings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Words {
    One(String),
    Many(Vec<String>),
}

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Words;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a string or a list of strings")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Words, E> {
                Ok(Words::One(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Words, A::Error> {
                let mut words = Vec::new();
                while let Some(word) = list.next_element::<Scalar>()? {
                    words.push(word.0);
                }
                Ok(Words::Many(words))
            }
        }

        d.deserialize_any(Reader)
    }
}

/// A string, or a number or boolean as it was written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scalar(pub String);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Reader;

        impl Visitor<'_> for Reader {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a string or a number")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar(text.to_owned()))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Scalar, E> {
                Ok(Scalar(number.to_string()))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Scalar, E> {
                Ok(Scalar(number.to_string()))
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Scalar, E> {
                Ok(Scalar(number.to_string()))
            }

            fn visit_bool<E: de::Error>(self, truth: bool) -> Result<Scalar, E> {
                Ok(Scalar(truth.to_string()))
            }
        }

        d.deserialize_any(Reader)
    }
}

/// `retry = 2`, or `retry = { times = 2, delay = "0:10" }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetrySpec {
    pub times: u32,
    pub delay: Option<Scalar>,
}

impl<'de> Deserialize<'de> for RetrySpec {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            times: u32,
            delay: Option<Scalar>,
        }

        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = RetrySpec;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a number or a table with times and delay")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<RetrySpec, E> {
                let refuse =
                    |_| E::custom(format!("retry = {number} is not a valid count: use 0 or more"));
                Ok(RetrySpec { times: u32::try_from(number).map_err(refuse)?, delay: None })
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<RetrySpec, E> {
                self.visit_i64(i64::try_from(number).unwrap_or(i64::MAX))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<RetrySpec, A::Error> {
                let Table { times, delay } =
                    Table::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(RetrySpec { times, delay })
            }
        }

        d.deserialize_any(Reader)
    }
}
