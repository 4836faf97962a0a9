//! Readers of the values that are stored as text, one per value. Each reads back the printed form
//! of its value, and everything else that users may write for it. `parse` turns `None` into Slurm's
//! error.

use crate::binding::{CpuBind, GpuBind};
use crate::placement::{Distribution, MemBind};
use crate::{Constraint, HostList};
use std::fmt;

mod constraint;
mod cpu_bind;
mod distribution;
mod gpu_bind;
mod hosts;
mod lists;
mod mem_bind;

pub use constraint::constraint;
pub use cpu_bind::cpu_bind;
pub use distribution::distribution;
pub use gpu_bind::gpu_bind;
pub use hosts::hosts;
pub use mem_bind::mem_bind;

/// A stored text that is not a value of its kind.
#[derive(Debug)]
pub struct Unreadable {
    kind: &'static str,
    text: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a {}: {:?}", self.kind, self.text)
    }
}

/// Reads values back that were stored as text.
macro_rules! stored_as_text {
    ($($value:ty, $kind:literal, $read:expr;)*) => {$(
        impl TryFrom<String> for $value {
            type Error = Unreadable;

            fn try_from(text: String) -> Result<Self, Unreadable> {
                let read: fn(&str) -> Option<Self> = $read;
                read(&text).ok_or(Unreadable { kind: $kind, text })
            }
        }
    )*};
}

stored_as_text! {
    Constraint, "constraint", constraint;
    CpuBind, "CPU binding", |text| cpu_bind(text).map(|(bind, _)| bind);
    Distribution, "distribution", |text| distribution(&text.to_ascii_lowercase());
    GpuBind, "GPU binding", gpu_bind;
    HostList, "host list", |text| hosts(text).map(HostList::new);
    MemBind, "memory binding", |text| mem_bind(&text.to_ascii_lowercase());
}

/// Splits `text` at separators outside `[…]`. Returns each part with the separator before it.
pub fn split_outside_brackets(
    text: &str,
    is_separator: impl Fn(char) -> bool,
) -> Vec<(&str, Option<char>)> {
    let mut parts = Vec::new();
    let (mut start, mut before, mut inside) = (0, None, false);
    for (i, c) in text.char_indices() {
        match c {
            '[' => inside = true,
            ']' => inside = false,
            c if !inside && is_separator(c) => {
                parts.push((&text[start..i], before));
                (start, before) = (i + c.len_utf8(), Some(c));
            }
            _ => {}
        }
    }
    parts.push((&text[start..], before));
    parts
}
