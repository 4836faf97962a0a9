//! The page of one job: its details, and its outputs side by side.

use super::keys::{self, Command, Spot};
use super::log::{Move, Text};
use super::state::{Action, Screen, Typing};
use crossterm::event::KeyEvent;
use slotd_model::JobId;
use slotd_render::show;
use slotd_render::why::{self, Names};

/// The parts of the page. Keys apply to one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Part {
    Details,
    #[default]
    Out,
    Err,
}

impl Part {
    pub const ALL: [Part; 3] = [Part::Details, Part::Out, Part::Err];

    pub fn index(self) -> usize {
        self as usize
    }
}

/// An output of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Out,
    Err,
}

impl Side {
    pub const ALL: [Side; 2] = [Side::Out, Side::Err];

    pub fn part(self) -> Part {
        match self {
            Side::Out => Part::Out,
            Side::Err => Part::Err,
        }
    }
}

#[derive(Debug, Default)]
pub struct Page {
    pub job: JobId,
    pub part: Part,
    /// The first visible line of the details.
    pub top: usize,
    /// The first visible column of the outputs.
    pub left: usize,
    pub zoom: bool,
    pub logs: [Text; 2],
    /// The paths of both outputs, once they are known.
    pub paths: Option<[String; 2]>,
    /// The text of the last search.
    pub wanted: String,
    /// The number of bytes searched, and the length of the search.
    pub searching: Option<(u64, u64)>,
}

impl Page {
    pub fn of(job: JobId) -> Page {
        Page { job, ..Page::default() }
    }

    pub fn has_one_output(&self) -> bool {
        self.paths.as_ref().is_none_or(|[out, err]| out == err || err.is_empty())
    }

    fn side(&self) -> Option<Side> {
        match self.part {
            Part::Details => None,
            Part::Out => Some(Side::Out),
            Part::Err => Some(Side::Err),
        }
    }

    fn next_part(&mut self) {
        self.part = match self.part {
            Part::Details => Part::Out,
            Part::Out if !self.has_one_output() => Part::Err,
            Part::Out | Part::Err => Part::Details,
        };
    }

    fn previous_part(&mut self) {
        self.part = match self.part {
            Part::Details if !self.has_one_output() => Part::Err,
            Part::Details | Part::Err => Part::Out,
            Part::Out => Part::Details,
        };
    }
}

/// The number of columns by which the left and right keys scroll.
const COLUMNS: usize = 8;

impl Screen {
    pub(super) fn page_key(&mut self, event: KeyEvent) -> Vec<Action> {
        let Some(command) = keys::command(Spot::Page, event) else { return Vec::new() };
        let Some(page) = &mut self.page else { return Vec::new() };
        let lines =
            |screen: &Screen, part| i64::try_from(screen.part_lines(part)).unwrap_or(1).max(2) - 1;
        match command {
            Command::Back | Command::Quit if page.searching.is_some() => {
                return vec![Action::StopSearch];
            }
            Command::Back | Command::Quit if page.zoom => {
                page.zoom = false;
                return vec![Action::Redraw];
            }
            Command::Back | Command::Quit => {
                self.page = None;
                return vec![Action::CloseLogs];
            }
            Command::NextPane => page.next_part(),
            Command::PreviousPane => page.previous_part(),
            Command::Zoom => {
                page.zoom = !page.zoom;
                return vec![Action::Redraw];
            }
            Command::Left => page.left = page.left.saturating_sub(COLUMNS),
            Command::Right => page.left += COLUMNS,
            Command::Search => self.typing = Some(Typing::Search(String::new())),
            Command::Next | Command::Previous => {
                let text = page.wanted.clone();
                return self.move_log(Move::Search { text, back: command == Command::Previous });
            }
            Command::Follow => return self.move_log(Move::Follow),
            Command::Up => return self.move_page(-1),
            Command::Down => return self.move_page(1),
            Command::PageUp => return self.move_page(-lines(self, self.part())),
            Command::PageDown => return self.move_page(lines(self, self.part())),
            Command::First => return self.jump(Move::Start),
            Command::Last => return self.jump(Move::End),
            other => return self.common(other),
        }
        Vec::new()
    }

    /// Sets the progress of a search; `None` if no search is running.
    pub(super) fn searching(&mut self, far: Option<(u64, u64)>) {
        if let Some(page) = &mut self.page {
            page.searching = far;
        }
    }

    fn part(&self) -> Part {
        self.page.as_ref().map(|page| page.part).unwrap_or_default()
    }

    fn move_page(&mut self, by: i64) -> Vec<Action> {
        let most =
            self.details_text().lines().count().saturating_sub(self.part_lines(Part::Details));
        let Some(page) = &mut self.page else { return Vec::new() };
        if page.part == Part::Details {
            page.top = page.top.saturating_add_signed(isize::try_from(by).unwrap_or(0)).min(most);
            return Vec::new();
        }
        self.move_log(Move::Lines(by))
    }

    fn jump(&mut self, to: Move) -> Vec<Action> {
        match self.part() {
            Part::Details => self.move_page(if to == Move::Start {
                i64::from(i32::MIN)
            } else {
                i64::from(i32::MAX)
            }),
            Part::Out | Part::Err => self.move_log(to),
        }
    }

    pub(super) fn move_log(&mut self, to: Move) -> Vec<Action> {
        let side = self.page.as_ref().and_then(Page::side);
        side.map(|side| Action::Log { side, to }).into_iter().collect()
    }

    /// Returns the details of the job: the explanation of `slotd why`, followed by the output of
    /// `scontrol show job`.
    pub fn details_text(&self) -> String {
        let Some(page) = &self.page else { return String::new() };
        let Some(job) = self.picture.details.get(&page.job) else { return "...".to_owned() };
        let names = Names {
            signal: &self.words.signal,
            user: &self.words.user,
            memory_is_enforced: &|| true,
        };
        let why = why::print(job, None, &self.ctx(), &names);
        format!("{why}\n{}", show::jobs(std::slice::from_ref(job), false, true, &self.ctx()))
    }

    /// Opens the outputs of the job on the page once their paths are known.
    pub(super) fn open_logs(&mut self) -> Vec<Action> {
        let Some(page) = &mut self.page else { return Vec::new() };
        let Some(job) = self.picture.details.get(&page.job) else { return Vec::new() };
        let paths = [job.std_out.clone(), job.std_err.clone()];
        if job.std_out.is_empty() || page.paths.as_ref() == Some(&paths) {
            return Vec::new();
        }
        page.paths = Some(paths.clone());
        let one = page.has_one_output();
        let [out, err] = paths;
        vec![Action::OpenLogs { out, err: (!one).then_some(err) }]
    }
}

impl Screen {
    pub(super) fn mouse_on_page(&mut self, part: Option<usize>, by: isize) -> Vec<Action> {
        let (Some(page), Some(part)) = (&mut self.page, part.and_then(|i| Part::ALL.get(i))) else {
            return Vec::new();
        };
        page.part = *part;
        if by == 0 { Vec::new() } else { self.move_page(by as i64) }
    }
}
