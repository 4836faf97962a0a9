//! CPU binding of tasks: `--cpu-bind=verbose,map_cpu:0,2` (srun man page).

use crate::error::{SpecError, shown};
use crate::suggest;
use slotd_model::binding::CpuBind;
use slotd_model::read;

/// The kinds of binding without a value.
const NAMES: [&str; 7] = ["none", "threads", "cores", "sockets", "ldoms", "rank", "rank_ldom"];

/// The accepted forms, for hints.
pub const FORMS: &str = "[quiet|verbose,] and none, threads, cores, sockets, ldoms, rank, rank_ldom, map_cpu:CPU,..., \
     mask_cpu:MASK,..., map_ldom:NODE,... or mask_ldom:MASK,...";

/// Parses a CPU binding. [`wants_report`] returns whether the binding is to be reported.
///
/// `q[uiet]` and `v[erbose]` may accompany one of `none`/`no`, `threads`, `cores`, `sockets`,
/// `ldoms`, `rank`, `rank_ldom`, `map_cpu:<cpus>` (decimal or `0x…`), `mask_cpu:<masks>`
/// (hexadecimal), or `map_ldom:` and `mask_ldom:` for NUMA nodes. `0*3` repeats an element.
///
/// # Errors
/// Fails with `unrecognized --cpu-bind argument "…"` and exit code 1 for anything else, for two
/// kinds at once, and for CPU numbers above 65,535.
pub fn parse(text: &str) -> Result<CpuBind, SpecError> {
    let unrecognized = || {
        let word = text.split(',').find(|word| read::cpu_bind(word).is_none()).unwrap_or_default();
        SpecError::value(format!("unrecognized --cpu-bind argument \"{}\"", shown(text)))
            .with_hint(suggest::hint(FORMS, word, NAMES))
    };
    read::cpu_bind(text).map(|(bind, _)| bind).ok_or_else(unrecognized)
}

/// Returns whether `text`, which [`parse`] accepts, asks for `verbose`.
pub fn wants_report(text: &str) -> bool {
    read::cpu_bind(text).is_some_and(|(_, verbose)| verbose)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use slotd_model::binding::Bound;
    use slotd_model::binding::Repeated;
    use slotd_model::binding::element_for;

    fn once<T: Clone>(values: &[T]) -> Vec<Repeated<T>> {
        values.iter().map(|value| Repeated { value: value.clone(), times: 1 }).collect()
    }

    #[test]
    fn every_kind_parses() {
        for (text, bind) in [
            ("none", CpuBind::None),
            ("no", CpuBind::None),
            ("threads", CpuBind::Threads),
            ("cores", CpuBind::Cores),
            ("sockets", CpuBind::Sockets),
            ("ldoms", CpuBind::Ldoms),
            ("rank", CpuBind::Rank),
            ("rank_ldom", CpuBind::RankLdom),
            ("q", CpuBind::Auto),
            ("verbose", CpuBind::Auto),
            ("verbose,cores", CpuBind::Cores),
            ("Quiet,Rank", CpuBind::Rank),
            ("map_cpu:0,2", CpuBind::MapCpu(once(&[0, 2]))),
            ("v,map_cpu:0x1,10", CpuBind::MapCpu(once(&[1, 10]))),
            ("map_cpu:0,2,verbose", CpuBind::MapCpu(once(&[0, 2]))),
            (
                "map_cpu:0,2*3",
                CpuBind::MapCpu(vec![
                    Repeated { value: 0, times: 1 },
                    Repeated { value: 2, times: 3 },
                ]),
            ),
            ("mask_cpu:0x3,C", CpuBind::MaskCpu(once(&[vec![0, 1], vec![2, 3]]))),
            (
                "mask_cpu:0x1,e0,ff",
                CpuBind::MaskCpu(once(&[vec![0], vec![5, 6, 7], (0..8).collect()])),
            ),
        ] {
            assert_eq!(parse(text), Ok(bind), "{text}");
        }
        assert!(wants_report("v,cores") && wants_report("cores,verbose"));
        assert!(!wants_report("cores") && !wants_report("v,q") && !wants_report("foo"));
    }

    #[test]
    fn tasks_get_variables_that_describe_their_binding() {
        const UNBOUND: Bound<'_> = Bound { tasks: &[], host: &[] };
        for (text, all, list, kind, said) in [
            ("map_cpu:0,1", "quiet,map_cpu:0,1", "0,1", "map_cpu:", "quiet"),
            ("mask_cpu:1,0x2", "quiet,mask_cpu:1,2", "1,2", "mask_cpu:", "quiet"),
            ("map_cpu:0*2,1", "quiet,map_cpu:0,0,1", "0,0,1", "map_cpu:", "quiet"),
            ("cores", "quiet,cores", "", "cores", "quiet"),
            ("v,none", "verbose,none", "", "none", "verbose"),
            ("rank_ldom", "quiet,rank_ldom", "", "rank_ldom", "quiet"),
            ("verbose", "verbose", "", "", "verbose"),
        ] {
            let told = parse(text).unwrap().variables(wants_report(text), &UNBOUND);
            assert_eq!(
                told.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>(),
                [all, list, kind, said],
                "{text}"
            );
            assert!(parse(all).is_ok(), "srun in the task must parse {all}");
        }
        assert!(parse("quiet").unwrap().variables(false, &UNBOUND).is_empty());
    }

    #[test]
    fn malformed_binding_errors_show_the_value() {
        for text in [
            "",
            "foo",
            "cores,threads",
            "map_cpu",
            "map_cpu:",
            "map_cpu:a",
            "map_cpu:-1",
            "map_cpu:0,,1",
            "map_cpu:65536",
            "map_cpu:0*0",
            "map_cpu:0*x",
            "map_cpu:4294967296",
            "mask_cpu:",
            "mask_cpu:0x",
            "mask_cpu:0",
            "mask_cpu:xyz",
            "map_ldom:x",
            "cores,",
            "map_cpu:0*4294967296",
            "map_cpu:0x",
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!(error.to_string(), format!("unrecognized --cpu-bind argument \"{text}\""));
            assert!(!error.usage);
        }
        assert!(parse(&format!("mask_cpu:0x{}", "f".repeat(1_000_000))).is_err());
    }

    #[test]
    fn a_list_wraps_around() {
        let CpuBind::MapCpu(list) = parse("map_cpu:7,2*3").expect("a list") else {
            panic!("no list")
        };
        let cpus: Vec<Option<u32>> = (0..9).map(|task| element_for(&list, task).copied()).collect();
        assert_eq!(cpus, [7, 2, 2, 2, 7, 2, 2, 2, 7].map(Some));
        let CpuBind::MapCpu(list) = parse("map_cpu:0*4000000000,1*4000000000").expect("a list")
        else {
            panic!("no list")
        };
        assert_eq!(element_for(&list, u32::MAX), Some(&1));
        assert_eq!(element_for::<u32>(&[], 3), None);
    }

    fn bind() -> impl Strategy<Value = CpuBind> {
        let times = || prop_oneof![3 => Just(1u32), 1 => 2..=u32::MAX];
        let map = prop::collection::vec((0..=65_535u32, times()), 1..6).prop_map(|list| {
            CpuBind::MapCpu(
                list.into_iter().map(|(value, times)| Repeated { value, times }).collect(),
            )
        });
        let mask =
            prop::collection::vec((prop::collection::btree_set(0u32..300, 1..9), times()), 1..4)
                .prop_map(|list| {
                    CpuBind::MaskCpu(
                        list.into_iter()
                            .map(|(cpus, times)| Repeated {
                                value: cpus.into_iter().collect(),
                                times,
                            })
                            .collect(),
                    )
                });
        let of_ldoms = (map.clone(), mask.clone(), any::<bool>()).prop_map(|both| match both {
            (CpuBind::MapCpu(list), _, true) => CpuBind::MapLdom(list),
            (_, CpuBind::MaskCpu(list), _) => CpuBind::MaskLdom(list),
            (other, ..) => other,
        });
        prop_oneof![
            of_ldoms,
            prop::sample::select(vec![
                CpuBind::Auto,
                CpuBind::None,
                CpuBind::Threads,
                CpuBind::Cores,
                CpuBind::Sockets,
                CpuBind::Ldoms,
                CpuBind::Rank,
                CpuBind::RankLdom,
            ]),
            map,
            mask,
        ]
    }

    proptest! {
        #[test]
        fn a_printed_binding_reads_back(bind in bind()) {
            prop_assert_eq!(parse(&bind.to_string()), Ok(bind.clone()));
            prop_assert_eq!(parse(&format!("verbose,{bind}")), Ok(bind));
        }

        #[test]
        fn no_text_breaks_the_parser(text in "(map_cpu:|mask_cpu:|cores|verbose|0x|[0-9a-f,*]){0,12}|.*") {
            let _ = parse(&text);
            let _ = wants_report(&text);
        }
    }
}
