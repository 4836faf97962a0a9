//! The layout of a screen of the current size, shared by drawing, the mouse and scrolling.

use super::keys::{self, Line, Spot};
use super::page::Part;
use super::state::Screen;
use crate::live::Place;
use ratatui::layout::Rect;

/// The areas of the page with the lists.
#[derive(Debug, Clone, Copy, Default)]
pub struct Areas {
    pub title: Rect,
    pub host: Rect,
    /// The area of each list, including its heading.
    pub panes: [Rect; 3],
    /// The jobs of other clusters, with a heading. Empty if there are none.
    pub elsewhere: Rect,
    /// Why the selected job waits, or a message.
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

/// Maximum number of GPUs with a line of their own.
pub const MOST_GPUS: usize = 8;

/// Maximum number of lines of key hints. A screen lower than `LOW` has only one.
const MOST_FOOT: u16 = 3;
const LOW: u16 = 16;

/// The list of other clusters' jobs takes at most the height divided by this number.
const ELSEWHERE: u16 = 4;

/// The lines of the usage plots of a job.
const PLOTS: u16 = 2;

/// Additional lines for jobs with GPUs.
const GPU_PLOTS: u16 = 2;

impl Screen {
    pub fn areas(&self) -> Areas {
        let mut rest = Rect { x: 0, y: 0, width: self.size.0, height: self.size.1 };
        let title = cut(&mut rest, 1);
        let bottom = rest.height.min(1 + self.foot_lines(Spot::Lists));
        let mut foot = Rect { y: rest.y + rest.height - bottom, height: bottom, ..rest };
        rest.height -= bottom;
        let gpus = self.picture.node.as_ref().map_or(0, |node| node.host.gpus.len().min(MOST_GPUS));
        let host = cut(&mut rest, 2 + u16::try_from(gpus).unwrap_or(0));
        let wanted = match u16::try_from(self.elsewhere.len()).unwrap_or(u16::MAX) {
            0 => 0,
            lines => lines.saturating_add(1).min(rest.height / ELSEWHERE),
        };
        let heights = self.heights(rest.height - wanted);
        let panes = heights.map(|height| cut(&mut rest, height));
        let elsewhere = cut(&mut rest, wanted);
        Areas { title, host, panes, elsewhere, status: cut(&mut foot, 1), keys: foot }
    }

    /// Gives each list the lines that it needs, up to a third of the height, and the rest to the
    /// focused list first.
    fn heights(&self, all: u16) -> [u16; 3] {
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
        let at = Place::ALL.iter().position(|known| *known == place).unwrap_or(0);
        usize::from(self.areas().panes[at].height.saturating_sub(1))
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

    /// Returns the hints for the keys that apply here, one word each, wrapped to the width of the
    /// screen.
    pub fn foot(&self, spot: Spot) -> Vec<String> {
        let places = self.places();
        let is_of_use = |line: &&Line| match line.job_action() {
            Some(job_action) => places.iter().any(|place| job_action.is_for(*place)),
            None => !line.short.is_empty() && (!line.is_edit() || places.contains(&Place::Waiting)),
        };
        let mut lines: Vec<String> = Vec::new();
        for word in
            keys::lines(spot).filter(is_of_use).map(|line| format!("{} {}", line.name, line.short))
        {
            match lines.last_mut() {
                Some(last) if last.len() + 2 + word.len() <= usize::from(self.size.0) => {
                    last.push_str("  ");
                    last.push_str(&word);
                }
                _ => lines.push(word),
            }
        }
        lines
    }

    fn foot_lines(&self, spot: Spot) -> u16 {
        let most = if self.size.1 < LOW { 1 } else { MOST_FOOT };
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
