//! The layout of a screen of the current size, shared by drawing, the mouse and scrolling.

use super::keys::{self, Command, Line, Spot};
use super::page::Part;
use super::plans;
use super::state::{Screen, Typing};
use crate::live::Place;
use ratatui::layout::Rect;

/// The areas of the page with the lists.
#[derive(Debug, Clone, Copy, Default)]
pub struct Areas {
    pub title: Rect,
    pub host: Rect,
    /// The names of the lists, if only the focused one fits.
    pub tabs: Rect,
    /// Reservations, licenses and QOS.
    pub plans: Rect,
    /// The area of each list, including its heading. A list that is not shown has no lines.
    pub panes: [Rect; 3],
    /// The jobs of other clusters, with a heading. Empty if there are none.
    pub elsewhere: Rect,
    pub filter: Rect,
    /// A sentence about the selected job, or a message.
    pub status: Rect,
    pub keys: Rect,
}

/// Takes this many lines from the top.
fn cut(rest: &mut Rect, lines: u16) -> Rect {
    let lines = lines.min(rest.height);
    let taken = Rect { height: lines, ..*rest };
    rest.y += lines;
    rest.height -= lines;
    taken
}

/// Maximum number of GPUs that are shown.
pub const MOST_GPUS: usize = 8;

/// Maximum number of lines of key hints. A screen lower than `LOW` has only one, and shows one list
/// at a time.
const MOST_FOOT: u16 = 2;
const LOW: u16 = 16;

/// Below this width, the parts of the host are below each other.
const NARROW: u16 = 72;

/// The width from which the host has four columns, and the height from which it has two lines for
/// each part, and lists are separated.
const WIDE: u16 = 190;
const HIGH: u16 = 36;

/// The list of other clusters' jobs, and the plans, take at most the height divided by this number.
const ELSEWHERE: u16 = 4;
const PLANS: u16 = 10;

/// The lines of the usage plots of a job.
const PLOTS: u16 = 2;

/// Additional lines for jobs with GPUs.
const GPU_PLOTS: u16 = 2;

impl Screen {
    pub fn areas(&self) -> Areas {
        let is_low = self.is_low();
        let mut rest = Rect { x: 0, y: 0, width: self.size.0, height: self.size.1 };
        let title = cut(&mut rest, 1);
        let has_filter = !self.filter.is_empty() || matches!(self.typing, Some(Typing::Filter));
        let filter = u16::from(has_filter);
        let bottom = rest.height.min(1 + filter + self.foot_lines(Spot::Lists));
        let mut foot = Rect { y: rest.y + rest.height - bottom, height: bottom, ..rest };
        rest.height -= bottom;
        let filter = cut(&mut foot, filter);
        let (columns, lines) = self.host_grid();
        let rows = self.host_parts().div_ceil(columns.max(1)) as u16;
        let host = cut(&mut rest, rows * lines);
        let tabs = cut(&mut rest, u16::from(is_low));
        let wanted = u16::try_from(plans::wanted(self)).unwrap_or(u16::MAX);
        let plans = cut(&mut rest, if is_low { 0 } else { wanted.min(self.size.1 / PLANS) });
        let gap = self.gap();
        cut(&mut rest, gap);
        let wanted = match u16::try_from(self.elsewhere.len()).unwrap_or(u16::MAX) {
            0 => 0,
            lines => lines.saturating_add(1).min(rest.height / ELSEWHERE),
        };
        let heights = self.heights(rest.height.saturating_sub(wanted + 2 * gap));
        let panes = heights.map(|height| {
            let pane = cut(&mut rest, height);
            let below = gap.min(rest.height.saturating_sub(wanted));
            cut(&mut rest, below);
            pane
        });
        let elsewhere = cut(&mut rest, wanted);
        let status = cut(&mut foot, 1);
        Areas { title, host, tabs, plans, panes, elsewhere, filter, status, keys: foot }
    }

    /// Returns whether only one list is shown at a time.
    fn is_low(&self) -> bool {
        self.size.1 < LOW
    }

    /// Returns the number of empty lines between two lists.
    fn gap(&self) -> u16 {
        u16::from(self.size.1 >= HIGH)
    }

    /// Returns the number of parts of the host: CPUs, memory, and each GPU.
    fn host_parts(&self) -> usize {
        let gpus = self.picture.node.as_ref().map(|node| node.host.gpus.len().min(MOST_GPUS));
        if self.is_low() { 0 } else { gpus.map_or(2, |gpus| 2 + gpus) }
    }

    /// Returns the number of columns of the host, and of the lines of each part.
    pub fn host_grid(&self) -> (usize, u16) {
        let columns = match self.size.0 {
            0..NARROW => 1,
            NARROW..WIDE => 2,
            WIDE.. => 4,
        };
        (columns, 1 + self.gap())
    }

    /// Returns the area and the text of each list's tab. Without tabs, the areas are empty.
    pub fn tabs(&self) -> [(Rect, String); 3] {
        let mut rest = self.areas().tabs;
        self.panes.each_ref().map(|pane| {
            let text = format!(" {} {} ", pane.name(), pane.count);
            let at = Rect { width: rest.width.min(text.len() as u16), ..rest };
            (rest.x, rest.width) = (at.x + at.width, rest.width - at.width);
            (at, text)
        })
    }

    /// Gives each list the lines that it needs, up to a third of the height, and the rest to the
    /// focused list first. On a low screen the focused list gets all.
    fn heights(&self, all: u16) -> [u16; 3] {
        if self.is_low() {
            return [0, 1, 2].map(|i| if i == self.focus { all } else { 0 });
        }
        let need = |i: usize| u16::try_from(self.panes[i].len() + 1).unwrap_or(u16::MAX).max(2);
        let mut heights = [0, 1, 2].map(|i| need(i).min(all / 3));
        let mut left = all.saturating_sub(heights.iter().sum());
        for i in [self.focus, 0, 1, 2] {
            let more = left.min(need(i) - heights[i].min(need(i)));
            heights[i] += more;
            left -= more;
        }
        heights[2] += left;
        heights
    }

    /// Returns how many rows of this list fit on the screen.
    pub fn lines(&self, place: Place) -> usize {
        let heading = u16::from(!self.is_low());
        usize::from(self.areas().panes[place as usize].height.saturating_sub(heading))
    }

    /// Returns the areas of the page of a job: details and outputs, each with a heading.
    pub fn parts(&self) -> [Rect; 3] {
        self.page_areas().0
    }

    /// Returns the area of the usage plots, below the details.
    pub fn plots(&self) -> Rect {
        self.page_areas().1
    }

    /// Returns the bottom lines of the page of a job.
    pub fn page_foot(&self) -> Rect {
        let height = self.foot_lines(Spot::Page).min(self.size.1);
        Rect { x: 0, y: self.size.1 - height, width: self.size.0, height }
    }

    /// Returns the hints for the keys that apply here, each a key and a word, in the lines that fit
    /// the width of the screen. The help and the way back are always among them.
    pub fn foot(&self, spot: Spot) -> Vec<Vec<(&'static str, &'static str)>> {
        let places = self.places();
        let is_of_use = |line: &&Line| match line.keys {
            [(_, Command::Do(action)), ..] => places.iter().any(|place| action.is_for(*place)),
            [(_, Command::Edit), ..] => places.contains(&Place::Waiting),
            [(_, Command::Undo), ..] => self.undo.is_some(),
            _ => !line.short.is_empty(),
        };
        let all: Vec<(&str, &str)> =
            keys::lines(spot).filter(is_of_use).map(|line| (line.name, line.short)).collect();
        let width = |hint: &(&str, &str)| hint.0.chars().count() + hint.1.chars().count() + 3;
        // On a low screen, the help names the other keys.
        let (always, others) = all.split_at(all.len().min(if self.is_low() { 1 } else { 2 }));
        let mut others = others.to_vec();
        if self.is_low() {
            others.sort_by_key(|(name, _)| !matches!(*name, "Enter" | "/" | "c"));
        }
        let needed: usize = always.iter().map(width).sum();
        let mut lines = vec![Vec::new()];
        let mut used = 0;
        for hint in others {
            let is_last = lines.len() >= usize::from(self.most_foot());
            let needed = if is_last { needed } else { 0 };
            if used + width(&hint) + needed > usize::from(self.size.0) + 2 {
                if is_last {
                    break;
                }
                lines.push(Vec::new());
                used = 0;
            }
            used += width(&hint);
            lines.last_mut().into_iter().for_each(|line| line.push(hint));
        }
        if used + needed > usize::from(self.size.0) + 2 {
            lines.push(Vec::new());
        }
        lines.last_mut().into_iter().for_each(|line| line.extend(always));
        lines
    }

    fn most_foot(&self) -> u16 {
        if self.is_low() { 1 } else { MOST_FOOT }
    }

    fn foot_lines(&self, spot: Spot) -> u16 {
        let most = self.most_foot();
        u16::try_from(self.foot(spot).len()).unwrap_or(most).min(most)
    }

    fn page_areas(&self) -> ([Rect; 3], Rect) {
        let none = Rect::default();
        let Some(page) = &self.page else { return ([none; 3], none) };
        let edges = 1 + self.foot_lines(Spot::Page);
        let mut rest =
            Rect { x: 0, y: 1, width: self.size.0, height: self.size.1.saturating_sub(edges) };
        if page.zoom {
            let mut parts = [none; 3];
            parts[page.part.index()] = rest;
            return (parts, none);
        }
        let height = (rest.height * 2 / 5).min(16);
        let series = self.picture.series(page.job);
        let wanted =
            if series.iter().any(|one| one.series.has_gpus()) { PLOTS + GPU_PLOTS } else { PLOTS };
        let lines = if series.is_empty() { 0 } else { wanted.min(height / 3) };
        let details = cut(&mut rest, height - lines);
        let plots = cut(&mut rest, lines);
        if page.has_one_output() {
            return ([details, rest, none], plots);
        }
        let half = rest.width / 2;
        let out = Rect { width: half, ..rest };
        let err = Rect { x: half, width: rest.width - half, ..rest };
        ([details, out, err], plots)
    }

    /// Returns how many lines of this part fit on the screen.
    pub fn part_lines(&self, part: Part) -> usize {
        usize::from(self.parts()[part.index()].height.saturating_sub(1))
    }
}
