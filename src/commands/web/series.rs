//! What a job, and all jobs of the host, used over time: the figures of plots.

use super::job::{named, record, records};
use super::{Refused, waiting};
use crate::commands::sstat::series_of;
use crate::commands::{ask, now, unexpected};
use crate::model::Timestamp;
use crate::model::query::JobQuery;
use crate::model::series::JobSeries;
use crate::model::view::JobView;
use crate::protocol::answer::Answer;
use crate::protocol::request::Request;
use crate::render::job::allocated_or_asked;
use actix_web::{HttpResponse, web};
use serde::Serialize;
use std::cmp::Reverse;

/// Bars of a plot.
const BINS: usize = 120;

/// How far back the plots of the host go.
const WINDOW_SECS: u64 = 3600;

/// Jobs that are counted for the host: those that started last.
const MOST: usize = 500;

/// Times are milliseconds since 1970, memory is in bytes.
#[derive(Debug, Default, Serialize)]
struct Plots {
    from: i64,
    to: i64,
    /// What the job has.
    all_cpus: u32,
    all_memory: u64,
    cpus: Vec<f64>,
    memory: Vec<f64>,
    /// Bytes in a second.
    read: Vec<f64>,
    written: Vec<f64>,
}

impl Plots {
    fn of(series: &JobSeries) -> Plots {
        Plots {
            from: series.from.0.div_euclid(1000),
            to: series.to.0.div_euclid(1000),
            cpus: series.column(|bin| bin.cpus),
            memory: series.column(|bin| bin.mem_max_kb * 1024.0),
            read: series.column(|bin| bin.read),
            written: series.column(|bin| bin.written),
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
        Ok(Plots { all_cpus: has.cpus, all_memory: has.mem_mb.saturating_mul(1 << 20), ..plots })
    };
    Ok(HttpResponse::Ok().json(waiting(look).await?))
}

/// All jobs of the last hour together.
pub async fn host() -> Result<HttpResponse, Refused> {
    Ok(HttpResponse::Ok().json(waiting(of_host).await?))
}

fn of_host() -> Result<Plots, Refused> {
    let to = now();
    let from = Timestamp(to.0.saturating_sub(i64::try_from(WINDOW_SECS * 1_000_000).unwrap_or(0)));
    let query = JobQuery { since: Some(from), without_paths: true, without_steps: true, ..JobQuery::default() };
    let mut jobs: Vec<JobView> = match ask(&Request::Jobs(query), &[])?.0 {
        Answer::Jobs(list) => list.jobs,
        other => return Err(unexpected(&other).into()),
    };
    jobs.retain(|view| view.run.start.is_some());
    jobs.sort_by_key(|view| Reverse(view.run.start));
    jobs.truncate(MOST);
    if jobs.is_empty() {
        return Ok(Plots::default());
    }
    let steps = series_of(&jobs)?;
    Ok(Plots::of(&JobSeries::within(&steps, from, to, BINS)))
}
