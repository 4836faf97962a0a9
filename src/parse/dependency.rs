//! Job dependencies: `--dependency` (sbatch man page).

use crate::array;
use crate::error::{SpecError, shown};
use crate::ids;
use crate::suggest;
use slotd_model::dependency::{Dependency, DependencyKind, DependencyTerm};
use slotd_model::read;

const KINDS: [DependencyKind; 7] = [
    DependencyKind::After,
    DependencyKind::AfterAny,
    DependencyKind::AfterOk,
    DependencyKind::AfterNotOk,
    DependencyKind::AfterCorr,
    DependencyKind::AfterBurstBuffer,
    DependencyKind::Expand,
];

/// Parses `afterok:1:2`, `afterok:1,2`, `afterok:1,afterany:2_3`, `afterok:1?afternotok:2`,
/// `after:1+5` or `singleton`.
///
/// `,` requires all dependencies; a single `?` anywhere requires any of them, as in Slurm. A bare
/// job number continues the preceding kind; at the beginning it means `afterany`, Slurm's oldest
/// form. The empty string and `0` mean "no dependency". Array IDs are `12_3`, `12_[1-3]` or `12_*`.
/// Minutes are accepted after every kind, as in Slurm.
///
/// # Errors
/// Fails with `Job dependency problem: …`, the error of Slurm's controller. This includes `expand:`
/// if it names several jobs or is combined with `?`, and `+0`.
pub fn parse(text: &str) -> Result<Dependency, SpecError> {
    if text.is_empty() || text == "0" {
        return Ok(Dependency::default());
    }
    dependency(text).ok_or_else(|| {
        SpecError::submission(format!("Job dependency problem: {}", shown(text)))
            .with_hint(hint(text))
    })
}

/// Returns the accepted forms, and the known kind nearest to an unknown one.
fn hint(text: &str) -> String {
    const FORMS: &str = "afterok:12, afterany:12:13, afternotok:12, after:12+5, aftercorr:12, expand:12 or singleton, with , for all or \
         ? for any";
    let names = read::split_outside_brackets(text, |c| c == ',' || c == '?');
    let mut names = names.iter().map(|(part, _)| part.split(':').next().unwrap_or_default());
    let known = || KINDS.into_iter().map(DependencyKind::name).chain(["singleton"]);
    let unknown = names.find(|name| {
        !name.starts_with(|c: char| c.is_ascii_digit())
            && !known().any(|known| known.eq_ignore_ascii_case(name))
    });
    suggest::hint(FORMS, unknown.unwrap_or_default(), known())
}

fn dependency(text: &str) -> Option<Dependency> {
    let mut terms = Vec::new();
    let mut any = false;
    // The kind that a bare number continues.
    let mut continued = Some(DependencyKind::AfterAny);
    for (part, separator) in read::split_outside_brackets(text, |c| c == ',' || c == '?') {
        any |= separator == Some('?');
        if part.eq_ignore_ascii_case("singleton") {
            terms.push(DependencyTerm::Singleton);
            continued = None;
            continue;
        }
        let (kind, jobs) = if part.starts_with(|c: char| c.is_ascii_digit()) {
            (continued?, part)
        } else {
            let (name, jobs) = part.split_once(':')?;
            (kind(name)?, jobs)
        };
        continued = Some(kind);
        // Don't split at the colon of `12_[0-8:2]`.
        for (job, _) in read::split_outside_brackets(jobs, |c| c == ':') {
            terms.push(term(kind, job)?);
        }
    }
    let dependency = Dependency { any, terms };
    let is_expand = |term: &&DependencyTerm| {
        matches!(term, DependencyTerm::On { kind: DependencyKind::Expand, .. })
    };
    let expands = dependency.terms.iter().filter(is_expand).count();
    (expands == 0 || (expands == 1 && !dependency.any)).then_some(dependency)
}

fn kind(name: &str) -> Option<DependencyKind> {
    KINDS.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name))
}

fn term(kind: DependencyKind, text: &str) -> Option<DependencyTerm> {
    let (job, delay_minutes) = match text.split_once('+') {
        Some((job, delay)) => (job, array::number(delay).filter(|minutes| *minutes > 0)?),
        None => (text, 0),
    };
    let job = ids::job_ref(job).filter(|job| job.step.is_none())?;
    Some(DependencyTerm::On { kind, job, delay_minutes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use slotd_model::{JobId, JobRef, TaskSet};

    #[test]
    fn every_slurm_form_parses() {
        for (text, print) in [
            ("", ""),
            ("0", ""),
            ("afterok:1", "afterok:1"),
            ("afterok:1:2", "afterok:1,afterok:2"),
            ("afterok:1,2", "afterok:1,afterok:2"),
            ("afterok:1,afterany:2", "afterok:1,afterany:2"),
            ("afterok:1:2,afterany:3,4", "afterok:1,afterok:2,afterany:3,afterany:4"),
            ("afterok:1?afternotok:2", "afterok:1?afternotok:2"),
            ("afterok:1:2?afterany:3", "afterok:1?afterok:2?afterany:3"),
            ("afterok:1,afterany:2?singleton", "afterok:1?afterany:2?singleton"),
            ("afterok:1?afterany:2,singleton", "afterok:1?afterany:2?singleton"),
            ("after:1+5", "after:1+5"),
            ("after:1+5:2+3", "after:1+5,after:2+3"),
            ("afterok:1+5:2,afterany:3+1", "afterok:1+5,afterok:2,afterany:3+1"),
            ("afterburstbuffer:1?AfterBurstBuffer:2+7", "afterburstbuffer:1?afterburstbuffer:2+7"),
            ("singleton", "singleton"),
            ("expand:7", "expand:7"),
            ("afterok:1,expand:12_3", "afterok:1,expand:12_3"),
            ("afterok:1,singleton", "afterok:1,singleton"),
            ("Singleton?AFTEROK:7", "singleton?afterok:7"),
            ("afterok:12_3", "afterok:12_3"),
            ("afterok:12_[1-3,5],6", "afterok:12_[1-3,5],afterok:6"),
            ("afterok:12_[0-8:2]:13", "afterok:12_[0-8:2],afterok:13"),
            ("aftercorr:101_*", "aftercorr:101"),
            ("12:13", "afterany:12,afterany:13"),
        ] {
            assert_eq!(parse(text).map(|d| d.to_string()), Ok(print.to_string()), "{text}");
        }
    }

    #[test]
    fn malformed_dependencies_get_the_error_of_the_controller() {
        for text in [
            "foo:1",
            "afterok:abc",
            "afterok",
            "afterok:",
            "afterok:1:",
            "afterok:1,",
            ",",
            "?",
            "after:1+x",
            "after:1+",
            "after:1+0",
            "afterok:1+0",
            "after:1+-5",
            "singleton:3",
            "singleton,3",
            "expand:1:2",
            "expand:1,expand:2",
            "expand:1?afterok:2",
            "afterbb:1",
            "afterok:0",
            "afterok:1.0",
            "afterok:12_[1-",
            "afterok: 1",
            "after:1+4294967296",
            "afterok::1",
            "afterok:-1",
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!(error.to_string(), format!("Job dependency problem: {text}"));
            assert!(error.submission);
        }
    }

    fn dependency_strategy() -> impl Strategy<Value = Dependency> {
        let tasks = prop::option::of(
            prop::collection::btree_set(0u32..1000, 1..5)
                // Use only even IDs: adjacent ones would be printed as one range.
                .prop_map(|ids| {
                    TaskSet::from_sorted(&ids.into_iter().map(|id| id * 2).collect::<Vec<_>>())
                }),
        );
        // Only one `expand` may be there, so the last kind is left out.
        let on = (0..KINDS.len() - 1, 1..=ids::MAX_JOB_ID, tasks, any::<u32>()).prop_map(
            |(kind, job, tasks, delay_minutes)| DependencyTerm::On {
                kind: KINDS[kind],
                job: JobRef { job: JobId(job), tasks, step: None },
                delay_minutes,
            },
        );
        let term = prop_oneof![8 => on, 1 => Just(DependencyTerm::Singleton)];
        (prop::collection::vec(term, 0..6), any::<bool>())
            .prop_map(|(terms, any)| Dependency { any: any && terms.len() > 1, terms })
    }

    proptest! {
        #[test]
        fn a_printed_dependency_reads_back(dependency in dependency_strategy()) {
            prop_assert_eq!(parse(&dependency.to_string()), Ok(dependency));
        }

        #[test]
        fn no_text_breaks_the_parser(text in "(after|afterok|singleton|[0-9:,?+_\\[\\]\\-]){0,12}|.*") {
            if let Ok(dependency) = parse(&text) {
                prop_assert_eq!(parse(&dependency.to_string()), Ok(dependency));
            }
        }
    }
}
