//! `scontrol create`, `update` and `delete` of reservations.

use super::command::Command;
use super::session::{Session, bare};
use crate::args::error::{CliError, Mark};
use crate::args::origin::Origin;
use crate::client::connection::Connection;
use crate::commands::output;
use crate::commands::{Done, ask_node, paths, unexpected};
use slotd_model::qos::TresLimit;
use slotd_model::reservation::{
    Flag, How, Length, ListChange, ReservationAsk, ReservationFault, ReservationOrder, Share,
};
use slotd_model::{Refusal, Timestamp};
use slotd_parse::error::shown;
use slotd_parse::moment::{self, Toward};
use slotd_parse::{mem, suggest, time};
use slotd_protocol::answer::Answer;
use slotd_protocol::request::Request;
use slotd_render::{json, show};
use slotd_sys::user;

/// The keys of a reservation. A beginning is enough, as in Slurm: the first match counts.
const KEYS: [&str; 14] = [
    "ReservationName",
    "StartTime",
    "EndTime",
    "Duration",
    "Nodes",
    "NodeCnt",
    "CoreCnt",
    "Users",
    "Accounts",
    "Licenses",
    "PartitionName",
    "Flags",
    "TRES",
    "Groups",
];

/// The meaning of `Duration=UNLIMITED` in Slurm.
const YEAR_SECS: u64 = 365 * 86_400;

/// The lines that Slurm prints when too few resources are left in a partition.
const NOTE: &str = "Note, unless nodes are directly requested a reservation must exist in a single partition.\n\
     If no partition is requested the default partition is assumed.\n";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Create,
    Update,
}

impl Verb {
    /// Returns the end of the parser's errors.
    fn none_done(self) -> &'static str {
        match self {
            Verb::Create => "No reservation created.",
            Verb::Update => "No reservation update.",
        }
    }
}

/// Returns whether a word names a reservation, or the entity itself.
pub(super) fn is_reservation(word: &str) -> bool {
    let key = word.split('=').next().unwrap_or_default().to_ascii_lowercase();
    key.len() >= 3 && "reservationname".starts_with(&key)
}

/// Returns whether the words after `update` are about a reservation, and not about a job of one.
pub(super) fn is_update(words: &[String]) -> bool {
    words.first().is_some_and(|word| is_reservation(word))
        && !words.iter().any(|word| word.to_ascii_lowercase().starts_with("job"))
}

/// Parses the words after `delete`.
///
/// # Errors
/// Fails like Slurm without a name.
pub(super) fn deletion(words: &[String]) -> Result<Command, CliError> {
    let [entity, rest @ ..] = words else { return Err(no_target()) };
    let name = match entity.split_once('=') {
        Some((_, name)) => name,
        None => rest.first().map(String::as_str).unwrap_or_default(),
    };
    if name.is_empty() {
        return Err(no_target());
    }
    let order = ReservationOrder::Delete(name.to_owned());
    Ok(Command::Reservation { order: Box::new(order), entity: entity.clone() })
}

fn no_target() -> CliError {
    CliError::error(1, "Proper format is 'delete <ENTITY>=<ID>' or 'delete <ENTITY> <ID>'")
}

/// Parses the words after `create` or `update`.
///
/// # Errors
/// Fails with Slurm's messages.
pub(super) fn read(verb: Verb, words: &[String], origin: &Origin) -> Result<Command, CliError> {
    let mut ask = Ask { verb, origin, ask: ReservationAsk::default(), cpus: Amounts::default() };
    let mut words = words;
    if let [first, rest @ ..] = words
        && is_reservation(first)
        && !first.contains('=')
    {
        words = rest;
        if let [name, rest @ ..] = words
            && !name.contains('=')
        {
            ask.ask.name = Some(name.clone());
            words = rest;
        }
    }
    for word in words {
        ask.key(word)?;
    }
    let ask = ask.finish()?;
    let order = match verb {
        Verb::Create => ReservationOrder::Create(Box::new(ask)),
        Verb::Update => ReservationOrder::Update(Box::new(ask)),
    };
    Ok(Command::Reservation { order: Box::new(order), entity: String::new() })
}

/// The requested resources.
#[derive(Default)]
struct Amounts {
    limit: TresLimit,
    is_node: bool,
    only_licenses: bool,
}

struct Ask<'a> {
    verb: Verb,
    origin: &'a Origin,
    ask: ReservationAsk,
    cpus: Amounts,
}

impl Ask<'_> {
    fn fails(&self, text: &str) -> CliError {
        CliError::error(1, format!("{text}.  {}", self.verb.none_done()))
    }

    fn key(&mut self, word: &str) -> Result<(), CliError> {
        let Some((key, value)) = word.split_once('=') else {
            return Err(self.unknown(word));
        };
        let (key, how) = match key.as_bytes().last() {
            Some(b'+') => (&key[..key.len() - 1], How::Add),
            Some(b'-') => (&key[..key.len() - 1], How::Remove),
            _ => (key, How::Set),
        };
        let lower = key.to_ascii_lowercase();
        let is_meant =
            |known: &&&str| !lower.is_empty() && known.to_ascii_lowercase().starts_with(&lower);
        let Some(known) = KEYS.iter().find(is_meant) else { return Err(self.unknown(word)) };
        match *known {
            "ReservationName" => self.ask.name = Some(value.to_owned()),
            "StartTime" => self.ask.start = Some(self.time("start", word, value)?),
            "EndTime" => self.ask.end = Some(self.time("end", word, value)?),
            "Duration" => self.ask.length = Some(self.length(word, value)?),
            "Nodes" => self.nodes(value),
            "NodeCnt" => self.node_count(value)?,
            "CoreCnt" => self.core_count(value)?,
            "Users" => self.ask.users = Some(self.users(how, value)?),
            "Accounts" => self.ask.accounts = Some((how, list(value))),
            "Licenses" => self.ask.licenses = Some(value.to_owned()),
            "PartitionName" => self.ask.partition = Some(value.to_owned()),
            "Flags" => self.flags(how, value)?,
            "TRES" => self.tres(value)?,
            _ => {
                let text = format!("{} is not supported by slotd: a host has one user", shown(key));
                return Err(self.fails(&text));
            }
        }
        Ok(())
    }

    fn unknown(&self, word: &str) -> CliError {
        let key = word.split('=').next().unwrap_or_default();
        self.fails(&format!("Unknown parameter {}", shown(word)))
            .hint(suggest::one_of("keys", key, KEYS))
    }

    fn time(&self, what: &str, word: &str, value: &str) -> Result<Timestamp, CliError> {
        moment::parse(value, self.origin.now, &self.origin.tz, Toward::Future).map_err(|at| {
            let invalid =
                format!("Invalid {what} time {}.  {}", shown(word), self.verb.none_done());
            bare(format!("Invalid time specification (pos={at}): {}", shown(value)))
                .and(Mark::Error, invalid)
        })
    }

    fn length(&self, word: &str, value: &str) -> Result<Length, CliError> {
        if value.eq_ignore_ascii_case("unlimited") || value.eq_ignore_ascii_case("infinite") {
            return Ok(Length::Secs(YEAR_SECS));
        }
        let is_number = value.starts_with(|first: char| first.is_ascii_digit());
        match time::parse_limit_for(value, "Duration") {
            Ok(Some(secs)) if is_number => Ok(Length::Secs(secs)),
            Ok(None) if is_number => Ok(Length::Forever),
            _ => Err(self.fails(&format!("Invalid duration {}", shown(word)))),
        }
    }

    fn add_flags(&mut self, flags: &[Flag]) {
        let (_, known) = self.ask.flags.get_or_insert((How::Add, Vec::new()));
        known.extend(flags);
    }

    fn nodes(&mut self, value: &str) {
        self.cpus.is_node = true;
        if value.eq_ignore_ascii_case("all") {
            self.add_flags(&[Flag::SpecNodes, Flag::AllNodes]);
        } else {
            self.ask.nodes = Some(value.to_owned());
            self.add_flags(&[Flag::SpecNodes]);
        }
    }

    /// More nodes than one, or none, are more than the host has.
    fn node_count(&mut self, value: &str) -> Result<(), CliError> {
        match value.parse() {
            Ok(1u32) => self.cpus.is_node = true,
            Ok(_) => self.cpus.limit.cpus = Some(u32::MAX),
            Err(_) => {
                return Err(CliError::error(1, format!("Invalid node count {}", shown(value))));
            }
        }
        Ok(())
    }

    fn core_count(&mut self, value: &str) -> Result<(), CliError> {
        match value.parse() {
            Ok(0u32) => self.cpus.limit.cpus = Some(u32::MAX),
            Ok(count) => self.cpus.limit.cpus = Some(count),
            Err(_) => {
                return Err(CliError::error(1, format!("Invalid core count {}", shown(value))));
            }
        }
        Ok(())
    }

    fn users(&self, how: How, value: &str) -> Result<ListChange, CliError> {
        let names = list(value);
        let is_unknown = |name: &&String| user::uid_of(name.trim_start_matches('-')).is_none();
        match names.iter().find(is_unknown) {
            None => Ok((how, names)),
            Some(_) if self.verb == Verb::Create => {
                Err(bare("Error creating the reservation: Invalid user id"))
            }
            Some(_) => Err(update_error("Invalid user id")),
        }
    }

    fn flags(&mut self, how: How, value: &str) -> Result<(), CliError> {
        // `Flags=+X` and `Flags=-X` are Slurm's older spelling.
        let (how, value) = match value.as_bytes().first() {
            Some(b'+') => (How::Add, &value[1..]),
            Some(b'-') => (How::Remove, &value[1..]),
            _ => (how, value),
        };
        let mut named = Vec::new();
        for word in value.split(',').filter(|word| !word.is_empty()) {
            let upper = word.to_ascii_uppercase();
            match upper.as_str() {
                "LICENSE_ONLY" => {
                    self.cpus.only_licenses = true;
                    named.push(Flag::AnyNodes);
                }
                "NO_HOLD_JOBS_AFTER" => named.push(Flag::NoHoldJobsAfter),
                "SPEC_NODES" | "ALL_NODES" => {}
                upper if let Some(text) = upper.strip_prefix("PURGE_COMP=") => {
                    let Ok(Some(secs)) = time::parse_limit_for(text, "PURGE_COMP") else {
                        return Err(self.fails(&format!("Error parsing flags {}", shown(value))));
                    };
                    self.ask.purge_after = Some(secs);
                    named.push(Flag::PurgeComp);
                }
                upper => match Flag::ALL.into_iter().find(|flag| flag.name() == upper) {
                    Some(flag) => named.push(flag),
                    None => return Err(self.bad_flag(value, upper)),
                },
            }
        }
        let own = self.ask.flags.take();
        let own = own.into_iter().flat_map(|(_, flags)| flags);
        self.ask.flags = Some((how, named.into_iter().chain(own).collect()));
        Ok(())
    }

    fn bad_flag(&self, all: &str, flag: &str) -> CliError {
        const WITHOUT_MEANING: [&str; 10] = [
            "FIRST_CORES",
            "FORCE_START",
            "MAGNETIC",
            "PART_NODES",
            "REPLACE",
            "REPLACE_DOWN",
            "STATIC",
            "STATIC_ALLOC",
            "TIME_FLOAT",
            "USER_DELETE",
        ];
        let name = flag.split('=').next().unwrap_or_default();
        if WITHOUT_MEANING.contains(&name) {
            return self.fails(&format!("Flag {} is not supported by slotd", shown(flag)));
        }
        let names = Flag::ALL.into_iter().map(Flag::name).chain(["LICENSE_ONLY"]);
        self.fails(&format!("Error parsing flags {}", shown(all)))
            .hint(suggest::one_of("flags", flag, names))
    }

    fn tres(&mut self, value: &str) -> Result<(), CliError> {
        for word in value.split(',').filter(|word| !word.is_empty()) {
            let (kind, count) = word.split_once('=').unwrap_or((word, ""));
            let invalid = || self.fails(&format!("Invalid TRES {}", shown(word)));
            let number = || count.parse::<u32>().ok().filter(|count| *count > 0);
            match kind {
                "cpu" => self.cpus.limit.cpus = Some(number().ok_or_else(invalid)?),
                "gres/gpu" => self.cpus.limit.gpus = Some(number().ok_or_else(invalid)?),
                "mem" => {
                    let mb = mem::megabytes(count).ok_or_else(invalid)?;
                    self.cpus.limit.mem_mb = Some(mb);
                }
                "node" if count == "1" => self.cpus.is_node = true,
                _ if let Some(name) = kind.strip_prefix("license/") => {
                    let count = number().ok_or_else(invalid)?;
                    let known = self.ask.licenses.take().into_iter();
                    let all: Vec<String> = known.chain([format!("{name}:{count}")]).collect();
                    self.ask.licenses = Some(all.join(","));
                }
                _ => {
                    let text = format!("couldn't identify configured TRES '{}'", shown(kind));
                    return Err(CliError::error(1, text));
                }
            }
        }
        Ok(())
    }

    /// Checks that everything is there.
    fn finish(mut self) -> Result<ReservationAsk, CliError> {
        let has_parts = self.cpus.limit != TresLimit::default();
        self.ask.share = if has_parts {
            Some(Share::Parts(self.cpus.limit))
        } else if self.cpus.is_node {
            Some(Share::Node)
        } else {
            self.cpus.only_licenses.then_some(Share::Licenses)
        };
        if let (Some(start), Some(end), None) = (self.ask.start, self.ask.end, self.ask.length)
            && end <= start
        {
            return Err(self.fails("Start time cannot be after end time"));
        }
        if self.verb == Verb::Update {
            return Ok(self.ask);
        }
        let is_given =
            |list: &Option<ListChange>| list.as_ref().is_some_and(|(_, names)| !names.is_empty());
        if self.ask.start.is_none() {
            return Err(self.fails("A start time must be given"));
        }
        if self.ask.end.is_none() && self.ask.length.is_none() {
            return Err(self.fails("An end time or duration must be given"));
        }
        if self.ask.share.is_none() && self.ask.licenses.is_none() {
            return Err(self.fails(
                "CoreCnt, Nodes, NodeCnt, BurstBuffer, Licenses or Watts must be specified",
            ));
        }
        if !is_given(&self.ask.users) && !is_given(&self.ask.accounts) {
            return Err(self.fails("Either Users/Groups and/or Accounts must be specified"));
        }
        if self.ask.share.is_none() {
            // As in Slurm, licenses alone need LICENSE_ONLY.
            self.ask.nodes = Some(String::new());
        }
        Ok(self.ask)
    }
}

fn list(value: &str) -> Vec<String> {
    value.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn update_error(why: &str) -> CliError {
    bare(format!("Error updating the reservation: {why}"))
        .and(Mark::Bare, format!("slurm_update error: {why}"))
}

impl Session<'_> {
    pub(super) fn order_reservation(&self, order: &ReservationOrder, entity: &str) -> Done {
        let request = Request::Reservation(order.clone());
        let why = match Connection::open(&paths()?)?.ask(&request, &[])?.0 {
            Answer::Reservation(name) => {
                return match order {
                    ReservationOrder::Create(_) => {
                        output::print(&format!("Reservation created: {name}\n"))
                    }
                    ReservationOrder::Update(_) => output::print("Reservation updated.\n"),
                    ReservationOrder::Delete(_) => Ok(0),
                };
            }
            Answer::Refused(why) => why,
            other => return Err(unexpected(&other)),
        };
        Err(match order {
            ReservationOrder::Create(_) => {
                if let Refusal::Reservation(ReservationFault::Busy { of_partition: true }) = why
                    && !self.output.quiet
                {
                    output::print(NOTE)?;
                }
                bare(format!("Error creating the reservation: {why}"))
            }
            ReservationOrder::Update(_) => update_error(&why.to_string()),
            ReservationOrder::Delete(_) => bare(format!("delete_reservation {entity}: {why}")),
        })
    }

    pub(super) fn show_reservations(&self, name: Option<&str>) -> Done {
        let node = ask_node()?;
        let ctx = self.ctx(node.now);
        if let Some(machine) = self.output.data.machine() {
            return output::print_machine(json::reservations(&node, name), machine);
        }
        let text = show::reservations(&node, name, self.output.oneliner, &ctx);
        match (name, text.is_empty()) {
            (Some(name), true) => self.not_found(&format!("Reservation {name}")),
            (None, true) => output::print("No reservations in the system\n"),
            _ => output::print(&text),
        }
    }
}
