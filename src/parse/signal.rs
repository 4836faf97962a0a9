//! Signals: `scancel --signal USR1`, `--signal=B:USR1@300` (sbatch man page, `--signal`).
//!
//! Numbers are those of Linux on x86-64, ARM and RISC-V.

use crate::array;
use crate::error::{SpecError, shown};
use crate::{number, suggest};
use slotd_model::request::WarnSignal;

/// The number of seconds before the time limit if `--signal` does not set it.
const DEFAULT_BEFORE_SECS: u32 = 60;

/// The longest warning time: Slurm stores it in 16 bits.
const MAX_BEFORE_SECS: u32 = u16::MAX as u32;

const RTMIN: i32 = 34;
const RTMAX: i32 = 64;

const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// Parses a signal: `USR1`, `SIGUSR1` or `10`, in any case, or `RTMIN+2` and `RTMAX-1`. Returns its
/// number.
///
/// # Errors
/// Fails with `Unknown job signal: FOO`, also for numbers that Linux does not have.
pub fn parse(text: &str) -> Result<i32, SpecError> {
    signal_number(text).ok_or_else(|| {
        SpecError::value(format!("Unknown job signal: {}", shown(text))).with_hint(hint("", text))
    })
}

/// Returns the accepted forms, and the signal name nearest to the one in `text`.
fn hint(form: &str, text: &str) -> String {
    let name = text
        .rsplit(':')
        .next()
        .and_then(|text| text.split('@').next())
        .unwrap_or_default()
        .to_ascii_uppercase();
    let forms = format!("{form}a signal is a number or a name such as TERM or USR1");
    suggest::hint(&forms, name.strip_prefix("SIG").unwrap_or(&name), NAMES)
}

/// Parses `[R][B]:SIG[@seconds]`. `R` (reservation) is accepted and ignored, because one host has
/// no reservations.
///
/// # Errors
/// Fails with `Invalid --signal specification: …`.
pub fn parse_warn(text: &str) -> Result<WarnSignal, SpecError> {
    warn(text).ok_or_else(|| {
        SpecError::invalid_option("--signal", text).with_hint(hint("[B:]SIGNAL[@SECONDS], ", text))
    })
}

fn warn(text: &str) -> Option<WarnSignal> {
    let (batch_only, text) = match text.split_once(':') {
        Some((letters, rest)) => {
            if letters.is_empty()
                || !letters.bytes().all(|b| matches!(b, b'B' | b'b' | b'R' | b'r'))
            {
                return None;
            }
            (letters.contains(['B', 'b']), rest)
        }
        None => (false, text),
    };
    let (signal, before_secs) = match text.split_once('@') {
        Some((signal, secs)) => {
            (signal, number::parse(secs).filter(|&secs| secs <= MAX_BEFORE_SECS)?)
        }
        None => (text, DEFAULT_BEFORE_SECS),
    };
    let signal = signal.trim_start();
    let signal = signal_number(number::digits(signal).unwrap_or(signal))?;
    Some(WarnSignal { signal, before_secs, batch_only })
}

fn signal_number(text: &str) -> Option<i32> {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        // The C library uses 32 and 33 for its threads.
        return array::number(text)
            .and_then(|n| i32::try_from(n).ok())
            .filter(|n| (1..=31).contains(n) || (RTMIN..=RTMAX).contains(n));
    }
    let upper = text.to_ascii_uppercase();
    let short = upper.strip_prefix("SIG").unwrap_or(&upper);
    if let Some(i) = NAMES.iter().position(|name| *name == short) {
        return i32::try_from(i + 1).ok();
    }
    let real_time = |base: i32, offset: &str| {
        let offset = if offset.is_empty() { 0 } else { offset.parse::<i32>().ok()? };
        base.checked_add(offset).filter(|n| (RTMIN..=RTMAX).contains(n))
    };
    match short {
        "POLL" => signal_number("IO"),
        "IOT" => signal_number("ABRT"),
        "CLD" => signal_number("CHLD"),
        _ => match (short.strip_prefix("RTMIN"), short.strip_prefix("RTMAX")) {
            (Some(offset), _) if offset.is_empty() || offset.starts_with('+') => {
                real_time(RTMIN, offset)
            }
            (_, Some(offset)) if offset.is_empty() || offset.starts_with('-') => {
                real_time(RTMAX, offset)
            }
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the short name of a signal: `USR1`. Real-time signals have none.
    fn name(signal: i32) -> Option<&'static str> {
        usize::try_from(signal).ok()?.checked_sub(1).and_then(|i| NAMES.get(i)).copied()
    }

    /// Formats `B:USR1@300`, which [`parse_warn`] reads back.
    fn print_warn(warn: &WarnSignal) -> String {
        let target = if warn.batch_only { "B:" } else { "" };
        match name(warn.signal) {
            Some(name) => format!("{target}{name}@{}", warn.before_secs),
            None => format!("{target}{}@{}", warn.signal, warn.before_secs),
        }
    }

    #[test]
    fn names_and_numbers_parse() {
        for (text, signal) in [
            ("USR1", 10),
            ("SIGUSR1", 10),
            ("sigusr2", 12),
            ("10", 10),
            ("TERM", 15),
            ("KILL", 9),
            ("9", 9),
            ("HUP", 1),
            ("SYS", 31),
            ("POLL", 29),
            ("RTMIN", 34),
            ("SIGRTMIN+2", 36),
            ("RTMAX-1", 63),
            ("64", 64),
        ] {
            assert_eq!(parse(text), Ok(signal), "{text}");
        }
        assert_eq!(name(10), Some("USR1"));
        assert_eq!((name(0), name(-1), name(32), name(64)), (None, None, None, None));
    }

    #[test]
    fn unknown_signals_are_refused_with_scancels_text() {
        for text in [
            "FOO",
            "",
            "0",
            "99",
            "-9",
            "32",
            "SIG",
            "RTMIN+31",
            "RTMAX+1",
            "RTMINX",
            "SIGSIGUSR1",
            "USR1 ",
        ] {
            assert_eq!(
                parse(text).map_err(|e| e.to_string()),
                Err(format!("Unknown job signal: {text}"))
            );
        }
    }

    #[test]
    fn a_warning_names_signal_target_and_time() {
        let warn =
            |signal, before_secs, batch_only| Ok(WarnSignal { signal, before_secs, batch_only });
        assert_eq!(parse_warn("USR1"), warn(10, 60, false));
        assert_eq!(parse_warn("USR2@90"), warn(12, 90, false));
        assert_eq!(parse_warn("B:USR1@300"), warn(10, 300, true));
        assert_eq!(parse_warn("RB:10@5"), warn(10, 5, true));
        assert_eq!(parse_warn("R:TERM"), warn(15, 60, false));
        assert_eq!(parse_warn("INT@0"), warn(2, 0, false));
        assert_eq!(parse_warn("B: 10@+60"), warn(10, 60, true));
        for text in [
            "FOO@10",
            "",
            "@10",
            "USR1@",
            "USR1@x",
            "USR1@65536",
            "X:USR1",
            ":USR1",
            "B:",
            "B:R:USR1",
            "USR1@1@2",
        ] {
            let error = parse_warn(text).expect_err(text);
            assert_eq!(error.to_string(), format!("Invalid --signal specification: {text}"));
            assert_eq!(error.exit_code(), 255);
        }
    }

    proptest! {
        #[test]
        fn a_printed_warning_reads_back(
            signal in prop_oneof![1..=31i32, RTMIN..=RTMAX],
            before_secs in 0..=MAX_BEFORE_SECS,
            batch_only: bool,
        ) {
            let warn = WarnSignal { signal, before_secs, batch_only };
            prop_assert_eq!(parse_warn(&print_warn(&warn)), Ok(warn));
        }

        #[test]
        fn no_text_breaks_the_parser(text in "[BR]{0,2}:?[A-Z0-9]{0,8}[+\\-@]?[0-9]{0,12}|.*") {
            let _ = parse(&text);
            let _ = parse_warn(&text);
        }
    }
}
