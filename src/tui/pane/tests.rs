//! An incrementally updated list must equal a rebuilt one.

use super::*;
use crate::live::picture::Touched;
use proptest::collection::vec;
use proptest::prelude::*;
use slotd_model::array::ArraySpec;
use slotd_model::view::JobList;
use slotd_model::{End, ExitCode, Reason, TaskSet};
use slotd_render::fixture::{job, now};

/// A record in one of the states that lists distinguish, either alone or in one of two arrays.
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
    (0..pane.len()).map(|at| pane.row(at).expect("the row exists")).collect()
}

/// Returns the same list, rebuilt from scratch.
fn anew(pane: &Pane, picture: &Picture, filter: &str) -> Pane {
    let mut anew = Pane { sort: pane.sort, open: pane.open.clone(), ..Pane::new(pane.place) };
    anew.fill(picture, filter);
    anew
}

proptest! {
    #[test]
    fn an_updated_list_equals_a_rebuilt_one(
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
            let Touched::Records(touched) = picture.touched() else { panic!("records changed") };
            let chosen = pane.selected();
            pane.change(&picture, &filter, &touched);
            let expected = anew(&pane, &picture, &filter);
            prop_assert_eq!(rows(&pane), rows(&expected));
            prop_assert_eq!(pane.count, expected.count);
            if chosen.is_some_and(|key| rows(&pane).iter().any(|row| row.key == key)) {
                prop_assert_eq!(pane.selected(), chosen, "the same row is selected");
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
fn positions_ignore_the_filter_and_the_sort_order() {
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
    let shown = |pane: &Pane| {
        let turn = |row: &Row| match row.key {
            Key::Job(id) => picture.turn(id),
            Key::Array(_) => None,
        };
        rows(pane).iter().map(|row| (row.key, turn(row))).collect::<Vec<_>>()
    };
    let row = |id, turn| (Key::Job(JobId(id)), turn);
    pane.fill(&picture, "");
    assert_eq!(shown(&pane), [row(2, Some(1)), row(3, Some(2)), row(1, Some(3)), row(4, None)]);
    pane.sort = Sort::Number;
    pane.fill(&picture, "priority");
    assert_eq!(shown(&pane), [row(1, Some(3)), row(2, Some(1)), row(3, Some(2))]);
}

#[test]
fn the_progress_of_an_array_follows_its_records() {
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

#[test]
fn ended_records_do_not_pile_up() {
    let mut picture = Picture::default();
    (1..5000).for_each(|id| put(&mut picture, record(id, 6)));
    put(&mut picture, record(9000, 2));
    assert_eq!((picture.list(Place::Ended).len(), picture.jobs.len()), (4096, 4097));
}
