//! Tests of keys and the mouse.

use super::*;
use crate::live::Place;
use crate::tui::order::Sort;
use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};

pub(super) fn mouse(kind: MouseEventKind, column: u16, row: u16) -> Input {
    Input::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE })
}

#[test]
fn the_mouse_selects_and_opens() {
    let (_, mut screen) = open(mixed(), (80, 24));
    let ended = screen.areas().panes[2];
    let click = MouseEvent {
        kind: MouseEventKind::Down(MouseButton::Left),
        column: 3,
        row: ended.y + 2,
        modifiers: KeyModifiers::NONE,
    };
    screen.update(Input::Mouse(click));
    assert_eq!((screen.focus, screen.panes[2].at), (2, 1));
    screen.update(Input::Mouse(click));
    assert_eq!(screen.page.as_ref().map(|page| page.job), Some(JobId(9)));
}

#[test]
fn a_click_on_a_heading_sorts_by_it() {
    let (_, mut screen) = open(mixed(), (80, 24));
    let waiting = screen.areas().panes[1];
    let columns = screen.columns();
    for column in &columns {
        let click = || mouse(MouseEventKind::Down(MouseButton::Left), column.x, waiting.y);
        screen.update(click());
        assert_eq!((screen.focus, screen.panes[1].sort), (1, column.field.sort()));
        screen.update(click());
        assert_eq!(screen.panes[1].sort, Sort::Queue, "the second click restores the order");
    }
    assert_eq!(screen.panes[0].sort, Sort::Queue);
}

#[test]
fn the_wheel_scrolls_and_keeps_the_selection_visible() {
    let jobs = (1..=100).map(|id| job(id, "many").build()).collect();
    let (_, mut screen) = open(jobs, (80, 24));
    let list = screen.areas().panes[1];
    let lines = screen.lines(Place::Waiting);
    for (kind, top) in [
        (MouseEventKind::ScrollDown, 3),
        (MouseEventKind::ScrollDown, 6),
        (MouseEventKind::ScrollUp, 3),
        (MouseEventKind::ScrollUp, 0),
        (MouseEventKind::ScrollUp, 0),
    ] {
        screen.update(mouse(kind, list.x, list.y + 1));
        let pane = &screen.panes[1];
        assert_eq!((screen.focus, pane.top), (1, top));
        assert!((top..top + lines).contains(&pane.at), "{}", pane.at);
    }
}

#[test]
fn holds_and_releases_can_be_undone() {
    let (_, mut screen) = open(mixed(), (80, 24));
    let of = |what, ids: &[u32]| {
        let jobs = ids.iter().map(|id| JobRef::job(JobId(*id))).collect();
        [Action::Do { what, jobs }]
    };
    assert_eq!(press(&mut screen, "u"), []);
    assert_eq!(press(&mut screen, "\tjh"), of(JobAction::Hold, &[30]));
    assert!(text(&screen).contains("u undo"), "{}", text(&screen));
    assert_eq!(press(&mut screen, "u"), of(JobAction::Release, &[30]));
    assert_eq!(press(&mut screen, "u"), [], "only once");
    // Job 32 was held before.
    assert_eq!(press(&mut screen, " j h"), of(JobAction::Hold, &[30, 32]));
    assert_eq!(press(&mut screen, "u"), of(JobAction::Release, &[30]));
    assert_eq!(press(&mut screen, "r"), of(JobAction::Release, &[30, 32]));
    assert_eq!(press(&mut screen, "u"), of(JobAction::Hold, &[32]));
    // Anything else asks.
    for key in ["c", "t", "R"] {
        assert_eq!(press(&mut screen, key), []);
        assert!(text(&screen).contains("? (y/n)"), "{key}: {}", text(&screen));
        press(&mut screen, "n");
    }
    assert_eq!(press(&mut screen, "\u{1b}\ta"), []);
    assert!(text(&screen).contains("again? (y/n)"), "{}", text(&screen));
}

#[test]
fn q_goes_back_before_it_quits() {
    let (mut daemon, mut screen) = open(mixed(), (80, 24));
    for open in ["?", "p", "c"] {
        press(&mut screen, open);
        assert_eq!(press(&mut screen, "q"), [], "{open}");
        assert!(screen.sheet.is_none() && screen.question.is_none());
    }
    press(&mut screen, "\n");
    daemon.serve(&mut screen);
    assert_eq!(press(&mut screen, "zq"), [Action::Redraw, Action::Redraw]);
    assert_eq!(press(&mut screen, "q"), [Action::CloseLogs]);
    assert_eq!(press(&mut screen, "/q"), []);
    assert_eq!(press(&mut screen, "\u{1b}q"), [Action::Quit]);
}

#[test]
fn irreversible_actions_ask_for_confirmation() {
    let (_, mut screen) = open(mixed(), (80, 24));
    let cancel = |jobs| Action::Do { what: JobAction::Cancel, jobs };
    assert_eq!(press(&mut screen, "cn"), []);
    assert_eq!(press(&mut screen, "cy"), [cancel(vec![JobRef::job(JobId(12))])]);
    assert_eq!(press(&mut screen, "jc"), []);
    assert!(text(&screen).contains("Cancel job 20? (y/n)"), "{}", text(&screen));
    press(&mut screen, "n");
    // Marked rows are cancelled together, each by its own ID.
    let task = JobRef { tasks: Some(TaskSet::one(2)), ..JobRef::job(JobId(20)) };
    assert_eq!(press(&mut screen, "g j\nj "), []);
    assert_eq!(press(&mut screen, "cy"), [cancel(vec![JobRef::job(JobId(12)), task])]);
    let held = press(&mut screen, "\u{1b}\th");
    assert!(matches!(&held[..], [Action::Do { what: JobAction::Hold, .. }]), "{held:?}");
    assert!(press(&mut screen, "R").is_empty() && screen.question.is_some());
}

#[test]
fn esc_and_a_key_sent_together_are_both_handled() {
    let (_, mut screen) = open(mixed(), (80, 24));
    press(&mut screen, "\n");
    let both = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::ALT);
    assert_eq!(screen.update(Input::Key(both)), [Action::CloseLogs]);
    assert!(
        screen.page.is_none() && screen.question.is_some(),
        "the page is closed, and a question is asked"
    );
}

#[test]
fn a_search_shows_progress_and_can_be_stopped() {
    let (mut daemon, mut screen) = open(mixed(), (80, 24));
    press(&mut screen, "\n");
    daemon.serve(&mut screen);
    press(&mut screen, "/lost\n");
    screen.update(Input::Searching { done: 30 << 20, of: 100 << 20 });
    assert!(
        text(&screen).contains("searching for lost: 30% of 104857600 bytes (Esc to stop)"),
        "{}",
        text(&screen)
    );
    assert_eq!(press(&mut screen, "\u{1b}"), [Action::StopSearch]);
    screen.update(Input::Searched(Some("it was stopped".to_owned())));
    assert!(text(&screen).contains("it was stopped"), "{}", text(&screen));
    assert_eq!(press(&mut screen, "\u{1b}"), [Action::CloseLogs]);
}
