//! sprio: what the priority of pending jobs is made of.
//!
//! A job's priority is the number that it asked for (1 where it asked for none) less its nice value, and at least 1; a
//! held job has 0. That number is Slurm's site factor; the other factors of Slurm are not weighed here, so that their
//! columns are 0. Among equal priorities the order is that of submission, and arrays take turns.

use crate::model::view::JobView;
use crate::render::format::{Cut, Field, Format, FormatError, known};
use crate::render::{Ctx, job};
use std::cmp::Ordering;

/// A line: a job, or the weights of the factors (`--weights`).
#[derive(Debug, Clone, Copy)]
enum Row<'a> {
    Job(&'a JobView),
    Weights,
}

type Get = fn(Row<'_>, &Ctx) -> Value;

/// What a column shows, and what rows are sorted by.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Number(i64),
    /// From 0 to 1, with this many places.
    Share(f64, usize),
    Text(String),
    Nothing,
}

impl Value {
    fn text(self) -> String {
        match self {
            Value::Number(number) => number.to_string(),
            Value::Share(share, places) => format!("{share:.places$}"),
            Value::Text(text) => text,
            Value::Nothing => String::new(),
        }
    }

    fn order(&self, other: &Value) -> Ordering {
        match (self, other) {
            (Value::Number(a), Value::Number(b)) => a.cmp(b),
            (Value::Share(a, _), Value::Share(b, _)) => a.total_cmp(b),
            (Value::Text(a), Value::Text(b)) => a.cmp(b),
            // One column has values of one kind.
            _ => Ordering::Equal,
        }
    }
}

const fn field(code: char, name: &'static [&'static str], header: &'static str, get: Get) -> Field<Get> {
    Field { code: Some(code), names: name, header, cut: Cut::Always, get }
}

const fn number(code: char, name: &'static [&'static str], header: &'static str, get: Get) -> Field<Get> {
    Field { code: Some(code), names: name, header, cut: Cut::Header, get }
}

/// A factor that is not weighed: 0 for a job, and 0 is its weight.
fn unweighed(_: Row<'_>, _: &Ctx) -> Value {
    Value::Number(0)
}

fn unweighed_share(row: Row<'_>, _: &Ctx) -> Value {
    match row {
        Row::Job(_) => Value::Share(0.0, 7),
        Row::Weights => Value::Number(0),
    }
}

fn of_job(row: Row<'_>, get: impl FnOnce(&JobView) -> Value) -> Value {
    match row {
        Row::Job(job) => get(job),
        Row::Weights => Value::Nothing,
    }
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

/// The number that a job asked for. It is not kept apart from what the priority came to where it asked for none.
fn site(view: &JobView) -> Value {
    Value::Number(view.request.priority.map_or(1, i64::from))
}

static FIELDS: &[Field<Get>] = &[
    number('a', &["AgeShare"], "AGE", unweighed_share),
    number('A', &["Age"], "AGE", unweighed),
    number('b', &["AssocShare"], "ASSOC", unweighed_share),
    number('B', &["Assoc"], "ASSOC", unweighed),
    field('c', &["Cluster"], "CLUSTER", |r, c| of_job(r, |_| text(&c.cluster))),
    number('f', &["FairShareShare"], "FAIRSHARE", unweighed_share),
    number('F', &["FairShare"], "FAIRSHARE", unweighed),
    number('i', &["JobID"], "JOBID", |r, _| match r {
        Row::Job(job) => Value::Number(job.id.0.into()),
        Row::Weights => text("Weights"),
    }),
    number('j', &["JobSizeShare"], "JOBSIZE", unweighed_share),
    number('J', &["JobSize"], "JOBSIZE", unweighed),
    field('n', &["QOSName"], "QOSNAME", |r, _| {
        of_job(r, |job| text(job.request.qos.as_deref().unwrap_or(job::DEFAULT_QOS)))
    }),
    number('N', &["Nice"], "NICE", |r, _| of_job(r, |job| Value::Number(job.request.nice))),
    field('o', &["Account"], "ACCOUNT", |r, _| {
        of_job(r, |job| text(job.request.account.as_deref().unwrap_or_default()))
    }),
    number('p', &["PartitionShare"], "PARTITION", unweighed_share),
    number('P', &["PartitionFactor"], "PARTITION", unweighed),
    number('q', &["QOSShare"], "QOS", unweighed_share),
    number('Q', &["QOS"], "QOS", unweighed),
    field('r', &["Partition"], "PARTITION", |r, _| of_job(r, |job| text(&job.partition))),
    number('S', &["Site"], "SITE", |r, _| match r {
        Row::Job(job) => site(job),
        Row::Weights => Value::Number(1),
    }),
    field('t', &["TRESShare"], "TRES", |_, _| Value::Nothing),
    field('T', &["TRES"], "TRES", |_, _| Value::Nothing),
    field('u', &["User"], "USER", |r, _| of_job(r, |job| text(&job.request.user))),
    number('y', &["PriorityShare"], "PRIORITY", |r, _| {
        of_job(r, |view| Value::Share(f64::from(job::priority(view)) / f64::from(u32::MAX), 8))
    }),
    number('Y', &["Priority"], "PRIORITY", |r, _| of_job(r, |view| Value::Number(job::priority(view).into()))),
];

/// Slurm's columns for the factors that have a weight, and the nice value, which counts as well.
const DEFAULT: &str = "%.15i %9r %.10Y %.10S %.11N";
const NORMALIZED: &str = "%.15i %9r %.10y %.10S %.11N";
const LONG: &str = "%.15i %9r %.8u %.8o %.10Y %.10S %.10A %.10B %.10F %.10J %.10P %.10n %.10Q %.11N %.20T";
const LONG_NORMALIZED: &str = "%.15i %9r %.8u %.8o %.10y %.10S %.10a %.10b %.10f %.10j %.10p %.10n %.10q %.11N %.20t";

/// The order in which jobs are looked at, but for the turns of arrays.
const DEFAULT_SORT: &str = "-Y,i";

/// Where nothing was found that was asked for by name.
pub const NONE_FOUND: &str = "Unable to find jobs matching user/id(s) specified\n";

/// A format, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout(Format);

impl Layout {
    /// The columns where no format is asked for.
    pub fn of(long: bool, normalized: bool) -> Self {
        let text = match (long, normalized) {
            (false, false) => DEFAULT,
            (false, true) => NORMALIZED,
            (true, false) => LONG,
            (true, true) => LONG_NORMALIZED,
        };
        // The formats above are constants that a test reads.
        Self::parse(text).unwrap_or(Layout(Format::default()))
    }

    /// `-o/--format` and `SPRIO_FORMAT`.
    ///
    /// # Errors
    /// An unknown code, with the list of what there is.
    pub fn parse(text: &str) -> Result<Self, FormatError> {
        Format::percent(text, FIELDS).map(Layout).map_err(|bad| unknown("Invalid job format specification", &bad))
    }
}

/// The order of the rows: for each code whether it descends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sort(Vec<(usize, bool)>);

impl Sort {
    /// `-S/--sort` and `SPRIO_SORT`: codes, each with `+` or `-` before it. `None`: by priority.
    ///
    /// # Errors
    /// An unknown code, with the list of what there is.
    pub fn parse(text: Option<&str>) -> Result<Self, FormatError> {
        let mut keys = Vec::new();
        let mut descends = false;
        for c in text.unwrap_or(DEFAULT_SORT).chars() {
            match c {
                '-' => descends = true,
                '+' | ',' | ' ' | '%' => descends = false,
                code => {
                    let field = FIELDS.iter().position(|field| field.code == Some(code));
                    let field = field.ok_or_else(|| unknown("Invalid sort specification", &code.to_string()))?;
                    keys.push((field, descends));
                    descends = false;
                }
            }
        }
        Ok(Sort(keys))
    }
}

fn unknown(what: &str, bad: &str) -> FormatError {
    FormatError { message: format!("{what}: {bad}"), hint: format!("Fields: {}", known(FIELDS).0) }
}

/// The table of these jobs.
pub fn print(jobs: &[JobView], layout: &Layout, sort: &Sort, header: bool, ctx: &Ctx) -> String {
    let mut rows: Vec<&JobView> = jobs.iter().collect();
    rows.sort_by(|a, b| {
        let compare = |&(field, descends): &(usize, bool)| {
            let get = FIELDS[field].get;
            let order = get(Row::Job(a), ctx).order(&get(Row::Job(b), ctx));
            if descends { order.reverse() } else { order }
        };
        sort.0.iter().map(compare).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    });
    table(rows.into_iter().map(Row::Job), layout, header, ctx)
}

/// `--weights`: how much each factor counts.
pub fn weights(layout: &Layout, header: bool, ctx: &Ctx) -> String {
    table(std::iter::once(Row::Weights), layout, header, ctx)
}

fn table<'a>(rows: impl Iterator<Item = Row<'a>>, Layout(format): &Layout, header: bool, ctx: &Ctx) -> String {
    let mut out = String::new();
    if header {
        format.header(&mut out, FIELDS);
    }
    for row in rows {
        format.row(&mut out, FIELDS, |get| get(row, ctx).text());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Reason;
    use crate::render::fixture::{ctx, job};

    fn jobs() -> Vec<JobView> {
        let plain = job(5, "a").with(|j| j.priority = 1).build();
        let first = job(6, "b").with(|j| j.priority = 500).asks(|r| r.priority = Some(500)).build();
        let nice = job(7, "c").with(|j| j.priority = 400).asks(|r| {
            r.priority = Some(500);
            r.nice = 100;
        });
        let held = job(8, "d").with(|j| j.priority = 1).reason(Reason::JobHeldUser).build();
        vec![plain, first, nice.build(), held]
    }

    fn lines(format: &str, sort: Option<&str>) -> Vec<String> {
        let layout = Layout::parse(format).expect("a format");
        let sort = Sort::parse(sort).expect("an order");
        print(&jobs(), &layout, &sort, false, &ctx()).lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_default_view_shows_what_counts() {
        let text = print(&jobs(), &Layout::of(false, false), &Sort::parse(None).expect("the default"), true, &ctx());
        assert_eq!(
            text,
            "          JOBID PARTITION   PRIORITY       SITE        NICE\n              \
             6 cpu              500        500           0\n              \
             7 cpu              400        500         100\n              \
             5 cpu                1          1           0\n              \
             8 cpu                0          1           0\n"
        );
    }

    #[test]
    fn every_default_view_is_a_format_that_is_understood() {
        for text in [DEFAULT, NORMALIZED, LONG, LONG_NORMALIZED] {
            assert!(Layout::parse(text).is_ok(), "{text}");
        }
        assert!(Layout::of(true, true).0.has(|field| FIELDS[field].code == Some('t')));
        assert!(Layout::of(true, false).0.has(|field| FIELDS[field].code == Some('o')));
    }

    #[test]
    fn every_code_of_the_man_page_has_a_column() {
        for (code, value) in [
            ('a', "0.0000000"),
            ('A', "0"),
            ('b', "0.0000000"),
            ('B', "0"),
            ('c', "slotd"),
            ('f', "0.0000000"),
            ('F', "0"),
            ('i', "6"),
            ('j', "0.0000000"),
            ('J', "0"),
            ('n', "normal"),
            ('N', "0"),
            ('o', ""),
            ('p', "0.0000000"),
            ('P', "0"),
            ('q', "0.0000000"),
            ('Q', "0"),
            ('r', "cpu"),
            ('S', "500"),
            ('t', ""),
            ('T', ""),
            ('u', "lab"),
            ('y', "0.00000012"),
            ('Y', "500"),
        ] {
            assert_eq!(lines(&format!("%{code}"), None)[0], value, "%{code}");
        }
    }

    #[test]
    fn rows_stand_in_the_order_asked_for() {
        assert_eq!(lines("%i", Some("i")), ["5", "6", "7", "8"]);
        assert_eq!(lines("%i", Some("-i")), ["8", "7", "6", "5"]);
        assert_eq!(lines("%i", Some("-S,-N")), ["7", "6", "5", "8"]);
        assert_eq!(lines("%i", Some("y,+i")), ["8", "5", "7", "6"]);
        assert_eq!(lines("%i", Some("u,-r")), ["5", "6", "7", "8"], "equals stay as they came");
    }

    #[test]
    fn what_is_unknown_is_named_with_what_there_is() {
        let error = Layout::parse("%i %z").expect_err("no such code");
        assert_eq!(error.message, "Invalid job format specification: z");
        assert!(error.hint.contains("%Y"), "{}", error.hint);
        assert_eq!(Sort::parse(Some("z")).expect_err("no such code").message, "Invalid sort specification: z");
    }

    #[test]
    fn the_weights_say_that_the_site_factor_alone_counts() {
        assert_eq!(
            weights(&Layout::parse("%.15i %9r %.10Y %.10S %.10A").expect("a format"), true, &ctx()),
            "          JOBID PARTITION   PRIORITY       SITE        AGE\n        \
             Weights                               1          0\n"
        );
    }
}
