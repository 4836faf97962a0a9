//! The screen: what it knows, and what each key, answer and moment does to it.

use super::keys::{self, Spot, Word};
use super::link::{Link, Looks};
use super::log::{Move, Text};
use super::page::{Page, Side};
use super::pane::{Key, Pane};
use super::picture::{Picture, Place, Touched};
use crate::model::changed::Changed;
use crate::model::{JobId, JobRef, Timestamp};
use crate::protocol::answer::Answer;
use crate::protocol::request::Request;
use crate::render::Ctx;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use std::collections::BTreeSet;

/// What comes in.
#[derive(Debug)]
pub enum Input {
    Key(KeyEvent),
    Mouse(MouseEvent),
    Size(u16, u16),
    /// The daemon's clock, while something runs, and which part of the CPUs worked since the last
    /// time, from 0 to 1.
    Tick {
        now: Timestamp,
        cpus: Option<f64>,
    },
    Changed(Changed),
    Answer(Answer),
    /// What became of an action.
    Told(String),
    Log(Side, Text),
    /// How far a search is, bytes.
    Searching {
        done: u64,
        of: u64,
    },
    /// A search is over: where it has found something is shown already, or why it has not.
    Searched(Option<String>),
    /// The daemon is gone.
    Lost,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Quit,
    /// Stop until the shell lets it go on.
    Suspend,
    /// Ask for this, and tell what came of it.
    Do {
        what: JobAction,
        jobs: Vec<JobRef>,
    },
    /// Leave the screen to the user's editor, with this job in it.
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
    /// What is in sight of the outputs has another size.
    Redraw,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobAction {
    Cancel,
    Hold,
    Release,
    Top,
    Requeue,
    /// Submit it again.
    Retry,
}

impl JobAction {
    /// Whether it has a meaning for jobs in this list.
    pub fn is_for(self, place: Place) -> bool {
        match self {
            JobAction::Cancel => place != Place::Ended,
            JobAction::Hold | JobAction::Release | JobAction::Top => place == Place::Waiting,
            JobAction::Requeue => place == Place::Running,
            JobAction::Retry => place == Place::Ended,
        }
    }
}

/// No more changes than this are taken one by one: lists are made anew as fast.
const FEW: usize = 256;

/// A line that is being typed.
#[derive(Debug)]
pub enum Typing {
    Filter,
    Search(String),
}

/// What is asked before something is done that cannot be taken back.
#[derive(Debug)]
pub struct Question {
    pub text: String,
    action: Action,
}

/// How it looks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Theme {
    pub colour: bool,
    /// Bars are made of letters that every terminal has.
    pub ascii: bool,
}

/// What only the host can tell.
#[derive(Debug, Clone, Copy)]
pub struct Words {
    pub signal: fn(i32) -> String,
    pub user: fn(u32) -> String,
}

pub struct Screen {
    pub picture: Picture,
    pub link: Link,
    pub panes: [Pane; 3],
    /// The list that keys are for.
    pub focus: usize,
    pub marks: BTreeSet<Key>,
    pub filter: String,
    pub typing: Option<Typing>,
    pub question: Option<Question>,
    pub help: bool,
    pub page: Option<Page>,
    pub message: Option<String>,
    pub is_lost: bool,
    pub size: (u16, u16),
    pub theme: Theme,
    pub words: Words,
    /// Which part of the CPUs works now, whoever uses them: known while something runs.
    pub cpu_share: Option<f64>,
    ctx: Ctx,
}

impl Screen {
    pub fn new(ctx: Ctx, theme: Theme, words: Words, size: (u16, u16)) -> Screen {
        Screen {
            picture: Picture::default(),
            link: Link::default(),
            panes: Place::ALL.map(Pane::new),
            focus: 0,
            marks: BTreeSet::new(),
            filter: String::new(),
            typing: None,
            question: None,
            help: false,
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

    /// The surroundings, at the moment of the last answer or tick.
    pub fn ctx(&self) -> Ctx {
        self.ctx.clone()
    }

    pub fn now(&self) -> Timestamp {
        self.ctx.now
    }

    /// Whether something on the screen changes with time.
    pub fn ticks(&self) -> bool {
        !self.is_lost && self.picture.running().next().is_some()
    }

    /// The next question to the daemon.
    pub fn next_request(&mut self) -> Option<Request> {
        if self.is_lost {
            return None;
        }
        let looks = self.looks();
        self.link.next(&self.picture, &looks)
    }

    pub fn update(&mut self, input: Input) -> Vec<Action> {
        let actions = match input {
            Input::Key(event) if event.modifiers.contains(KeyModifiers::ALT) => {
                // Esc and another key that came together are not to be told from it, and it has no
                // meaning of its own.
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
            Input::Told(text) => {
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

    /// Makes the rows anew.
    fn fill(&mut self) {
        for pane in &mut self.panes {
            pane.fill(&self.picture, &self.filter);
        }
    }

    /// What is no more is not marked.
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

    fn looks(&self) -> Looks {
        if let Some(page) = &self.page {
            return Looks { visible: vec![page.job], chosen: Some(page.job), page: Some(page.job) };
        }
        let of_row = |key: Key| match key {
            Key::Job(id) => Some(id),
            Key::Array(array) => self.picture.first_of(array),
        };
        let visible = self.panes.iter().flat_map(|pane| pane.shown(self.lines(pane.place)));
        let chosen = match self.panes[self.focus].selected() {
            Some(Key::Job(id)) => Some(id),
            Some(Key::Array(_)) | None => None,
        };
        Looks { visible: visible.filter_map(|row| of_row(row.key)).collect(), chosen, page: None }
    }

    fn key(&mut self, event: KeyEvent) -> Vec<Action> {
        self.message = None;
        self.link.go_on();
        match keys::always(event) {
            Some(Word::Quit) => return vec![Action::Quit],
            Some(Word::Suspend) => return vec![Action::Suspend],
            _ => {}
        }
        if self.help {
            self.help = false;
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
        let Some(word) = keys::word(Spot::Lists, event) else { return Vec::new() };
        let lines =
            isize::try_from(self.lines(self.panes[self.focus].place)).unwrap_or(1).max(2) - 1;
        let pane = &mut self.panes[self.focus];
        match word {
            Word::Up => pane.step(-1),
            Word::Down => pane.step(1),
            Word::PageUp => pane.step(-lines),
            Word::PageDown => pane.step(lines),
            Word::First => pane.at = 0,
            Word::Last => pane.step(isize::MAX),
            Word::NextPane => self.focus = (self.focus + 1) % self.panes.len(),
            Word::PreviousPane => {
                self.focus = (self.focus + self.panes.len() - 1) % self.panes.len()
            }
            Word::Open => return self.open(),
            Word::Toggle => {
                pane.toggle();
            }
            Word::Mark => self.mark(),
            Word::MarkAll => self.mark_all(),
            Word::Filter => self.typing = Some(Typing::Filter),
            Word::Sort => {
                pane.sort = pane.sort.next();
                pane.fill(&self.picture, &self.filter);
            }
            Word::Back => {
                self.filter.clear();
                self.marks.clear();
                self.fill();
            }
            other => return self.common(other),
        }
        Vec::new()
    }

    /// Keys that mean the same everywhere.
    pub(super) fn common(&mut self, word: Word) -> Vec<Action> {
        match word {
            Word::Help => self.help = true,
            Word::Quit => return vec![Action::Quit],
            Word::Do(job_action @ (JobAction::Cancel | JobAction::Requeue)) => self.ask(job_action),
            // One that was meant is easily many by mistake.
            Word::Do(JobAction::Retry) if self.targets().len() > 1 => self.ask(JobAction::Retry),
            Word::Do(job_action) => return self.job_action(job_action),
            Word::Edit => return self.edit(),
            _ => {}
        }
        Vec::new()
    }

    fn open(&mut self) -> Vec<Action> {
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

    /// Before what cannot be taken back.
    fn ask(&mut self, what: JobAction) {
        let jobs = self.targets();
        if jobs.is_empty() {
            return;
        }
        let whom = match &jobs[..] {
            [one] => format!("job {one}"),
            many => format!("{} jobs", many.len()),
        };
        let text = match what {
            JobAction::Requeue => format!("End {whom} and put it back into the queue? (y/n)"),
            JobAction::Retry => format!("Submit {whom} again? (y/n)"),
            JobAction::Cancel | JobAction::Hold | JobAction::Release | JobAction::Top => {
                format!("Cancel {whom}? (y/n)")
            }
        };
        self.question = Some(Question { text, action: Action::Do { what, jobs } });
    }

    fn job_action(&mut self, what: JobAction) -> Vec<Action> {
        let jobs = self.targets();
        if jobs.is_empty() { Vec::new() } else { vec![Action::Do { what, jobs }] }
    }

    /// One job in the user's editor.
    fn edit(&mut self) -> Vec<Action> {
        match &self.targets()[..] {
            [] => {}
            [one] if self.places().contains(&Place::Waiting) => {
                return vec![Action::Edit(one.clone())];
            }
            [one] => {
                self.message =
                    Some(format!("job {one} does not wait: only what waits can be edited"))
            }
            [..] => {
                self.message =
                    Some("one job is edited at a time: Esc takes the marks away".to_owned())
            }
        }
        Vec::new()
    }

    /// The lists in which those are that an action is about.
    pub fn places(&self) -> BTreeSet<Place> {
        let of = |id: &JobId| self.picture.jobs.get(id).map(|job| Place::of(job.run.state));
        match &self.page {
            Some(page) => of(&page.job).into_iter().collect(),
            None if self.marks.is_empty() => BTreeSet::from([self.panes[self.focus].place]),
            None => {
                let of_mark = |key: &Key| match key {
                    Key::Job(id) => of(id).into_iter().collect::<Vec<_>>(),
                    // Its tasks may be anywhere.
                    Key::Array(_) => Place::ALL.to_vec(),
                };
                self.marks.iter().flat_map(of_mark).collect()
            }
        }
    }

    /// Whom an action is about: the job of the page, those that are marked, or the chosen row.
    fn targets(&self) -> Vec<JobRef> {
        let keys: Vec<Key> = match &self.page {
            Some(page) => vec![Key::Job(page.job)],
            None if !self.marks.is_empty() => self.marks.iter().copied().collect(),
            None => self.panes[self.focus].selected().into_iter().collect(),
        };
        let of = |key: Key| match key {
            Key::Job(id) => super::picture::named(&self.picture, id),
            Key::Array(array) => JobRef::job(array),
        };
        keys.into_iter().map(of).collect()
    }

    fn mark(&mut self) {
        let pane = &mut self.panes[self.focus];
        if let Some(key) = pane.selected() {
            if !self.marks.remove(&key) {
                self.marks.insert(key);
            }
            pane.step(1);
        }
    }

    fn mark_all(&mut self) {
        let all: BTreeSet<Key> = self.panes[self.focus].keys().collect();
        if all.is_subset(&self.marks) {
            self.marks.retain(|key| !all.contains(key));
        } else {
            self.marks.extend(all);
        }
    }

    fn mouse(&mut self, event: MouseEvent) -> Vec<Action> {
        let by = match event.kind {
            MouseEventKind::ScrollUp => -3,
            MouseEventKind::ScrollDown => 3,
            MouseEventKind::Down(MouseButton::Left) => 0,
            _ => return Vec::new(),
        };
        if self.help || self.question.is_some() {
            return Vec::new();
        }
        let is_in = |area: &ratatui::layout::Rect| area.contains((event.column, event.row).into());
        if self.page.is_some() {
            let part = self.parts().iter().position(is_in);
            return self.mouse_on_page(part, by);
        }
        let areas = self.areas();
        let Some(i) = areas.panes.iter().position(is_in) else { return Vec::new() };
        self.focus = i;
        let pane = &mut self.panes[i];
        if by != 0 {
            pane.step(by);
            return Vec::new();
        }
        let line = event.row.saturating_sub(areas.panes[i].y);
        let at = pane.top + usize::from(line).saturating_sub(1);
        if line == 0 || at >= pane.len() {
            return Vec::new();
        }
        // A second click on the same row opens it.
        if std::mem::replace(&mut pane.at, at) == at { self.open() } else { Vec::new() }
    }

    /// The job that is looked at alone.
    pub fn chosen(&self) -> Option<JobId> {
        self.looks().chosen
    }
}
