//! Lists of job states: `-t PD,running`, `--state=all`.

use crate::error::{SpecError, shown};
use crate::suggest;
use slotd_model::{JobState, Reason};
use std::fmt;

/// The states that a query selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateFilter {
    /// Every state, because the list contains `all`.
    All,
    /// Only these states, and pending jobs that are held for these reasons. Empty if the list names
    /// only states that jobs of slotd never have.
    Some(Vec<JobState>, Vec<Reason>),
}

/// Combines several lists. Returns `None` if there is no list.
pub fn union(filters: &[StateFilter]) -> Option<StateFilter> {
    let (mut states, mut reasons) = (Vec::new(), Vec::new());
    for filter in filters {
        match filter {
            StateFilter::All => return Some(StateFilter::All),
            StateFilter::Some(more, held_for) => {
                more.iter().for_each(|state| add(&mut states, *state));
                held_for.iter().for_each(|reason| add(&mut reasons, *reason));
            }
        }
    }
    (!filters.is_empty()).then_some(StateFilter::Some(states, reasons))
}

fn add<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

/// Formats `all` or a comma-separated list of long names, which [`parse_list`] reads back.
impl fmt::Display for StateFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StateFilter::All => f.write_str("all"),
            StateFilter::Some(states, reasons) => {
                let held = reasons.iter().filter_map(|reason| reason.held_state());
                let names =
                    states.iter().map(|state| state.name()).chain(held.map(|(name, _)| name));
                for (i, name) in names.enumerate() {
                    write!(f, "{}{name}", if i > 0 { "," } else { "" })?;
                }
                Ok(())
            }
        }
    }
}

/// Slurm states that jobs of slotd never have (squeue man page, "JOB STATE CODES"). They are
/// accepted and match nothing.
const ABSENT: &[(&str, &str)] = &[
    ("BOOT_FAIL", "BF"),
    ("DEADLINE", "DL"),
    ("CONFIGURING", "CF"),
    ("RESIZING", "RS"),
    ("REQUEUED", "RQ"),
    ("REQUEUE_FED", "RF"),
    ("REQUEUE_HOLD", "RH"),
    ("REVOKED", "RV"),
    ("SIGNALING", "SI"),
    ("STAGE_OUT", "SO"),
    ("STOPPED", "ST"),
    ("LAUNCH_FAILED", "LF"),
    ("RECONFIG_FAIL", "RC"),
    ("POWER_UP_NODE", "PO"),
    ("UPDATE_DB", "UD"),
    ("EXPEDITING", "EX"),
    ("UNKNOWN", "UN"),
];

/// The list that squeue prints after an unknown state (`squeue -t bogus`).
const VALID_NAMES: &str = "PENDING,RUNNING,SUSPENDED,COMPLETED,CANCELLED,FAILED,TIMEOUT,NODE_FAIL,PREEMPTED,\
    BOOT_FAIL,DEADLINE,OUT_OF_MEMORY,COMPLETING,CONFIGURING,RESIZING,RESV_DEL_HOLD,REQUEUED,REQUEUE_FED,REQUEUE_HOLD,\
    REVOKED,SIGNALING,SPECIAL_EXIT,STAGE_OUT,STOPPED";

/// Parses a comma-separated list of names (`PENDING`) and codes (`PD`) in any case. `all` anywhere
/// in the list selects every state.
///
/// # Errors
/// Fails with the two lines of squeue: `Invalid job state specified: bogus` and the list of valid
/// states.
pub fn parse_list(text: &str) -> Result<StateFilter, SpecError> {
    let (mut states, mut reasons) = (Vec::new(), Vec::new());
    let (mut all, mut named) = (false, false);
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        named = true;
        let is = |name: &str| word.eq_ignore_ascii_case(name);
        if is("all") {
            all = true;
        } else if let Some(state) =
            JobState::ALL.into_iter().find(|state| is(state.name()) || is(state.code()))
        {
            add(&mut states, state);
        } else if let Some(reason) = Reason::ALL
            .iter()
            .copied()
            .find(|reason| reason.held_state().is_some_and(|(name, code)| is(name) || is(code)))
        {
            add(&mut reasons, reason);
        } else if !ABSENT.iter().any(|(name, code)| is(name) || is(code)) {
            return Err(unknown(word));
        }
    }
    match (named, all) {
        (false, _) => Err(unknown(text)),
        (_, true) => Ok(StateFilter::All),
        (_, false) => Ok(StateFilter::Some(states, reasons)),
    }
}

fn unknown(word: &str) -> SpecError {
    SpecError::value(format!(
        "Invalid job state specified: {}\nValid job states include: {VALID_NAMES}",
        shown(word)
    ))
    .with_hint_of(suggest::nearest(word, VALID_NAMES.split(',').chain(["all"])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use slotd_model::End;

    #[test]
    fn names_and_codes_parse_in_any_case() {
        use JobState::{Ended, Pending, Running};
        assert_eq!(
            parse_list("pd,running"),
            Ok(StateFilter::Some(vec![Pending, Running], Vec::new()))
        );
        assert_eq!(
            parse_list("CD,F,CA"),
            Ok(StateFilter::Some(
                vec![Ended(End::Completed), Ended(End::Failed), Ended(End::Cancelled)],
                Vec::new()
            ))
        );
        assert_eq!(parse_list("R,r,RUNNING,"), Ok(StateFilter::Some(vec![Running], Vec::new())));
        assert_eq!(
            parse_list("out_of_memory"),
            Ok(StateFilter::Some(vec![Ended(End::OutOfMemory)], Vec::new()))
        );
        assert_eq!(parse_list("All"), Ok(StateFilter::All));
        assert_eq!(parse_list("R,all"), Ok(StateFilter::All));
    }

    #[test]
    fn states_of_slotd_are_not_listed_as_absent() {
        let has =
            |word| JobState::ALL.iter().any(|state| state.name() == word || state.code() == word);
        assert!(!ABSENT.iter().any(|(name, code)| has(*name) || has(*code)));
    }

    #[test]
    fn absent_states_match_nothing() {
        for text in ["BOOT_FAIL", "rv", "REVOKED,DL", "BF"] {
            assert_eq!(parse_list(text), Ok(StateFilter::Some(Vec::new(), Vec::new())), "{text}");
        }
        assert_eq!(parse_list("RV,R"), Ok(StateFilter::Some(vec![JobState::Running], Vec::new())));
        assert!(VALID_NAMES.split(',').all(|name| parse_list(name).is_ok()));
    }

    #[test]
    fn an_unknown_state_error_lists_the_valid_states() {
        let text = parse_list("R,bogus").expect_err("bogus").to_string();
        assert!(text.starts_with(
            "Invalid job state specified: bogus\nValid job states include: PENDING,RUNNING,"
        ));
        assert!(parse_list("").is_err());
    }

    proptest! {
        #[test]
        fn a_printed_filter_reads_back(
            states in prop::sample::subsequence(JobState::ALL.to_vec(), 1..=9),
            reasons in prop::sample::subsequence(vec![Reason::ReservationDeleted, Reason::SpecialExit], 0..=2),
        ) {
            let filter = StateFilter::Some(states, reasons);
            prop_assert_eq!(parse_list(&filter.to_string()), Ok(filter));
            prop_assert_eq!(parse_list(&StateFilter::All.to_string()), Ok(StateFilter::All));
        }

        #[test]
        fn no_text_breaks_the_parser(text in ".*") {
            let _ = parse_list(&text);
        }
    }
}
