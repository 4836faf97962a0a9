//! Reservations: resources that the owner keeps for some jobs during a period.

use crate::qos::TresLimit;
use crate::{JobRequest, Timestamp, is_default};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// A reservation, in its current or next period.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Reservation {
    /// Reservations are ordered by it, in the order of their creation.
    pub number: u32,
    pub name: String,
    pub start: Timestamp,
    /// `None`: it never ends.
    pub end: Option<Timestamp>,
    /// The users who may use it. A name that begins with `-` excludes this user from all others.
    #[serde(skip_serializing_if = "is_default")]
    pub users: Vec<String>,
    /// The accounts whose jobs may use it, in the same form.
    #[serde(skip_serializing_if = "is_default")]
    pub accounts: Vec<String>,
    pub share: Share,
    /// The reserved licenses: `matlab:2,foo`.
    #[serde(skip_serializing_if = "is_default")]
    pub licenses: Option<String>,
    /// The partition whose resources are reserved.
    #[serde(skip_serializing_if = "is_default")]
    pub partition: Option<String>,
    pub flags: BTreeSet<Flag>,
    /// The first period of a reservation that repeats, if this is a later one. The later ones are
    /// counted from it, so that a change of the clock moves only those that it meets.
    #[serde(skip_serializing_if = "is_default")]
    pub first: Option<(Timestamp, Timestamp)>,
    /// After how many seconds without jobs PURGE_COMP ends it.
    #[serde(skip_serializing_if = "is_default")]
    pub purge_after: Option<u64>,
    /// Since when no job has named it, if its jobs may start and it has PURGE_COMP.
    #[serde(skip_serializing_if = "is_default")]
    pub idle_since: Option<Timestamp>,
}

/// The reserved part of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Share {
    /// The whole node.
    #[default]
    Node,
    /// Some of its CPUs, and possibly of its memory and GPUs.
    Parts(TresLimit),
    /// Nothing but licenses.
    Licenses,
}

/// A flag of a reservation. The order is that of Slurm's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Flag {
    Maint,
    /// Its jobs may use other resources too, and run before and after it.
    Flex,
    Overlap,
    IgnoreJobs,
    Hourly,
    Daily,
    Weekday,
    Weekend,
    Weekly,
    SpecNodes,
    AllNodes,
    AnyNodes,
    /// Jobs that still wait at its end run outside it.
    NoHoldJobsAfter,
    /// It ends early if no job uses it.
    PurgeComp,
}

impl Flag {
    pub const ALL: [Flag; 14] = [
        Flag::Maint,
        Flag::Flex,
        Flag::Overlap,
        Flag::IgnoreJobs,
        Flag::Hourly,
        Flag::Daily,
        Flag::Weekday,
        Flag::Weekend,
        Flag::Weekly,
        Flag::SpecNodes,
        Flag::AllNodes,
        Flag::AnyNodes,
        Flag::NoHoldJobsAfter,
        Flag::PurgeComp,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Flag::Maint => "MAINT",
            Flag::Flex => "FLEX",
            Flag::Overlap => "OVERLAP",
            Flag::IgnoreJobs => "IGNORE_JOBS",
            Flag::Hourly => "HOURLY",
            Flag::Daily => "DAILY",
            Flag::Weekday => "WEEKDAY",
            Flag::Weekend => "WEEKEND",
            Flag::Weekly => "WEEKLY",
            Flag::SpecNodes => "SPEC_NODES",
            Flag::AllNodes => "ALL_NODES",
            Flag::AnyNodes => "ANY_NODES",
            Flag::NoHoldJobsAfter => "NO_HOLD_JOBS_AFTER_END",
            Flag::PurgeComp => "PURGE_COMP",
        }
    }

    /// Returns whether the flag makes a reservation repeat.
    pub const fn repeats(self) -> bool {
        matches!(self, Flag::Hourly | Flag::Daily | Flag::Weekday | Flag::Weekend | Flag::Weekly)
    }

    /// Returns whether `Flags-=` does not take the flag away.
    pub const fn is_permanent(self) -> bool {
        matches!(self, Flag::Overlap | Flag::NoHoldJobsAfter)
    }
}

impl fmt::Display for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The most reservations that a host keeps.
pub const MOST_RESERVATIONS: usize = 64;

/// The most users, and the most accounts, of a reservation.
const MOST_NAMES: usize = 64;

/// The longest name, in bytes.
const LONGEST_NAME: usize = 64;

/// The longest list of licenses, in bytes.
const LONGEST_LICENSES: usize = 1024;

/// After how long PURGE_COMP ends an idle reservation by default, in seconds.
const PURGE_SECS: u64 = 300;

/// How long before its start a flexible reservation takes jobs, in seconds.
const FLEX_SECS: i64 = 3600;

impl Reservation {
    pub fn has(&self, flag: Flag) -> bool {
        self.flags.contains(&flag)
    }

    /// Returns the flag by which it repeats.
    pub fn repeat(&self) -> Option<Flag> {
        self.flags.iter().copied().find(|flag| flag.repeats())
    }

    pub fn is_over(&self, now: Timestamp) -> bool {
        self.end.is_some_and(|end| end <= now)
    }

    pub fn is_active(&self, now: Timestamp) -> bool {
        self.start <= now && !self.is_over(now)
    }

    /// Returns when its jobs may start.
    pub fn opens(&self) -> Timestamp {
        let early = if self.has(Flag::Flex) { FLEX_SECS } else { 0 };
        Timestamp::from_secs(self.start.as_secs().saturating_sub(early))
    }

    /// Returns whether its jobs may start.
    pub fn is_open(&self, now: Timestamp) -> bool {
        self.opens() <= now && !self.is_over(now)
    }

    /// Returns the end of its jobs; `None` if it ends none.
    pub fn job_end(&self) -> Option<Timestamp> {
        self.end.filter(|_| !self.has(Flag::Flex))
    }

    /// Returns the amounts that its jobs may hold together.
    pub fn limit(&self) -> TresLimit {
        match self.share {
            Share::Parts(amounts) if !self.has(Flag::Flex) => amounts,
            _ => TresLimit::default(),
        }
    }

    /// Returns after how many seconds without jobs it ends.
    pub fn purge_secs(&self) -> Option<u64> {
        self.has(Flag::PurgeComp).then(|| self.purge_after.unwrap_or(PURGE_SECS))
    }

    /// Returns when it ends unless a job names it.
    pub fn purged_at(&self) -> Option<Timestamp> {
        Some(self.idle_since?.max(self.start).plus_secs(self.purge_secs()?))
    }

    /// Returns whether its jobs may use what this one keeps from all others. As in Slurm, only
    /// maintenance passes maintenance.
    pub fn passes(&self, other: &Reservation) -> bool {
        self.has(Flag::Maint) || self.has(Flag::Overlap) && !other.has(Flag::Maint)
    }

    /// Returns whether this request may use it.
    pub fn admits(&self, request: &JobRequest) -> bool {
        is_listed(&self.users, &request.user)
            && is_listed(&self.accounts, request.account.as_deref().unwrap_or_default())
    }

    /// Fails if a name or a list is too long, or if its name has characters that a list of
    /// reservations, a file or a terminal would take for something else.
    pub fn check_bounds(&self) -> Result<(), ReservationFault> {
        let is_short = |name: &str| !name.is_empty() && name.len() <= LONGEST_NAME;
        if !is_short(&self.name) || !self.name.chars().all(is_plain) {
            return Err(ReservationFault::Name);
        }
        let has_control = |name: &String| name.chars().any(char::is_control);
        if self.users.iter().chain(&self.accounts).any(has_control) {
            return Err(ReservationFault::Account);
        }
        let fits =
            |list: &[String]| list.len() <= MOST_NAMES && list.iter().all(|name| is_short(name));
        let licenses = self.licenses.as_deref().unwrap_or_default();
        if fits(&self.users) && fits(&self.accounts) && licenses.len() <= LONGEST_LICENSES {
            Ok(())
        } else {
            Err(ReservationFault::TooLong)
        }
    }

    /// Returns whether a job names it.
    pub fn is_named_by(&self, request: &JobRequest) -> bool {
        names(request).any(|name| name == self.name)
    }
}

/// Returns how many of a license the active reservations keep.
pub fn licenses(all: &[ReservationView], name: &str, now: Timestamp) -> u32 {
    let active = all.iter().map(|view| &view.reservation).filter(|one| one.is_active(now));
    let lists = active.filter_map(|one| crate::license::parse(one.licenses.as_deref()?));
    let counts = lists.flatten().filter(|(known, _)| *known == name).map(|(_, count)| count);
    counts.fold(0, u32::saturating_add)
}

fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "_-.".contains(letter)
}

/// Returns a name with a number. Characters that a name can't have are replaced, and those that
/// make it too long are left out.
pub fn numbered_name(first: &str, number: u32) -> String {
    let number = format!("_{number}");
    let plain = first.chars().map(|letter| if is_plain(letter) { letter } else { '_' });
    plain.take(LONGEST_NAME - number.len()).collect::<String>() + &number
}

/// Returns the reservations that a job names.
pub fn names(request: &JobRequest) -> impl Iterator<Item = &str> {
    let list = request.reservation.as_deref().unwrap_or_default();
    list.split(',').filter(|name| !name.is_empty())
}

/// Removes an empty list of reservations from a request.
pub fn normalize(request: &mut JobRequest) {
    if names(request).next().is_none() {
        request.reservation = None;
    }
}

/// Returns whether a list admits this name: an empty list admits all.
fn is_listed(list: &[String], name: &str) -> bool {
    let excludes = list.iter().any(|known| known.starts_with('-'));
    if excludes {
        list.iter().all(|known| known.trim_start_matches('-') != name)
    } else {
        list.is_empty() || list.iter().any(|known| known == name)
    }
}

/// A reservation and the resources that it keeps now.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReservationView {
    pub reservation: Reservation,
    /// The CPUs of its jobs, and the free ones that are kept for it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cpus: Vec<u32>,
}

/// The keys of `scontrol create` and `update`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReservationAsk {
    pub name: Option<String>,
    pub start: Option<Timestamp>,
    pub end: Option<Timestamp>,
    pub length: Option<Length>,
    pub users: Option<ListChange>,
    pub accounts: Option<ListChange>,
    pub share: Option<Share>,
    pub licenses: Option<String>,
    pub partition: Option<String>,
    pub flags: Option<FlagChange>,
    /// The time in `PURGE_COMP=TIME`.
    pub purge_after: Option<u64>,
    /// Names of nodes, to be compared with the host's.
    pub nodes: Option<String>,
}

/// The length of a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Length {
    Secs(u64),
    Forever,
}

/// How a command changes a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    Set,
    Add,
    Remove,
}

pub type ListChange = (How, Vec<String>);
pub type FlagChange = (How, Vec<Flag>);

/// A command of the owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReservationOrder {
    Create(Box<ReservationAsk>),
    Update(Box<ReservationAsk>),
    Delete(String),
}

/// Why an order is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReservationFault {
    Duplicate,
    Unknown,
    InUse,
    Overlaps,
    /// Too few resources are left. `of_partition`: no node was named.
    Busy {
        of_partition: bool,
    },
    Time,
    Users,
    /// A user or account that no job can have.
    Account,
    Node,
    Partition,
    Licenses,
    CoreBased,
    /// The host keeps `MOST_RESERVATIONS` already.
    TooMany,
    Name,
    /// A list has too many names, or too long ones.
    TooLong,
    /// It cannot be stored.
    NotStored(crate::StoreFault),
}

impl fmt::Display for ReservationFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReservationFault::Duplicate => "Duplicate reservation name",
            ReservationFault::Unknown => "Requested reservation is invalid",
            ReservationFault::InUse => "Requested reservation is in use",
            ReservationFault::Overlaps => "Requested reservation overlaps with another reservation",
            ReservationFault::Busy { .. } => "Requested nodes are busy",
            ReservationFault::Time => "Invalid time specified",
            ReservationFault::Users => "Reservation request lacks users, groups or accounts",
            ReservationFault::Account => {
                "Invalid account or account/partition combination specified"
            }
            ReservationFault::Node => "Invalid node name specified",
            ReservationFault::Partition => "Invalid partition name specified",
            ReservationFault::Licenses => "Invalid license specification",
            ReservationFault::CoreBased => "Core-based reservation can not be updated",
            ReservationFault::TooMany => {
                return write!(f, "A host keeps at most {MOST_RESERVATIONS} reservations");
            }
            ReservationFault::Name => {
                return write!(
                    f,
                    "A reservation's name has up to {LONGEST_NAME} letters, digits, '_', '-' or '.'"
                );
            }
            ReservationFault::TooLong => "Too many or too long users, accounts or licenses",
            ReservationFault::NotStored(fault) => {
                return write!(f, "{fault}: {} and try again", fault.remedy());
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(user: &str, account: Option<&str>) -> JobRequest {
        let account = account.map(str::to_owned);
        JobRequest { user: user.to_owned(), account, ..JobRequest::default() }
    }

    #[test]
    fn both_lists_must_admit_a_job() {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        for (users, accounts, user, account, admits) in [
            (&["ann"][..], &[][..], "ann", None, true),
            (&["ann"], &[], "bob", None, false),
            (&["-ann"], &[], "bob", None, true),
            (&["-ann"], &[], "ann", None, false),
            (&[], &["proj"], "ann", Some("proj"), true),
            (&[], &["proj"], "ann", None, false),
            (&["ann"], &["proj"], "ann", Some("other"), false),
        ] {
            let (users, accounts) = (list(users), list(accounts));
            let reservation = Reservation { users, accounts, ..Reservation::default() };
            assert_eq!(reservation.admits(&request(user, account)), admits, "{reservation:?}");
        }
    }

    #[test]
    fn a_flexible_reservation_takes_jobs_an_hour_early_and_ends_none() {
        let (start, end) = (Timestamp::from_secs(10_000), Some(Timestamp::from_secs(20_000)));
        let plain = Reservation { start, end, ..Reservation::default() };
        let flex = Reservation { flags: BTreeSet::from([Flag::Flex]), ..plain.clone() };
        let before = Timestamp::from_secs(10_000 - FLEX_SECS);
        assert_eq!([plain.is_open(before), flex.is_open(before)], [false, true]);
        assert_eq!([plain.job_end(), flex.job_end()], [end, None]);
        assert!(plain.is_active(start) && plain.is_over(Timestamp::from_secs(20_000)));
    }

    #[test]
    fn names_and_lists_are_bounded() {
        let named = |name: &str| Reservation { name: name.to_owned(), ..Reservation::default() };
        for name in ["a", "A.b_c-9", &"x".repeat(LONGEST_NAME)] {
            assert_eq!(named(name).check_bounds(), Ok(()), "{name}");
        }
        for name in ["", "a,b", "a b", "a/b", "a\n", "a\u{1b}[2J", "\u{e9}", &"x".repeat(65)] {
            assert_eq!(named(name).check_bounds(), Err(ReservationFault::Name), "{name:?}");
        }
        let check = |count: usize, length: usize, licenses: usize| {
            let list = vec!["u".repeat(length); count];
            let licenses = Some("l".repeat(licenses));
            let by_user = Reservation { users: list.clone(), licenses, ..named("a") };
            let by_account = Reservation { users: Vec::new(), accounts: list, ..by_user.clone() };
            let checked = by_user.check_bounds();
            assert_eq!(by_account.check_bounds(), checked);
            checked
        };
        let odd = Reservation { accounts: vec!["a\u{1b}[2J".to_owned()], ..named("a") };
        assert_eq!(odd.check_bounds(), Err(ReservationFault::Account));
        let too_long = Err(ReservationFault::TooLong);
        assert_eq!(check(MOST_NAMES, LONGEST_NAME, LONGEST_LICENSES), Ok(()));
        assert_eq!(check(MOST_NAMES + 1, 1, 1), too_long);
        assert_eq!(check(1, LONGEST_NAME + 1, 1), too_long);
        assert_eq!(check(1, 0, 1), too_long);
        assert_eq!(check(1, 1, LONGEST_LICENSES + 1), too_long);
    }

    #[test]
    fn active_reservations_keep_licenses() {
        let view = |start, licenses: &str| ReservationView {
            reservation: Reservation {
                start: Timestamp::from_secs(start),
                licenses: Some(licenses.to_owned()),
                ..Reservation::default()
            },
            cpus: Vec::new(),
        };
        let all = [view(10, "foo:2,bar"), view(10, "foo"), view(20, "foo:9")];
        let kept = |name, at| licenses(&all, name, Timestamp::from_secs(at));
        assert_eq!([kept("foo", 9), kept("foo", 10), kept("bar", 10)], [0, 3, 1]);
    }

    #[test]
    fn a_chosen_name_is_plain_and_short() {
        for (first, number, name) in [
            ("ann", 1, "ann_1"),
            ("../lab\n", 12, ".._lab__12"),
            ("gr\u{fc}n", 3, "gr_n_3"),
            (&"x".repeat(80), 10, &*("x".repeat(61) + "_10")),
        ] {
            let name = name.to_owned();
            assert_eq!(numbered_name(first, number), name);
            assert_eq!(Reservation { name, ..Reservation::default() }.check_bounds(), Ok(()));
        }
    }

    #[test]
    fn an_empty_list_names_no_reservation() {
        let named = |text: &str| {
            let mut request =
                JobRequest { reservation: Some(text.to_owned()), ..JobRequest::default() };
            normalize(&mut request);
            request.reservation
        };
        assert_eq!([named(""), named(","), named("a,b")], [None, None, Some("a,b".to_owned())]);
    }
}
