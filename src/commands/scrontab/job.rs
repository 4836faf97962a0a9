//! The job of a crontab entry.

use crate::args::choices::Reader;
use crate::args::error::CliError;
use crate::args::job_env::{self, Export};
use crate::args::origin::Origin;
use crate::args::submit::Submission;
use crate::commands::sbatch::{APPLET, Sbatch};
use slotd_model::JobRequest;
use slotd_model::change::LaunchTexts;
use slotd_model::late::late;
use slotd_model::request::JobKind;
use slotd_parse::crontab::Entry;
use slotd_parse::script_tasks::script_tasks;
use slotd_sys::user;
use std::ffi::OsString;
use std::path::PathBuf;

/// Options of sbatch that do not describe a job, or not one that can recur.
const NOT_HERE: [&str; 10] = [
    "array",
    "wrap",
    "snapshot",
    "wait",
    "test-only",
    "parsable",
    "clusters",
    "hold",
    "begin",
    "deadline",
];

/// Returns the origin of the jobs: as after a login, and not as where scrontab was called.
pub(super) fn login(origin: Origin) -> Origin {
    let home = || PathBuf::from(user::home_and_shell(user::current().0).0);
    let mut origin = Origin { cwd: late(home), ..origin };
    origin.env.retain(job_env::is_basic);
    origin
}

/// Returns the job of an entry. `argv` is the command line of scrontab.
///
/// # Errors
/// Fails for the first invalid option.
pub(super) fn of(
    entry: &Entry,
    argv: &[OsString],
    origin: &Origin,
) -> Result<(JobRequest, LaunchTexts), CliError> {
    for line in &entry.options {
        if let Some(word) = invalid_word(&line.words) {
            let why = format!("Invalid option found in #SCRON line: {word}");
            return Err(CliError::error(1, why));
        }
    }
    let reader = Reader::scan::<Sbatch>(APPLET, &[APPLET.name.into()])?;
    let (sbatch, choices) = reader.finish::<Sbatch>(origin, &entry.options)?;
    let submission = Submission { job: &sbatch.job, choices: &choices, origin };
    let name = entry.command.split([' ', '\t']).next().unwrap_or_default();
    let mut request = submission.request(JobKind::Batch, name, argv)?;
    submission.check_gpus(&request)?;
    sbatch.complete(&mut request, origin)?;
    request.script_tasks = script_tasks(&entry.script);
    request.command = Some(entry.command.clone());
    let script = entry.script.clone().into_bytes();
    slotd_parse::script::check(&script).map_err(|why| CliError::error(1, why.to_string()))?;
    let mut own = choices.option_variables();
    own.push(("SLURM_GET_USER_ENV", "1".to_owned()));
    let export = Export { option: sbatch.export.as_ref(), file: &[], new_job: true };
    Ok((request, LaunchTexts { script, env: export.block(origin, &own) }))
}

/// Returns the first word of a `#SCRON` line that is not an option here.
fn invalid_word(words: &[String]) -> Option<&str> {
    let is_valid = |words: &[String]| {
        let argv: Vec<OsString> = [APPLET.name]
            .into_iter()
            .chain(words.iter().map(String::as_str))
            .map(Into::into)
            .collect();
        Reader::scan::<Sbatch>(APPLET, &argv).is_ok_and(|reader| {
            reader.operands.is_empty() && !NOT_HERE.iter().any(|name| reader.has(name))
        })
    };
    // A prefix may end before the value of its last option.
    let valid = (0..=words.len()).rev().find(|end| is_valid(&words[..*end])).unwrap_or(0);
    words.get(valid).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::origin::tests::lab;
    use slotd_parse::crontab;

    fn job(text: &str, env: &[(&str, &str)]) -> Result<(JobRequest, LaunchTexts), String> {
        let entries = crontab::parse(text).expect("a valid crontab");
        let mut origin = lab(env);
        origin.env.retain(job_env::is_basic);
        of(&entries[0], &["scrontab".into(), "file".into()], &origin)
            .map_err(|error| error.text("scrontab"))
    }

    #[test]
    fn a_job_has_the_options_of_its_lines() {
        let text = "#SCRON -t 1 -o 'a b'\n#SCRON --mem=7M\n0 5 * * mon sleep 3 | cat\n";
        let (request, texts) = job(text, &[]).unwrap();
        assert_eq!((request.name.as_str(), request.time_limit_secs), ("sleep", Some(60)));
        assert_eq!(request.std_out.as_deref(), Some("a b"));
        assert_eq!(request.command.as_deref(), Some("sleep 3 | cat"));
        assert_eq!((request.args.len(), request.submit_line.as_str()), (0, "scrontab file"));
        assert!(texts.script.ends_with(b"sleep 3 | cat\n"));
        let named = job("#SCRON -J nightly\n@daily true", &[]).unwrap().0;
        assert_eq!(named.name, "nightly");
    }

    #[test]
    fn the_environment_of_scrontab_has_no_effect() {
        let env = [
            ("PATH", "/usr/bin"),
            ("SBATCH_TIMELIMIT", "5"),
            ("SLURM_JOB_ID", "3"),
            ("FOO", "bar"),
        ];
        let (request, texts) = job("@daily true", &env).unwrap();
        assert_eq!(request.time_limit_secs, None);
        let env = String::from_utf8(texts.env).unwrap();
        let names: Vec<&str> =
            env.split_terminator('\0').filter_map(|entry| entry.split('=').next()).collect();
        assert_eq!(names, ["PATH", "SLURM_GET_USER_ENV"]);
    }

    #[test]
    fn options_that_make_no_recurring_job_are_refused() {
        let refused = [
            ("--nosuch", "--nosuch"),
            ("-t 1 --nosuch=3 -c 2", "--nosuch=3"),
            ("-a 1-3", "-a"),
            ("--wrap=x", "--wrap=x"),
            ("-W", "-W"),
            ("-H", "-H"),
            ("-c 1 --begin=noon", "--begin=noon"),
            ("--deadline=noon", "--deadline=noon"),
            ("--help", "--help"),
            ("-c 1 stray", "stray"),
            ("-t", "-t"),
        ];
        for (options, word) in refused {
            let text = format!("#SCRON {options}\n@daily true\n");
            let expected =
                format!("scrontab: error: Invalid option found in #SCRON line: {word}\n");
            assert_eq!(job(&text, &[]).map(drop), Err(expected), "{options}");
        }
        let wrong = job("\n#SCRON -t x\n@daily true", &[]).unwrap_err();
        assert!(wrong.starts_with("scrontab: error: line 2: "), "{wrong}");
    }
}
