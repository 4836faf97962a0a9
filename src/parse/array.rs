//! Job arrays: `--array=0-7`, `1,3,5-9:2`, `0-31%4` (sbatch man page, `--array`).

use crate::error::{SpecError, shown};
use crate::number;
use slotd_model::array::{ArraySpec, MAX_TASK_ID, TaskRange, TaskSet};
use std::collections::BTreeMap;

/// The maximum number of task IDs, counting repeats, in overlapping ranges with different steps, and
/// the maximum number of ranges of their union. Only contrived input comes near these limits, and it
/// would keep the daemon busy for seconds or fill its memory.
const MAX_NAMED: u64 = 4 * (MAX_TASK_ID as u64 + 1);
const MAX_RANGES: usize = 1 << 16;

/// Parses the tasks of an array and the number that may run at once (`%4`; `%0` and a bare `%` set
/// no limit).
///
/// IDs go up to [`MAX_TASK_ID`], may come in any order and may repeat. Brackets around the list are
/// dropped. Slurm treats the empty string as a plain job; callers must handle that case.
///
/// # Errors
/// Fails with `Invalid job array specification: …`, the error of Slurm's controller.
pub fn parse(text: &str) -> Result<ArraySpec, SpecError> {
    spec(text).ok_or_else(|| {
        SpecError::submission(format!("Invalid job array specification: {}", shown(text)))
            .with_hint(FORMS)
    })
}

/// The accepted forms, for hints.
const FORMS: &str = "0-7, 1,3,5-9:2 (every second), with %4 at most 4 at once; ids up to 4000000, in at most 65536 ranges";

fn spec(text: &str) -> Option<ArraySpec> {
    let (list, limit) = match text.split_once('%') {
        Some((list, "")) => (list, None),
        Some((list, limit)) => (list, Some(number::parse(limit)?).filter(|&limit| limit > 0)),
        None => (text, None),
    };
    let list = match list.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']')?,
        None => list,
    };
    Some(ArraySpec { tasks: task_set(list)?, limit })
}

/// Parses task IDs without brackets and limit, such as the list in `12_[1-3,7]`. Returns `None` if
/// the list is malformed or empty.
pub fn task_set(list: &str) -> Option<TaskSet> {
    let mut ranges = Vec::new();
    // Slurm skips empty elements.
    for element in list.split(',').filter(|element| !element.is_empty()) {
        let (ids, step) = match element.split_once(':') {
            Some((ids, step)) if ids.contains('-') => (ids, number::parse(step)?),
            Some(_) => return None,
            None => (element, 1),
        };
        let (first, last) = match ids.split_once('-') {
            Some((first, last)) => (number::parse(first)?, number::parse(last)?),
            None => (number::parse(ids)?, number::parse(ids)?),
        };
        if last > MAX_TASK_ID {
            return None;
        }
        ranges.push(TaskRange::new(first, last, step)?);
    }
    if ranges.is_empty() { None } else { union(ranges) }
}

/// Returns the union of `ranges`. Time and memory do not grow with the number of overlaps.
fn union(ranges: Vec<TaskRange>) -> Option<TaskSet> {
    // Merge ranges with the same step and remainder first: `1,2,3` becomes `1-3`.
    let mut classes: BTreeMap<(u32, u32), Vec<TaskRange>> = BTreeMap::new();
    for r in ranges {
        classes.entry((r.step, r.first % r.step)).or_default().push(r);
    }
    let mut merged: Vec<TaskRange> = Vec::new();
    for ((step, _), mut class) in classes {
        class.sort_by_key(|r| (r.first, r.last));
        let start = merged.len();
        for r in class {
            match merged[start..].last_mut() {
                Some(m) if r.first <= m.last.saturating_add(step) => m.last = m.last.max(r.last),
                _ => merged.push(r),
            }
        }
    }
    merged.sort_by_key(|r| (r.first, r.last));
    if merged.windows(2).all(|w| w[0].last < w[1].first) {
        return Some(TaskSet::from_ranges(merged));
    }
    // Ranges with different steps interleave, so mark their members one by one.
    if merged.iter().map(|r| r.count() as u64).sum::<u64>() > MAX_NAMED {
        return None;
    }
    let last = merged.iter().map(|r| r.last).max()?;
    let mut member = vec![false; last as usize + 1];
    for r in &merged {
        for id in (r.first..=r.last).step_by(r.step as usize) {
            member[id as usize] = true;
        }
    }
    let ids: Vec<u32> = (0..=last).filter(|&id| member[id as usize]).collect();
    Some(TaskSet::from_sorted(&ids)).filter(|set| set.ranges().len() <= MAX_RANGES)
}

/// Parses digits only: `u32::from_str` would accept a sign.
pub(crate) fn number(text: &str) -> Option<u32> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn printed(text: &str) -> String {
        parse(text).map_or_else(|e| e.to_string(), |spec| spec.to_string())
    }

    #[test]
    fn every_slurm_form_parses() {
        for (text, print) in [
            ("0-7", "0-7"),
            ("0-15:2", "0-14:2"),
            ("1,3,5-9:2", "1,3,5-9:2"),
            ("7,2,4-5", "2,4-5,7"),
            ("0", "0"),
            ("3-3", "3"),
            ("01-03", "1-3"),
            ("1,1", "1"),
            ("1-3,2", "1-3"),
            ("1,2,3", "1-3"),
            ("0-31%4", "0-31%4"),
            ("1-5%0", "1-5"),
            ("1-5%", "1-5"),
            ("[1-5]%2", "1-5%2"),
            ("1,,2,", "1-2"),
            ("0-10:2,1", "0-2,4-10:2"),
            ("0-4000000", "0-4000000"),
            ("1-5:10", "1"),
        ] {
            assert_eq!(printed(text), print, "{text}");
        }
    }

    #[test]
    fn malformed_arrays_get_the_error_of_the_controller() {
        for text in [
            "",
            ",",
            "abc",
            "5-1",
            "1-",
            "-3",
            "1-5:0",
            "1-5:",
            "1:2",
            "1-5%x",
            "1-5%2%3",
            "1-5%-1",
            "4000001",
            "0-4294967295",
            "0-4294967296",
            "99999999999999999999",
            "[1-5",
            "1-5]",
            "1 - 5",
            "1 ",
            "1-5%4294967296",
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!(error.to_string(), format!("Invalid job array specification: {text}"));
            assert!(error.submission && error.exit_code() == 1);
        }
    }

    #[test]
    fn blanks_and_plus_signs_are_accepted_before_numbers() {
        for (text, plain) in [(" 1,+3", "1,3"), ("1-+9: 2% 4", "1-9:2%4")] {
            assert_eq!(parse(text), parse(plain), "{text}");
        }
    }

    #[test]
    fn the_largest_array_is_one_range() {
        let spec = parse("0-4000000%7").expect("four million and one tasks");
        assert_eq!(
            (spec.tasks.ranges().len(), spec.tasks.len(), spec.limit),
            (1, 4_000_001, Some(7))
        );
    }

    #[test]
    fn ten_thousand_overlapping_ranges_merge_quickly() {
        let text: Vec<String> = (0..10_000).map(|i| format!("{}-4000000:2", i % 2)).collect();
        let spec = parse(&text.join(",")).expect("the same two ranges repeated");
        assert_eq!(spec.tasks.len(), 4_000_001);
        let text: Vec<String> = (2..10_000).map(|i| format!("0-4000000:{i}")).collect();
        assert!(parse(&text.join(",")).is_err());
        let text: Vec<String> =
            (0..10_000).map(|i| format!("{}-4000000:{}", i % 100, 100 + i / 100)).collect();
        let _ = parse(&text.join(","));
    }

    #[test]
    fn a_set_of_too_many_ranges_is_refused() {
        assert!(parse("0-30000:2,1-30000:3").is_ok());
        assert!(parse("0-3999999:2,1-3999999:3").is_err());
        let odd: Vec<String> = (0..60_000).map(|i| (i * 7 + i % 5).to_string()).collect();
        assert!(parse(&odd.join(",")).is_ok());
    }

    fn element() -> impl Strategy<Value = String> {
        prop_oneof![
            (0u32..5000).prop_map(|a| a.to_string()),
            (0u32..5000, 0u32..300).prop_map(|(a, n)| format!("{a}-{}", a + n)),
            (0u32..5000, 0u32..300, 1u32..20).prop_map(|(a, n, s)| format!("{a}-{}:{s}", a + n)),
        ]
    }

    /// Returns the members of a list.
    fn members(text: &str) -> std::collections::BTreeSet<u32> {
        let n = |s: &str| s.parse::<u32>().expect("a number");
        text.split(',')
            .flat_map(|e| {
                let (ids, step) = e.split_once(':').map_or((e, 1), |(ids, step)| (ids, n(step)));
                let (a, b) =
                    ids.split_once('-').map_or_else(|| (n(ids), n(ids)), |(a, b)| (n(a), n(b)));
                (a..=b).step_by(step as usize)
            })
            .collect()
    }

    proptest! {
        #[test]
        fn a_printed_array_reads_back(
            elements in prop::collection::vec(element(), 1..8),
            limit in prop::option::of(1u32..100),
        ) {
            let list = elements.join(",");
            let text = limit.map_or(list.clone(), |limit| format!("{list}%{limit}"));
            let spec = parse(&text).expect("well-formed");
            prop_assert_eq!(spec.limit, limit);
            prop_assert_eq!(spec.tasks.iter().collect::<Vec<_>>(), members(&list).into_iter().collect::<Vec<_>>());
            prop_assert_eq!(parse(&spec.to_string()), Ok(spec));
        }

        #[test]
        fn no_text_breaks_the_parser(text in "[0-9,:%\\-]{0,40}|.*") {
            if let Ok(spec) = parse(&text) {
                prop_assert_eq!(parse(&spec.to_string()), Ok(spec));
            }
        }
    }
}
