//! GPU binding of tasks: `--gpu-bind=single:2`, `map_gpu:0,1` (srun man page).
//!
//! Pure arithmetic on places: place 0 is the first GPU of the step. Which GPU that is, is the scheduler's affair.

use crate::spec::error::{SpecError, shown};

/// How the GPUs of a step are shared out to its tasks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum GpuBind {
    /// Nothing said: each task its own where GPUs were asked for by task, otherwise every task all of them.
    #[default]
    Auto,
    /// Every task all of them.
    None,
    /// `single:N`: one GPU a task, shared by N tasks that stand side by side.
    Single(u32),
    /// `per_task:N`: N GPUs a task, one task after the other.
    PerTask(u32),
    /// `map_gpu:0,1`: task `n` has the GPU at the `n`-th place of the list, which begins anew at its end.
    Map(Vec<u32>),
    /// `mask_gpu:0x3,0xc`: as `Map`, with a set of places for each task.
    Mask(Vec<u64>),
}

/// A list may repeat its elements (`0*1000`): this many are told apart.
const MAX_ITEMS: usize = 65_536;

/// What `text` asks for. `verbose` may stand before it; `closest` is what one host does anyhow.
///
/// # Errors
/// `Invalid --gpu-bind argument: gpu:…` with exit code 255.
pub fn parse(text: &str) -> Result<GpuBind, SpecError> {
    read(text).ok_or_else(|| SpecError::usage(format!("Invalid --gpu-bind argument: gpu:{}", shown(text))))
}

fn read(text: &str) -> Option<GpuBind> {
    let lower = text.to_ascii_lowercase();
    let kind = ["verbose,", "v,"].into_iter().find_map(|word| lower.strip_prefix(word)).unwrap_or(&lower);
    let count = |value: &str| value.parse::<u32>().ok().filter(|n| *n > 0);
    Some(match kind.split_once(':') {
        None => match kind {
            "verbose" | "v" | "closest" => GpuBind::Auto,
            "none" | "no" => GpuBind::None,
            "single" => GpuBind::Single(1),
            _ => return None,
        },
        Some(("single", value)) => GpuBind::Single(count(value)?),
        Some(("per_task", value)) => GpuBind::PerTask(count(value)?),
        Some(("map_gpu", value)) => GpuBind::Map(list(value, |item| item.parse().ok())?),
        Some(("mask_gpu", value)) => GpuBind::Mask(list(value, |item| {
            let digits = item.strip_prefix("0x").unwrap_or(item);
            u64::from_str_radix(digits, 16).ok().filter(|mask| *mask > 0)
        })?),
        Some(_) => return None,
    })
}

fn list<T: Copy>(text: &str, value: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    let mut items = Vec::new();
    for item in text.split(',') {
        let (item, times) = match item.split_once('*') {
            Some((item, times)) => (item, times.parse::<usize>().ok().filter(|n| *n > 0)?),
            None => (item, 1),
        };
        if items.len() + times > MAX_ITEMS {
            return None;
        }
        items.extend(std::iter::repeat_n(value(item)?, times));
    }
    Some(items)
}

/// The GPUs that the task of this rank sees, of those that the step has. `None`: all of them. A binding that names
/// none of the step's GPUs gives the first, as Slurm does.
pub fn gpus_of(bind: &GpuBind, per_task: Option<u32>, gpus: &[u32], rank: u32) -> Option<Vec<u32>> {
    let count = u32::try_from(gpus.len()).ok().filter(|count| *count > 0)?;
    let places: Vec<u32> = match bind {
        GpuBind::None => return None,
        GpuBind::Auto => consecutive(per_task.filter(|each| *each > 0)?, rank),
        GpuBind::PerTask(each) => consecutive(*each, rank),
        GpuBind::Single(tasks) => vec![rank / tasks % count],
        GpuBind::Map(list) => element(list, rank).into_iter().collect(),
        GpuBind::Mask(list) => {
            let mask = element(list, rank).unwrap_or(0);
            (0..u64::BITS).filter(|place| mask >> place & 1 == 1).collect()
        }
    };
    let seen: Vec<u32> = places.iter().filter_map(|place| gpus.get(*place as usize)).copied().collect();
    Some(if seen.is_empty() { vec![gpus[0]] } else { seen })
}

fn consecutive(each: u32, rank: u32) -> Vec<u32> {
    let first = rank.saturating_mul(each);
    (first..first.saturating_add(each)).collect()
}

fn element<T: Copy>(list: &[T], rank: u32) -> Option<T> {
    list.get((rank as usize).checked_rem(list.len())?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(text: &str, gpus: &[u32], tasks: u32) -> Vec<Option<Vec<u32>>> {
        let bind = parse(text).unwrap();
        (0..tasks).map(|rank| gpus_of(&bind, None, gpus, rank)).collect()
    }

    #[test]
    fn single_gives_each_task_one_and_shares_it() {
        assert_eq!(seen("single:1", &[4, 7], 3), [Some(vec![4]), Some(vec![7]), Some(vec![4])]);
        assert_eq!(seen("single:2", &[4, 7], 3), [Some(vec![4]), Some(vec![4]), Some(vec![7])]);
    }

    #[test]
    fn a_map_counts_places_in_the_step_and_begins_anew() {
        assert_eq!(seen("map_gpu:1,0", &[4, 7], 3), [Some(vec![7]), Some(vec![4]), Some(vec![7])]);
        assert_eq!(seen("map_gpu:0*2,1", &[4, 7], 3), [Some(vec![4]), Some(vec![4]), Some(vec![7])]);
        assert_eq!(seen("mask_gpu:0x3,2", &[4, 7], 2), [Some(vec![4, 7]), Some(vec![7])]);
    }

    #[test]
    fn a_place_beyond_the_step_becomes_its_first() {
        assert_eq!(seen("map_gpu:9", &[4, 7], 1), [Some(vec![4])]);
        assert_eq!(seen("per_task:1", &[4], 2), [Some(vec![4]), Some(vec![4])]);
        assert_eq!(seen("single:1", &[], 1), [None]);
    }

    #[test]
    fn nothing_said_goes_by_what_was_asked_for() {
        let of = |text: &str, each| gpus_of(&parse(text).unwrap(), each, &[1, 3, 5, 7], 1);
        assert_eq!(of("closest", Some(2)), Some(vec![5, 7]));
        assert_eq!(of("closest", None), None);
        assert_eq!(of("verbose,none", Some(2)), None);
    }

    #[test]
    fn what_is_no_binding_is_refused() {
        for text in ["", "single:0", "single:x", "map_gpu:", "map_gpu:1*0", "mask_gpu:0", "slice:1", "0*99999999"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
