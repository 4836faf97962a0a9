//! GPUs in Slurm's spellings: `--gres=gpu:a100:2`, `--gpus=2`, `--gpus-per-task=a100:1` (sbatch man page).

use crate::spec::error::{SpecError, shown};
use std::fmt;

/// How many GPUs, and of which model where one was named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuAsk {
    pub model: Option<String>,
    pub count: u32,
}

/// `a100:2` or `2`, which [`parse_gpus`] reads back.
impl fmt::Display for GpuAsk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.model {
            Some(model) => write!(f, "{model}:{}", self.count),
            None => write!(f, "{}", self.count),
        }
    }
}

impl GpuAsk {
    /// `gpu:a100:2` or `gpu:2`, which [`parse`] reads back.
    pub fn as_gres(&self) -> String {
        format!("gpu:{self}")
    }
}

/// `--gres`: `gpu`, `gpu:2`, `gpu:a100`, `gpu:a100:2`, `none`; lists add up. `gres:gpu:2` and `gres/gpu:2` too.
/// `None` where `none` or nothing was named.
///
/// # Errors
/// `Invalid generic resource (gres) specification: …` for any other resource (golden A-95), exit code 1, and for two
/// models at once, of which one job on one host gets only one.
pub fn parse(text: &str) -> Result<Option<GpuAsk>, SpecError> {
    gres(text).ok_or_else(|| invalid(text))
}

/// `--gpus`, `--gpus-per-node`, `--gpus-per-task`, `--gpus-per-socket`: `2`, `a100:2`, `a100`; lists add up.
///
/// # Errors
/// As [`parse`].
pub fn parse_gpus(text: &str) -> Result<GpuAsk, SpecError> {
    let asks = text.split(',').map(|element| ask(element.strip_prefix("gpu:").unwrap_or(element)));
    sum(asks).flatten().ok_or_else(|| invalid(text))
}

fn invalid(text: &str) -> SpecError {
    SpecError::value(format!("Invalid generic resource (gres) specification: {}", shown(text)))
}

fn gres(text: &str) -> Option<Option<GpuAsk>> {
    if text.is_empty() || text.eq_ignore_ascii_case("none") {
        return Some(None);
    }
    sum(text.split(',').map(|element| {
        let element = element.strip_prefix("gres:").or_else(|| element.strip_prefix("gres/")).unwrap_or(element);
        match element.split_once([':', '=']) {
            Some(("gpu", rest)) => ask(rest),
            None if element == "gpu" => Some(GpuAsk { model: None, count: 1 }),
            _ => None,
        }
    }))
}

/// `2`, `a100:2`, `a100=2` or `a100`.
fn ask(text: &str) -> Option<GpuAsk> {
    let (model, count) = match text.rsplit_once([':', '=']) {
        Some((model, count)) => (Some(model), number(count)?),
        None if text.starts_with(|c: char| c.is_ascii_digit()) && number(text).is_some() => (None, number(text)?),
        None => (Some(text), 1),
    };
    let is_name = |model: &str| {
        model.starts_with(|c: char| c.is_ascii_alphanumeric())
            && model.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+'))
            && number(model).is_none()
    };
    match model {
        Some(model) if !is_name(model) => None,
        _ => Some(GpuAsk { model: model.map(str::to_string), count }),
    }
}

fn number(text: &str) -> Option<u32> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// All asks in one: `None` where one is malformed or two models are named.
fn sum(asks: impl Iterator<Item = Option<GpuAsk>>) -> Option<Option<GpuAsk>> {
    let mut total: Option<GpuAsk> = None;
    for ask in asks {
        let ask = ask?;
        total = Some(match total {
            None => ask,
            Some(total) if total.model == ask.model => {
                GpuAsk { model: ask.model, count: total.count.checked_add(ask.count)? }
            }
            Some(_) => return None,
        });
    }
    Some(total)
}
