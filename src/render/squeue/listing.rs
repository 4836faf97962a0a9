//! A listing of squeue, in batches as the jobs arrive.

use crate::Ctx;
use crate::layout::Printer;
use crate::sort::Order;
use crate::squeue::Options;
use crate::squeue::fields::Squeue;
use crate::squeue::rows::{by_partition, rows};
use slotd_model::brief::BriefJob;
use slotd_model::view::JobView;
use slotd_model::{ArrayRole, JobId, JobRef};

/// The number of brief jobs to show at once: their views stay in the CPU caches.
const AT_ONCE: usize = 32;

/// A listing of jobs that are already filtered and arrive in batches. Most jobs are stored only as
/// text.
pub struct Listing<'a> {
    each_task: bool,
    each_partition: Option<&'a [String]>,
    refs: &'a [JobRef],
    /// Array records are stored, since only the end shows which of them share a row.
    of_arrays: Vec<JobView>,
    /// The views that brief jobs are shown through, a few at a time.
    views: Vec<JobView>,
    order: Order<Squeue>,
    printer: Printer<Squeue>,
}

impl<'a> Listing<'a> {
    pub fn new(options: Options<'a>) -> Self {
        let Options { layout, header, each_task, each_partition, sort, refs } = options;
        let (order, printer) = (Order::by(sort), Printer::unordered(layout, header));
        let (of_arrays, views) = (Vec::new(), vec![JobView::default(); AT_ONCE]);
        Listing { each_task, each_partition, refs, of_arrays, views, order, printer }
    }

    pub fn add(&mut self, jobs: Vec<JobView>, ctx: &Ctx) {
        let is_plain = |job: &JobView| job.role == ArrayRole::None;
        if jobs.iter().all(is_plain) {
            return self.take(&jobs, ctx);
        }
        let (plain, of_arrays): (Vec<_>, Vec<_>) = jobs.into_iter().partition(is_plain);
        self.take(&plain, ctx);
        self.of_arrays.extend(of_arrays);
    }

    /// Like [`Self::add`], for brief jobs.
    pub fn add_brief(&mut self, jobs: Vec<BriefJob>, ctx: &Ctx) {
        let mut views = std::mem::take(&mut self.views);
        let mut jobs = jobs.into_iter();
        while jobs.len() > 0 {
            let mut used = 0;
            while let Some(view) = views.get_mut(used)
                && let Some(job) = jobs.next()
            {
                if job.role == ArrayRole::None {
                    job.put_into(view);
                    used += 1;
                } else {
                    self.of_arrays.push(JobView::from(job));
                }
            }
            self.take(&views[..used], ctx);
        }
        self.views = views;
    }

    /// Leaves out the jobs with these IDs that were added so far.
    pub fn forget(&mut self, jobs: &[JobId]) {
        if jobs.is_empty() {
            return;
        }
        let numbers = jobs.iter().map(|id| id.0).collect();
        self.order.forget(&numbers);
        self.of_arrays.retain(|job| !numbers.contains(&job.id.0));
    }

    fn take(&mut self, jobs: &[JobView], ctx: &Ctx) {
        match self.each_partition {
            Some(named) => {
                by_partition(jobs, named).values().for_each(|jobs| self.put(jobs, ctx));
            }
            None => self.put(jobs, ctx),
        }
    }

    fn put(&mut self, jobs: &[JobView], ctx: &Ctx) {
        let rows = rows(jobs, self.each_task, self.refs);
        rows.iter().for_each(|row| self.order.add(row, row.job.id.0, ctx));
        self.printer.add(&rows, ctx);
    }

    /// Returns the whole listing. Rows that the order leaves equal are sorted by job ID.
    pub fn end(mut self, ctx: &Ctx) -> String {
        let of_arrays = std::mem::take(&mut self.of_arrays);
        self.take(&of_arrays, ctx);
        self.printer.end_in(&self.order.places(), ctx)
    }
}
