//! Values of options that sbatch, srun and salloc share and that have no grammar in `parse`: words
//! and numbers.

use crate::args::error::CliError;
use crate::args::value::{Maybe, Why};
use crate::model::mail;
use crate::model::placement::Hint;
use crate::model::request::{OpenMode, Sharing};
use crate::parse::error::shown;
use crate::parse::gres::{GpuAsk, GresAsk};
use crate::parse::{self, SpecError, suggest};

/// The resource limits that `--propagate` names.
pub type Limits = Vec<&'static str>;

/// The largest nice value (sbatch man page).
pub const MAX_NICE: i64 = 2_147_483_645;
/// `--priority=TOP`: the highest that is not one of Slurm's special numbers.
const TOP_PRIORITY: u32 = u32::MAX - 2;

/// `Invalid --time specification: 1h`, exit code 255.
pub fn invalid(option: &str, value: &str) -> SpecError {
    SpecError::usage(format!("Invalid {option} specification: {}", shown(value)))
}

/// `append` or `truncate`, or a beginning of one. Slurm looks at the first letter alone, and so
/// takes any slip.
pub fn open_mode(text: &str) -> Result<OpenMode, SpecError> {
    let word = text.to_ascii_lowercase();
    let modes = [("append", OpenMode::Append), ("truncate", OpenMode::Truncate)];
    let meant = modes.into_iter().find(|(name, _)| !word.is_empty() && name.starts_with(&word));
    let forms = || suggest::hint("append or truncate", text, modes.map(|(name, _)| name));
    meant.map(|(_, mode)| mode).ok_or_else(|| invalid("--open-mode", text).with_hint(forms()))
}

/// A kind of `--exclusive`. One that only shuts out other users or labels shuts out nobody on a
/// host with one user.
///
/// # Errors
/// Another word.
pub fn sharing(text: &str, option: &str) -> Result<Sharing, SpecError> {
    match text {
        "" | "exclusive" | "topo" => Ok(Sharing::Exclusive),
        "user" | "mcs" | "no" => Ok(Sharing::Default),
        other => {
            let kinds = ["exclusive", "user", "mcs", "topo", "no"];
            Err(invalid(option, other).with_hint(suggest::hint(
                "nothing, user, mcs, topo or no",
                other,
                kinds,
            )))
        }
    }
}

/// # Errors
/// One that is out of range. Slurm reads a number as far as it goes: `None`, which scripts are made
/// with, is 0.
pub fn nice(text: &str, option: &str) -> Result<i64, SpecError> {
    match leading_number(text).parse::<i64>() {
        Ok(nice) if (-MAX_NICE..=MAX_NICE).contains(&nice) => Ok(nice),
        Ok(nice) => {
            let range = format!(
                "Invalid {option} value {nice}, must be between -{MAX_NICE} and {MAX_NICE}"
            );
            Err(SpecError::usage(range))
        }
        Err(_) => Err(invalid(option, text).with_hint(nice_forms())),
    }
}

/// The number that a text begins with, or 0, as C's `strtol` reads it.
fn leading_number(text: &str) -> &str {
    let text = text.trim_start();
    let sign = usize::from(text.starts_with(['+', '-']));
    let digits = text[sign..].bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 { "0" } else { &text[..sign + digits] }
}

/// What `--nice` takes, in words.
pub fn nice_forms() -> String {
    format!("a whole number from -{MAX_NICE} to {MAX_NICE}")
}

/// A priority, or `TOP`. A word without a number at its beginning is no priority, as in Slurm:
/// `None`.
///
/// # Errors
/// A negative number, in Slurm's words.
pub fn priority(text: &str, _: &str) -> Result<Maybe<u32>, SpecError> {
    if text.eq_ignore_ascii_case("top") {
        return Ok(Some(TOP_PRIORITY));
    }
    if !text.trim_start().starts_with(|c: char| c.is_ascii_digit() || "+-".contains(c)) {
        return Ok(None);
    }
    match leading_number(text).parse::<i128>() {
        Ok(..0) => Err(SpecError::usage("Priority must be >= 0")),
        Ok(priority) => Ok(Some(u32::try_from(priority).unwrap_or(u32::MAX).min(TOP_PRIORITY))),
        // More digits than anything has.
        Err(_) => Ok(Some(TOP_PRIORITY)),
    }
}

/// `--gres`. Slurm takes `none` for no resources, and nothing for a mistake.
///
/// # Errors
/// Nothing was named, or something that is no GPU; the text of `help`.
pub fn gres(text: &str) -> Result<Maybe<GresAsk>, Why> {
    match text {
        "" => Err(SpecError::submission("Invalid Trackable RESource (TRES) specification").into()),
        "help" => Err(CliError::output(GRES_HELP).into()),
        text => Ok(parse::gres::parse(text)?),
    }
}

/// What `--gres=help` prints.
const GRES_HELP: &str = "Valid gres options are:\ngpu[[:type]:count]\ngpumem:size\nshard:count\n";

/// What `--hint=help` prints.
const HINT_HELP: &str = "Application hint options:
    --hint=             Bind tasks according to application hints
        compute_bound   use all cores in each socket
        memory_bound    use only one core in each socket
        [no]multithread [don't] use extra threads with in-core multi-threading
        help            show this help message
";

/// # Errors
/// No hint, in Slurm's words with exit code 1; the text of `help`, with which Slurm's commands end
/// so too.
pub fn hint(text: &str) -> Result<Hint, Why> {
    if text == "help" {
        return Err(CliError::output(HINT_HELP).with_exit(1).into());
    }
    let found = Hint::ALL.into_iter().find(|(name, _)| *name == text);
    found.map(|(_, hint)| hint).ok_or_else(|| {
        let names = Hint::ALL.map(|(name, _)| name);
        let unknown = format!("unrecognized --hint argument \"{}\", see --hint=help", shown(text));
        SpecError::value(unknown).with_hint(suggest::hint(&names.join(", "), text, names)).into()
    })
}

/// `-B/--extra-node-info`: what the host must have at least. `None`: any number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeShape {
    pub sockets: Option<u32>,
    pub cores: Option<u32>,
    pub threads: Option<u32>,
}

/// `sockets[:cores[:threads]]`, each a number or `*`; of a range (`1-2`) the smaller number counts.
///
/// # Errors
/// `Invalid numeric value "x" for first arg of -B.` with exit code 1.
pub fn node_shape(text: &str) -> Result<NodeShape, SpecError> {
    let places = ["first", "second", "third"];
    let mut numbers = [None; 3];
    for (nth, part) in text.split(':').enumerate() {
        let place = places
            .get(nth)
            .ok_or_else(|| invalid("-B", text).with_hint("SOCKETS[:CORES[:THREADS]]"))?;
        let least = part.split_once('-').map_or(part, |(least, _)| least);
        numbers[nth] = match least {
            "*" => None,
            number => Some(parse::count::parse(number, &format!("{place} arg of -B"))?),
        };
    }
    let [sockets, cores, threads] = numbers;
    Ok(NodeShape { sockets, cores, threads })
}

/// The events of `--mail-type`, as written.
///
/// # Errors
/// An event that there is not.
pub fn mail_type(text: &str) -> Result<String, SpecError> {
    let known = |word: &str| mail::NAMES.iter().any(|kind| kind.eq_ignore_ascii_case(word));
    match text.split(',').find(|word| !known(word)) {
        None => Ok(text.to_owned()),
        Some(word) => {
            let forms = suggest::one_of("events, separated by commas", word, mail::NAMES);
            Err(invalid("--mail-type", text).with_hint(forms))
        }
    }
}

/// The user or the address of `--mail-user`.
///
/// # Errors
/// It holds control characters, and could add lines to the header of a mail.
pub fn mail_user(text: &str) -> Result<String, SpecError> {
    if text.chars().any(char::is_control) {
        Err(invalid("--mail-user", text).with_hint("a user, or an address in one line"))
    } else {
        Ok(text.to_owned())
    }
}

/// # Errors
/// Neither `yes` nor `no`.
pub fn yes_or_no(text: &str, option: &str) -> Result<bool, SpecError> {
    match text.to_ascii_lowercase().as_str() {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(invalid(option, text).with_hint("yes or no")),
    }
}

/// `--tres-per-task`: other spellings of `-c` and `--gpus-per-task`.
#[derive(Debug, Clone, Default)]
pub struct PerTask {
    pub cpus: Option<u32>,
    pub gpus: Option<GpuAsk>,
}

/// `cpu:2,gres/gpu:1`.
///
/// # Errors
/// Another resource, or a count that is none.
pub fn tres_per_task(text: &str) -> Result<PerTask, SpecError> {
    let bad = || invalid("--tres-per-task", text);
    let mut each = PerTask::default();
    for item in text.split(',') {
        if let Some(count) = item.strip_prefix("cpu").and_then(|rest| rest.strip_prefix([':', '=']))
        {
            let cpus = parse::count::parse(count, "--tres-per-task").map_err(|_| bad())?;
            each.cpus.get_or_insert(cpus);
        } else if let Some(gpu) = item.strip_prefix("gres/") {
            let ask = parse::gres::parse(gpu).map_err(|_| bad())?.ok_or_else(bad)?;
            match ask {
                GresAsk { gpus: Some(ask), mem_mb: None, .. } => each.gpus.get_or_insert(ask),
                _ => return Err(bad()),
            };
        } else {
            return Err(bad());
        }
    }
    Ok(each)
}

/// Seconds of `--immediate`, which srun names without dashes.
///
/// # Errors
/// No number.
pub fn immediate(text: &str) -> Result<u64, SpecError> {
    parse::count::parse_or_zero(text, "immediate").map(u64::from)
}
