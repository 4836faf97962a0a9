//! Whether a batch job with several tasks runs its script once, or one process per task.

use crate::request::{JobKind, JobRequest};
use serde::{Deserialize, Serialize};

/// How to launch a batch job that has several tasks (`SLOTD_BATCH_TASKS`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchTasks {
    /// Decide from the script and the options: see [`JobRequest::task_rule`].
    #[default]
    Auto,
    /// Always run one process per rank.
    Ranks,
    /// Always run the script once, as Slurm does.
    Once,
}

impl BatchTasks {
    const ALL: [BatchTasks; 3] = [BatchTasks::Auto, BatchTasks::Ranks, BatchTasks::Once];

    pub fn name(self) -> &'static str {
        match self {
            BatchTasks::Auto => "auto",
            BatchTasks::Ranks => "ranks",
            BatchTasks::Once => "once",
        }
    }

    pub fn named(word: &str) -> Option<BatchTasks> {
        BatchTasks::ALL.into_iter().find(|rule| rule.name() == word)
    }
}

/// Hints about tasks, found in the text of a script or of salloc's command. If several apply, the
/// first variant wins.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", from = "StoredScriptTasks")]
pub enum ScriptTasks {
    /// It calls this program, which starts the tasks itself: `srun`, `mpirun`.
    Calls(String),
    /// It reads this variable, which holds a task's rank.
    ReadsRank(String),
    /// It reads this variable, which holds the number of tasks.
    ReadsCount(String),
    #[default]
    Silent,
}

/// Also accepts the older form, a boolean that is true if the script calls srun.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case", untagged)]
enum StoredScriptTasks {
    CallsSrun(bool),
    Named(NamedScriptTasks),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum NamedScriptTasks {
    Calls(String),
    ReadsRank(String),
    ReadsCount(String),
    Silent,
}

impl From<StoredScriptTasks> for ScriptTasks {
    fn from(stored: StoredScriptTasks) -> Self {
        match stored {
            StoredScriptTasks::CallsSrun(true) => ScriptTasks::Calls("srun".to_owned()),
            StoredScriptTasks::CallsSrun(false)
            | StoredScriptTasks::Named(NamedScriptTasks::Silent) => ScriptTasks::Silent,
            StoredScriptTasks::Named(NamedScriptTasks::Calls(name)) => ScriptTasks::Calls(name),
            StoredScriptTasks::Named(NamedScriptTasks::ReadsRank(name)) => {
                ScriptTasks::ReadsRank(name)
            }
            StoredScriptTasks::Named(NamedScriptTasks::ReadsCount(name)) => {
                ScriptTasks::ReadsCount(name)
            }
        }
    }
}

/// Whether to run one process per task, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRule {
    pub ranks: bool,
    /// The clause that follows "since": `it calls mpirun`.
    pub reason: String,
}

impl JobRequest {
    /// Decides whether a job runs one process per task, or its script (salloc: its command) once.
    /// The submitter's own setting takes precedence over the `setting` of the host.
    ///
    /// With `auto`, the first match decides:
    /// - A script that calls a program which starts tasks runs once.
    /// - A script that reads its rank runs once per task.
    /// - A script that reads the number of tasks runs once, and so does a job that asks for nodes
    ///   or for tasks per node.
    /// - Everything else runs once per task.
    pub fn task_rule(&self, setting: BatchTasks) -> TaskRule {
        let rule = |ranks, reason: &str| TaskRule { ranks, reason: reason.to_owned() };
        if self.kind == JobKind::Run {
            return rule(true, "srun starts each task");
        }
        let own = self.batch_tasks.filter(|own| *own != BatchTasks::Auto);
        match (own.unwrap_or(setting), own, &self.script_tasks) {
            (BatchTasks::Ranks, Some(_), _) => rule(true, "SLOTD_BATCH_TASKS is ranks"),
            (BatchTasks::Once, Some(_), _) => rule(false, "SLOTD_BATCH_TASKS is once"),
            // A submitter's `auto` overrides the host's setting.
            (BatchTasks::Ranks, None, _) if self.batch_tasks.is_none() => {
                rule(true, "the daemon is set to ranks")
            }
            (BatchTasks::Once, None, _) if self.batch_tasks.is_none() => {
                rule(false, "the daemon is set to once")
            }
            (_, _, ScriptTasks::Calls(name)) => rule(false, &format!("it calls {name}")),
            (_, _, ScriptTasks::ReadsRank(name)) => rule(true, &format!("it reads {name}")),
            (_, _, ScriptTasks::ReadsCount(name)) => rule(false, &format!("it reads {name}")),
            (_, _, ScriptTasks::Silent) if self.ntasks_per_node.is_some() => {
                rule(false, "--ntasks-per-node was given")
            }
            (_, _, ScriptTasks::Silent) if self.nodes.is_some() => rule(false, "--nodes was given"),
            (_, _, ScriptTasks::Silent) => rule(true, "it starts no tasks itself"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(change: impl FnOnce(&mut JobRequest), setting: BatchTasks) -> (bool, String) {
        let mut request = JobRequest { ntasks: Some(2), ..JobRequest::default() };
        change(&mut request);
        let TaskRule { ranks, reason } = request.task_rule(setting);
        (ranks, reason)
    }

    #[test]
    fn the_first_matching_rule_decides() {
        let want = |ranks, reason: &str| (ranks, reason.to_owned());
        let auto = |change: fn(&mut JobRequest)| rule(change, BatchTasks::Auto);
        let nodes = Some((1, 1).into());
        assert_eq!(
            auto(|r| r.script_tasks = ScriptTasks::Calls("mpirun".into())),
            want(false, "it calls mpirun")
        );
        assert_eq!(
            rule(
                |r| (r.nodes, r.script_tasks) =
                    (nodes, ScriptTasks::ReadsRank("SLURM_PROCID".into())),
                BatchTasks::Auto
            ),
            want(true, "it reads SLURM_PROCID")
        );
        assert_eq!(
            auto(|r| r.script_tasks = ScriptTasks::ReadsCount("SLURM_NTASKS".into())),
            want(false, "it reads SLURM_NTASKS")
        );
        assert_eq!(rule(|r| r.nodes = nodes, BatchTasks::Auto), want(false, "--nodes was given"));
        assert_eq!(
            auto(|r| r.ntasks_per_node = Some(2)),
            want(false, "--ntasks-per-node was given")
        );
        assert_eq!(auto(|_| ()), want(true, "it starts no tasks itself"));
    }

    #[test]
    fn the_submitters_setting_overrides_the_hosts_and_both_override_the_script() {
        let calls = |own| {
            move |r: &mut JobRequest| {
                (r.script_tasks, r.batch_tasks) = (ScriptTasks::Calls("srun".into()), own);
            }
        };
        for (own, host, ranks) in [
            (None, BatchTasks::Auto, false),
            (None, BatchTasks::Ranks, true),
            (Some(BatchTasks::Once), BatchTasks::Ranks, false),
            (Some(BatchTasks::Ranks), BatchTasks::Once, true),
            (Some(BatchTasks::Auto), BatchTasks::Ranks, false),
        ] {
            assert_eq!(rule(calls(own), host).0, ranks, "{own:?} on a host set to {host:?}");
        }
    }

    #[test]
    fn script_tasks_stored_by_older_versions_are_read() {
        let read = |json: &str| serde_json::from_str::<ScriptTasks>(json).unwrap();
        assert_eq!(read("true"), ScriptTasks::Calls("srun".to_owned()));
        assert_eq!(read("false"), ScriptTasks::Silent);
        for tasks in [
            ScriptTasks::Calls("x".into()),
            ScriptTasks::ReadsRank("y".into()),
            ScriptTasks::Silent,
        ] {
            assert_eq!(read(&serde_json::to_string(&tasks).unwrap()), tasks);
        }
    }
}
