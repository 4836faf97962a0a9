//! Scripts and environments that need not be read from the database: those of jobs submitted and
//! started in the same commit, and those of the array whose task started last.

use slotd_model::JobId;
use slotd_model::change::{Change, LaunchTexts, Texts};
use std::collections::HashMap;

/// The maximum size of an array's texts to keep between commits. Larger texts would waste memory,
/// and are read again for each task.
const SMALL: usize = 256 << 10;

#[derive(Debug, Default)]
pub struct FreshTexts {
    /// The texts of jobs that start in this commit.
    new: HashMap<JobId, Texts>,
    /// The texts of the last array. IDs are never reused, and a new script removes the entry.
    last: Option<(JobId, LaunchTexts)>,
}

impl FreshTexts {
    /// Records the texts that a commit contains for these jobs.
    pub fn note<'a>(
        &mut self,
        jobs: impl Iterator<Item = &'a JobId>,
        changes: impl Iterator<Item = &'a Change>,
    ) {
        self.new = jobs.map(|job| (*job, Texts::None)).collect();
        for change in changes {
            if let Change::Insert { job, texts } = change
                && let Some(place) = self.new.get_mut(&job.id)
            {
                *place = texts.clone();
            }
            if let Change::PutScript { job, script } = change {
                self.last = self.last.take().filter(|(known, _)| known != job);
                if let Some(Texts::New(texts)) = self.new.get_mut(job) {
                    texts.script.clone_from(script);
                }
            }
        }
    }

    /// Returns the texts that launch a job. `read` reads them from the database.
    ///
    /// # Errors
    /// Fails if `read` fails.
    pub fn of<E>(
        &mut self,
        job: JobId,
        read: impl FnOnce(JobId) -> Result<Option<LaunchTexts>, E>,
    ) -> Result<LaunchTexts, E> {
        let (owner, is_task) = match self.new.remove(&job) {
            Some(Texts::New(texts)) => return Ok(texts),
            Some(Texts::SameAs(array)) => (array, true),
            Some(Texts::Script(_) | Texts::None) | None => (job, false),
        };
        if let Some((known, texts)) = &self.last
            && *known == owner
        {
            return Ok(texts.clone());
        }
        let texts = read(owner)?.unwrap_or_default();
        if is_task && texts.script.len() + texts.env.len() <= SMALL {
            self.last = Some((owner, texts.clone()));
        }
        Ok(texts)
    }

    /// Drops the texts that only this commit needed.
    pub fn commit_over(&mut self) {
        self.new.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotd_model::Job;
    use std::convert::Infallible;

    fn texts(script: &str) -> LaunchTexts {
        LaunchTexts { script: script.as_bytes().to_vec(), env: Vec::new() }
    }

    fn insert(id: u32, texts: Texts) -> Change {
        Change::Insert { job: Box::new(Job { id: JobId(id), ..Job::default() }), texts }
    }

    fn none(job: JobId) -> Result<Option<LaunchTexts>, Infallible> {
        panic!("the texts of {job} are read")
    }

    #[test]
    fn job_started_in_the_commit_of_its_submission_needs_no_read() {
        let mut fresh = FreshTexts::default();
        let changes = [insert(1, Texts::New(texts("one"))), insert(2, Texts::New(texts("two")))];
        fresh.note([JobId(2), JobId(3)].iter(), changes.iter());
        assert_eq!(fresh.of(JobId(2), none), Ok(texts("two")));
        let read = |job| Ok::<_, Infallible>((job == JobId(3)).then(|| texts("three")));
        assert_eq!(fresh.of(JobId(3), read), Ok(texts("three")), "it was submitted earlier");
        fresh.commit_over();
        assert_eq!(fresh.of(JobId(3), |_| Err("it is not kept")), Err("it is not kept"));
    }

    #[test]
    fn array_tasks_share_one_read() {
        let mut fresh = FreshTexts::default();
        for (task, is_read) in [(2, true), (3, false), (4, false)] {
            fresh.note([JobId(task)].iter(), [insert(task, Texts::SameAs(JobId(1)))].iter());
            let read = |array| {
                assert!(is_read && array == JobId(1), "task {task}");
                Ok::<_, Infallible>(Some(texts("array")))
            };
            assert_eq!(fresh.of(JobId(task), read), Ok(texts("array")));
            fresh.commit_over();
        }
        // The last task has the ID of its array.
        fresh.note([JobId(1)].iter(), [].iter());
        assert_eq!(fresh.of(JobId(1), none), Ok(texts("array")));
    }

    #[test]
    fn new_script_replaces_the_cached_one() {
        let mut fresh = FreshTexts::default();
        let read = |script: &'static str| move |_| Ok::<_, Infallible>(Some(texts(script)));
        fresh.note([JobId(2)].iter(), [insert(2, Texts::SameAs(JobId(1)))].iter());
        assert_eq!(fresh.of(JobId(2), read("old")), Ok(texts("old")));
        fresh.commit_over();
        let put = |job| Change::PutScript { job: JobId(job), script: b"new".to_vec() };
        fresh.note([].iter(), [put(9)].iter());
        fresh.note([JobId(3)].iter(), [insert(3, Texts::SameAs(JobId(1)))].iter());
        assert_eq!(fresh.of(JobId(3), none), Ok(texts("old")), "that was another job");
        fresh.note([].iter(), [put(1)].iter());
        fresh.note([JobId(4)].iter(), [insert(4, Texts::SameAs(JobId(1)))].iter());
        assert_eq!(fresh.of(JobId(4), read("new")), Ok(texts("new")));
        // In the commit of its own submission.
        fresh.note([JobId(5)].iter(), [insert(5, Texts::New(texts("old"))), put(5)].iter());
        assert_eq!(fresh.of(JobId(5), none), Ok(texts("new")));
    }

    #[test]
    fn large_texts_of_an_array_are_not_cached() {
        let mut fresh = FreshTexts::default();
        let large = LaunchTexts { script: vec![0; SMALL + 1], env: Vec::new() };
        for task in [2, 3] {
            fresh.note([JobId(task)].iter(), [insert(task, Texts::SameAs(JobId(1)))].iter());
            let mut reads = 0;
            let read = |_| {
                reads += 1;
                Ok::<_, Infallible>(Some(large.clone()))
            };
            assert_eq!(fresh.of(JobId(task), read).map(|texts| texts.script.len()), Ok(SMALL + 1));
            assert_eq!(reads, 1);
        }
    }
}
