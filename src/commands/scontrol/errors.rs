//! `scontrol errnumstr`: the messages for error numbers.

use super::command::Command;
use super::session::bare;
use crate::args::error::CliError;

/// Slurm's error numbers, for the refusals that slotd also has.
const SLURM_ERRORS: [(i32, &str); 31] = [
    (2000, "Invalid partition name specified"),
    (2005, "More processors requested than permitted"),
    (2006, "Node count specification invalid"),
    (2010, "Invalid user id"),
    (2012, "Pathname of a file, directory or other parameter too long"),
    (2014, "Requested node configuration is not available"),
    (2015, "Requested partition configuration not available now"),
    (2016, "Requested nodes are busy"),
    (2017, "Invalid job id specified"),
    (2018, "Invalid node name specified"),
    (2020, "Job can not be altered now, try again later"),
    (2021, "Job/step already completing or completed"),
    (2024, "Job is pending execution"),
    (2025, "Task count specification invalid"),
    (2029, "Invalid feature specification"),
    (2037, "Requested operation is presently disabled"),
    (2038, "Job dependency problem"),
    (2042, "Job is in held state, pending scheduler release"),
    (2044, "Memory required by task is not available"),
    (2048, "Invalid license specification"),
    (2050, "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"),
    (2051, "Requested time limit is invalid (missing or exceeds some limit)"),
    (2053, "Requested reservation is invalid"),
    (2054, "Invalid time specified"),
    (2070, "Required partition not available (inactive or drain)"),
    (2072, "Invalid generic resource (gres) specification"),
    (2073, "Job is no longer pending execution"),
    (2081, "Invalid job array specification"),
    (2084, "Job has already finished"),
    (2085, "Job is not running"),
    (2115, "Invalid Trackable RESource (TRES) specification"),
];

/// The largest error number of the system.
const MAX_ERRNO: i32 = 133;

/// Parses the word after `errnumstr`.
///
/// # Errors
/// Fails with Slurm's message unless there is exactly one number.
pub(super) fn read(words: &[String]) -> Result<Command, CliError> {
    let [number] = words else { return Err(bare("one arguments required for keyword:errnumstr")) };
    let number =
        number.parse().map_err(|_| bare("numeric arguments required for keyword:errnumstr"))?;
    Ok(Command::ErrorText(number))
}

/// Returns the message for an error number.
pub(super) fn text(number: i32) -> String {
    if let Some((_, text)) = SLURM_ERRORS.iter().find(|(known, _)| *known == number) {
        return (*text).to_owned();
    }
    match number {
        0 => "No error".to_owned(),
        1..=MAX_ERRNO => {
            let text = std::io::Error::from_raw_os_error(number).to_string();
            text.split(" (os error").next().unwrap_or_default().to_owned()
        }
        _ => format!("Unknown error {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_slurm_and_of_the_system_have_messages() {
        for (number, message) in [
            (0, "No error"),
            (1, "Operation not permitted"),
            (2017, "Invalid job id specified"),
            (99_999, "Unknown error 99999"),
            (-1, "Unknown error -1"),
        ] {
            assert_eq!(text(number), message);
        }
        assert!(read(&["x".to_owned()]).is_err() && read(&[]).is_err());
    }
}
