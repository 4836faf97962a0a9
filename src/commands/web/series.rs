//! The usage of a job and of the host over time, for plots.

use super::job::{named, record, records};
use super::refused::{Refused, waiting};
use super::rows::millis;
use crate::commands::ask_node;
use crate::commands::report::host;
use crate::commands::sstat::series_of;
use actix_web::{HttpResponse, web};
use serde::{Deserialize, Serialize};
use slotd_model::Timestamp;
use slotd_model::host_use::HostUse;
use slotd_model::series::{Bin, JobSeries};
use slotd_render::host_use::{Chart, charts};
use slotd_render::job::allocated_or_asked;

/// Number of bars in a plot.
const BINS: usize = 120;

/// Maximum length of the host plots, minutes.
const MOST_MINUTES: u32 = 30 * 24 * 60;

/// The plots of a job. Times are milliseconds since 1970, memory is in bytes.
#[derive(Debug, Default, Serialize)]
struct Plots {
    from: i64,
    to: i64,
    /// The resources of the job.
    all_cpus: u32,
    all_memory: u64,
    all_gpus: usize,
    cpus: Vec<f64>,
    memory: Vec<f64>,
    /// Bytes per second.
    read: Vec<f64>,
    written: Vec<f64>,
    /// Busy GPUs and GPU memory in use. Both are empty if there are no GPU samples.
    gpus: Vec<f64>,
    gpu_memory: Vec<f64>,
}

impl Plots {
    fn of(series: &JobSeries) -> Plots {
        let of_gpus = |amount: fn(&Bin) -> f64| {
            if series.has_gpus { series.column(amount) } else { Vec::new() }
        };
        Plots {
            from: millis(series.from),
            to: millis(series.to),
            cpus: series.column(|bin| bin.cpus),
            memory: series.column(|bin| bin.mem_max_kb * 1024.0),
            read: series.column(|bin| bin.read),
            written: series.column(|bin| bin.written),
            gpus: of_gpus(|bin| bin.gpus),
            gpu_memory: of_gpus(|bin| bin.gpu_mem_kb * 1024.0),
            ..Plots::default()
        }
    }
}

pub async fn job(name: web::Path<String>) -> Result<HttpResponse, Refused> {
    let job = named(&name)?;
    let look = move || {
        let list = records(&job)?;
        let view = record(&list)?;
        let has = allocated_or_asked(view);
        let series = JobSeries::of(&series_of(std::slice::from_ref(view))?, BINS);
        let plots = series.map_or_else(Plots::default, |series| Plots::of(&series));
        let all_gpus = view.run.alloc.as_ref().map_or(0, |alloc| alloc.gpu_ids.len());
        Ok(Plots {
            all_cpus: has.cpus,
            all_memory: has.mem_mb.saturating_mul(1 << 20),
            all_gpus,
            ..plots
        })
    };
    Ok(HttpResponse::Ok().json(waiting(look).await?))
}

#[derive(Debug, Deserialize)]
pub struct Window {
    /// The length of the window, which ends now.
    minutes: u32,
}

/// The charts of the host with their titles. A value is `null` if no job was running.
#[derive(Debug, Serialize)]
struct Charts {
    from: i64,
    to: i64,
    charts: Vec<Chart>,
}

/// Sends the usage of the whole host, including processes outside jobs.
pub async fn of_host(window: web::Query<Window>) -> Result<HttpResponse, Refused> {
    let minutes = window.minutes;
    if !(1..=MOST_MINUTES).contains(&minutes) {
        return Err(Refused::bad(format!("minutes must be between 1 and {MOST_MINUTES}")));
    }
    let look = move || {
        let from = |now: Timestamp| now.plus_us(-60_000_000 * i64::from(minutes));
        let (now, spans) = host::spans(from(crate::commands::now()))?;
        let from = from(now);
        let found = HostUse::within(&spans, from, now, BINS);
        Ok(Charts { from: millis(from), to: millis(now), charts: charts(&found, &ask_node()?) })
    };
    Ok(HttpResponse::Ok().json(waiting(look).await?))
}
