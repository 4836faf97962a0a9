//! The texts that are kept with a job and shown: one row each, with its spelling in every output. squeue, sacct,
//! `scontrol show job` and both JSON documents read this table.

use crate::model::view::JobView;
use crate::render::field::{Field, Table};
use crate::render::job;
use serde_json::Value;

/// How a text is read of a job; `None` where it was not given.
pub type TextOf = fn(&JobView) -> Option<&str>;

/// One text. What has no spelling in an output is not shown there.
pub struct JobText {
    get: TextOf,
    squeue: Option<Squeue>,
    sacct: Option<Sacct>,
    show: Option<Show>,
    queue: Option<&'static str>,
    accounting: Option<(&'static str, Absent)>,
}

/// squeue's letter (`-o`), which may be missing, name (`-O`) and header.
struct Squeue {
    code: &'static str,
    name: &'static [&'static str; 1],
    header: &'static str,
    is_listed: bool,
}

/// sacct's name and the width of its column.
struct Sacct {
    name: &'static [&'static str; 1],
    width: i32,
    is_listed: bool,
}

/// The key in `scontrol show job`, and what stands there for none; `None`: the word is left out.
struct Show {
    place: Place,
    key: &'static str,
    absent: Option<&'static str>,
}

/// Where `scontrol show job` has a text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the line of the priority.
    Priority,
    /// A line of its own after the features.
    Features,
    /// In the line that tells of sharing.
    Sharing,
    /// A line of its own after the working directory.
    WorkDir,
    /// In the last line.
    Last,
}

/// What JSON has for a text that was not given.
#[derive(Clone, Copy)]
enum Absent {
    Null,
    Empty,
}

impl JobText {
    const fn new(get: TextOf) -> Self {
        JobText { get, squeue: None, sacct: None, show: None, queue: None, accounting: None }
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

    /// A field of squeue that Slurm 22.05 has not: `--helpformat` does not list it.
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

    /// A field of sacct of a release of Slurm after 22.05: `--helpformat` does not list it.
    const fn later_sacct(mut self, name: &'static [&'static str; 1], width: i32) -> Self {
        self.sacct = Some(Sacct { name, width, is_listed: false });
        self
    }

    const fn show(mut self, place: Place, key: &'static str, absent: Option<&'static str>) -> Self {
        self.show = Some(Show { place, key, absent });
        self
    }

    /// The member in `squeue --json`.
    const fn queue(mut self, member: &'static str) -> Self {
        self.queue = Some(member);
        self
    }

    /// The member in `sacct --json`: where it is within another, after that one's name and a slash.
    const fn accounting(mut self, path: &'static str, absent: Absent) -> Self {
        self.accounting = Some((path, absent));
        self
    }
}

static TEXTS: &[JobText] = &[
    JobText::new(|j| j.request.account.as_deref())
        .squeue("a", &["Account"], "ACCOUNT")
        .sacct(&["Account"], 10)
        .show(Place::Priority, "Account", Some("(null)"))
        .queue("account")
        .accounting("account", Absent::Null),
    JobText::new(|j| Some(job::qos(j)))
        .squeue("q", &["QOS"], "QOS")
        .sacct(&["QOS"], 10)
        .show(Place::Priority, "QOS", None)
        .queue("qos")
        .accounting("qos", Absent::Null),
    JobText::new(|j| j.request.qos.as_deref()).later_sacct(&["QOSREQ"], 10),
    JobText::new(|j| j.request.wckey.as_deref())
        .squeue("w", &["WCKey"], "WCKEY")
        .sacct(&["WCKey"], 10)
        .show(Place::Priority, "WCKey", None)
        .queue("wckey")
        .accounting("wckey/wckey", Absent::Empty),
    JobText::new(|j| j.request.reservation.as_deref())
        .squeue("v", &["Reservation"], "RESERVATION")
        .sacct(&["Reservation"], 20)
        .show(Place::Features, "Reservation", None)
        .queue("resv_name")
        .accounting("reservation/name", Absent::Empty),
    JobText::new(|j| j.request.licenses.as_deref())
        .squeue("W", &["Licenses"], "LICENSES")
        .later_sacct(&["Licenses"], 10)
        .show(Place::Sharing, "Licenses", Some("(null)"))
        .queue("licenses"),
    JobText::new(|j| j.request.comment.as_deref())
        .squeue("k", &["Comment"], "COMMENT")
        .sacct(&["Comment"], 14)
        .show(Place::WorkDir, "Comment", None)
        .queue("comment")
        .accounting("comment/job", Absent::Null),
    JobText::new(|j| j.request.extra.as_deref())
        .later_squeue(&["Extra"], "EXTRA")
        .later_sacct(&["Extra"], 14)
        .show(Place::WorkDir, "Extra", None)
        .queue("extra")
        .accounting("extra", Absent::Empty),
    JobText::new(|j| j.run.system_comment.as_deref())
        .squeue("", &["system_comment"], "SYSTEM_COMMENT")
        .sacct(&["SystemComment"], 15)
        .show(Place::WorkDir, "SystemComment", None)
        .queue("system_comment")
        .accounting("comment/system", Absent::Null),
    JobText::new(mail_user).show(Place::Last, "MailUser", None),
    JobText::new(mail_type).show(Place::Last, "MailType", None),
];

/// Who gets mail: the user of the job, where only the events were named.
fn mail_user(job: &JobView) -> Option<&str> {
    let request = &job.request;
    request
        .mail_user
        .as_ref()
        .or(request.mail_type.as_ref().map(|_| &request.user))
        .map(String::as_str)
}

fn mail_type(job: &JobView) -> Option<&str> {
    let request = &job.request;
    request.mail_type.as_deref().or(request.mail_user.as_ref().map(|_| "NONE"))
}

/// squeue's fields of these texts.
pub fn squeue_fields<T: Table>() -> impl Iterator<Item = Field<T>> {
    let field = |text: &JobText| {
        let squeue = text.squeue.as_ref()?;
        let field = Field::text(squeue.name, squeue.header, text.get).code(squeue.code);
        Some(if squeue.is_listed { field } else { field.unlisted() })
    };
    TEXTS.iter().filter_map(field)
}

/// sacct's fields of these texts.
pub fn sacct_fields<T: Table>() -> impl Iterator<Item = Field<T>> {
    let field = |text: &JobText| {
        let sacct = text.sacct.as_ref()?;
        let field = Field::text(sacct.name, sacct.name[0], text.get).width(sacct.width);
        Some(if sacct.is_listed { field } else { field.unlisted() })
    };
    TEXTS.iter().filter_map(field)
}

/// The words that `scontrol show job` has at this place.
pub fn show(job: &JobView, place: Place) -> Vec<(&'static str, String)> {
    let word = |text: &JobText| {
        let show = text.show.as_ref().filter(|show| show.place == place)?;
        Some((show.key, (text.get)(job).or(show.absent)?.to_owned()))
    };
    TEXTS.iter().filter_map(word).collect()
}

/// The members of `squeue --json`; an empty text for none.
pub fn queue(job: &JobView) -> Vec<(&'static str, Value)> {
    let member = |text: &JobText| Some((text.queue?, (text.get)(job).unwrap_or_default().into()));
    TEXTS.iter().filter_map(member).collect()
}

/// Writes the texts into a record of `sacct --json`.
pub fn put_accounting(job: &JobView, record: &mut Value) {
    for text in TEXTS {
        let Some((path, absent)) = text.accounting else { continue };
        // A member that is not there is made, with those that it is within.
        let member = path.split('/').fold(&mut *record, |object, name| &mut object[name]);
        *member = match ((text.get)(job), absent) {
            (Some(text), _) => text.into(),
            (None, Absent::Null) => Value::Null,
            (None, Absent::Empty) => "".into(),
        };
    }
}
