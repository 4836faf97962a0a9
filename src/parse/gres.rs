//! GPU requests in Slurm's spellings: `--gres=gpu:a100:2`, `--gpus=2`, `--gpus-per-task=a100:1`
//! (sbatch man page); and fractions of GPUs: `--gres=shard:2`, and `--gres=gpumem:10G`, an
//! extension of slotd.

use crate::error::{SpecError, shown};
use crate::mem;
use std::fmt;

/// A number of GPUs, optionally of one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuAsk {
    pub model: Option<String>,
    pub count: u32,
}

/// Formats `a100:2` or `2`, which [`parse_gpus`] reads back.
impl fmt::Display for GpuAsk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.model {
            Some(model) => write!(f, "{model}:{}", self.count),
            None => write!(f, "{}", self.count),
        }
    }
}

/// The resources that `--gres` requests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GresAsk {
    pub gpus: Option<GpuAsk>,
    /// The memory of each GPU, in MB.
    pub mem_mb: Option<u64>,
    /// The number of shards of one GPU.
    pub shards: Option<u32>,
}

/// Formats `gpu:a100:2,gpumem:10240M`, which [`parse`] reads back.
impl fmt::Display for GresAsk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gpus = self.gpus.as_ref().map(|ask| format!("gpu:{ask}"));
        let mem = self.mem_mb.map(|mb| format!("gpumem:{mb}M"));
        let shards = self.shards.map(|shards| format!("shard:{shards}"));
        let parts: Vec<String> = [gpus, mem, shards].into_iter().flatten().collect();
        f.write_str(&parts.join(","))
    }
}

/// Parses `--gres`: `gpu`, `gpu:2`, `gpu:a100`, `gpu:a100:2`, `gpumem:10G`, `shard:2` or `none`,
/// also as `gres:gpu:2` and `gres/gpu:2`. The GPUs and shards of a list are added up. Returns
/// `None` for `none` and for the empty string.
///
/// # Errors
/// Fails with `Invalid generic resource (gres) specification: …`, exit code 1, for any other
/// resource, for zero memory, for shards combined with GPUs or GPU memory, and for two models: a
/// job on one host can use only one.
pub fn parse(text: &str) -> Result<Option<GresAsk>, SpecError> {
    if text.is_empty() || text.eq_ignore_ascii_case("none") {
        return Ok(None);
    }
    let mut asked = GresAsk::default();
    for element in text.split(',') {
        let element = element
            .strip_prefix("gres:")
            .or_else(|| element.strip_prefix("gres/"))
            .unwrap_or(element);
        add(&mut asked, element).ok_or_else(|| invalid(text).maybe_hint(hint(element)))?;
    }
    if asked.shards.is_some() && (asked.mem_mb.is_some() || asked.gpus.is_some()) {
        return Err(invalid(text).with_hint(NOT_BOTH));
    }
    Ok(Some(asked))
}

/// The error hint for shards that are combined with GPUs or GPU memory.
pub const NOT_BOTH: &str =
    "request either GPUs (gpu, gpumem) or shards of one GPU (shard), not both";

fn hint(element: &str) -> Option<&'static str> {
    match element.split([':', '=']).next() {
        Some("gpumem") => Some("memory of each GPU, at least 1M: gpumem:512M, gpumem:10G"),
        Some("shard") => Some("a number of shards, at least 1: shard:2"),
        _ => None,
    }
}

/// Adds an element of a list. Returns `None` if the element is malformed.
fn add(asked: &mut GresAsk, element: &str) -> Option<()> {
    match element.split_once([':', '=']) {
        Some(("gpu", rest)) => {
            asked.gpus = sum([asked.gpus.take(), Some(ask(rest)?)].into_iter().flatten().map(Some))?
        }
        None if element == "gpu" => return add(asked, "gpu:1"),
        Some(("gpumem", size)) if asked.mem_mb.is_none() => {
            asked.mem_mb = Some(mem::megabytes(size).filter(|mb| *mb > 0)?);
        }
        Some(("shard", count)) => {
            let shards = asked.shards.unwrap_or(0).checked_add(number(count)?)?;
            asked.shards = Some(shards).filter(|shards| *shards > 0);
            asked.shards?;
        }
        None if element == "shard" => return add(asked, "shard:1"),
        _ => return None,
    }
    Some(())
}

/// Parses `--gpus`, `--gpus-per-node`, `--gpus-per-task` or `--gpus-per-socket`: `2`, `a100:2`,
/// `a100`. The counts of a list are added up.
///
/// # Errors
/// See [`parse`].
pub fn parse_gpus(text: &str) -> Result<GpuAsk, SpecError> {
    let asks = text.split(',').map(|element| ask(element.strip_prefix("gpu:").unwrap_or(element)));
    sum(asks).flatten().ok_or_else(|| invalid(text))
}

fn invalid(text: &str) -> SpecError {
    SpecError::value(format!("Invalid generic resource (gres) specification: {}", shown(text)))
}

/// Parses `2`, `a100:2`, `a100=2` or `a100`.
fn ask(text: &str) -> Option<GpuAsk> {
    let (model, count) = match text.rsplit_once([':', '=']) {
        Some((model, count)) => (Some(model), number(count)?),
        None if text.starts_with(|c: char| c.is_ascii_digit()) && number(text).is_some() => {
            (None, number(text)?)
        }
        None => (Some(text), 1),
    };
    let is_name = |model: &str| {
        model.starts_with(|c: char| c.is_ascii_alphanumeric())
            && model.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+'))
            // A name contains a letter: `0.5` is a mistake.
            && model.bytes().any(|b| b.is_ascii_alphabetic())
    };
    match model {
        Some(model) if !is_name(model) => None,
        _ => Some(GpuAsk { model: model.map(str::to_string), count }),
    }
}

fn number(text: &str) -> Option<u32> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// Adds up all requests. Returns `None` if one is malformed or if they name two models.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ask(model: Option<&str>, count: u32) -> GpuAsk {
        GpuAsk { model: model.map(str::to_string), count }
    }

    #[test]
    fn every_gres_spelling_parses() {
        for (text, wanted) in [
            ("gpu", Some(ask(None, 1))),
            ("gpu:2", Some(ask(None, 2))),
            ("gpu:a100", Some(ask(Some("a100"), 1))),
            ("gpu:a100:4", Some(ask(Some("a100"), 4))),
            ("gpu:rtx-3090_ti:1", Some(ask(Some("rtx-3090_ti"), 1))),
            ("gpu:0", Some(ask(None, 0))),
            ("gpu:1,gpu:2", Some(ask(None, 3))),
            ("gres:gpu:2", Some(ask(None, 2))),
            ("gres/gpu:2", Some(ask(None, 2))),
            ("gres/gpu=2", Some(ask(None, 2))),
            ("gres/gpu:a100=2", Some(ask(Some("a100"), 2))),
            ("none", None),
            ("NONE", None),
            ("", None),
        ] {
            let wanted = wanted.map(|gpus| GresAsk { gpus: Some(gpus), ..GresAsk::default() });
            assert_eq!(parse(text), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn gpu_memory_and_shards_parse() {
        let asked = |gpus, mem_mb, shards| Ok(Some(GresAsk { gpus, mem_mb, shards }));
        assert_eq!(parse("gpumem:10G"), asked(None, Some(10_240), None));
        assert_eq!(
            parse("gpu:t4:2,gres/gpumem=512M"),
            asked(Some(super::GpuAsk { model: Some("t4".into()), count: 2 }), Some(512), None)
        );
        assert_eq!(parse("shard:2,shard"), asked(None, None, Some(3)));
        for (text, hint) in [
            ("gpumem:0", "at least 1M"),
            ("gpumem", "gpumem:10G"),
            ("gpumem:1G,gpumem:1G", "memory of each GPU"),
            ("gpumem:1.5G", "gpumem:512M"),
            ("shard:0", "at least 1"),
            ("shard:x", "a number of shards"),
            ("gpu:1,shard:1", "not both"),
            ("shard:1,gpumem:1G", "not both"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(
                error.hint.as_deref().is_some_and(|told| told.contains(hint)),
                "{text}: {:?}",
                error.hint
            );
            assert!(error.to_string().ends_with(text), "{error}");
        }
    }

    #[test]
    fn every_gpus_spelling_parses() {
        assert_eq!(parse_gpus("2"), Ok(ask(None, 2)));
        assert_eq!(parse_gpus("a100:2"), Ok(ask(Some("a100"), 2)));
        assert_eq!(parse_gpus("a100:1,a100:2"), Ok(ask(Some("a100"), 3)));
        // As in Slurm, a bare word is a model, even if the host has no such GPU (`--gpus=abc`).
        assert_eq!(parse_gpus("abc"), Ok(ask(Some("abc"), 1)));
        assert_eq!(parse_gpus("gpu:2"), Ok(ask(None, 2)));
    }

    #[test]
    fn other_resources_are_refused_with_slurms_text() {
        for text in [
            "foo:1",
            "gpu:",
            "gpu:-1",
            "gpu:a100:x",
            "gpu:a100:1:2",
            "gpu,",
            "gpux",
            "gpu:a100:1,gpu:v100:1",
            "gpu:4294967296",
            "gpu:4294967295,gpu:1",
            "none,gpu",
            "gpu:a 1",
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!(
                error.to_string(),
                format!("Invalid generic resource (gres) specification: {text}")
            );
            assert_eq!((error.exit_code(), error.submission), (1, false));
        }
        for text in ["", "-1", "a100:", ":2", "1 5", "2,", "1.5", "0.5:1"] {
            assert!(parse_gpus(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_printed_ask_reads_back(
            model in prop::option::of("[a-z][a-z0-9_.-]{0,8}"),
            count: u32,
            mem_mb in prop::option::of(1u64..1 << 40),
        ) {
            let ask = GpuAsk { model, count };
            prop_assert_eq!(parse_gpus(&ask.to_string()), Ok(ask.clone()));
            let gres = GresAsk { gpus: Some(ask), mem_mb, shards: None };
            prop_assert_eq!(parse(&gres.to_string()), Ok(Some(gres)));
        }

        #[test]
        fn no_text_breaks_the_parsers(text in "(gres|gpu|gpumem|shard|a100|none|[0-9MG:=/,]){0,10}|.*") {
            let _ = parse(&text);
            let _ = parse_gpus(&text);
        }
    }
}
