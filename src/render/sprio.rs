//! sprio: the factors in the priority of pending jobs.
//!
//! The priority of a job is its requested priority (1 plus the priority of its QOS by default) minus
//! its nice value, and at least 1; a held job has 0. The requested priority is shown as Slurm's site
//! factor. slotd does not use Slurm's other factors, so their columns are 0. Jobs with equal
//! priority are ordered by submission, and arrays take turns.

use crate::field::{Cut, Field, Table};
use crate::value::Value;
use crate::{Ctx, job, layout, sort};
use slotd_model::view::JobView;

/// The field table of sprio.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sprio;

pub type Layout = layout::Layout<Sprio>;
pub type Sort = sort::Sort<Sprio>;

/// One line: a job, or the weights of the factors (`--weights`).
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
type Get = fn(&Row<'_>, &Ctx) -> Value<'static>;

const fn field(
    code: &'static str,
    names: &'static [&'static str],
    header: &'static str,
    get: Get,
) -> F {
    F::new(names, header, get).code(code)
}

/// Creates a column for a number, which is printed in full even if it is wider than the column.
const fn number(
    code: &'static str,
    names: &'static [&'static str],
    header: &'static str,
    get: Get,
) -> F {
    field(code, names, header, get).cut(Cut::Header)
}

/// Returns the value or the weight of a factor that slotd does not use: 0.
fn unweighed(_: &Row<'_>, _: &Ctx) -> Value<'static> {
    Value::Number(0)
}

fn unweighed_share(row: &Row<'_>, _: &Ctx) -> Value<'static> {
    match row {
        Row::Job(_) => Value::Share(0.0, 7),
        Row::Weights => Value::Number(0),
    }
}

fn of_job<V: Into<Value<'static>>>(
    row: &Row<'_>,
    get: impl FnOnce(&JobView) -> V,
) -> Value<'static> {
    match row {
        Row::Job(job) => get(job).into(),
        Row::Weights => Value::NONE,
    }
}

/// Returns the requested priority, or the default of 1.
fn site(view: &JobView) -> Value<'static> {
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
    number("q", &["QOSShare"], "QOS", |r, _| match r {
        Row::Job(job) => Value::Share(f64::from(job.qos_priority) / f64::from(u32::MAX), 7),
        Row::Weights => Value::Number(1),
    }),
    number("Q", &["QOS"], "QOS", |r, _| match r {
        Row::Job(job) => Value::Number(job.qos_priority.into()),
        Row::Weights => Value::Number(1),
    }),
    field("r", &["Partition"], "PARTITION", |r, _| of_job(r, |job| job.partition.to_string())),
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

/// Slurm's columns for the factors with a weight, and the nice value, which also counts.
const DEFAULT: &str = "%.15i %9r %.10Y %.10S %.11N";
const NORMALIZED: &str = "%.15i %9r %.10y %.10S %.11N";
/// The same if the QOS of a job has a priority.
const WITH_QOS: &str = "%.15i %9r %.10Y %.10S %.10Q %.11N";
const WITH_QOS_NORMALIZED: &str = "%.15i %9r %.10y %.10S %.10q %.11N";
const LONG: &str =
    "%.15i %9r %.8u %.8o %.10Y %.10S %.10A %.10B %.10F %.10J %.10P %.10n %.10Q %.11N %.20T";
const LONG_NORMALIZED: &str =
    "%.15i %9r %.8u %.8o %.10y %.10S %.10a %.10b %.10f %.10j %.10p %.10n %.10q %.11N %.20t";

/// The order in which jobs are considered, except that arrays take turns.
pub const DEFAULT_SORT: &str = "-Y,i";

/// The message if no job matches the names or IDs.
pub const NONE_FOUND: &str = "Unable to find jobs matching user/id(s) specified\n";

/// Returns the default columns for these jobs.
pub fn default_layout(jobs: &[JobView], long: bool, normalized: bool) -> Layout {
    let has_qos = jobs.iter().any(|job| job.qos_priority > 0);
    let text = match (long, normalized) {
        (false, false) if has_qos => WITH_QOS,
        (false, true) if has_qos => WITH_QOS_NORMALIZED,
        (false, false) => DEFAULT,
        (false, true) => NORMALIZED,
        (true, false) => LONG,
        (true, true) => LONG_NORMALIZED,
    };
    // A test checks that every constant parses.
    Layout::codes(text).unwrap_or_default()
}

/// Prints these jobs.
pub fn print(jobs: &[JobView], layout: &Layout, sort: &Sort, header: bool, ctx: &Ctx) -> String {
    let mut rows: Vec<Row<'_>> = jobs.iter().map(Row::Job).collect();
    sort.apply(&mut rows, ctx);
    layout.print(&rows, header, ctx)
}

/// Prints the weight of each factor (`--weights`).
pub fn weights(layout: &Layout, header: bool, ctx: &Ctx) -> String {
    layout.print(&[Row::Weights], header, ctx)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{ctx, job};
    use slotd_model::Reason;

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
    fn the_default_view_shows_the_factors_that_count() {
        let shown = |jobs: &[JobView]| {
            let sort = Sort::parse(DEFAULT_SORT).expect("the default");
            print(jobs, &default_layout(jobs, false, false), &sort, true, &ctx())
        };
        assert_eq!(
            shown(&jobs()),
            "          JOBID PARTITION   PRIORITY       SITE        NICE\n              \
             6 cpu              500        500           0\n              \
             7 cpu              400        500         100\n              \
             5 cpu                1          1           0\n              \
             8 cpu                0          1           0\n"
        );
        let mut urgent = jobs();
        urgent.truncate(1);
        (urgent[0].priority, urgent[0].qos_priority) = (11, 10);
        assert_eq!(
            shown(&urgent),
            "          JOBID PARTITION   PRIORITY       SITE        QOS        NICE\n              \
             5 cpu               11          1         10           0\n"
        );
    }

    #[test]
    fn every_default_view_is_a_valid_format() {
        for text in [DEFAULT, NORMALIZED, WITH_QOS, WITH_QOS_NORMALIZED, LONG, LONG_NORMALIZED] {
            assert!(Layout::codes(text).is_ok(), "{text}");
        }
        let header =
            |long, normalized| weights(&default_layout(&[], long, normalized), true, &ctx());
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
    fn rows_are_in_the_requested_order() {
        assert_eq!(lines("%i", Some("i")), ["5", "6", "7", "8"]);
        assert_eq!(lines("%i", Some("-i")), ["8", "7", "6", "5"]);
        assert_eq!(lines("%i", Some("-S,-N")), ["7", "6", "5", "8"]);
        assert_eq!(lines("%i", Some("y,+i")), ["8", "5", "7", "6"]);
        assert_eq!(lines("%i", Some("u,-r")), ["5", "6", "7", "8"], "the sort is stable");
    }

    #[test]
    fn unknown_names_are_reported() {
        let error = Layout::codes("%i %z").expect_err("no such code");
        assert_eq!(error.message, "Invalid job format specification: z");
        assert!(error.hint.contains("letters: ") && error.hint.contains('Y'), "{}", error.hint);
        assert_eq!(
            Sort::parse("z").expect_err("no such code").message,
            "Invalid sort specification: z"
        );
    }

    #[test]
    fn only_the_site_factor_and_the_qos_have_a_weight() {
        assert_eq!(
            weights(&Layout::codes("%.15i %9r %.10S %.10Q %.10A").expect("a format"), true, &ctx()),
            "          JOBID PARTITION       SITE        QOS        AGE\n        \
             Weights                    1          1          0\n"
        );
    }
}
