//! Tests of the appearance at several sizes.

use super::*;
use crate::tui::columns::Field;
use crate::tui::elsewhere::Line;
use crate::tui::keys::Spot;
use crossterm::event::{MouseButton, MouseEventKind};
use ratatui::style::Color;
use slotd_model::JobRequest;

#[test]
fn the_last_hour_of_the_host_is_shown_on_high_screens() {
    let (mut daemon, mut screen) = open(mixed(), (200, 40));
    let bars = |screen: &Screen| {
        let shown = text(screen);
        let below = shown.lines().nth(2).unwrap_or_default().to_owned();
        let count = |part: &str| part.chars().filter(|c| "#=-_".contains(*c)).count();
        let (first, second) = below.split_at(below.len().min(50));
        [count(first), count(second)]
    };
    assert_eq!(bars(&screen), [0, 0], "it is not known yet: {}", text(&screen));
    daemon.has_host_use = true;
    let mut asked = 0;
    for _ in 0..45 {
        daemon.asked.clear();
        screen.update(Input::Tick { now: now(), cpus: None });
        daemon.serve(&mut screen);
        asked += daemon
            .asked
            .iter()
            .filter(|request| matches!(request, Request::HostOverTime(_)))
            .count();
    }
    assert_eq!(asked, 1);
    assert_eq!(bars(&screen), [12, 12], "half an hour: {}", text(&screen));
}

#[test]
fn order_and_filter_cut_no_heading() {
    for columns in [57, 80, 130, 200] {
        let (_, mut screen) = open(mixed(), (columns, 24));
        let headings = |screen: &Screen| {
            let shown = text(screen);
            let lines = shown.lines().filter(|line| line.contains(" CPUS "));
            let words = |line: &str| line[line.find(" CPUS ").unwrap_or(0)..].to_owned();
            lines.map(words).collect::<Vec<_>>()
        };
        let whole = headings(&screen);
        assert_eq!(whole.len(), 3, "{}", text(&screen));
        press(&mut screen, "/");
        for _ in 0..40 {
            press(&mut screen, "x");
            assert_eq!(headings(&screen), whole, "{}", text(&screen));
        }
        assert!(text(&screen).contains("/xxxxxx"), "{}", text(&screen));
        press(&mut screen, "\n");
        for _ in 0..7 {
            press(&mut screen, "s\ts\t");
            assert_eq!(headings(&screen), whole, "{}", text(&screen));
        }
    }
}

#[test]
fn wide_names_do_not_move_the_columns() {
    let jobs = [
        "a",
        "\u{8a55}\u{4fa1}",
        "e\u{301}",
        "\u{8a55}\u{4fa1}-jsquad-\u{65e5}\u{672c}\u{8a9e}\u{30e2}\u{30c7}\u{30eb}\u{8a55}\u{4fa1}\u{8a55}\u{4fa1}",
    ];
    let jobs = (1..).zip(jobs).map(|(id, name)| job(id, name).build()).collect();
    let (_, screen) = open(jobs, (60, 24));
    let mut terminal = Terminal::new(TestBackend::new(60, 24)).unwrap();
    terminal.draw(|frame| draw::draw(&screen, frame.buffer_mut())).unwrap();
    let cells = terminal.backend().buffer();
    let columns = screen.columns();
    let cpus = columns.iter().find(|column| column.field == Field::Cpus).expect("CPUs");
    let top = screen.areas().panes[1].y;
    for row in top + 1..top + 5 {
        assert_eq!(cells[(cpus.x + cpus.width - 1, row)].symbol(), "1", "{}", text(&screen));
        assert_eq!(cells[(cpus.x - 1, row)].symbol(), " ", "{}", text(&screen));
    }
}

#[test]
fn a_small_screen_shows_one_list_with_tabs() {
    let (mut daemon, mut screen) = open(mixed(), (40, 10));
    is_recorded("40x10", &text(&screen));
    press(&mut screen, "\t");
    daemon.serve(&mut screen);
    is_recorded("40x10-pending", &text(&screen));
    let (ended, _) = screen.tabs()[2];
    screen.update(super::input::mouse(MouseEventKind::Down(MouseButton::Left), ended.x, ended.y));
    assert_eq!(screen.focus, 2);
    daemon.serve(&mut screen);
    assert!(text(&screen).contains("exit 3"), "{}", text(&screen));
    // The first line below the tabs is the first row.
    screen.update(super::input::mouse(MouseEventKind::Down(MouseButton::Left), 3, ended.y + 2));
    assert_eq!(screen.panes[2].at, 1);
}

#[test]
fn colours_mean_states() {
    for (palette, inks) in [
        (Palette::None, vec![]),
        (Palette::Terminal, vec![Color::LightBlue, Color::Yellow, Color::Green, Color::LightRed]),
        (Palette::Dark, [111, 179, 78, 210, 247].map(Color::Indexed).to_vec()),
        (Palette::Light, [26, 94, 28, 160, 241].map(Color::Indexed).to_vec()),
    ] {
        let (_, mut screen) = open(mixed(), (120, 40));
        screen.theme.palette = palette;
        let mut terminal = Terminal::new(TestBackend::new(120, 40)).unwrap();
        terminal.draw(|frame| draw::draw(&screen, frame.buffer_mut())).unwrap();
        let buffer = terminal.backend().buffer();
        let used: Vec<Color> = buffer.content().iter().map(|cell| cell.fg).collect();
        let unknown = used.iter().find(|ink| **ink != Color::Reset && !inks.contains(ink));
        assert_eq!(unknown, None, "{palette:?}");
        assert!(inks.iter().all(|ink| used.contains(ink)), "{palette:?}");
    }
}

#[test]
fn reservations_licenses_and_qos_are_shown() {
    let (mut daemon, mut screen) = open(mixed(), (100, 30));
    assert!(!text(&screen).contains("LICENSES"));
    daemon.has_plans = true;
    daemon.notify(&mut screen, Changed::node());
    is_recorded("plans", &text(&screen));
    // On a low screen they have a page of their own.
    screen.update(Input::Size(40, 10));
    assert!(!text(&screen).contains("LICENSES"));
    press(&mut screen, "p");
    is_recorded("40x10-plans", &text(&screen));
    screen.update(Input::Size(40, 5));
    press(&mut screen, "j");
    assert!(!text(&screen).contains("LICENSES"), "{}", text(&screen));
    press(&mut screen, "q");
    assert!(text(&screen).contains("ENDED"), "{}", text(&screen));
}

#[test]
fn a_recurring_job_shows_its_next_run() {
    let recurs = |asked: &mut JobRequest| {
        asked.recurrence = Some(Box::default());
        asked.time_limit_secs = Some(600);
    };
    let waits = job(5, "backup")
        .reason(Reason::BeginTime)
        .asks(recurs)
        .with(|job| (job.expected_start, job.next_run) = (Some(at(-600)), Some(at(-600))));
    let runs = job(6, "sync").asks(recurs).running(60).with(|job| job.next_run = Some(at(-1800)));
    let (_, mut screen) = open(vec![waits.build(), runs.build()], (100, 24));
    assert!(text(&screen).contains("6: 9m to its limit, runs again at 00:09"), "{}", text(&screen));
    press(&mut screen, "\t");
    assert!(text(&screen).contains("23:49 its next run (* * * * *)"), "{}", text(&screen));
    assert!(text(&screen).contains("; starts about 23:49"), "{}", text(&screen));
}

#[test]
fn jobs_of_other_clusters_are_listed_below_the_others() {
    let (_, mut screen) = open(mixed(), (100, 40));
    let without = text(&screen);
    assert!(!without.contains("ELSEWHERE"), "{without}");
    let job = |id: u32| Line::Job {
        job: format!("{id}@hpc"),
        state: if id == 1 { "COMPLETED" } else { "RUNNING" }.to_owned(),
        has_ended: id == 1,
        submitted: now(),
        command: "-n 4 'a\u{1b}[2Jb.sh'".to_owned(),
    };
    let problem = Line::Problem("cluster lab cannot be reached: Connection refused".to_owned());
    screen.update(Input::Elsewhere(vec![problem, job(17), job(1)]));
    let drawn = text(&screen);
    let list: Vec<&str> = drawn.lines().skip_while(|line| !line.contains("ELSEWHERE")).collect();
    assert_eq!(list[1], " cluster lab cannot be reached: Connection refused");
    assert!(list[2].starts_with(" 17@hpc         RUNNING       "), "{drawn}");
    assert!(list[3].starts_with(" 1@hpc          COMPLETED     "), "{drawn}");
    assert!(!drawn.contains('\u{1b}'), "{drawn:?}");
    // More than fit.
    screen.update(Input::Elsewhere((2..60).map(job).collect()));
    let drawn = text(&screen);
    assert!(drawn.contains(" more: squeue -M all --me\n"), "{drawn}");
    assert!(drawn.contains("RUNNING") && drawn.contains("PENDING"), "{drawn}");
    screen.update(Input::Elsewhere(Vec::new()));
    assert_eq!(text(&screen), without);
}

#[test]
fn a_buffer_of_another_size_is_not_drawn() {
    let (_, screen) = open(mixed(), (120, 30));
    for (columns, rows) in [(80, 24), (300, 80), (0, 0)] {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| draw::draw(&screen, frame.buffer_mut())).unwrap();
        assert!(terminal.backend().buffer().content().iter().all(|cell| cell.symbol() == " "));
    }
}

#[test]
fn key_hints_show_the_keys_that_apply() {
    let (mut daemon, mut screen) = open(mixed(), (80, 24));
    let foot = |screen: &Screen| {
        let hints = screen.foot(Spot::Lists).concat();
        hints.iter().map(|(key, word)| format!("{key} {word}  ")).collect::<String>()
    };
    let has = |screen: &Screen| {
        ["c cancel", "R requeue", "h hold", "e edit", "a again"]
            .map(|key| foot(screen).contains(key))
    };
    assert_eq!(has(&screen), [true, true, false, false, false]);
    press(&mut screen, "\t");
    assert_eq!(has(&screen), [true, false, true, true, false]);
    press(&mut screen, "\t");
    assert_eq!(has(&screen), [false, false, false, false, true]);
    // The hints depend on the marked jobs, even if those are in another list.
    press(&mut screen, "\t ");
    assert_eq!(has(&screen), [true, true, false, false, false]);
    press(&mut screen, "\u{1b}\tjj");
    daemon.serve(&mut screen);
    assert_eq!(press(&mut screen, "e"), [Action::Edit(JobRef::job(JobId(31)))]);
    press(&mut screen, "  e");
    assert!(text(&screen).contains("only one job can be edited"), "{}", text(&screen));
}
