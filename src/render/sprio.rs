//! sprio: what the priority of pending jobs is made of.
//!
//! A job's priority is the number that it asked for (1 where it asked for none) less its nice
//! value, and at least 1; a held job has 0. That number is Slurm's site factor; the other factors
//! of Slurm are not weighed here, so that their columns are 0. Among equal priorities the order is
//! that of submission, and arrays take turns.

use crate::model::view::JobView;
use crate::render::field::{Cut, Field, Table};
use crate::render::value::Value;
use crate::render::{Ctx, job, layout, sort};

/// The table of sprio's fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sprio;

pub type Layout = layout::Layout<Sprio>;
pub type Sort = sort::Sort<Sprio>;

/// A line: a job, or the weights of the factors (`--weights`).
#[derive(Debug, Clone, Copy)]
pub enum Row<'a> {
    Job(&'a JobView),
    Weights,
}

impl Table for Sprio {
    type Row<'a> = Row<'a>;

    fn fields() -> &'static [Field<Self>] {
        FIELDS
    }
}

type F = Field<Sprio>;
type Get = fn(&Row<'_>, &Ctx) -> Value;

const fn field(
    code: &'static str,
    names: &'static [&'static str],
    header: &'static str,
    get: Get,
) -> F {
    F::new(names, header, get).code(code)
}

/// A number, which is printed whole.
const fn number(
    code: &'static str,
    names: &'static [&'static str],
    header: &'static str,
    get: Get,
) -> F {
    field(code, names, header, get).cut(Cut::Header)
}

/// A factor that is not weighed: 0 for a job, and 0 is its weight.
fn unweighed(_: &Row<'_>, _: &Ctx) -> Value {
    Value::Number(0)
}

fn unweighed_share(row: &Row<'_>, _: &Ctx) -> Value {
    match row {
        Row::Job(_) => Value::Share(0.0, 7),
        Row::Weights => Value::Number(0),
    }
}

fn of_job<V: Into<Value>>(row: &Row<'_>, get: impl FnOnce(&JobView) -> V) -> Value {
    match row {
        Row::Job(job) => get(job).into(),
        Row::Weights => Value::NONE,
    }
}

/// The number that a job asked for. It is not kept apart from what the priority came to where it
/// asked for none.
fn site(view: &JobView) -> Value {
    view.request.priority.unwrap_or(1).into()
}

static FIELDS: &[F] = &[
    number("a", &["AgeShare"], "AGE", unweighed_share),
    number("A", &["Age"], "AGE", unweighed),
    number("b", &["AssocShare"], "ASSOC", unweighed_share),
    number("B", &["Assoc"], "ASSOC", unweighed),
    field("c", &["Cluster"], "CLUSTER", |r, c| of_job(r, |_| c.cluster.clone())),
    number("f", &["FairShareShare"], "FAIRSHARE", unweighed_share),
    number("F", &["FairShare"], "FAIRSHARE", unweighed),
    number("i", &["JobID"], "JOBID", |r, _| match r {
        Row::Job(job) => Value::Number(job.id.0.into()),
        Row::Weights => "Weights".into(),
    }),
    number("j", &["JobSizeShare"], "JOBSIZE", unweighed_share),
    number("J", &["JobSize"], "JOBSIZE", unweighed),
    field("n", &["QOSName"], "QOSNAME", |r, _| of_job(r, |j| job::qos(j).to_owned())),
    number("N", &["Nice"], "NICE", |r, _| of_job(r, |job| Value::Number(job.request.nice))),
    field("o", &["Account"], "ACCOUNT", |r, _| {
        of_job(r, |job| job.request.account.clone().unwrap_or_default())
    }),
    number("p", &["PartitionShare"], "PARTITION", unweighed_share),
    number("P", &["PartitionFactor"], "PARTITION", unweighed),
    number("q", &["QOSShare"], "QOS", unweighed_share),
    number("Q", &["QOS"], "QOS", unweighed),
    field("r", &["Partition"], "PARTITION", |r, _| of_job(r, |job| job.partition.clone())),
    number("S", &["Site"], "SITE", |r, _| match r {
        Row::Job(job) => site(job),
        Row::Weights => Value::Number(1),
    }),
    field("t", &["TRESShare"], "TRES", |_, _| Value::NONE),
    field("T", &["TRES"], "TRES", |_, _| Value::NONE),
    field("u", &["User"], "USER", |r, _| of_job(r, |job| job.request.user.clone())),
    number("y", &["PriorityShare"], "PRIORITY", |r, _| {
        of_job(r, |view| Value::Share(f64::from(job::priority(view)) / f64::from(u32::MAX), 8))
    }),
    number("Y", &["Priority"], "PRIORITY", |r, _| of_job(r, job::priority)),
];

/// Slurm's columns for the factors that have a weight, and the nice value, which counts as well.
const DEFAULT: &str = "%.15i %9r %.10Y %.10S %.11N";
const NORMALIZED: &str = "%.15i %9r %.10y %.10S %.11N";
const LONG: &str =
    "%.15i %9r %.8u %.8o %.10Y %.10S %.10A %.10B %.10F %.10J %.10P %.10n %.10Q %.11N %.20T";
const LONG_NORMALIZED: &str =
    "%.15i %9r %.8u %.8o %.10y %.10S %.10a %.10b %.10f %.10j %.10p %.10n %.10q %.11N %.20t";

/// The order in which jobs are looked at, but for the turns of arrays.
pub const DEFAULT_SORT: &str = "-Y,i";

/// Where nothing was found that was asked for by name.
pub const NONE_FOUND: &str = "Unable to find jobs matching user/id(s) specified\n";

/// The columns where no format is asked for.
pub fn default_layout(long: bool, normalized: bool) -> Layout {
    let text = match (long, normalized) {
        (false, false) => DEFAULT,
        (false, true) => NORMALIZED,
        (true, false) => LONG,
        (true, true) => LONG_NORMALIZED,
    };
    // Constants that a test reads.
    Layout::codes(text).unwrap_or_default()
}

/// The table of these jobs.
pub fn print(jobs: &[JobView], layout: &Layout, sort: &Sort, header: bool, ctx: &Ctx) -> String {
    let mut rows: Vec<Row<'_>> = jobs.iter().map(Row::Job).collect();
    sort.apply(&mut rows, ctx);
    layout.print(&rows, header, ctx)
}

/// `--weights`: how much each factor counts.
pub fn weights(layout: &Layout, header: bool, ctx: &Ctx) -> String {
    layout.print(&[Row::Weights], header, ctx)
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
        let layout = Layout::codes(format).expect("a format");
        let sort = Sort::parse(sort.unwrap_or(DEFAULT_SORT)).expect("an order");
        print(&jobs(), &layout, &sort, false, &ctx()).lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_default_view_shows_what_counts() {
        let text = print(
            &jobs(),
            &default_layout(false, false),
            &Sort::parse(DEFAULT_SORT).expect("the default"),
            true,
            &ctx(),
        );
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
            assert!(Layout::codes(text).is_ok(), "{text}");
        }
        let header = |long, normalized| weights(&default_layout(long, normalized), true, &ctx());
        assert!(header(true, true).contains(" AGE ") && header(true, false).contains(" ACCOUNT "));
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
        let error = Layout::codes("%i %z").expect_err("no such code");
        assert_eq!(error.message, "Invalid job format specification: z");
        assert!(error.hint.contains("letters: ") && error.hint.contains('Y'), "{}", error.hint);
        assert_eq!(
            Sort::parse("z").expect_err("no such code").message,
            "Invalid sort specification: z"
        );
    }

    #[test]
    fn the_weights_say_that_the_site_factor_alone_counts() {
        assert_eq!(
            weights(&Layout::codes("%.15i %9r %.10Y %.10S %.10A").expect("a format"), true, &ctx()),
            "          JOBID PARTITION   PRIORITY       SITE        AGE\n        \
             Weights                               1          0\n"
        );
    }
}
