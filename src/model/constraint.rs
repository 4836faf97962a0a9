//! Features that a job requires of the host (sbatch man page, `--constraint`).

use serde::{Deserialize, Serialize};
use std::fmt;

/// An expression over feature names.
///
/// Stored as text: the printed form, which `read::constraint` parses back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Constraint {
    /// A feature, required on this many nodes (`a*2`; 1 if not given).
    Feature {
        name: String,
        nodes: u32,
    },
    Not(Box<Constraint>),
    /// At least two parts, none of them an `All`.
    All(Vec<Constraint>),
    /// At least two parts, none of them an `Any`.
    Any(Vec<Constraint>),
}

impl Constraint {
    /// Returns whether a host with these features satisfies the constraint. One host never
    /// satisfies a feature required on two nodes.
    pub fn is_met(&self, has: &[impl AsRef<str>]) -> bool {
        match self {
            Constraint::Feature { name, nodes } => {
                *nodes == 1 && has.iter().any(|f| f.as_ref() == name)
            }
            Constraint::Not(inner) => !inner.is_met(has),
            Constraint::All(parts) => parts.iter().all(|part| part.is_met(has)),
            Constraint::Any(parts) => parts.iter().any(|part| part.is_met(has)),
        }
    }
}

impl Constraint {
    /// Returns the feature names in the expression.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Constraint::Feature { name, .. } => vec![name],
            Constraint::Not(inner) => inner.names(),
            Constraint::All(parts) | Constraint::Any(parts) => {
                parts.iter().flat_map(Constraint::names).collect()
            }
        }
    }
}

/// Prints the form that `read::constraint` parses back to the same expression.
impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |f: &mut fmt::Formatter<'_>, parts: &[Constraint], joint: &str| {
            for (i, part) in parts.iter().enumerate() {
                if i > 0 {
                    f.write_str(joint)?;
                }
                match part {
                    Constraint::Feature { .. } | Constraint::Not(_) => write!(f, "{part}")?,
                    Constraint::All(_) | Constraint::Any(_) => write!(f, "({part})")?,
                }
            }
            Ok(())
        };
        match self {
            Constraint::Feature { name, nodes: 1 } => f.write_str(name),
            Constraint::Feature { name, nodes } => write!(f, "{name}*{nodes}"),
            Constraint::Not(inner) => match **inner {
                Constraint::Feature { .. } | Constraint::Not(_) => write!(f, "!{inner}"),
                Constraint::All(_) | Constraint::Any(_) => write!(f, "!({inner})"),
            },
            Constraint::All(parts) => joined(f, parts, "&"),
            Constraint::Any(parts) => joined(f, parts, "|"),
        }
    }
}

impl From<Constraint> for String {
    fn from(constraint: Constraint) -> String {
        constraint.to_string()
    }
}
