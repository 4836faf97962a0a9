//! IDs of jobs, array tasks and steps: `12`, `12_3`, `12_[3-9]`, `12.0`, `12_3.batch`.

use crate::array;
use crate::error::{SpecError, shown};
use slotd_model::{JobId, JobRef, StepId, read};

/// The largest job ID. The two values above it mean "no value" and "all" in Slurm.
pub const MAX_JOB_ID: u32 = u32::MAX - 2;

/// Parses the ID of a job, of some tasks of an array, or of a step.
///
/// `12_*` and `12_[*]` are the whole array. The task list may have a step and a limit, as printed
/// by squeue (`12_[3-9%2]`), so that users can paste it; the limit is ignored.
///
/// # Errors
/// Fails with `Invalid job id 12x`.
pub fn parse_job(text: &str) -> Result<JobRef, SpecError> {
    job_ref(text).ok_or_else(|| SpecError::value(format!("Invalid job id {}", shown(text))))
}

/// Parses a comma-separated list. Empty elements, such as after a trailing comma, are skipped.
///
/// # Errors
/// See [`parse_job`]. Fails for the first malformed element, or for the whole text if the list is
/// empty.
pub fn parse_job_list(text: &str) -> Result<Vec<JobRef>, SpecError> {
    let refs = read::split_outside_brackets(text, |c| c == ',')
        .into_iter()
        .map(|(element, _)| element.trim())
        .filter(|element| !element.is_empty())
        .map(parse_job)
        .collect::<Result<Vec<_>, _>>()?;
    if refs.is_empty() {
        Err(SpecError::value(format!("Invalid job id {}", shown(text))))
    } else {
        Ok(refs)
    }
}

pub(crate) fn job_ref(text: &str) -> Option<JobRef> {
    let (name, step) = match text.split_once('.') {
        Some((name, step)) => (name, Some(step_id(step)?)),
        None => (text, None),
    };
    let (job, tasks) = match name.split_once('_') {
        Some((job, "*" | "[*]")) => (job, None),
        Some((job, tasks)) => {
            let list = match tasks.strip_prefix('[') {
                Some(inner) => {
                    let inner = inner.strip_suffix(']')?;
                    match inner.split_once('%') {
                        Some((list, limit)) => {
                            array::number(limit)?;
                            list
                        }
                        None => inner,
                    }
                }
                // Without brackets, this is a single task.
                None => array::number(tasks).map(|_| tasks)?,
            };
            (job, Some(array::task_set(list)?))
        }
        None => (name, None),
    };
    let job = array::number(job).filter(|job| (1..=MAX_JOB_ID).contains(job))?;
    Some(JobRef { job: JobId(job), tasks, step })
}

fn step_id(text: &str) -> Option<StepId> {
    match text {
        "batch" => Some(StepId::Batch),
        "interactive" => Some(StepId::Interactive),
        number => array::number(number).map(StepId::Num),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use slotd_model::TaskSet;

    #[test]
    fn jobs_tasks_and_steps_parse() {
        for (text, print) in [
            ("12", "12"),
            ("012", "12"),
            ("12_3", "12_3"),
            ("12_[3]", "12_3"),
            ("12_[4,8-9]", "12_[4,8-9]"),
            ("12_[50-99]", "12_[50-99]"),
            ("12_[0-15:2]", "12_[0-14:2]"),
            ("12_[3-9%2]", "12_[3-9]"),
            ("12_*", "12"),
            ("12_[*]", "12"),
            ("12.0", "12.0"),
            ("12.batch", "12.batch"),
            ("12_3.batch", "12_3.batch"),
            ("12.interactive", "12.interactive"),
        ] {
            assert_eq!(parse_job(text).map(|r| r.to_string()), Ok(print.to_string()), "{text}");
        }
    }

    #[test]
    fn malformed_ids_are_refused_with_scancels_text() {
        for text in [
            "",
            "abc",
            "12x",
            "0",
            "-1",
            "+1",
            "12_",
            "12_x",
            "12_[",
            "12_[]",
            "12_]",
            "12_[1-",
            "12_1-3",
            "12.",
            "12.x",
            "12.-1",
            "12.0.0",
            "12_1_2",
            " 12",
            "12_[3-9%]x",
            "12_[3-9%x]",
            "4294967294",
            "12_4000001",
            "12+0",
        ] {
            let error = parse_job(text).expect_err(text);
            assert_eq!(error.to_string(), format!("Invalid job id {text}"));
            assert_eq!(error.exit_code(), 1);
        }
    }

    #[test]
    fn a_list_keeps_commas_in_brackets_and_skips_empty_elements() {
        let refs = parse_job_list("12,13.0,15_3,12_[1,50-99],").expect("a list");
        let texts: Vec<String> = refs.iter().map(JobRef::to_string).collect();
        assert_eq!(texts, ["12", "13.0", "15_3", "12_[1,50-99]"]);
        assert_eq!(
            parse_job_list("12,1x").map_err(|e| e.to_string()),
            Err("Invalid job id 1x".to_string())
        );
        assert!(parse_job_list("").is_err() && parse_job_list(",").is_err());
    }

    fn job_ref_strategy() -> impl Strategy<Value = JobRef> {
        let tasks = prop::collection::btree_set(0u32..200, 1..20)
            .prop_map(|ids| TaskSet::from_sorted(&ids.into_iter().collect::<Vec<_>>()));
        let step = prop_oneof![
            Just(StepId::Batch),
            Just(StepId::Interactive),
            any::<u32>().prop_map(StepId::Num)
        ];
        (1..=MAX_JOB_ID, prop::option::of(tasks), prop::option::of(step))
            .prop_map(|(job, tasks, step)| JobRef { job: JobId(job), tasks, step })
    }

    proptest! {
        #[test]
        fn a_printed_list_reads_back(refs in prop::collection::vec(job_ref_strategy(), 1..5)) {
            let text: Vec<String> = refs.iter().map(JobRef::to_string).collect();
            let read = parse_job_list(&text.join(",")).expect("well-formed");
            // Adjacent IDs are merged, so compare the sets by their members.
            let plain = |refs: &[JobRef]| -> Vec<(JobId, Option<Vec<u32>>, Option<StepId>)> {
                refs.iter().map(|r| (r.job, r.tasks.as_ref().map(|t| t.iter().collect()), r.step)).collect()
            };
            prop_assert_eq!(plain(&read), plain(&refs));
            let again: Vec<String> = read.iter().map(JobRef::to_string).collect();
            prop_assert_eq!(parse_job_list(&again.join(",")), Ok(read));
        }

        #[test]
        fn no_text_breaks_the_parser(text in "[0-9_.,%\\[\\]*\\-a-z]{0,40}|.*") {
            let _ = parse_job(&text);
            let _ = parse_job_list(&text);
        }
    }
}
