//! `sstat --series`: the usage of steps over time, one line per span.

use crate::Ctx;
use crate::field::{Cut, Field, Table};
use crate::layout;
use crate::value::Value;
use serde_json::{Value as Json, json};
use slotd_model::series::{Span, StepSeries};
use slotd_model::{StepKey, Timestamp};

/// The field table of spans.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spans;

/// A span with its start.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    step: StepKey,
    start: Timestamp,
    span: Span,
}

impl Table for Spans {
    type Row<'a> = Row;

    fn fields() -> &'static [Field<Self>] {
        FIELDS
    }
}

type F = Field<Spans>;

static FIELDS: &[F] = &[
    F::new(&["JobID"], "JobID", |r, _| r.step.to_string().into()).width(-12).cut(Cut::Never),
    F::new(&["Start"], "Start", |r, _| Value::Time(Some(r.start), "")).width(-19).cut(Cut::Never),
    F::new(&["Seconds"], "Seconds", |r, _| Value::Share(r.span.ms as f64 / 1000.0, 3)).width(10),
    F::new(&["CPUs"], "CPUs", |r, _| Value::Share(r.span.cpus(), 2)).width(8),
    F::new(&["MaxRSS"], "MaxRSS", |r, _| Value::Kib(r.span.mem_max_kb)).width(10),
    F::new(&["AveRSS"], "AveRSS", |r, _| Value::Kib(r.span.mem_mean_kb)).width(10),
    F::new(&["DiskRead"], "DiskRead", |r, _| Value::Bytes(r.span.read)).width(10),
    F::new(&["DiskWrite"], "DiskWrite", |r, _| Value::Bytes(r.span.written)).width(10),
    F::new(&["GPUs"], "GPUs", |r, _| Value::Share(r.span.gpus(), 2)).width(8),
    F::new(&["MaxGPUMem"], "MaxGPUMem", |r, _| Value::Kib(r.span.gpu.mem_max_kb)).width(10),
    F::new(&["AveGPUMem"], "AveGPUMem", |r, _| Value::Kib(r.span.gpu.mem_mean_kb)).width(10),
];

/// The columns if no step has GPU data.
const WITHOUT_GPUS: &str = "JobID,Start,Seconds,CPUs,MaxRSS,AveRSS,DiskRead,DiskWrite";

fn rows(one: &StepSeries) -> Vec<Row> {
    let mut start = one.start;
    let mut row = |span: &Span| {
        let row = Row { step: one.step, start, span: *span };
        let us = i64::try_from(span.ms.saturating_mul(1000)).unwrap_or(i64::MAX);
        start = start.plus_us(us);
        row
    };
    one.series.spans().iter().map(&mut row).collect()
}

/// Prints the spans of these steps. `parsable` is the delimiter and whether it also follows the
/// last value.
pub fn print(
    steps: &[StepSeries],
    header: bool,
    parsable: Option<(&str, bool)>,
    ctx: &Ctx,
) -> String {
    // A test checks that this constant parses.
    let columns = if steps.iter().any(|one| one.series.has_gpus()) { "all" } else { WITHOUT_GPUS };
    let layout = layout::Layout::<Spans>::ruled(columns).unwrap_or_default();
    let layout = match parsable {
        Some((delimiter, trailing)) => layout.parsable(delimiter, trailing),
        None => layout,
    };
    layout.print(&steps.iter().flat_map(rows).collect::<Vec<_>>(), header, ctx)
}

/// Returns the spans as JSON: times in milliseconds since 1970, memory and transfers in bytes, and
/// the load of all GPUs together in percent of one GPU.
pub fn json(steps: &[StepSeries]) -> Json {
    let span = |row: &Row| {
        let gpu = (row.span.gpu.ms > 0).then(|| {
            json!({
                "ms": row.span.gpu.ms,
                "busy_percent": row.span.gpu.busy_milli as f64 / 10.0,
                "mem_max": row.span.gpu.mem_max_kb.saturating_mul(1024),
                "mem_mean": row.span.gpu.mem_mean_kb.saturating_mul(1024),
            })
        });
        let mut record = json!({
            "start_ms": row.start.0.div_euclid(1000),
            "ms": row.span.ms,
            "cpu_us": row.span.cpu_us,
            "mem_max": row.span.mem_max_kb.saturating_mul(1024),
            "mem_mean": row.span.mem_mean_kb.saturating_mul(1024),
            "read": row.span.read,
            "written": row.span.written,
        });
        if let Some(gpu) = gpu {
            record["gpus"] = gpu;
        }
        record
    };
    let step = |one: &StepSeries| {
        let spans: Vec<Json> = rows(one).iter().map(span).collect();
        json!({ "job_id": one.step.job, "step": one.step.step.to_string(), "spans": spans })
    };
    json!({ "steps": steps.iter().map(step).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{at, ctx};
    use slotd_model::series::{GpuSpan, Series};
    use slotd_model::{JobId, StepId};

    fn steps() -> Vec<StepSeries> {
        let mut series = Series::default();
        let span = Span {
            ms: 2500,
            cpu_us: 5_000_000,
            mem_max_kb: 4096,
            mem_mean_kb: 2048,
            written: 1 << 20,
            ..Span::default()
        };
        series.push(span);
        series.push(Span { ms: 500, ..Span::default() });
        vec![StepSeries {
            step: StepKey { job: JobId(12), step: StepId::Num(0) },
            start: at(60),
            series,
        }]
    }

    #[test]
    fn each_span_is_a_line() {
        assert_eq!(
            print(&steps(), true, Some(("|", false)), &ctx()),
            "JobID|Start|Seconds|CPUs|MaxRSS|AveRSS|DiskRead|DiskWrite\n\
             12.0|2026-11-20T23:38:58|2.500|2.00|4M|2M|0|1.00M\n\
             12.0|2026-11-20T23:39:00|0.500|0.00|0|0|0|0\n"
        );
        let table = print(&steps(), true, None, &ctx());
        assert_eq!(table.lines().count(), 4, "{table}");
        assert!(table.lines().all(|line| line.len() < 110), "{table}");
    }

    #[test]
    fn gpu_columns_appear_if_a_step_used_gpus() {
        let mut steps = steps();
        let gpu = GpuSpan { ms: 1000, busy_milli: 1250, mem_max_kb: 2048, mem_mean_kb: 1024 };
        steps[0].series.push(Span { ms: 1000, gpu, ..Span::default() });
        let text = print(&steps, true, Some(("|", false)), &ctx());
        assert!(
            text.starts_with("JobID|Start|Seconds|CPUs|MaxRSS|AveRSS|DiskRead|DiskWrite|GPUs|MaxGPUMem|AveGPUMem\n"),
            "{text}"
        );
        assert!(
            text.ends_with("|0|0|1.25|2M|1M\n") && text.contains("|1.00M|0.00|0|0\n"),
            "{text}"
        );
        let spans = &json(&steps)["steps"][0]["spans"];
        assert_eq!(
            (&spans[0]["gpus"], &spans[2]["gpus"]["busy_percent"]),
            (&Json::Null, &125.0.into())
        );
    }

    #[test]
    fn json_has_bytes_and_milliseconds() {
        let json = json(&steps());
        let spans = &json["steps"][0]["spans"];
        assert_eq!(
            (&json["steps"][0]["job_id"], &json["steps"][0]["step"]),
            (&12.into(), &"0".into())
        );
        assert_eq!(spans[0]["mem_max"], 4 << 20);
        let start = |i: usize| spans[i]["start_ms"].as_i64().unwrap();
        assert_eq!((start(0), start(1)), (at(60).0 / 1000, at(60).0 / 1000 + 2500));
    }
}
