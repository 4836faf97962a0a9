//! The properties of a job that can be changed. Each has a row with its options in `slotd edit` and
//! its keys in `scontrol update`.
//!
//! [`Update`] decides in which states of a job a change is allowed, and applies it. Texts that are
//! only stored have no rows here, see [`kept::OPTIONS`].

use crate::args::job_values::{self, MAX_NICE, nice_forms};
use crate::args::kept;
use crate::args::origin::Origin;
use slotd_model::request::{GpuRequest, KeptText, MemRequest, Sharing};
use slotd_model::update::Update;
use slotd_model::{JobRequest, Timestamp};
use slotd_parse::SpecError;
use slotd_parse::error::shown;
use slotd_render::time::{iso, long_limit};
use std::fmt::Display;

/// A property that has options.
struct Property {
    /// The long names of the options. Messages use the first.
    options: &'static [&'static str],
    /// Returns the options as words of a command line; empty if the job has no such option.
    words: fn(&JobRequest, &Origin) -> Vec<String>,
    /// Returns the update for an edited request, or the reason why it is not allowed.
    update: fn(&Edited) -> Result<Update, &'static str>,
    keys: &'static [Key],
}

/// A request before and after editing.
struct Edited<'a> {
    old: &'a JobRequest,
    new: &'a JobRequest,
    now: Timestamp,
}

/// The names of a key in Slurm's spelling (case is ignored), and its parser, which receives the
/// first name, the value and its origin.
struct Key(&'static [&'static str], fn(&str, &str, &Origin) -> Result<Update, SpecError>);

const STAYS: &str = "cannot be removed: specify another value";

/// An option whose new value is not allowed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("--{option}: {why}")]
pub struct Unchangeable {
    option: &'static str,
    why: &'static str,
}

/// `slotd edit` shows the options in this order.
static PROPERTIES: &[Property] = &[
    Property {
        options: &["job-name"],
        words: |r, _| word("job-name", Some(&r.name)),
        update: |e| Ok(Update::JobName(e.new.name.clone())),
        // `scontrol update` handles `JobName` itself, since it may also select jobs.
        keys: &[],
    },
    Property {
        options: &["partition"],
        words: |r, _| word("partition", r.partition.as_ref()),
        update: |e| e.new.partition.clone().map(Update::Partition).ok_or(STAYS),
        keys: &[Key(&["Partition"], |_, value, _| Ok(Update::Partition(value.to_owned())))],
    },
    Property {
        options: &["time"],
        words: |r, _| word("time", Some(long_limit(r.time_limit_secs))),
        update: |e| Ok(Update::TimeLimit(e.new.time_limit_secs)),
        keys: &[
            Key(&["TimeLimit", "Time"], |_, value, _| time_limit(value, value)),
            Key(&["TimeLimit+"], |_, value, _| time_limit(&format!("+{value}"), value)),
            Key(&["TimeLimit-"], |_, value, _| time_limit(&format!("-{value}"), value)),
        ],
    },
    Property {
        options: &["time-min"],
        words: |r, _| word("time-min", r.time_min_secs.map(|secs| long_limit(Some(secs)))),
        update: |e| Ok(Update::TimeMin(e.new.time_min_secs)),
        keys: &[Key(&["TimeMin"], |key, value, _| {
            slotd_parse::time::parse_limit_for(value, key).map(Update::TimeMin)
        })],
    },
    Property {
        options: &["ntasks"],
        words: |r, _| word("ntasks", r.ntasks),
        update: |e| Ok(Update::NumTasks(e.new.ntasks.unwrap_or(1))),
        keys: &[Key(&["NumTasks", "ReqProcs", "NTasks"], |key, value, _| {
            slotd_parse::count::parse(value, key).map(Update::NumTasks)
        })],
    },
    Property {
        options: &["cpus-per-task"],
        words: |r, _| word("cpus-per-task", r.cpus_per_task),
        update: |e| Ok(Update::CpusPerTask(e.new.cpus_per_task.unwrap_or(1))),
        keys: &[
            Key(&["CPUsPerTask", "CPUs/Task"], |key, value, _| {
                slotd_parse::count::parse(value, key).map(Update::CpusPerTask)
            }),
            Key(&["NumCPUs", "ReqCPUs", "MinCPUs"], |key, value, _| {
                slotd_parse::count::parse(value, key).map(Update::NumCpus)
            }),
        ],
    },
    Property {
        options: &["mem", "mem-per-cpu"],
        words: |r, _| match r.mem {
            MemRequest::PerNode(mb) => word("mem", Some(format!("{mb}M"))),
            MemRequest::PerCpu(mb) => word("mem-per-cpu", Some(format!("{mb}M"))),
            MemRequest::Default | MemRequest::None | MemRequest::PerGpu(_) => Vec::new(),
        },
        update: |e| match e.new.mem {
            MemRequest::PerNode(mb) => Ok(Update::MinMemoryNode(mb)),
            MemRequest::PerCpu(mb) => Ok(Update::MinMemoryCpu(mb)),
            MemRequest::Default | MemRequest::None | MemRequest::PerGpu(_) => Err(STAYS),
        },
        keys: &[
            Key(&["MinMemoryNode", "Mem"], |key, value, _| {
                slotd_parse::mem::parse_mb_for(value, key).map(Update::MinMemoryNode)
            }),
            Key(&["MinMemoryCPU"], |key, value, _| {
                slotd_parse::mem::parse_mb_for(value, key).map(Update::MinMemoryCpu)
            }),
        ],
    },
    Property {
        options: &["gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "gres"],
        words: |r, _| gpu_words(&r.gpu),
        update: |e| Ok(Update::Gpus(e.new.gpu.clone())),
        keys: &[
            Key(&["Gres", "TresPerNode"], |_, value, _| {
                gpus(value, |gpu, count| gpu.per_node = Some(count))
            }),
            Key(&["TresPerJob"], |_, value, _| gpus(value, |gpu, count| gpu.total = Some(count))),
            Key(&["TresPerTask"], |_, value, _| {
                gpus(value, |gpu, count| gpu.per_task = Some(count))
            }),
        ],
    },
    Property {
        options: &["begin"],
        words: |r, origin| word("begin", r.begin.map(|at| iso(at, &origin.tz))),
        update: |e| Ok(Update::StartTime(e.new.begin.unwrap_or(e.now))),
        keys: &[Key(&["StartTime", "EligibleTime", "Begin"], |key, value, origin| {
            slotd_parse::begin::parse_for(value, key, origin.now, &origin.tz).map(Update::StartTime)
        })],
    },
    Property {
        options: &["deadline"],
        words: |r, origin| word("deadline", r.deadline.map(|at| iso(at, &origin.tz))),
        update: |e| e.new.deadline.map(Update::Deadline).ok_or(STAYS),
        keys: &[Key(&["Deadline"], |key, value, origin| {
            slotd_parse::begin::parse_for(value, key, origin.now, &origin.tz).map(Update::Deadline)
        })],
    },
    Property {
        options: &["dependency"],
        words: |r, _| word("dependency", Some(&r.dependency).filter(|on| !on.is_empty())),
        update: |e| Ok(Update::Dependency(e.new.dependency.clone())),
        keys: &[Key(&["Dependency"], |_, value, _| {
            slotd_parse::dependency::parse(value).map(Update::Dependency)
        })],
    },
    Property {
        options: &["array"],
        words: |r, _| word("array", r.array.as_ref()),
        update: |e| match (&e.old.array, &e.new.array) {
            (Some(old), Some(new)) if old.tasks == new.tasks => {
                Ok(Update::ArrayTaskThrottle(new.limit))
            }
            _ => Err("only %N, the number of tasks that run at once, can be changed"),
        },
        // 0 means no limit.
        keys: &[Key(&["ArrayTaskThrottle"], |key, value, _| {
            let limit = slotd_parse::count::parse_or_zero(value, key)?;
            Ok(Update::ArrayTaskThrottle(Some(limit).filter(|limit| *limit > 0)))
        })],
    },
    Property {
        options: &["priority"],
        words: |r, _| word("priority", r.priority),
        update: |e| Ok(e.new.priority.map_or(Update::PriorityReset, Update::Priority)),
        keys: &[Key(&["Priority"], priority)],
    },
    Property {
        options: &["nice"],
        words: |r, _| word("nice", Some(r.nice).filter(|nice| *nice != 0)),
        update: |e| Ok(Update::Nice(e.new.nice)),
        keys: &[Key(&["Nice"], nice)],
    },
    Property {
        options: &["constraint"],
        words: |r, _| word("constraint", r.constraint.as_ref()),
        update: |e| Ok(Update::Features(e.new.constraint.clone())),
        keys: &[Key(&["Features", "Constraint"], |_, value, _| {
            let wanted = (!value.is_empty()).then(|| slotd_parse::constraint::parse(value));
            wanted.transpose().map(|features| Update::Features(features.map(Box::new)))
        })],
    },
    Property {
        options: &["exclusive"],
        words: |r, _| match r.sharing {
            Sharing::Exclusive => flag("exclusive"),
            Sharing::User => vec!["--exclusive=user".to_owned()],
            Sharing::Mcs => vec!["--exclusive=mcs".to_owned()],
            Sharing::Default | Sharing::Oversubscribe => Vec::new(),
        },
        update: |e| Ok(Update::Exclusive(e.new.sharing == Sharing::Exclusive)),
        keys: &[
            Key(&["Exclusive"], |key, value, _| yes_or_no(key, value).map(Update::Exclusive)),
            Key(&["OverSubscribe", "Shared"], |key, value, _| {
                yes_or_no(key, value).map(|shares| Update::Exclusive(!shares))
            }),
        ],
    },
    Property {
        options: &["requeue", "no-requeue"],
        words: |r, _| match (r.requeue, r.no_requeue) {
            (true, _) => flag("requeue"),
            (false, true) => flag("no-requeue"),
            (false, false) => Vec::new(),
        },
        update: |e| match (e.new.requeue, e.new.no_requeue) {
            (false, false) => Err("cannot be removed: specify --requeue or --no-requeue"),
            (yes, _) => Ok(Update::Requeue(yes)),
        },
        keys: &[Key(&["Requeue"], |key, value, _| yes_or_no(key, value).map(Update::Requeue))],
    },
    Property {
        options: &["chdir"],
        words: |r, _| word("chdir", Some(&r.work_dir)),
        update: |e| Ok(Update::WorkDir(e.new.work_dir.clone())),
        keys: &[Key(&["WorkDir"], |_, value, origin| Ok(Update::WorkDir(origin.absolute(value))))],
    },
    Property {
        options: &["output"],
        words: |r, _| word("output", r.std_out.as_ref()),
        update: |e| e.new.std_out.clone().map(Update::StdOut).ok_or(STAYS),
        keys: &[Key(&["StdOut"], |_, value, _| Ok(Update::StdOut(value.to_owned())))],
    },
    Property {
        options: &["error"],
        words: |r, _| word("error", r.std_err.as_ref()),
        update: |e| e.new.std_err.clone().map(Update::StdErr).ok_or(STAYS),
        keys: &[Key(&["StdErr"], |_, value, _| Ok(Update::StdErr(value.to_owned())))],
    },
    Property {
        options: &["input"],
        words: |r, _| word("input", r.std_in.as_ref()),
        update: |e| e.new.std_in.clone().map(Update::StdIn).ok_or(STAYS),
        keys: &[Key(&["StdIn"], |_, value, _| Ok(Update::StdIn(value.to_owned())))],
    },
];

/// Keys of properties that `slotd edit` does not show.
static OTHER_KEYS: &[Key] = &[
    Key(&["NumNodes", "ReqNodes"], |_, value, _| {
        slotd_parse::nodes::parse(value).map(Update::NumNodes)
    }),
    Key(&["EndTime"], |key, value, origin| {
        slotd_parse::begin::parse_for(value, key, origin.now, &origin.tz).map(Update::EndTime)
    }),
    Key(&["Prefer"], |_, value, _| {
        let wanted = (!value.is_empty()).then(|| slotd_parse::constraint::parse_preference(value));
        wanted.transpose().map(|prefer| Update::Prefer(prefer.map(Box::new)))
    }),
    Key(&["Switches"], |key, value, _| job_values::switches(value, key).map(Update::Switches)),
    Key(&["DelayBoot"], |key, value, _| {
        let secs = slotd_parse::time::parse_secs_for(value, key)?;
        Ok(Update::DelayBoot(secs.unwrap_or_default()))
    }),
    Key(&["MinTmpDiskNode"], |key, value, _| {
        slotd_parse::mem::parse_mb_for(value, key).map(Update::MinTmpDisk)
    }),
    Key(&["MinCPUsNode"], |key, value, _| {
        slotd_parse::count::parse_or_zero(value, key).map(Update::MinCpus)
    }),
    Key(&["Contiguous"], |key, value, _| yes_or_no(key, value).map(Update::Contiguous)),
    Key(&["ReqNodeList", "NodeList"], |_, value, _| {
        slotd_parse::hostlist::parse(value).map(Update::NodeList)
    }),
];

fn keys() -> impl Iterator<Item = &'static Key> {
    PROPERTIES.iter().flat_map(|property| property.keys).chain(OTHER_KEYS)
}

/// Returns the update for a key and value of `scontrol update`, or `None` if the key is unknown.
pub fn read(key: &str, value: &str, origin: &Origin) -> Option<Result<Update, SpecError>> {
    let is_it = |Key(names, _): &&Key| names.iter().any(|name| name.eq_ignore_ascii_case(key));
    match keys().find(is_it) {
        Some(Key(names, read)) => Some(read(names[0], value, origin)),
        None => {
            let text = KeptText::named(key)?;
            Some(kept::check(text, value).map(|value| Update::Text(text, value)))
        }
    }
}

/// Returns the first name of each key.
pub fn key_names() -> impl Iterator<Item = &'static str> {
    let first = keys().map(|Key(names, _)| names[0]).filter(|name| !name.ends_with(['+', '-']));
    KeptText::ALL.map(KeptText::name).into_iter().chain(first)
}

/// Returns all spellings of all keys.
pub fn key_spellings() -> impl Iterator<Item = &'static str> {
    let spellings = keys().flat_map(|Key(names, _)| names.iter().copied());
    KeptText::ALL.map(KeptText::name).into_iter().chain(spellings)
}

/// Returns the job's changeable options as words of a command line.
pub fn option_words(request: &JobRequest, origin: &Origin) -> Vec<String> {
    let typed = PROPERTIES.iter().flat_map(|property| (property.words)(request, origin));
    let kept = kept::OPTIONS.iter().flat_map(|row| word(row.long, row.text.of(request)));
    typed.chain(kept).collect()
}

/// Returns the long names of the options that can be changed.
pub fn option_names() -> impl Iterator<Item = &'static str> {
    let typed = PROPERTIES.iter().flat_map(|property| property.options.iter().copied());
    typed.chain(kept::OPTIONS.iter().map(|row| row.long))
}

/// Returns the updates that turn `old` into `new`: one for each option whose words differ.
///
/// # Errors
/// Fails if an option has a value that the job cannot be changed to.
pub fn updates(
    old: &JobRequest,
    new: &JobRequest,
    origin: &Origin,
) -> Result<Vec<Update>, Unchangeable> {
    let edited = Edited { old, new, now: origin.now };
    let typed = PROPERTIES
        .iter()
        .filter(|property| (property.words)(old, origin) != (property.words)(new, origin))
        .map(|Property { options, update, .. }| {
            update(&edited).map_err(|why| Unchangeable { option: options[0], why })
        });
    let texts = kept::OPTIONS.iter().map(|row| row.text);
    let kept = texts
        .filter(|text| text.of(old) != text.of(new))
        .map(|text| Ok(Update::Text(text, text.of(new).cloned().unwrap_or_default())));
    typed.chain(kept).collect()
}

fn word(name: &str, value: Option<impl Display>) -> Vec<String> {
    value.map(|value| format!("--{name}={value}")).into_iter().collect()
}

fn flag(name: &str) -> Vec<String> {
    vec![format!("--{name}")]
}

fn gpu_words(gpu: &GpuRequest) -> Vec<String> {
    let model = gpu.model.as_ref().map(|model| format!("{model}:")).unwrap_or_default();
    let count = |name, count: Option<u32>| word(name, count.map(|n| format!("{model}{n}")));
    [
        count("gpus", gpu.total),
        count("gpus-per-node", gpu.per_node),
        count("gpus-per-task", gpu.per_task),
        count("gpus-per-socket", gpu.per_socket),
        word("gres", gpu.mem_mb.map(|mb| format!("gpumem:{mb}M"))),
        word("gres", gpu.shards.map(|n| format!("shard:{n}"))),
    ]
    .concat()
}

/// Parses a time limit. With a sign, it is added to the current limit or subtracted from it.
fn time_limit(value: &str, written: &str) -> Result<Update, SpecError> {
    let invalid = |hint: Option<String>| {
        let text = format!("Invalid TimeLimit value: {}", shown(written));
        hint.into_iter().fold(SpecError::value(text), SpecError::with_hint)
    };
    let (sign, text) = match value.split_at_checked(1) {
        Some(("+", rest)) => (1, rest),
        Some(("-", rest)) => (-1, rest),
        _ => {
            return slotd_parse::time::parse_limit(value)
                .map(Update::TimeLimit)
                .map_err(|error| invalid(error.hint));
        }
    };
    let endless = || invalid(Some("a relative limit must be finite".to_owned()));
    let secs = slotd_parse::time::parse_limit(text)
        .map_err(|error| invalid(error.hint))?
        .ok_or_else(endless)?;
    let secs = i64::try_from(secs).map_err(|_| endless())?;
    Ok(Update::TimeLimitBy(sign * secs))
}

fn priority(key: &str, value: &str, _: &Origin) -> Result<Update, SpecError> {
    // Slurm reserves the two largest numbers for "no value" and "no limit".
    let most = u32::MAX - 2;
    let read = value.parse().ok().filter(|priority| *priority <= most);
    read.map(Update::Priority).ok_or_else(|| {
        invalid(key, value).with_hint(format!(
            "a whole number from 0 to {most}; `scontrol release` releases a held job"
        ))
    })
}

fn nice(key: &str, value: &str, _: &Origin) -> Result<Update, SpecError> {
    match value.parse::<i64>() {
        Ok(nice) if (-MAX_NICE..=MAX_NICE).contains(&nice) => Ok(Update::Nice(nice)),
        _ => Err(invalid(key, value).with_hint(nice_forms())),
    }
}

fn gpus(value: &str, put: impl Fn(&mut GpuRequest, u32)) -> Result<Update, SpecError> {
    let mut gpu = GpuRequest::default();
    let asked = slotd_parse::gres::parse(value)?.unwrap_or_default();
    (gpu.mem_mb, gpu.shards) = (asked.mem_mb, asked.shards);
    match asked.gpus.filter(|ask| ask.count > 0) {
        Some(ask) => {
            put(&mut gpu, ask.count);
            gpu.model = ask.model;
        }
        None if gpu.mem_mb.is_some() || gpu.shards.is_some() => {}
        // An explicit 0, since GPU partitions allocate one GPU by default.
        None => put(&mut gpu, 0),
    }
    Ok(Update::Gpus(gpu))
}

fn yes_or_no(key: &str, value: &str) -> Result<bool, SpecError> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "yes" | "y" => Ok(true),
        "0" | "no" | "n" => Ok(false),
        _ => Err(invalid(key, value).with_hint("yes or no")),
    }
}

fn invalid(key: &str, value: &str) -> SpecError {
    SpecError::value(format!("Invalid {key} value: {}", shown(value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::origin::tests::lab;
    use crate::commands::{COMMANDS, sbatch};
    use clap::Arg;

    #[test]
    fn rows_name_options_of_sbatch_and_keys_are_unique() {
        let entry = COMMANDS.into_iter().find(|entry| entry.name() == "sbatch").expect("sbatch");
        let definition = entry.definition();
        let known: Vec<&str> = definition.get_arguments().filter_map(Arg::get_long).collect();
        assert!(option_names().all(|name| known.contains(&name)));
        let mut keys: Vec<String> = key_spellings().map(str::to_ascii_lowercase).collect();
        keys.sort();
        let mut distinct = keys.clone();
        distinct.dedup();
        assert_eq!(keys, distinct);
    }

    #[test]
    fn option_words_parse_back_to_the_same_request() {
        let origin = lab(&[]);
        let request = |words: &[String]| {
            let argv = [&["sbatch".to_owned(), "--wrap=x".to_owned()], words].concat();
            let argv: Vec<_> = argv.into_iter().map(Into::into).collect();
            let read = |_: sbatch::Text<'_>| Err(std::io::ErrorKind::Unsupported.into());
            sbatch::parse(&argv, &origin, &read).expect("good options").request
        };
        let words = "-J a -p cpu -t 90 --time-min=5 -n 4 -c 2 --mem=1G --gpus=a100:2 -b now+1hour --deadline=now+3days \
            -d afterok:12,singleton -a 1-9%2 --priority=7 --nice=3 -C a&b --exclusive --no-requeue -D /x -o o -e e -i i \
            --comment=c -A a --mail-type=END";
        let asked = request(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let shown = option_words(&asked, &origin);
        let names: Vec<&str> =
            shown.iter().map(|word| word[2..].split('=').next().unwrap_or_default()).collect();
        for property in PROPERTIES {
            assert!(
                property.options.iter().any(|name| names.contains(name)),
                "{:?}",
                property.options
            );
        }
        let again = request(&shown);
        assert_eq!(option_words(&again, &origin), shown);
        assert_eq!(updates(&asked, &again, &origin), Ok(Vec::new()));
        // Changes every option at once.
        let none = request(&["-a1-9".to_owned(), "--requeue".to_owned()]);
        let mut changed = none.clone();
        for update in updates(&none, &asked, &origin).expect("each can be changed") {
            update.write(&mut changed).expect("each can be written");
        }
        assert_eq!(option_words(&changed, &origin), shown);
        assert_eq!(
            updates(&asked, &none, &origin).unwrap_err().to_string(),
            "--partition: cannot be removed: specify another value"
        );
    }
}
