//! GPU binding of tasks: `--gpu-bind=single:2`, `map_gpu:0,1` (srun man page).

use crate::error::{SpecError, shown};
use slotd_model::binding::GpuBind;
use slotd_model::read;

/// Parses a GPU binding. `verbose` may precede it. `closest` is accepted and means the default.
///
/// # Errors
/// Fails with `Invalid --gpu-bind argument: gpu:…` and exit code 255.
pub fn parse(text: &str) -> Result<GpuBind, SpecError> {
    read::gpu_bind(text).ok_or_else(|| {
        SpecError::usage(format!("Invalid --gpu-bind argument: gpu:{}", shown(text)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(text: &str, gpus: &[u32], tasks: u32) -> Vec<Option<Vec<u32>>> {
        let bind = parse(text).unwrap();
        (0..tasks).map(|rank| bind.gpus_of(None, gpus, rank)).collect()
    }

    #[test]
    fn single_binds_each_task_to_one_gpu_and_shares_gpus() {
        assert_eq!(seen("single:1", &[4, 7], 3), [Some(vec![4]), Some(vec![7]), Some(vec![4])]);
        assert_eq!(seen("single:2", &[4, 7], 3), [Some(vec![4]), Some(vec![4]), Some(vec![7])]);
    }

    #[test]
    fn a_map_indexes_the_gpus_of_the_step_and_wraps_around() {
        assert_eq!(seen("map_gpu:1,0", &[4, 7], 3), [Some(vec![7]), Some(vec![4]), Some(vec![7])]);
        assert_eq!(
            seen("map_gpu:0*2,1", &[4, 7], 3),
            [Some(vec![4]), Some(vec![4]), Some(vec![7])]
        );
        assert_eq!(seen("mask_gpu:0x3,2", &[4, 7], 2), [Some(vec![4, 7]), Some(vec![7])]);
    }

    #[test]
    fn an_index_out_of_range_is_found_only_if_a_task_uses_it() {
        let outside = |text: &str, gpus, tasks| parse(text).unwrap().outside(gpus, tasks);
        assert_eq!((outside("map_gpu:0,2", 2, 2), outside("map_gpu:0,2", 2, 1)), (Some(2), None));
        assert_eq!(
            (outside("mask_gpu:0x1,0x4", 2, 2), outside("mask_gpu:3", 2, 4)),
            (Some(2), None)
        );
        assert_eq!((outside("map_gpu:9", 0, 1), outside("single:1", 1, 4)), (None, None));
    }

    #[test]
    fn tasks_share_gpus_if_the_step_has_too_few() {
        assert_eq!(seen("per_task:1", &[4], 2), [Some(vec![4]), Some(vec![4])]);
        assert_eq!(seen("single:1", &[], 1), [None]);
    }

    #[test]
    fn the_default_follows_the_gpus_per_task() {
        let of = |text: &str, each| parse(text).unwrap().gpus_of(each, &[1, 3, 5, 7], 1);
        assert_eq!(of("closest", Some(2)), Some(vec![5, 7]));
        assert_eq!(of("closest", None), None);
        assert_eq!(of("verbose,none", Some(2)), None);
    }

    #[test]
    fn a_printed_binding_reads_back() {
        for text in ["closest", "none", "single:3", "per_task:2", "map_gpu:0*2,1", "mask_gpu:0x3,c"]
        {
            let bind = parse(text).unwrap();
            assert_eq!(parse(&bind.to_string()), Ok(bind), "{text}");
        }
    }

    #[test]
    fn malformed_bindings_are_refused() {
        for text in [
            "",
            "single:0",
            "single:x",
            "map_gpu:",
            "map_gpu:1*0",
            "mask_gpu:0",
            "slice:1",
            "0*99999999",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
