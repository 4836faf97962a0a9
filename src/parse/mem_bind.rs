//! Memory binding of tasks: `--mem-bind=prefer,local`, `map_mem:0,1` (srun man page).

use crate::error::{SpecError, shown};
use crate::suggest;
use slotd_model::placement::MemBind;
use slotd_model::read;

const NAMES: [&str; 8] = ["none", "local", "rank", "prefer", "sort", "nosort", "quiet", "verbose"];

/// The accepted forms, for hints.
const FORMS: &str = "[quiet|verbose,][prefer,][sort|nosort,] and none, local, rank, map_mem:NODE,... or mask_mem:MASK,...";

/// Parses a memory binding. If several kinds are given, the last one wins, as in Slurm.
///
/// # Errors
/// Fails with `unrecognized --mem-bind argument "…"` and exit code 255.
pub fn parse(text: &str) -> Result<MemBind, SpecError> {
    let unrecognized = || {
        let word = text.split(',').find(|word| !NAMES.contains(word)).unwrap_or_default();
        SpecError::usage(format!("unrecognized --mem-bind argument \"{}\"", shown(text)))
            .with_hint(suggest::hint(FORMS, word, NAMES))
    };
    read::mem_bind(&text.to_ascii_lowercase()).ok_or_else(unrecognized)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use slotd_model::binding::Repeated;
    use slotd_model::placement::MemNodes;

    #[test]
    fn malformed_binding_errors_show_the_value() {
        for text in
            ["", "nonsense", "map_mem:", "map_mem:x", "mask_mem:0", "local,", "map_cpu:0", "0"]
        {
            let error = parse(text).expect_err(text);
            assert_eq!(error.to_string(), format!("unrecognized --mem-bind argument \"{text}\""));
            assert_eq!(error.exit_code(), 255);
        }
    }

    #[test]
    fn tasks_get_the_variables_that_slurm_sets() {
        let told = |text: &str| -> Vec<String> {
            parse(text)
                .unwrap()
                .variables()
                .into_iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect()
        };
        let lines = |all: &str, list: &str, kind: &str, said: &str| {
            vec![
                format!("SLURM_MEM_BIND={all}"),
                format!("SLURM_MEM_BIND_LIST={list}"),
                format!("SLURM_MEM_BIND_TYPE={kind}"),
                format!("SLURM_MEM_BIND_VERBOSE={said}"),
            ]
        };
        assert_eq!(told("local,rank"), lines("quiet,rank", "", "rank", "quiet"));
        assert_eq!(told("v,local"), lines("verbose,local", "", "local", "verbose"));
        assert_eq!(told("mask_mem:0x1"), lines("quiet,mask_mem:1", "1", "mask_mem:", "quiet"));
        let mut prefer = lines("quiet,prefer,map_mem:0,1", "0,1", "map_mem:", "quiet");
        prefer.push("SLURM_MEM_BIND_PREFER=prefer".to_owned());
        assert_eq!(told("prefer,map_mem:0,1"), prefer);
    }

    proptest! {
        #[test]
        fn a_printed_binding_reads_back(
            kind in 0..5,
            nodes in prop::collection::vec((0u32..64, 1u32..9), 1..5),
            words in (any::<bool>(), prop::option::of(any::<bool>()), any::<bool>()),
        ) {
            let nodes = match kind {
                0 => MemNodes::None,
                1 => MemNodes::Local,
                2 => MemNodes::Rank,
                3 => MemNodes::Map(nodes.into_iter().map(|(value, times)| Repeated { value, times }).collect()),
                _ => MemNodes::Mask(
                    nodes.into_iter().map(|(node, times)| Repeated { value: vec![node, node + 1], times }).collect(),
                ),
            };
            let bind = MemBind { nodes, prefers: words.0, sorts: words.1, reports: words.2 };
            prop_assert_eq!(parse(&bind.to_string()), Ok(bind));
        }

        #[test]
        fn no_text_breaks_the_parser(text in "(map_mem:|mask_mem:|local|prefer|0x|[0-9a-f,*]){0,9}|.*") {
            let _ = parse(&text);
        }
    }
}
