//! Tests of the screen with a simulated daemon: drawing, keys and requests.

mod appearance;
mod input;

use super::state::{JobAction, Words};
use super::theme::{Palette, Theme};
use super::{Action, Input, Screen, draw};
use crate::tui::log::{Move, Text};
use crate::tui::order::MADE;
use crate::tui::page::Side;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use expect_test::expect_file;
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use slotd_model::array::ArraySpec;
use slotd_model::brief::BriefJob;
use slotd_model::changed::Changed;
use slotd_model::gpu::Gpu;
use slotd_model::host_use::HostSpan;
use slotd_model::license::LicenseUse;
use slotd_model::qos::{Qos, TresLimit};
use slotd_model::query::JobQuery;
use slotd_model::reservation::{Flag, Reservation, ReservationView, Share};
use slotd_model::series::{Series, Span, StepSeries};
use slotd_model::tres::{Allocation, Usage};
use slotd_model::view::{JobList, JobView, NodeView};
use slotd_model::{
    End, ExitCode, JobId, JobRef, JobState, Reason, Refusal, StepId, StepKey, TaskSet, Tres,
};
use slotd_protocol::answer::Answer;
use slotd_protocol::request::Request;
use slotd_render::fixture::{at, ctx, job, node, now, step};

/// A daemon with these jobs that records its requests.
struct Daemon {
    /// Whether it has the usage of the host over time.
    has_host_use: bool,
    /// Whether its host has reservations, licenses and QOS.
    has_plans: bool,
    jobs: Vec<JobView>,
    asked: Vec<Request>,
}

impl Daemon {
    fn jobs(&self, query: &JobQuery) -> JobList {
        let found = self.jobs.iter().filter(|view| query.matches(&view.job));
        if query.brief {
            JobList { brief: found.map(|view| BriefJob::of(view)).collect(), ..JobList::at(now()) }
        } else {
            let mut jobs: Vec<JobView> = found.cloned().collect();
            if !query.expected_starts {
                jobs.iter_mut().for_each(|job| job.expected_start = None);
            }
            JobList { jobs, ..JobList::at(now()) }
        }
    }

    /// Returns a batch step for each started job, with one busy CPU and growing memory.
    fn over_time(&self, named: &[JobRef]) -> Vec<StepSeries> {
        let list = self.jobs(&JobQuery::of(named.to_vec()));
        let of = |view: &JobView| {
            let mut series = Series::default();
            for i in 1..=10u64 {
                let kb = i * (view.tres.mem_mb << 10) / 20;
                let used = Span {
                    ms: 2000,
                    cpu_us: 2_000_000,
                    mem_max_kb: kb,
                    mem_mean_kb: kb,
                    ..Span::default()
                };
                series.push(used);
            }
            let step = StepKey { job: view.id, step: StepId::Batch };
            Some(StepSeries { step, start: view.run.start?, series })
        };
        list.jobs.iter().filter_map(of).collect()
    }

    fn answer(&self, request: &Request) -> Answer {
        match request {
            Request::Jobs(query) => Answer::Jobs(self.jobs(query)),
            Request::Usage(ask) => Answer::Usage {
                list: self.jobs(&JobQuery::of(ask.steps.clone())),
                processes: Vec::new(),
            },
            Request::OverTime(named) => Answer::OverTime(self.over_time(named)),
            Request::Node => {
                let mut view = node(1);
                view.allocated = Tres { cpus: 2, mem_mb: 2148, gpus: 1, ..Tres::ZERO };
                view.host.gpus =
                    vec![Gpu { id: 0, model: Some("nvidia_h100".to_owned()), ..Gpu::default() }];
                if self.has_plans {
                    add_plans(&mut view);
                }
                Answer::Node(Box::new(view))
            }
            // Three of four CPUs for half of the past hour.
            Request::HostOverTime(from) => {
                let to = now().0 / 1000;
                let span = HostSpan {
                    from: to - 1_800_000,
                    to,
                    ms: 1_800_000,
                    cpus: 4,
                    ..HostSpan::default()
                };
                assert_eq!((now().0 - from.0) / 1_000_000, 3600);
                let spans = vec![HostSpan { cpu_us: 5_400_000_000, mem_mean_kb: 1 << 20, ..span }];
                Answer::HostOverTime {
                    now: now(),
                    spans: if self.has_host_use { spans } else { Vec::new() },
                }
            }
            other => panic!("asked {other:?}"),
        }
    }

    /// Answers until there are no more requests.
    fn serve(&mut self, screen: &mut Screen) {
        while let Some(request) = screen.next_request() {
            screen.update(Input::Answer(self.answer(&request)));
            self.asked.push(request);
            assert!(self.asked.len() < 100, "endless requests: {:?}", self.asked.last());
        }
    }

    fn notify(&mut self, screen: &mut Screen, changed: Changed) {
        self.asked.clear();
        screen.update(Input::Changed(changed));
        self.serve(screen);
    }
}

/// Adds an active and a future reservation, two licenses and a QOS.
fn add_plans(view: &mut NodeView) {
    let reservation = |number, name: &str, start, end| Reservation {
        number,
        name: name.to_owned(),
        start: at(start),
        end: Some(at(end)),
        users: vec!["lab".to_owned()],
        ..Reservation::default()
    };
    let parts = TresLimit { cpus: Some(1), ..TresLimit::default() };
    let demo = Reservation {
        share: Share::Parts(parts),
        licenses: Some("matlab:1".to_owned()),
        ..reservation(2, "demo", 600, -600)
    };
    let update =
        Reservation { flags: [Flag::Weekly].into(), ..reservation(1, "update", -1200, -4800) };
    view.reservations = [update, demo]
        .map(|reservation| ReservationView { reservation, ..ReservationView::default() })
        .to_vec();
    let license = |name: &str, used, total| LicenseUse { name: name.to_owned(), used, total };
    view.licenses = vec![license("ansys", 0, 1), license("matlab", 2, 3)];
    let qos = |name: &str, max_jobs| Qos { name: name.to_owned(), max_jobs, ..Qos::default() };
    view.qos = vec![qos("normal", None), qos("urgent", Some(2))];
}

/// A running array, a job with a GPU, jobs that wait for different reasons, and ended jobs.
fn mixed() -> Vec<JobView> {
    let spec = || {
        Some(ArraySpec { tasks: TaskSet::from_sorted(&(0..10).collect::<Vec<u32>>()), limit: None })
    };
    let array = |id| job(id, "sweep").asks(|r| r.array = spec());
    let done = |id, task| {
        array(id).task(20, task).ended(End::Completed, Reason::None, ExitCode::OK, 100, 40).build()
    };
    let failed = ExitCode { status: 3, signal: 0 };
    let mut jobs = vec![
        job(12, "train")
            .limit(3600)
            .with(|j| j.tres = Tres { cpus: 1, mem_mb: 2048, gpus: 1, ..Tres::ZERO })
            .running(1200)
            .with(|j| {
                j.run.alloc = Some(
                    Allocation { tres: j.tres, gpu_ids: vec![0], ..Allocation::default() }.into(),
                )
            })
            .with(|j| (j.std_out, j.std_err) = ("/w/out".to_owned(), "/w/err".to_owned()))
            .step(step(StepId::Batch, "batch", JobState::Running, ExitCode::OK, 1200, None))
            .build(),
        array(21).task(20, 2).limit(600).running(30).build(),
        array(22).task(20, 3).limit(600).running(20).build(),
        array(20).rest(&[4, 5, 6, 7, 8, 9], None).reason(Reason::Resources).build(),
        job(30, "wide")
            .with(|j| {
                j.run.system_comment =
                    Some("waits for 1 CPU; job 12 holds 1 CPU until 0:40:00".to_owned());
                j.expected_start = Some(now().plus_secs(2400));
            })
            .build(),
        job(31, "after\u{1b}[2J")
            .reason(Reason::Dependency)
            .with(|j| j.dependency = "afterok:30".to_owned())
            .build(),
        job(32, "held").reason(Reason::JobHeldUser).build(),
        job(9, "broken").ended(End::Failed, Reason::NonZeroExitCode, failed, 300, 200).build(),
        done(18, 0),
        done(19, 1),
    ];
    jobs[7].run.add_usage(Usage { max_rss_kb: 51_200, user_us: 50_000_000, ..Usage::default() });
    jobs
}

fn open(jobs: Vec<JobView>, size: (u16, u16)) -> (Daemon, Screen) {
    let mut daemon = Daemon { has_host_use: false, has_plans: false, jobs, asked: Vec::new() };
    let words =
        Words { signal: |signal| format!("signal {signal}"), user: |uid| format!("user {uid}") };
    let mut screen = Screen::new(ctx(), Theme { palette: Palette::None, ascii: true }, words, size);
    daemon.notify(&mut screen, Changed::everything());
    (daemon, screen)
}

fn text(screen: &Screen) -> String {
    let (columns, rows) = screen.size;
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| draw::draw(screen, frame.buffer_mut())).unwrap();
    let cells = terminal.backend().buffer();
    let line = |y: u16| (0..columns).map(|x| cells[(x, y)].symbol()).collect::<String>();
    (0..rows).map(|y| line(y).trim_end().to_owned() + "\n").collect()
}

#[test]
fn no_part_of_a_name_is_hidden() {
    let (_, mut screen) = open(vec![job(31, "evil\rgood\ta\nb").build()], (200, 24));
    let name = "evil\\015good\\011a\\012b";
    assert!(text(&screen).contains(name), "{}", text(&screen));
    press(&mut screen, "\t\n");
    assert!(text(&screen).starts_with(&format!("job 31 {name} ")), "{}", text(&screen));
}

#[test]
fn the_end_of_a_reservation_is_not_the_time_limit() {
    let exit = ExitCode::signal(9);
    let ended = job(7, "a").ended(End::Timeout, Reason::TimeLimit, exit, 300, 200);
    let ended = ended.with(|j| j.run.ended_reservation = Some("half".to_owned())).build();
    let (_, screen) = open(vec![ended], (200, 24));
    assert!(text(&screen).contains("reservation half ended after "), "{}", text(&screen));
}

fn press(screen: &mut Screen, keys: &str) -> Vec<Action> {
    let mut actions = Vec::new();
    for c in keys.chars() {
        let code = match c {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\u{1b}' => KeyCode::Esc,
            c => KeyCode::Char(c),
        };
        actions.extend(screen.update(Input::Key(KeyEvent::new(code, KeyModifiers::NONE))));
    }
    actions
}

fn is_recorded(name: &str, shown: &str) {
    expect_file![format!("{}/tests/recorded/top/{name}.txt", env!("CARGO_MANIFEST_DIR"))]
        .assert_eq(shown);
}

#[test]
fn a_mixed_queue_on_screens_of_several_widths() {
    for size in [(80, 24), (120, 30), (300, 40)] {
        let (mut daemon, mut screen) = open(mixed(), size);
        screen.update(Input::Tick { now: now(), cpus: Some(0.375) });
        daemon.serve(&mut screen);
        is_recorded(&format!("{}x{}", size.0, size.1), &text(&screen));
    }
}

#[test]
fn the_help_and_the_page_of_a_job() {
    let (mut daemon, mut screen) = open(mixed(), (80, 24));
    press(&mut screen, "?");
    is_recorded("help", &text(&screen));
    let logs = Action::OpenLogs { out: "/w/out".to_owned(), err: Some("/w/err".to_owned()) };
    assert_eq!(press(&mut screen, "x\n"), [logs]);
    let log = |path: &str, lines: &[&str]| Text {
        path: path.to_owned(),
        lines: lines.iter().map(|line| (*line).to_owned()).collect(),
        at: 50,
        size: 100,
        error: None,
        follows: true,
    };
    screen
        .update(Input::Log(Side::Out, log("/w/out", &["epoch 1", " 10%\r 50%", "\u{1b}[31mred"])));
    screen.update(Input::Log(Side::Err, log("/w/err", &["a warning"])));
    is_recorded("job", &text(&screen));
    daemon.serve(&mut screen);
    // The plots appear once the usage over time is known.
    is_recorded("use", &text(&screen));
    let down = Action::Log { side: Side::Out, to: Move::Lines(1) };
    let search =
        |back| Action::Log { side: Side::Err, to: Move::Search { text: "warn".to_owned(), back } };
    assert_eq!(press(&mut screen, "j\t/warn\nN"), [down, search(false), search(true)]);
    assert_eq!(press(&mut screen, "\u{1b}"), [Action::CloseLogs]);
}

#[test]
fn an_array_is_a_row_that_opens() {
    let (_, mut screen) = open(mixed(), (120, 30));
    assert!(text(&screen).contains("20 + sweep [2]"), "{}", text(&screen));
    assert!(text(&screen).contains("2/10 done"), "{}", text(&screen));
    press(&mut screen, "j\n");
    assert!(
        text(&screen).contains("20 - sweep [2]") && text(&screen).contains("20_3   sweep"),
        "{}",
        text(&screen)
    );
    press(&mut screen, "j\u{1b}");
    screen.update(Input::Key(KeyEvent::new(KeyCode::Left, KeyModifiers::NONE)));
    assert!(!text(&screen).contains("20_3"), "{}", text(&screen));
}

#[test]
fn lists_can_be_filtered_and_sorted() {
    let (_, mut screen) = open(mixed(), (80, 24));
    let rows = |screen: &Screen| screen.panes.each_ref().map(|pane| pane.len());
    assert_eq!(rows(&screen), [2, 4, 2]);
    press(&mut screen, "/WI");
    assert_eq!(rows(&screen), [0, 1, 0]);
    press(&mut screen, "\u{1b}");
    assert_eq!(rows(&screen), [2, 4, 2]);
    press(&mut screen, "\tsss");
    let names = |screen: &Screen| screen.panes[1].keys().collect::<Vec<_>>();
    assert_eq!(names(&screen).len(), 4);
    assert!(text(&screen).contains("PENDING 9  by user"), "{}", text(&screen));
}

#[test]
fn a_change_of_jobs_updates_the_host() {
    let (mut daemon, mut screen) = open(mixed(), (80, 24));
    daemon.jobs.retain(|job| job.id != JobId(32));
    daemon.notify(&mut screen, Changed::gone(JobId(32)));
    let is_node = |request: &&Request| matches!(request, Request::Node);
    assert_eq!(daemon.asked.iter().filter(is_node).count(), 1, "{:?}", daemon.asked);
}

#[test]
fn a_change_requests_only_the_changed_jobs() {
    let (mut daemon, mut screen) = open(mixed(), (80, 24));
    assert!(screen.next_request().is_none(), "everything is known");
    let ended = daemon.jobs.iter_mut().find(|job| job.id == JobId(12)).unwrap();
    (ended.run.state, ended.run.end) = (JobState::Ended(End::Completed), Some(at(1)));
    daemon.jobs.retain(|job| job.id != JobId(32));
    daemon.notify(
        &mut screen,
        Changed { jobs: [JobId(12), JobId(32)].into(), queue: true, ..Changed::default() },
    );
    assert_eq!(screen.picture.jobs[&JobId(12)].run.state, JobState::Ended(End::Completed));
    assert!(!screen.picture.jobs.contains_key(&JobId(32)));
    let whole =
        |request: &&Request| matches!(request, Request::Jobs(query) if query.jobs.is_empty());
    assert_eq!(daemon.asked.iter().filter(whole).count(), 0, "{:?}", daemon.asked);
    daemon.notify(&mut screen, Changed { node: true, ..Changed::default() });
    assert!(matches!(daemon.asked[..], [Request::Node]), "{:?}", daemon.asked);
}

#[test]
fn only_visible_jobs_of_a_long_queue_get_details() {
    let jobs = (1..=10_000).map(|id| job(id, "many").build()).collect();
    let (mut daemon, mut screen) = open(jobs, (80, 24));
    assert_eq!(screen.panes[1].len(), 10_000);
    for request in &daemon.asked {
        if let Request::Jobs(query) = request {
            assert!(
                query.brief && query.jobs.is_empty() || (1..=24).contains(&query.jobs.len()),
                "{query:?}"
            );
        }
    }
    // Keys and drawing compute no sort keys, and a change only those of the changed jobs.
    MADE.set(0);
    press(&mut screen, "\tGkkj");
    text(&screen);
    assert_eq!(MADE.get(), 0);
    daemon.jobs[5000].job.priority = u32::MAX;
    daemon.notify(
        &mut screen,
        Changed { jobs: [JobId(5001)].into(), queue: true, ..Changed::default() },
    );
    assert!((1..10).contains(&MADE.get()), "{}", MADE.get());
    let pending = |screen: &Screen| {
        let shown = text(screen);
        let rows = shown
            .lines()
            .filter_map(|line| line.trim_start_matches('>').trim().strip_prefix("PD "));
        let ids = rows.filter_map(|row| row.split_whitespace().next()?.parse().ok());
        ids.collect::<Vec<u32>>()
    };
    press(&mut screen, "g");
    assert_eq!(pending(&screen).first(), Some(&5001), "{}", text(&screen));
    press(&mut screen, "G");
    assert_eq!(pending(&screen).last(), Some(&10_000), "{}", text(&screen));
    assert!(!screen.ticks(), "nothing on it changes with time");
}

#[test]
fn thousands_of_arrays_cost_only_the_visible_rows() {
    let task = |id: u32| {
        job(id, "many").task(10_000 + id.div_ceil(3), id).reason(Reason::Resources).build()
    };
    let (_, mut screen) = open((1..=9000).map(task).collect(), (80, 24));
    assert_eq!(screen.panes[1].len(), 3000);
    MADE.set(0);
    press(&mut screen, "\tjj\nG");
    assert_eq!(screen.panes[1].len(), 3003, "one is open");
    assert!(text(&screen).contains("13000 + many [3]"), "{}", text(&screen));
    assert_eq!(MADE.get(), 0);
}

#[test]
fn a_refused_request_is_retried_at_the_next_event() {
    let (mut daemon, mut screen) = open(mixed(), (80, 24));
    screen.update(Input::Changed(Changed::gone(JobId(32))));
    daemon.jobs.retain(|job| job.id != JobId(32));
    let first = screen.next_request();
    screen.update(Input::Answer(Answer::Refused(Refusal::ShuttingDown)));
    assert!(text(&screen).contains(&Refusal::ShuttingDown.to_string()), "{}", text(&screen));
    assert!(screen.next_request().is_none(), "not immediately");
    press(&mut screen, "j");
    assert_eq!(format!("{:?}", screen.next_request()), format!("{first:?}"));
    screen.update(Input::Answer(daemon.answer(&first.expect("a request"))));
    daemon.serve(&mut screen);
    assert!(!screen.picture.jobs.contains_key(&JobId(32)));
}

#[test]
fn a_lost_daemon_is_reported_and_the_next_one_is_queried() {
    let (mut daemon, mut screen) = open(mixed(), (80, 24));
    screen.update(Input::Lost);
    assert!(text(&screen).contains("daemon unreachable") && screen.next_request().is_none());
    daemon.jobs.truncate(1);
    daemon.notify(&mut screen, Changed::everything());
    assert_eq!((screen.is_lost, screen.picture.jobs.len()), (false, 1));
}

proptest! {
    #[test]
    fn any_size_and_any_keys_are_drawn(columns in 0u16..310, rows in 0u16..60, keys in "[a-zA-Z/?* \t\n]{0,12}") {
        let (mut daemon, mut screen) = open(mixed(), (columns, rows));
        press(&mut screen, &keys);
        daemon.serve(&mut screen);
        text(&screen);
    }
}
