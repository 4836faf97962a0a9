//! What a job, and the host, used over time: the figures of plots.

use super::job::{named, record, records};
use super::refused::{Refused, waiting};
use crate::commands::ask_node;
use crate::commands::report::host;
use crate::commands::sstat::series_of;
use crate::model::Timestamp;
use crate::model::host_use::HostUse;
use crate::model::series::{Bin, JobSeries};
use crate::render::host_use::{Chart, charts};
use crate::render::job::allocated_or_asked;
use actix_web::{HttpResponse, web};
use serde::{Deserialize, Serialize};

/// Bars of a plot.
const BINS: usize = 120;

/// How far back the plots of the host go at most, minutes.
const MOST_MINUTES: u32 = 30 * 24 * 60;

/// Times are milliseconds since 1970, memory is in bytes.
#[derive(Debug, Default, Serialize)]
struct Plots {
    from: i64,
    to: i64,
    /// What the job has.
    all_cpus: u32,
    all_memory: u64,
    all_gpus: usize,
    cpus: Vec<f64>,
    memory: Vec<f64>,
    /// Bytes in a second.
    read: Vec<f64>,
    written: Vec<f64>,
    /// GPUs that were busy, and their memory. Empty where nothing is known of them.
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

fn millis(at: Timestamp) -> i64 {
    at.0.div_euclid(1000)
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
    /// Up to now.
    minutes: u32,
}

/// What is plotted as it is, with its words. Where no job ran a value is `null`.
#[derive(Debug, Serialize)]
struct Charts {
    from: i64,
    to: i64,
    charts: Vec<Chart>,
}

/// The whole host, by whomsoever.
pub async fn of_host(window: web::Query<Window>) -> Result<HttpResponse, Refused> {
    let minutes = window.minutes;
    if !(1..=MOST_MINUTES).contains(&minutes) {
        return Err(Refused::bad(format!("name from 1 to {MOST_MINUTES} minutes")));
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
