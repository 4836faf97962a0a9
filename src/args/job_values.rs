//! Parsers for values of the options that sbatch, srun and salloc share. These are words and
//! numbers that need no grammar in `parse`.

use crate::args::error::CliError;
use crate::args::value::{Maybe, Why};
use slotd_model::mail;
use slotd_model::placement::Hint;
use slotd_model::request::{OpenMode, Sharing, Switches};
use slotd_parse::error::shown;
use slotd_parse::gres::{GpuAsk, GresAsk};
use slotd_parse::{SpecError, suggest};

/// The resource limits named by `--propagate`.
pub type Limits = Vec<&'static str>;

/// The largest nice value (sbatch man page).
pub const MAX_NICE: i64 = 2_147_483_645;
/// The value of `--priority=TOP`, the highest that is not one of Slurm's special numbers.
const TOP_PRIORITY: u32 = u32::MAX - 2;

/// Creates `Invalid --time specification: 1h`, exit code 255.
pub fn invalid(option: &str, value: &str) -> SpecError {
    SpecError::usage(format!("Invalid {option} specification: {}", shown(value)))
}

/// Parses `append`, `truncate`, or a prefix of one. Slurm checks only the first letter and
/// therefore accepts any typo.
pub fn open_mode(text: &str) -> Result<OpenMode, SpecError> {
    let word = text.to_ascii_lowercase();
    let modes = [("append", OpenMode::Append), ("truncate", OpenMode::Truncate)];
    let meant = modes.into_iter().find(|(name, _)| !word.is_empty() && name.starts_with(&word));
    let forms = || suggest::hint("append or truncate", text, modes.map(|(name, _)| name));
    meant.map(|(_, mode)| mode).ok_or_else(|| invalid("--open-mode", text).with_hint(forms()))
}

/// Parses a kind of `--exclusive`. On a host with one user, the kinds that exclude only other users
/// or labels exclude nobody.
///
/// # Errors
/// Fails for any other word.
pub fn sharing(text: &str, option: &str) -> Result<Sharing, SpecError> {
    match text {
        "" | "exclusive" | "topo" => Ok(Sharing::Exclusive),
        "user" => Ok(Sharing::User),
        "mcs" => Ok(Sharing::Mcs),
        "no" => Ok(Sharing::Default),
        other => {
            let kinds = ["exclusive", "user", "mcs", "topo", "no"];
            Err(invalid(option, other).with_hint(suggest::hint(
                "user, mcs, topo, no, or no value at all",
                other,
                kinds,
            )))
        }
    }
}

/// Parses a nice value. Slurm parses the leading number: `None`, which scripts often contain, is 0.
///
/// # Errors
/// Fails if the value is out of range.
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

/// Returns the leading number of a string, or `0` if there is none, like C's `strtol`.
fn leading_number(text: &str) -> &str {
    let text = text.trim_start();
    let sign = usize::from(text.starts_with(['+', '-']));
    let digits = text[sign..].bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 { "0" } else { &text[..sign + digits] }
}

/// Returns the accepted values of `--nice`, for hints.
pub fn nice_forms() -> String {
    format!("a whole number from -{MAX_NICE} to {MAX_NICE}")
}

/// Parses a priority or `TOP`. As in Slurm, a word without a leading number sets no priority:
/// `None`.
///
/// # Errors
/// Fails with Slurm's text for a negative number.
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
        // Too large for an `i128`.
        Err(_) => Ok(Some(TOP_PRIORITY)),
    }
}

/// Parses `--gres`. Slurm accepts `none` for no resources, but rejects an empty value.
///
/// # Errors
/// Fails for an empty value and for a resource that is not a GPU. The text of `help` is also
/// returned as an error.
pub fn gres(text: &str) -> Result<Maybe<GresAsk>, Why> {
    match text {
        "" => Err(SpecError::submission("Invalid Trackable RESource (TRES) specification").into()),
        text => match help_on("gres", text) {
            Some(help) => Err(help.into()),
            None => Ok(slotd_parse::gres::parse(text)?),
        },
    }
}

/// Returns the help on the values of an option if this value requests it. As in Slurm, that of
/// `--hint` has exit code 1.
pub fn help_on(option: &str, value: &str) -> Option<CliError> {
    match (option, value.to_ascii_lowercase().as_str()) {
        ("gres", "help" | "list") => Some(CliError::output(GRES_HELP)),
        ("hint", "help") => Some(CliError::output(HINT_HELP).with_exit(1)),
        _ => None,
    }
}

/// The output of `--gres=help`.
const GRES_HELP: &str = "Valid gres options are:\ngpu[[:type]:count]\ngpumem:size\nshard:count\n";

/// The output of `--hint=help`.
const HINT_HELP: &str = "Application hint options:
    --hint=             Bind tasks according to application hints
        compute_bound   use all cores in each socket
        memory_bound    use only one core in each socket
        [no]multithread [don't] use extra threads with in-core multi-threading
        help            show this help message
";

/// Parses `--hint`.
///
/// # Errors
/// Fails with Slurm's text and exit code 1 for an unknown hint. The text of `help` is also returned
/// as an error.
pub fn hint(text: &str) -> Result<Hint, Why> {
    if let Some(help) = help_on("hint", text) {
        return Err(help.into());
    }
    let found = Hint::ALL.into_iter().find(|(name, _)| *name == text);
    found.map(|(_, hint)| hint).ok_or_else(|| {
        let names = Hint::ALL.map(|(name, _)| name);
        let unknown = format!("unrecognized --hint argument \"{}\", see --hint=help", shown(text));
        SpecError::value(unknown).with_hint(suggest::hint(&names.join(", "), text, names)).into()
    })
}

/// `-B/--extra-node-info`: the minimum that the host must have. `None`: any number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeShape {
    pub sockets: Option<u32>,
    pub cores: Option<u32>,
    pub threads: Option<u32>,
}

/// Parses `sockets[:cores[:threads]]`. Each part is a number or `*`; of a range (`1-2`), the
/// smaller number is used.
///
/// # Errors
/// Fails with `Invalid numeric value "x" for first arg of -B.` and exit code 1.
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
            number => Some(slotd_parse::count::parse(number, &format!("{place} arg of -B"))?),
        };
    }
    let [sockets, cores, threads] = numbers;
    Ok(NodeShape { sockets, cores, threads })
}

/// Validates the events of `--mail-type` and returns them as given.
///
/// # Errors
/// Fails for an unknown event.
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

/// Validates the user or address of `--mail-user`.
///
/// # Errors
/// Fails for control characters, which could add lines to the header of an email, and for anything
/// that `sendmail` would not take for an address.
pub fn mail_user(text: &str) -> Result<String, SpecError> {
    if text.chars().any(char::is_control) || !mail::recipients(text).all(mail::is_recipient) {
        Err(invalid("--mail-user", text)
            .with_hint("users or addresses without blanks, separated by commas"))
    } else {
        Ok(text.to_owned())
    }
}

/// The longest time that a job waits for its switches: the default `max_switch_wait` of Slurm.
const SWITCH_WAIT_SECS: u64 = 300;

/// Parses `COUNT[@TIME]`. As in Slurm, a longer time is reduced to `max_switch_wait`. `None`: no
/// limit.
///
/// # Errors
/// Fails for a malformed count or time.
pub fn switches(text: &str, option: &str) -> Result<Maybe<Switches>, SpecError> {
    let (count, time) =
        text.split_once('@').map_or((text, None), |(count, time)| (count, Some(time)));
    let count = slotd_parse::count::parse_or_zero(count, option)?;
    let time = time.map(|time| slotd_parse::time::parse_secs_for(time, option)).transpose()?;
    let wait_secs = time.flatten().unwrap_or(SWITCH_WAIT_SECS).min(SWITCH_WAIT_SECS);
    Ok((count > 0).then_some(Switches { count, wait_secs }))
}

/// Parses `yes` or `no`.
///
/// # Errors
/// Fails for any other word.
pub fn yes_or_no(text: &str, option: &str) -> Result<bool, SpecError> {
    match text.to_ascii_lowercase().as_str() {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(invalid(option, text).with_hint("yes or no")),
    }
}

/// `--tres-per-task`: another spelling of `-c` and `--gpus-per-task`.
#[derive(Debug, Clone, Default)]
pub struct PerTask {
    pub cpus: Option<u32>,
    pub gpus: Option<GpuAsk>,
}

/// Parses `cpu:2,gres/gpu:1`.
///
/// # Errors
/// Fails for any other resource and for an invalid count.
pub fn tres_per_task(text: &str) -> Result<PerTask, SpecError> {
    let bad = || invalid("--tres-per-task", text);
    let mut each = PerTask::default();
    for item in text.split(',') {
        if let Some(count) = item.strip_prefix("cpu").and_then(|rest| rest.strip_prefix([':', '=']))
        {
            let cpus = slotd_parse::count::parse(count, "--tres-per-task").map_err(|_| bad())?;
            each.cpus.get_or_insert(cpus);
        } else if let Some(gpu) = item.strip_prefix("gres/") {
            let ask = slotd_parse::gres::parse(gpu).map_err(|_| bad())?.ok_or_else(bad)?;
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

/// Parses the seconds of `--immediate`, which the errors of srun spell without dashes.
///
/// # Errors
/// Fails if the value is not a number.
pub fn immediate(text: &str) -> Result<u64, SpecError> {
    slotd_parse::count::parse_or_zero(text, "immediate").map(u64::from)
}
