//! The initial environment of a job or step, from `--export` and `--export-file`.
//!
//! The `SLURM_*` variables of the job itself are added later, when the job is launched.

use crate::args::origin::Origin;
use slotd_model::binding::CPU_BIND_VARIABLES;
use slotd_model::request::ExportSpec;
use slotd_parse::SpecError;

/// The variables that are passed without `ALL`: enough for a login-like session. Slurm asks the
/// node for the login environment. On one host, this is the environment of the submitter, which
/// already has the Slurm commands in PATH.
const BASICS: [&str; 7] = ["HOME", "PATH", "SHELL", "USER", "LOGNAME", "TMPDIR", "SLOTD_ROOT"];

/// Prefixes of variables that describe a task of the job in which sbatch was called. They do not
/// apply to the new job.
const OF_A_TASK: [&str; 11] = [
    "SLURM_ARRAY_",
    "SLURM_STEP",
    "SLURM_SRUN_",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_GTIDS",
    "SLURM_TASK_PID",
    "SLURM_RESTART_COUNT",
    "SLURM_LABELIO",
    "SLURM_JOB_GPUS",
    "SLURM_GPUS_ON_NODE",
];

/// Returns whether a variable belongs to the environment after a login.
pub fn is_basic(name: &[u8]) -> bool {
    BASICS.iter().any(|basic| name == basic.as_bytes())
}

/// An ordered set of variables.
#[derive(Debug, Default)]
struct Vars<'a>(Vec<(&'a [u8], &'a [u8])>);

impl<'a> Vars<'a> {
    fn set<N, V>(&mut self, name: &'a N, value: &'a V)
    where
        N: AsRef<[u8]> + ?Sized,
        V: AsRef<[u8]> + ?Sized,
    {
        let (name, value) = (name.as_ref(), value.as_ref());
        match self.0.iter_mut().find(|(key, _)| *key == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }

    /// Formats the variables as `KEY=VALUE` entries that end with a zero byte.
    fn block(&self) -> Vec<u8> {
        let len = self.0.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
        let mut block = Vec::with_capacity(len);
        for (name, value) in &self.0 {
            block.extend_from_slice(name);
            block.push(b'=');
            block.extend_from_slice(value);
            block.push(0);
        }
        block
    }
}

/// `--export`: the parsed value and the original text.
#[derive(Debug, Clone)]
pub struct ExportOption {
    pub spec: ExportSpec,
    pub written: String,
}

/// Parses the value of `--export`.
///
/// # Errors
/// Fails for an unclosed quote and for a value without a name.
pub fn export(text: &str) -> Result<ExportOption, SpecError> {
    Ok(ExportOption { spec: slotd_parse::export::parse(text)?, written: text.to_owned() })
}

/// The part of the environment that is exported.
#[derive(Debug, Clone, Copy)]
pub struct Export<'a> {
    /// `None` exports everything.
    pub option: Option<&'a ExportOption>,
    /// The entries of `--export-file`.
    pub file: &'a [(String, String)],
    /// Whether this is a new job, even one submitted from inside another job.
    pub new_job: bool,
}

impl Export<'_> {
    /// Returns the environment block: `KEY=VALUE` entries that end with a zero byte.
    ///
    /// The file's entries replace the submitter's variables, and the pairs of `--export` replace
    /// both. `own` contains the variables that the command sets for its own options; they replace
    /// the submitter's.
    pub fn block(&self, origin: &Origin, own: &[(&str, String)]) -> Vec<u8> {
        let mut vars = Vars::default();
        let all = self.option.is_none_or(|option| option.spec.all);
        let fresh = self.new_job && origin.var_os("SLURM_JOB_ID").is_some();
        let has_binding = origin.binding_of_step().is_some();
        for (name, value) in origin.env.iter() {
            let starts_with = |prefix: &str| name.starts_with(prefix.as_bytes());
            let is_of_task = || OF_A_TASK.into_iter().any(starts_with);
            let is_binding = || {
                has_binding && CPU_BIND_VARIABLES.iter().any(|of_step| name == of_step.as_bytes())
            };
            let stale = fresh && (is_of_task() || is_binding());
            let slurms = || starts_with("SLURM_") || starts_with("SPANK_");
            if !stale && (all || slurms() || is_basic(name)) {
                vars.0.push((name, value));
            }
        }
        if !all {
            for (name, value) in [
                ("HOME", &origin.home),
                ("SHELL", &origin.shell),
                ("USER", &origin.user),
                ("LOGNAME", &origin.user),
            ] {
                if origin.var_os(name).is_none() {
                    vars.set(name, value.as_str());
                }
            }
        }
        for (name, value) in own {
            vars.set(name, value);
        }
        for (name, value) in self.file {
            vars.set(name, value);
        }
        for name in self.option.iter().flat_map(|option| &option.spec.names) {
            if let Some(value) = origin.env.get(name) {
                vars.set(name, value);
            }
        }
        for (name, value) in self.option.iter().flat_map(|option| &option.spec.set) {
            vars.set(name, value);
        }
        // As in Slurm, any value but plain ALL is passed to later commands of the job.
        let written = self.option.map(|option| &option.written);
        if let Some(written) =
            written.filter(|written| self.new_job && !written.eq_ignore_ascii_case("ALL"))
        {
            vars.set("SLURM_EXPORT_ENV", written);
            vars.set("SLURM_GET_USER_ENV", "1");
        }
        vars.block()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::origin::tests::lab;

    const ENV: &[(&str, &str)] = &[
        ("FOO", "1"),
        ("BAR", "two words"),
        ("PATH", "/usr/bin"),
        ("HOME", "/home/lab"),
        ("SLURM_FOO", "kept"),
    ];

    fn exported(env: &[(&str, &str)], written: &str, file: &[(&str, &str)]) -> Vec<String> {
        let option = super::export(written).expect("a good export");
        let file: Vec<_> = file.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let export = Export { option: Some(&option), file: &file, new_job: true };
        let block = export.block(&lab(env), &[]);
        let text = String::from_utf8(block).expect("UTF-8");
        let mut lines: Vec<String> = text.split_terminator('\0').map(str::to_owned).collect();
        lines.sort();
        lines.retain(|line| {
            !["HOME", "PATH", "SHELL", "USER", "LOGNAME"]
                .contains(&line.split('=').next().unwrap_or(""))
        });
        lines
    }

    #[test]
    fn export_all_passes_everything() {
        assert_eq!(exported(ENV, "ALL", &[]), ["BAR=two words", "FOO=1", "SLURM_FOO=kept"]);
    }

    #[test]
    fn export_none_keeps_the_basics_and_slurm_variables() {
        assert_eq!(
            exported(ENV, "NONE", &[]),
            ["SLURM_EXPORT_ENV=NONE", "SLURM_FOO=kept", "SLURM_GET_USER_ENV=1"]
        );
        assert_eq!(
            exported(ENV, "", &[]),
            ["SLURM_EXPORT_ENV=", "SLURM_FOO=kept", "SLURM_GET_USER_ENV=1"]
        );
    }

    #[test]
    fn exported_names_and_pairs_are_added() {
        assert_eq!(exported(ENV, "FOO,BAR,NOPE", &[])[..2], ["BAR=two words", "FOO=1"]);
        assert_eq!(exported(ENV, "ALL,FOO=9", &[])[..2], ["BAR=two words", "FOO=9"]);
        assert_eq!(exported(ENV, "FOO=9,NEW='a,b'", &[])[..2], ["FOO=9", "NEW=a,b"]);
    }

    #[test]
    fn pairs_override_an_export_file() {
        let file = [("FOO", "file"), ("X", "y")];
        assert_eq!(exported(ENV, "ALL", &file)[..2], ["BAR=two words", "FOO=file"]);
        assert_eq!(exported(ENV, "NONE,FOO=9", &file)[0], "FOO=9");
    }

    #[test]
    fn a_job_submitted_inside_an_array_task_is_not_an_array_task() {
        let env = [
            ("SLURM_JOB_ID", "1"),
            ("SLURM_ARRAY_TASK_ID", "3"),
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "77"),
        ];
        assert_eq!(exported(&env, "ALL", &[]), ["SLURM_JOB_ID=1", "SLURM_NTASKS=77"]);
        let bound = [
            ("SLURM_CPU_BIND_VERBOSE", "quiet"),
            ("SLURM_CPU_BIND_TYPE", "none"),
            ("SLURM_STEP_ID", "0"),
        ];
        let with =
            |all| exported(&[&env[..], &bound, &[("SLURM_CPU_BIND", all)]].concat(), "ALL", &[]);
        assert_eq!(with("quiet,none"), ["SLURM_JOB_ID=1", "SLURM_NTASKS=77"]);
        assert!(
            with("cores").contains(&"SLURM_CPU_BIND=cores".to_owned()),
            "the user has changed the variable"
        );
    }
}
