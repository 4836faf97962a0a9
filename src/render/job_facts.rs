//! Parts of a request that are shown as they were requested. Each has one row with its spelling in
//! every output. squeue, sacct, `scontrol show job` and both JSON documents read this table.

use crate::field::{Cut, Field, Table};
use crate::json::record::{Member, Members};
use crate::value::{Key, Value};
use crate::{Ctx, job};
use serde_json::Value as Json;
use slotd_model::mail;
use slotd_model::view::JobView;

/// Reads a fact from a job; `None` if it was not requested.
pub(crate) type FactOf = fn(&JobView) -> Option<Value<'_>>;

/// One fact. Outputs without a spelling here do not show it.
pub(crate) struct JobFact {
    get: FactOf,
    /// Whether the text may have any length, so its column is shortened before others.
    is_text: bool,
    squeue: Option<Squeue>,
    sacct: Option<Sacct>,
    show: Option<Show>,
    queue: Option<&'static str>,
    accounting: Option<(&'static str, Absent)>,
}

/// squeue's letter (`-o`, optional), name (`-O`) and header.
struct Squeue {
    code: &'static str,
    name: &'static [&'static str; 1],
    header: &'static str,
    is_listed: bool,
}

/// sacct's name and column width.
struct Sacct {
    name: &'static [&'static str; 1],
    width: i32,
    is_listed: bool,
}

/// The key in `scontrol show job` and the text for a missing value; with `None` the key is omitted.
struct Show {
    place: Place,
    key: &'static str,
    absent: Option<&'static str>,
}

/// The places of a fact in `scontrol show job`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// On the line with the priority.
    Priority,
    /// On a line of its own after the features.
    Features,
    /// On the line about sharing.
    Sharing,
    /// On a line of its own after the working directory.
    WorkDir,
    /// On the last line.
    Last,
}

/// The JSON value of missing text.
#[derive(Clone, Copy)]
enum Absent {
    Null,
    Empty,
    /// Slurm 22.05's value for no reservation.
    Zero,
}

impl JobFact {
    const fn new(get: FactOf) -> Self {
        let (is_text, show, queue) = (false, None, None);
        JobFact { get, is_text, squeue: None, sacct: None, show, queue, accounting: None }
    }

    const fn text(get: FactOf) -> Self {
        JobFact { is_text: true, ..JobFact::new(get) }
    }

    const fn squeue(
        mut self,
        code: &'static str,
        name: &'static [&'static str; 1],
        header: &'static str,
    ) -> Self {
        self.squeue = Some(Squeue { code, name, header, is_listed: true });
        self
    }

    /// Adds a squeue field of a later Slurm release, which `--helpformat` does not list.
    const fn later_squeue(
        mut self,
        name: &'static [&'static str; 1],
        header: &'static str,
    ) -> Self {
        self.squeue = Some(Squeue { code: "", name, header, is_listed: false });
        self
    }

    const fn sacct(mut self, name: &'static [&'static str; 1], width: i32) -> Self {
        self.sacct = Some(Sacct { name, width, is_listed: true });
        self
    }

    /// Adds a sacct field of a Slurm release after 22.05, which `--helpformat` does not list.
    const fn later_sacct(mut self, name: &'static [&'static str; 1], width: i32) -> Self {
        self.sacct = Some(Sacct { name, width, is_listed: false });
        self
    }

    const fn show(mut self, place: Place, key: &'static str, absent: Option<&'static str>) -> Self {
        self.show = Some(Show { place, key, absent });
        self
    }

    /// Sets the member name in `squeue --json`.
    const fn queue(mut self, member: &'static str) -> Self {
        self.queue = Some(member);
        self
    }

    /// Sets the member name in `sacct --json`; a nested member is written as `outer/inner`.
    const fn accounting(mut self, path: &'static str, absent: Absent) -> Self {
        self.accounting = Some((path, absent));
        self
    }
}

/// The facts, in the order in which `scontrol show job` prints them at each place.
static FACTS: &[JobFact] = &[
    JobFact::new(|j| Some(Value::Number(j.request.nice))).squeue("y", &["Nice"], "NICE").show(
        Place::Priority,
        "Nice",
        None,
    ),
    JobFact::text(|j| given(&j.request.account))
        .squeue("a", &["Account"], "ACCOUNT")
        .sacct(&["Account"], 10)
        .show(Place::Priority, "Account", Some("(null)"))
        .queue("account")
        .accounting("account", Absent::Null),
    JobFact::text(|j| Some(job::qos(j).into()))
        .squeue("q", &["QOS"], "QOS")
        .sacct(&["QOS"], 10)
        .show(Place::Priority, "QOS", None)
        .queue("qos")
        .accounting("qos", Absent::Null),
    JobFact::text(|j| given(&j.request.qos)).later_sacct(&["QOSREQ"], 10),
    JobFact::text(|j| given(&j.request.wckey))
        .squeue("w", &["WCKey"], "WCKEY")
        .sacct(&["WCKey"], 10)
        .show(Place::Priority, "WCKey", None)
        .queue("wckey")
        .accounting("wckey/wckey", Absent::Empty),
    JobFact::new(|j| j.request.prefer.as_ref().map(|wanted| wanted.to_string().into()))
        .squeue("", &["Prefer"], "PREFER")
        .show(Place::Features, "Prefer", None)
        .queue("prefer"),
    JobFact::text(|j| given(&j.request.reservation))
        .squeue("v", &["Reservation"], "RESERVATION")
        .sacct(&["Reservation"], 20)
        .show(Place::Features, "Reservation", None)
        .queue("resv_name")
        .accounting("reservation/name", Absent::Zero),
    JobFact::text(|j| given(&j.request.licenses))
        .squeue("W", &["Licenses"], "LICENSES")
        .later_sacct(&["Licenses"], 10)
        .show(Place::Sharing, "Licenses", Some("(null)"))
        .queue("licenses"),
    JobFact::text(|j| given(&j.request.network)).squeue("", &["Network"], "NETWORK").show(
        Place::Sharing,
        "Network",
        Some("(null)"),
    ),
    JobFact::text(|j| given(&j.request.admin_comment))
        .squeue("", &["admin_comment"], "ADMIN_COMMENT")
        .sacct(&["AdminComment"], 20)
        .show(Place::WorkDir, "AdminComment", None)
        .queue("admin_comment")
        .accounting("comment/administrator", Absent::Null),
    JobFact::text(|j| given(&j.request.comment))
        .squeue("k", &["Comment"], "COMMENT")
        .sacct(&["Comment"], 14)
        .show(Place::WorkDir, "Comment", None)
        .queue("comment")
        .accounting("comment/job", Absent::Null),
    JobFact::text(|j| given(&j.request.extra))
        .later_squeue(&["Extra"], "EXTRA")
        .later_sacct(&["Extra"], 14)
        .show(Place::WorkDir, "Extra", None)
        .queue("extra")
        .accounting("extra", Absent::Empty),
    JobFact::text(|j| given(&j.run.system_comment))
        .squeue("", &["system_comment"], "SYSTEM_COMMENT")
        .sacct(&["SystemComment"], 15)
        .show(Place::WorkDir, "SystemComment", None)
        .queue("system_comment")
        .accounting("comment/system", Absent::Null),
    JobFact::text(mail_user).show(Place::Last, "MailUser", None),
    JobFact::text(mail_type).show(Place::Last, "MailType", None),
];

fn given(text: &Option<String>) -> Option<Value<'_>> {
    text.clone().map(Value::from)
}

/// Returns the recipient of mail if the job requests any: its user, unless another one is named.
fn mail_user(job: &JobView) -> Option<Value<'_>> {
    mail_type(job)?;
    given(&job.request.mail_user).or_else(|| Some(job.request.user.clone().into()))
}

fn mail_type(job: &JobView) -> Option<Value<'_>> {
    job.request.mail_type.as_deref().and_then(mail::shown).map(Value::from)
}

/// Returns squeue's fields of these facts.
pub(crate) fn squeue_fields<T: Table>() -> impl Iterator<Item = Field<T>> {
    let field = |fact: &JobFact| {
        let squeue = fact.squeue.as_ref()?;
        let field = Field::fact(squeue.name, squeue.header, fact.get).code(squeue.code);
        let field = if fact.is_text { field.yielding() } else { field };
        Some(if squeue.is_listed { field } else { field.unlisted() })
    };
    FACTS.iter().filter_map(field)
}

/// Returns sacct's fields of these facts.
pub(crate) fn sacct_fields<T: Table>() -> impl Iterator<Item = Field<T>> {
    let field = |fact: &JobFact| {
        let sacct = fact.sacct.as_ref()?;
        let field = Field::fact(sacct.name, sacct.name[0], fact.get).width(sacct.width);
        // Numbers are printed in full, text is truncated.
        let field = if fact.is_text { field.yielding() } else { field.cut(Cut::Header) };
        Some(if sacct.is_listed { field } else { field.unlisted() })
    };
    FACTS.iter().filter_map(field)
}

/// Returns the words of `scontrol show job` at this place.
pub(crate) fn show(job: &JobView, place: Place, ctx: &Ctx) -> Vec<(&'static str, String)> {
    let word = |fact: &JobFact| {
        let show = fact.show.as_ref().filter(|show| show.place == place)?;
        let value = (fact.get)(job).or(show.absent.map(Value::from))?;
        Some((show.key, value.text(ctx).into_owned()))
    };
    FACTS.iter().filter_map(word).collect()
}

/// Returns the members of `squeue --json`; a missing value is an empty string.
pub(crate) fn queue(job: &JobView) -> Members<'_> {
    let member = |fact: &JobFact| Some((fact.queue?, (fact.get)(job).map_or("".into(), member_of)));
    FACTS.iter().filter_map(member).collect()
}

/// Writes the facts into a record of `sacct --json`.
pub(crate) fn put_accounting(job: &JobView, record: &mut Json) {
    for fact in FACTS {
        let Some((path, absent)) = fact.accounting else { continue };
        // Missing members are created, including the objects around them.
        let member = path.split('/').fold(&mut *record, |object, name| &mut object[name]);
        *member = match ((fact.get)(job), absent) {
            (Some(value), _) => member_of(value).into(),
            (None, Absent::Null) => Json::Null,
            (None, Absent::Empty) => "".into(),
            (None, Absent::Zero) => 0.into(),
        };
    }
}

/// Returns a number as a number and anything else as text.
fn member_of(value: Value<'_>) -> Member<'_> {
    match value {
        Value::Text(text) => Member::Text(text),
        other => match other.key() {
            Key::Nothing => "".into(),
            Key::Number(number) => number.into(),
            Key::Text(text) => text.to_owned().into(),
        },
    }
}
