//! A list as its queue changes: always as if it had just been made.

use super::*;
use crate::model::array::ArraySpec;
use crate::model::view::JobList;
use crate::model::{End, ExitCode, Reason, TaskSet};
use crate::render::fixture::{job, now};
use crate::tui::picture::Touched;
use proptest::collection::vec;
use proptest::prelude::*;

/// A record in one of the states that lists tell apart, alone or of one of two arrays.
fn record(id: u32, kind: u8) -> JobView {
    let array = 100 + u32::from(kind % 2);
    let name = format!("x{}", id % 3);
    let spec = || {
        Some(ArraySpec { tasks: TaskSet::from_sorted(&(0..50).collect::<Vec<u32>>()), limit: None })
    };
    let plain = || job(id, &name).with(|job| job.priority = id % 4);
    let task = || job(id, &name).asks(|asked| asked.array = spec()).task(array, id);
    let failed = ExitCode { status: 3, signal: 0 };
    match kind / 2 {
        0 => plain().reason(Reason::Resources).build(),
        1 => plain().reason(Reason::JobHeldUser).build(),
        2 => plain().running(i64::from(id % 5)).build(),
        3 => plain()
            .ended(End::Completed, Reason::None, ExitCode::OK, 100, i64::from(id % 5))
            .build(),
        4 => task().reason(Reason::Resources).build(),
        5 => task().running(i64::from(id % 5)).build(),
        _ => task()
            .ended(End::Failed, Reason::NonZeroExitCode, failed, 100, i64::from(id % 5))
            .build(),
    }
}

fn put(picture: &mut Picture, view: JobView) {
    picture.take(JobList { jobs: vec![view], ..JobList::at(now()) });
}

fn rows(pane: &Pane) -> Vec<Row> {
    (0..pane.len()).map(|at| pane.row(at).expect("there are as many")).collect()
}

/// A list of the same picture, made anew.
fn anew(pane: &Pane, picture: &Picture, filter: &str) -> Pane {
    let mut anew = Pane { sort: pane.sort, open: pane.open.clone(), ..Pane::new(pane.place) };
    anew.fill(picture, filter);
    anew
}

proptest! {
    #[test]
    fn after_any_changes_it_is_as_if_made_anew(
        changes in vec((1u32..30, 0u8..16), 1..60),
        sort in 0usize..5,
        filter in "(|x1|pend)",
        place in prop::sample::select(Place::ALL.to_vec()),
    ) {
        let (mut picture, mut pane) = (Picture::default(), Pane::new(place));
        pane.sort = (0..sort).fold(pane.sort, |sort, _| sort.next());
        for (i, (id, kind)) in changes.into_iter().enumerate() {
            match kind {
                14.. => picture.drop(JobId(id)),
                kind => put(&mut picture, record(id, kind)),
            }
            let Touched::Records(touched) = picture.touched() else { panic!("one has changed") };
            let chosen = pane.selected();
            pane.change(&picture, &filter, &touched);
            let expected = anew(&pane, &picture, &filter);
            prop_assert_eq!(rows(&pane), rows(&expected));
            prop_assert_eq!(pane.count, expected.count);
            if chosen.is_some_and(|key| rows(&pane).iter().any(|row| row.key == key)) {
                prop_assert_eq!(pane.selected(), chosen, "the same row is chosen");
            }
            prop_assert!(pane.at < pane.len().max(1));
            if i % 3 == 0 {
                pane.at = i % pane.len().max(1);
                let before = pane.selected();
                if pane.toggle() {
                    prop_assert!(matches!(pane.selected(), Some(Key::Array(_))), "{before:?}");
                    prop_assert_eq!(rows(&pane), rows(&anew(&pane, &picture, &filter)));
                }
            }
        }
    }
}

#[test]
fn a_position_is_that_in_the_queue_whatever_is_shown() {
    let mut picture = Picture::default();
    for (id, priority) in [(1, 5), (2, 9), (3, 7)] {
        put(
            &mut picture,
            job(id, &format!("j{id}"))
                .reason(Reason::Priority)
                .with(|j| j.priority = priority)
                .build(),
        );
    }
    put(&mut picture, job(4, "held").reason(Reason::JobHeldUser).build());
    let mut pane = Pane::new(Place::Waiting);
    let shown =
        |pane: &Pane| rows(pane).iter().map(|row| (row.key, row.position)).collect::<Vec<_>>();
    let row = |id, position| (Key::Job(JobId(id)), position);
    pane.fill(&picture, "");
    assert_eq!(shown(&pane), [row(2, Some(1)), row(3, Some(2)), row(1, Some(3)), row(4, None)]);
    pane.sort = Sort::Number;
    pane.fill(&picture, "priority");
    assert_eq!(shown(&pane), [row(1, Some(3)), row(2, Some(1)), row(3, Some(2))]);
}

#[test]
fn the_progress_of_an_array_is_counted_as_it_changes() {
    let mut picture = Picture::default();
    let kinds = |kinds: &[(u32, u8)], picture: &mut Picture| {
        kinds.iter().for_each(|(id, kind)| put(picture, record(*id, *kind)));
    };
    kinds(&[(1, 8), (2, 10), (3, 12), (4, 9)], &mut picture);
    let counted = |picture: &Picture, array| {
        let progress = picture.progress(JobId(array));
        (progress.waiting, progress.running, progress.over, progress.failed)
    };
    assert_eq!((counted(&picture, 100), counted(&picture, 101)), ((1, 1, 1, 1), (1, 0, 0, 0)));
    kinds(&[(1, 10), (2, 12)], &mut picture);
    picture.drop(JobId(3));
    picture.drop(JobId(4));
    assert_eq!((counted(&picture, 100), counted(&picture, 101)), ((0, 1, 1, 1), (0, 0, 0, 0)));
    assert_eq!((picture.running().count(), picture.first_of(JobId(101))), (1, None));
}
