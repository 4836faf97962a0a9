//! The screen: its state, and how keys, answers and time change it.

use super::elsewhere::Line;
use super::keys::{self, Command, Spot};
use super::log::{Move, Text};
use super::order::Sort;
use super::page::{Page, Side};
use super::pane::{Key, Pane};
use super::sheet::Sheet;
use super::theme::Theme;
use crate::live::{InView, Link, Picture, Place, Touched};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseEvent};
use slotd_model::changed::Changed;
use slotd_model::{JobId, JobRef, Timestamp};
use slotd_protocol::answer::Answer;
use slotd_protocol::request::Request;
use slotd_render::Ctx;
use std::collections::BTreeSet;

/// The events that change the screen.
#[derive(Debug)]
pub enum Input {
    Key(KeyEvent),
    Mouse(MouseEvent),
    Size(u16, u16),
    /// The daemon's clock, while a job runs, and the share of the CPUs in use since the last tick,
    /// from 0 to 1.
    Tick {
        now: Timestamp,
        cpus: Option<f64>,
    },
    Changed(Changed),
    Answer(Answer),
    /// The result of an action.
    Message(String),
    Log(Side, Text),
    /// The progress of a search, bytes.
    Searching {
        done: u64,
        of: u64,
    },
    /// The end of a search, with an explanation if nothing was found. A hit is already shown.
    Searched(Option<String>),
    /// The connection to the daemon was lost.
    Lost,
    /// The jobs of other clusters.
    Elsewhere(Vec<Line>),
}

/// The actions that the event loop carries out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Quit,
    /// Stop until the shell resumes the process.
    Suspend,
    /// Send this request and report the result.
    Do {
        what: JobAction,
        jobs: Vec<JobRef>,
    },
    /// Open this job in the user's editor.
    Edit(JobRef),
    OpenLogs {
        out: String,
        err: Option<String>,
    },
    CloseLogs,
    Log {
        side: Side,
        to: Move,
    },
    StopSearch,
    /// The visible part of the outputs has a new size.
    Redraw,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobAction {
    Cancel,
    Hold,
    Release,
    Top,
    Requeue,
    /// Submit the job again.
    Retry,
}

/// Above this number of changes, rebuilding the lists is as fast as applying them one by one.
const FEW: usize = 256;

/// A line that is being typed.
#[derive(Debug)]
pub enum Typing {
    Filter,
    Search(String),
}

/// A confirmation before an action that cannot be undone.
#[derive(Debug)]
pub struct Question {
    pub text: String,
    pub(super) action: Action,
}

/// Names that only the host can look up.
#[derive(Debug, Clone, Copy)]
pub struct Words {
    pub signal: fn(i32) -> String,
    pub user: fn(u32) -> String,
}

pub struct Screen {
    pub picture: Picture,
    pub link: Link,
    pub panes: [Pane; 3],
    /// The jobs of other clusters.
    pub elsewhere: Vec<Line>,
    /// The focused list.
    pub focus: usize,
    pub marks: BTreeSet<Key>,
    pub filter: String,
    pub typing: Option<Typing>,
    pub question: Option<Question>,
    /// The page of text that covers the screen.
    pub sheet: Option<Sheet>,
    /// The action that undoes the last one.
    pub undo: Option<Action>,
    pub page: Option<Page>,
    pub message: Option<String>,
    pub is_lost: bool,
    pub size: (u16, u16),
    pub theme: Theme,
    pub words: Words,
    /// The share of the CPUs in use by any process, known while a job runs.
    pub cpu_share: Option<f64>,
    ctx: Ctx,
}

impl Screen {
    pub fn new(ctx: Ctx, theme: Theme, words: Words, size: (u16, u16)) -> Screen {
        Screen {
            picture: Picture::default(),
            link: Link::default(),
            panes: Place::ALL.map(Pane::new),
            elsewhere: Vec::new(),
            focus: 0,
            marks: BTreeSet::new(),
            filter: String::new(),
            typing: None,
            question: None,
            sheet: None,
            undo: None,
            page: None,
            message: None,
            is_lost: false,
            size,
            theme,
            words,
            cpu_share: None,
            ctx,
        }
    }

    /// Returns the rendering context at the time of the last answer or tick.
    pub fn ctx(&self) -> Ctx {
        self.ctx.clone()
    }

    pub fn now(&self) -> Timestamp {
        self.ctx.now
    }

    /// Returns whether anything on the screen changes with time.
    pub fn ticks(&self) -> bool {
        !self.is_lost && self.picture.running().next().is_some()
    }

    /// Returns the next request to the daemon.
    pub fn next_request(&mut self) -> Option<Request> {
        if self.is_lost {
            return None;
        }
        let in_view = self.in_view();
        self.link.next(&self.picture, &in_view)
    }

    pub fn update(&mut self, input: Input) -> Vec<Action> {
        let actions = match input {
            Input::Key(event) if event.modifiers.contains(KeyModifiers::ALT) => {
                // Esc followed at once by a key arrives as Alt with that key. Alt has no meaning of
                // its own here, so handle both keys.
                let mut actions = self.key(KeyCode::Esc.into());
                let modifiers = event.modifiers - KeyModifiers::ALT;
                actions.extend(self.key(KeyEvent { modifiers, ..event }));
                actions
            }
            Input::Key(event) => self.key(event),
            Input::Mouse(event) => self.mouse(event),
            Input::Size(columns, rows) => {
                self.size = (columns, rows);
                vec![Action::Redraw]
            }
            Input::Tick { now, cpus } => {
                self.ctx.now = now;
                self.cpu_share = cpus;
                self.link.tick();
                Vec::new()
            }
            Input::Changed(changed) => {
                self.is_lost = false;
                self.link.changed(&changed);
                Vec::new()
            }
            Input::Answer(answer) => {
                if let Answer::Refused(why) = &answer {
                    self.message = Some(why.to_string());
                }
                self.answer(answer);
                self.open_logs()
            }
            Input::Message(text) => {
                self.message = Some(text);
                Vec::new()
            }
            Input::Log(side, text) => {
                if let Some(page) = &mut self.page {
                    page.logs[side as usize] = text;
                }
                Vec::new()
            }
            Input::Searching { done, of } => {
                self.searching(Some((done, of)));
                Vec::new()
            }
            Input::Searched(why_not) => {
                self.searching(None);
                self.message = why_not.or(self.message.take());
                Vec::new()
            }
            Input::Elsewhere(lines) => {
                self.elsewhere = lines;
                Vec::new()
            }
            Input::Lost => {
                self.is_lost = true;
                self.link.lost();
                Vec::new()
            }
        };
        self.cpu_share = self.cpu_share.filter(|_| self.ticks());
        self.scroll();
        actions
    }

    fn answer(&mut self, answer: Answer) {
        match &answer {
            Answer::Jobs(list) | Answer::SomeJobs(list) => self.ctx.now = list.now,
            Answer::Node(node) => self.ctx.now = node.now,
            _ => {}
        }
        self.link.answer(&mut self.picture, answer);
        match self.picture.touched() {
            Touched::Records(touched) if touched.is_empty() => {}
            Touched::Records(touched) if touched.len() <= FEW => {
                for pane in &mut self.panes {
                    pane.change(&self.picture, &self.filter, &touched);
                }
                self.forget_marks();
            }
            Touched::Records(_) | Touched::All => {
                self.fill();
                self.forget_marks();
            }
        }
    }

    /// Rebuilds all rows.
    fn fill(&mut self) {
        for pane in &mut self.panes {
            pane.fill(&self.picture, &self.filter);
        }
    }

    /// Removes the marks of jobs that no longer exist.
    fn forget_marks(&mut self) {
        let picture = &self.picture;
        self.marks.retain(|key| match key {
            Key::Job(id) => picture.jobs.contains_key(id),
            Key::Array(array) => picture.first_of(*array).is_some(),
        });
    }

    fn scroll(&mut self) {
        for i in 0..self.panes.len() {
            let lines = self.lines(self.panes[i].place);
            self.panes[i].scroll(lines);
        }
    }

    fn in_view(&self) -> InView {
        if let Some(page) = &self.page {
            let job = Some(page.job);
            return InView { visible: vec![page.job], chosen: job, page: job, host: false };
        }
        let of_key = |pane: &Pane, key: Key| match key {
            Key::Job(id) => Some(id),
            Key::Array(array) => pane.group(array)?.first(),
        };
        let shown = |pane: &Pane| {
            let rows = pane.shown(self.lines(pane.place));
            rows.filter_map(|row| of_key(pane, row.key)).collect::<Vec<_>>()
        };
        let pane = &self.panes[self.focus];
        let chosen = pane.selected().and_then(|key| of_key(pane, key));
        InView {
            visible: self.panes.iter().flat_map(shown).collect(),
            chosen,
            page: None,
            host: true,
        }
    }

    fn key(&mut self, event: KeyEvent) -> Vec<Action> {
        self.message = None;
        self.link.allow_retry();
        match keys::always(event) {
            Some(Command::Quit) => return vec![Action::Quit],
            Some(Command::Suspend) => return vec![Action::Suspend],
            _ => {}
        }
        if self.sheet.is_some() {
            self.sheet_key(event);
            return Vec::new();
        }
        if let Some(question) = self.question.take() {
            return match event.code {
                KeyCode::Char('y' | 'Y') => vec![question.action],
                _ => Vec::new(),
            };
        }
        if self.typing.is_some() {
            return self.typed(event);
        }
        if self.page.is_some() {
            return self.page_key(event);
        }
        self.list_key(event)
    }

    fn list_key(&mut self, event: KeyEvent) -> Vec<Action> {
        let Some(command) = keys::command(Spot::Lists, event) else { return Vec::new() };
        let lines =
            isize::try_from(self.lines(self.panes[self.focus].place)).unwrap_or(1).max(2) - 1;
        let pane = &mut self.panes[self.focus];
        match command {
            Command::Up => pane.step(-1),
            Command::Down => pane.step(1),
            Command::PageUp => pane.step(-lines),
            Command::PageDown => pane.step(lines),
            Command::First => pane.at = 0,
            Command::Last => pane.step(isize::MAX),
            Command::NextPane => self.focus = (self.focus + 1) % self.panes.len(),
            Command::PreviousPane => {
                self.focus = (self.focus + self.panes.len() - 1) % self.panes.len()
            }
            Command::Open => return self.open(),
            Command::Toggle => {
                pane.toggle();
            }
            Command::Mark => self.mark(),
            Command::MarkAll => self.mark_all(),
            Command::Filter => self.typing = Some(Typing::Filter),
            Command::Sort => {
                let sort = pane.sort.next();
                self.sort(self.focus, sort);
            }
            Command::Back if self.filter.is_empty() => self.marks.clear(),
            Command::Back => {
                self.filter.clear();
                self.fill();
            }
            other => return self.common(other),
        }
        Vec::new()
    }

    /// Runs a command that has the same meaning on every page.
    pub(super) fn common(&mut self, command: Command) -> Vec<Action> {
        match command {
            Command::Help => self.sheet = Some(Sheet::Help(0)),
            Command::Plans => self.sheet = Some(Sheet::Plans(0)),
            Command::Undo => return self.undo.take().into_iter().collect(),
            Command::Quit => return vec![Action::Quit],
            Command::Do(job_action) => return self.job_action(job_action),
            Command::Edit => return self.edit(),
            _ => {}
        }
        Vec::new()
    }

    /// Sorts a list.
    pub(super) fn sort(&mut self, at: usize, sort: Sort) {
        let pane = &mut self.panes[at];
        pane.sort = sort;
        pane.fill(&self.picture, &self.filter);
        self.message = Some(format!("{} by {}", pane.name().to_lowercase(), sort.name()));
    }

    pub(super) fn open(&mut self) -> Vec<Action> {
        match self.panes[self.focus].selected() {
            Some(Key::Job(id)) => {
                self.page = Some(Page::of(id));
                self.open_logs()
            }
            Some(Key::Array(_)) => {
                self.panes[self.focus].toggle();
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    fn typed(&mut self, event: KeyEvent) -> Vec<Action> {
        let Some(typing) = &mut self.typing else { return Vec::new() };
        let text = match typing {
            Typing::Filter => &mut self.filter,
            Typing::Search(text) => text,
        };
        let code = event.code;
        match code {
            KeyCode::Char('u') if event.modifiers.contains(KeyModifiers::CONTROL) => text.clear(),
            KeyCode::Char(_) if event.modifiers.contains(KeyModifiers::CONTROL) => {}
            KeyCode::Char(c) => text.push(c),
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Enter | KeyCode::Esc => {
                if code == KeyCode::Esc {
                    text.clear();
                }
                if let Some(Typing::Search(text)) = self.typing.take() {
                    return self.search(text);
                }
            }
            _ => {}
        }
        if !matches!(self.typing, Some(Typing::Search(_))) {
            self.fill();
        }
        Vec::new()
    }

    fn search(&mut self, text: String) -> Vec<Action> {
        let Some(page) = &mut self.page else { return Vec::new() };
        page.wanted.clone_from(&text);
        if text.is_empty() { Vec::new() } else { self.move_log(Move::Search { text, back: false }) }
    }

    /// Returns the selected job.
    pub fn chosen(&self) -> Option<JobId> {
        self.in_view().chosen
    }
}
