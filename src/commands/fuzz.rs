//! Fuzz targets for all parsers of untrusted text and frames. A target panics if a value that was
//! parsed and printed does not parse to the same value again.
//!
//! `tests/fuzz/run` builds and runs them.

use jiff::tz::TimeZone;
use slotd_exec::wire;
use slotd_model::{ExitRecord, Timestamp};
use slotd_parse::env_file::EnvFile;
use slotd_parse::filename::{FilenameVars, expand};
use slotd_parse::moment::Toward;
use slotd_parse::*;
use slotd_protocol::answer::Answer;
use slotd_protocol::frame::{Decoder, Header};
use slotd_protocol::request::Request;
use std::fmt::Display;

/// Splits off the first byte, which selects how the rest is used.
fn split(data: &[u8]) -> Option<(u8, &[u8])> {
    data.split_first().map(|(first, rest)| (*first, rest))
}

/// Decodes frames in pieces, the messages in frames, and records in files.
pub fn frames(data: &[u8]) {
    let Some((cut, bytes)) = split(data) else { return };
    for header in [Header::REQUEST, Header::ANSWER, Header::Bare] {
        let mut decoder = Decoder::new(header);
        for piece in bytes.chunks(usize::from(cut).max(1)) {
            decoder.push(piece);
            let missing = decoder.missing();
            let mut is_broken = missing.is_err();
            loop {
                match decoder.next_frame() {
                    Ok(Some(frame)) => {
                        let _ = frame.message::<Request>();
                        let _ = wire::decode_launch(&frame.json, &frame.raw, Vec::new());
                    }
                    Ok(None) => break,
                    Err(_) => {
                        is_broken = true;
                        break;
                    }
                }
            }
            if is_broken {
                break;
            }
        }
    }
    match cut % 4 {
        0 => drop(serde_json::from_slice::<Request>(bytes)),
        1 => drop(serde_json::from_slice::<Answer>(bytes)),
        2 => drop(serde_json::from_slice::<ExitRecord>(bytes)),
        _ => drop(wire::decode_launch(bytes, bytes, Vec::new())),
    }
}

/// Checks that a parsed value, when printed, parses to the same value.
#[track_caller]
fn reads_back<T: Display + PartialEq + std::fmt::Debug>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, SpecError>,
) {
    if let Ok(value) = parse(text) {
        let printed = value.to_string();
        assert_eq!(parse(&printed).as_ref(), Ok(&value), "{text:?} is printed as {printed:?}");
    }
}

/// Parses an option value with one of the grammars.
pub fn grammars(data: &[u8]) {
    let Some((which, bytes)) = split(data) else { return };
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let now = Timestamp::from_secs(1_800_000_000);
    match which % 24 {
        0 => reads_back(text, array::parse),
        1 => reads_back(text, constraint::parse),
        2 => reads_back(text, cpu_bind::parse),
        3 => reads_back(text, dependency::parse),
        4 => reads_back(text, gpu_bind::parse),
        5 => reads_back(text, hostlist::parse),
        6 => reads_back(text, ids::parse_job),
        7 => reads_back(text, nodes::parse),
        8 => {
            reads_back(text, gres::parse_gpus);
            drop(gres::parse(text));
        }
        9 => drop(ids::parse_job_list(text)),
        10 => drop(acct_time::parse(text, now, &TimeZone::UTC, text.len() % 2 == 0)),
        11 => drop(begin::parse_for(text, "--begin", now, &TimeZone::UTC)),
        12 => drop(moment::parse(text, now, &TimeZone::UTC, Toward::Future)),
        13 => drop((count::parse(text, "-n"), count::parse_or_zero(text, "-n"))),
        14 => drop(export::parse(text)),
        15 => drop(export::parse_file(bytes)),
        16 => drop(mem::parse_mb_for(text, "--mem")),
        17 => drop(multi_prog::parse(text, "file", 4, &[])),
        18 => drop(propagate::parse(text)),
        19 => drop((signal::parse(text), signal::parse_warn(text))),
        20 => drop(states::parse_list(text)),
        21 => drop(time::parse_limit(text)),
        22 => drop(age::parse(text, "--older-than")),
        _ => drop(expand(text, &FilenameVars::default())),
    }
}

/// Reads a script's directives and whether it starts its own tasks.
pub fn scripts(data: &[u8]) {
    let _ = script::check(data);
    let text = String::from_utf8_lossy(data);
    drop(directive::directives(&text));
    drop(crontab::parse(&text));
    script_tasks::script_tasks(&text);
}

/// Parses the environment file, and checks that a value that was set reads back.
pub fn env_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(file) = EnvFile::parse(text) else { return };
    if let Ok(changed) = file.with("SLOTD_FEATURES", text) {
        assert_eq!(changed.get("SLOTD_FEATURES"), Some(text));
        let again = EnvFile::parse(changed.text());
        assert_eq!(
            again.ok().as_ref().and_then(|file| file.get("SLOTD_FEATURES")),
            Some(text),
            "{:?}",
            changed.text()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::io::Read;

    #[test]
    fn fuzzing_corpus_passes() {
        type Target = fn(&[u8]);
        let targets: BTreeMap<&str, Target> = [
            ("frames", frames as Target),
            ("grammars", grammars),
            ("scripts", scripts),
            ("env_file", env_file),
        ]
        .into();
        let packed: &[u8] = include_bytes!("../../tests/fuzz/corpus.tar.gz");
        let mut corpus = tar::Archive::new(flate2::read::GzDecoder::new(packed));
        let mut inputs: BTreeMap<&str, usize> = BTreeMap::new();
        for entry in corpus.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().into_owned();
            let folder = path.parent().and_then(|folder| folder.file_name()?.to_str());
            if !entry.header().entry_type().is_file() {
                continue;
            }
            let (name, target) = targets
                .get_key_value(folder.unwrap())
                .unwrap_or_else(|| panic!("{path:?} belongs to no target"));
            let mut input = Vec::new();
            entry.read_to_end(&mut input).unwrap();
            target(&input);
            *inputs.entry(name).or_default() += 1;
        }
        assert!(
            inputs.len() == targets.len() && inputs.values().all(|count| *count > 20),
            "{inputs:?}"
        );
    }
}
