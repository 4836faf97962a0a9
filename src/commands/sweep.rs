//! `slotd sweep`: submits a script for each combination of parameters, as the tasks of one array.
//! Each task has its parameters in its environment, under their names.
//!
//! The parameters are stored in the job's environment, in variables whose names contain the task.
//! They are therefore available at each start of a task, including requeues and `slotd retry`.

use super::launch::{check_work_dir, submit_parsed};
use super::output::print;
use super::output::print_stderr;
use super::{Done, sbatch, submitting_origin};
use crate::args::error::CliError;
use crate::args::submit::submit_line;
use slotd_model::array::{ArraySpec, MAX_TASK_ID, TaskRange, TaskSet};
use slotd_model::counted;
use slotd_parse::error::shown;
use slotd_sys::files;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "slotd sweep [--param NAME=VALUES]... [--csv FILE] [--at-once N] [--dry-run] [OPTIONS OF SBATCH] \
                      SCRIPT [ARGUMENTS]...",
    after_help = "Examples:\n  slotd sweep --param lr=0.1,0.01 --param fold=1-5 --at-once 4 -c 2 train.sh\n  \
                  slotd sweep --csv runs.csv --dry-run"
)]
pub struct SweepArgs {
    /// Values of a parameter, separated by commas: lr=0.1,0.01 or fold=1-5. Repeat the option to
    /// combine each value with all values of the others
    #[arg(long, value_name = "NAME=VALUES")]
    param: Vec<String>,
    /// Read combinations from a CSV file. Its first line names the parameters, and each other line
    /// contains their values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Run at most N tasks at once, like --array=...%N
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    at_once: Option<u32>,
    /// Print the parameters of each task, but submit nothing
    #[arg(long)]
    dry_run: bool,
    /// Options of sbatch, then the script and its arguments
    #[arg(value_name = "WORDS", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Maximum number of tasks.
const MOST: u32 = MAX_TASK_ID;

/// The parameters of a task and their values.
type Row = Vec<(String, String)>;

pub fn run(args: &SweepArgs) -> Done {
    let rows = rows(args)?;
    if args.dry_run {
        return print(
            &rows.iter().enumerate().map(|(task, row)| task_line(task, row)).collect::<String>(),
        );
    }
    if args.words.is_empty() {
        return Err(CliError::error(2, "no script specified")
            .hint("slotd sweep --param lr=0.1,0.01 train.sh"));
    }
    let last = u32::try_from(rows.len() - 1).unwrap_or(u32::MAX);
    let tasks = TaskSet::from_ranges(TaskRange::new(0, last, 1).into_iter().collect());
    let array = ArraySpec { tasks, limit: args.at_once };
    let own = ["sbatch".to_owned(), format!("--array={array}")];
    let argv: Vec<OsString> =
        own.into_iter().chain(args.words.iter().cloned()).map(OsString::from).collect();
    let origin = submitting_origin()?;
    let mut parsed = sbatch::parse(&argv, &origin, &sbatch::read)?;
    if parsed.request.array.as_ref() != Some(&array) {
        let why = "the combinations of the parameters define the tasks of the array: omit --array";
        return Err(
            CliError::error(2, why).hint("use --at-once to limit how many run at the same time")
        );
    }
    if parsed.wait || parsed.test_only {
        let why = "slotd sweep does not support --wait and --test-only: omit them";
        return Err(
            CliError::error(2, why).hint("`slotd wait` waits for all tasks; --dry-run lists them")
        );
    }
    check_work_dir(&parsed.request, "slotd sweep")?;
    let whole: Vec<OsString> = std::env::args_os().collect();
    parsed.request.submit_line = submit_line(&whole);
    parsed.texts.env.extend(rows.iter().enumerate().flat_map(|(task, row)| entries(task, row)));
    let parsable = parsed.parsable;
    let job = submit_parsed(parsed, "slotd sweep")?;
    let names: Vec<&str> = rows.iter().take(1).flatten().map(|(name, _)| name.as_str()).collect();
    print_stderr(&format!(
        "slotd: {}, each with its own {}\n",
        counted(rows.len(), "task"),
        names.join(", ")
    ));
    print(&if parsable { format!("{job}\n") } else { format!("Submitted batch job {job}\n") })
}

/// Returns the array's environment entries for one task.
fn entries(task: usize, row: &Row) -> Vec<u8> {
    let entry = |(name, value): &(String, String)| {
        format!("SLOTD_ARRAY_TASK_{task}_{name}={value}\0").into_bytes()
    };
    row.iter().flat_map(entry).collect()
}

/// Returns a line such as `3 lr=0.1 name='a b'`.
fn task_line(task: usize, row: &Row) -> String {
    let word = |(name, value): &(String, String)| format!(" {name}={}", submit_line(&[value]));
    format!("{task}{}\n", row.iter().map(word).collect::<String>())
}

/// Returns the tasks in order: the rows of the file with each combination of the parameters. The
/// last parameter changes fastest.
fn rows(args: &SweepArgs) -> Result<Vec<Row>, CliError> {
    let mut rows = match &args.csv {
        Some(file) => {
            let text = files::read_input(file, files::MOST_RECORD)
                .map_err(|error| CliError::error(1, format!("{}: {error}", file.display())))?;
            csv_rows(file, &text)?
        }
        None if args.param.is_empty() => {
            let why = "no parameters specified";
            return Err(CliError::error(2, why)
                .hint("--param lr=0.1,0.01 --param fold=1-5, or --csv runs.csv"));
        }
        None => vec![Row::new()],
    };
    for param in &args.param {
        let (name, values) = param_values(param)?;
        check_name(&name, rows.first().into_iter().flatten().map(|(name, _)| name.as_str()))?;
        if rows.len().saturating_mul(values.len()) > MOST as usize {
            return Err(too_many());
        }
        let with =
            |row: &Row, value: &String| [row.as_slice(), &[(name.clone(), value.clone())]].concat();
        rows = rows.iter().flat_map(|row| values.iter().map(|value| with(row, value))).collect();
    }
    Ok(rows)
}

/// Parses `lr=0.1,0.01`, `fold=1-5` or `n=1-9:2,20`.
fn param_values(text: &str) -> Result<(String, Vec<String>), CliError> {
    let invalid = || {
        let why = format!("invalid --param {}: expected NAME=VALUES", shown(text));
        CliError::error(2, why)
            .hint("lr=0.1,0.01 or fold=1-5; for values that contain commas, use a file and --csv")
    };
    let (name, list) = text.split_once('=').ok_or_else(invalid)?;
    let mut values = Vec::new();
    for value in list.split(',') {
        match range(value).ok_or_else(invalid)? {
            None if value.is_empty() => return Err(invalid()),
            None => values.push(value.to_owned()),
            Some((first, last, step)) => {
                let count = (last - first) / step;
                if count.saturating_add(values.len() as u64) >= MOST.into() {
                    return Err(too_many());
                }
                values.extend((0..=count).map(|place| (first + place * step).to_string()));
            }
        }
    }
    Ok((name.to_owned(), values))
}

/// Parses a range such as `1-9:2` into its first and last number and its step. Returns `Some(None)`
/// for a value of another form, and `None` for a range without numbers.
fn range(value: &str) -> Option<Option<(u64, u64, u64)>> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (ends, step) = value.split_once(':').unwrap_or((value, "1"));
    let Some((first, last)) =
        ends.split_once('-').filter(|(first, last)| is_number(first) && is_number(last))
    else {
        return Some(None);
    };
    if !is_number(step) {
        return Some(None);
    }
    let (first, last, step) = (first.parse().ok()?, last.parse().ok()?, step.parse().ok()?);
    (first <= last && step > 0).then_some(Some((first, last, step)))
}

fn too_many() -> CliError {
    CliError::error(1, format!("more than {MOST} combinations")).hint("use fewer values")
}

/// Variables that programs, the shell and the loader need.
const NEEDED: [&str; 14] = [
    "BASH_ENV", "ENV", "HOME", "HOSTNAME", "IFS", "LANG", "LOGNAME", "OLDPWD", "PATH", "PWD",
    "SHELL", "TERM", "TMPDIR", "USER",
];

/// Refuses names that a shell does not accept, that have another meaning, or that are already used.
fn check_name<'a>(name: &str, mut others: impl Iterator<Item = &'a str>) -> Result<(), CliError> {
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_name {
        let why = format!("invalid parameter name: {}", shown(name));
        return Err(CliError::error(2, why).hint("use letters, digits and _, as for a variable"));
    }
    if NEEDED.contains(&name)
        || ["SLURM_", "SLOTD_", "LD_", "LC_"].iter().any(|prefix| name.starts_with(prefix))
    {
        return Err(CliError::error(2, format!("the name {name} is reserved: choose another one")));
    }
    if others.any(|other| other == name) {
        return Err(CliError::error(2, format!("duplicate parameter {name}")));
    }
    Ok(())
}

fn csv_rows(file: &Path, text: &str) -> Result<Vec<Row>, CliError> {
    let refuse = |error: csv::Error| {
        CliError::error(1, format!("{}: {error}", file.display()))
            .hint("each line needs as many values as the first")
    };
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
    let names = reader.headers().map_err(refuse)?.clone();
    for (at, name) in names.iter().enumerate() {
        check_name(name, names.iter().take(at))?;
    }
    let named = |record: csv::StringRecord| {
        names.iter().zip(&record).map(|(n, v)| (n.to_owned(), v.to_owned())).collect()
    };
    let rows: Vec<Row> =
        reader.records().map(|row| row.map(named).map_err(refuse)).collect::<Result<_, _>>()?;
    if rows.is_empty() {
        let why = format!("{}: no lines of values", file.display());
        return Err(CliError::error(1, why)
            .hint("the first line names the parameters; each other line is a combination"));
    }
    if let Some((name, _)) = rows.iter().flatten().find(|(_, value)| value.contains('\0')) {
        return Err(CliError::error(
            1,
            format!("{}: a value of {name} contains a null byte", file.display()),
        ));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(params: &[&str]) -> Result<Vec<String>, String> {
        let param = params.iter().map(|text| (*text).to_owned()).collect();
        let args = SweepArgs { param, csv: None, at_once: None, dry_run: false, words: Vec::new() };
        match rows(&args) {
            Ok(rows) => Ok(rows
                .iter()
                .enumerate()
                .map(|(task, row)| task_line(task, row).trim_end().to_owned())
                .collect()),
            Err(error) => Err(error.lines[0].1.clone()),
        }
    }

    #[test]
    fn values_are_combined_with_all_others() {
        let lines = all(&["lr=0.1,1e-2", "fold=1-3:2,9"]).expect("two parameters");
        let want = [
            "0 lr=0.1 fold=1",
            "1 lr=0.1 fold=3",
            "2 lr=0.1 fold=9",
            "3 lr=1e-2 fold=1",
            "4 lr=1e-2 fold=3",
        ];
        assert_eq!((&lines[..5], lines.len()), (&want.map(str::to_owned)[..], 6));
        assert_eq!(
            all(&["x=a b,-1,2020-01-01"]),
            Ok(vec!["0 x='a b'".into(), "1 x=-1".into(), "2 x=2020-01-01".into()])
        );
    }

    #[test]
    fn ranges_may_exceed_the_largest_task_number() {
        assert_eq!(all(&["seed=5000000-5000004:2"]).map(|lines| lines.len()), Ok(3));
    }

    #[test]
    fn invalid_parameters_are_refused() {
        for (params, why) in [
            (&["lr"][..], "invalid --param lr: expected NAME=VALUES"),
            (&["lr=1,,2"], "invalid --param lr=1,,2: expected NAME=VALUES"),
            (&["2x=1"], "invalid parameter name: 2x"),
            (&["PATH=/opt/a,/opt/b"], "the name PATH is reserved: choose another one"),
            (&["LD_PRELOAD=x"], "the name LD_PRELOAD is reserved: choose another one"),
            (&["n=1-5000000"], "more than 4000000 combinations"),
            (&["n=0-18446744073709551615"], "more than 4000000 combinations"),
            (&["n=1-3999999,7-8"], "more than 4000000 combinations"),
            (&["n=5-1"], "invalid --param n=5-1: expected NAME=VALUES"),
            (&["n=1-9:0"], "invalid --param n=1-9:0: expected NAME=VALUES"),
            (
                &["n=1-99999999999999999999"],
                "invalid --param n=1-99999999999999999999: expected NAME=VALUES",
            ),
            (&["SLURM_X=1"], "the name SLURM_X is reserved: choose another one"),
            (&["a=1", "a=2"], "duplicate parameter a"),
            (&["a=0-3999999", "b=1,2"], "more than 4000000 combinations"),
            (&[], "no parameters specified"),
        ] {
            assert_eq!(all(params), Err(why.to_owned()));
        }
    }

    #[test]
    fn csv_files_have_one_combination_per_line() {
        let rows =
            |text: &str| csv_rows(Path::new("runs.csv"), text).map_err(|error| error.text("slotd"));
        let read = rows("lr, name\n0.1,\"a,b\"\n0.2, c \n").expect("two lines");
        assert_eq!(
            read.iter().map(|row| task_line(0, row)).collect::<String>(),
            "0 lr=0.1 name='a,b'\n0 lr=0.2 name=c\n"
        );
        assert_eq!(
            entries(3, &read[0]),
            b"SLOTD_ARRAY_TASK_3_lr=0.1\0SLOTD_ARRAY_TASK_3_name=a,b\0"
        );
        for (text, why) in [
            ("lr,lr\n1,2\n", "duplicate parameter lr"),
            ("lr,b\n1\n", "CSV error"),
            ("lr\n", "no lines of values"),
            ("lr\na\0b\n", "a value of lr contains a null byte"),
        ] {
            let error = rows(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
