//! Where everything is on a screen of this size: the same for drawing, for the mouse and for
//! scrolling.

use super::keys::{self, Line, Spot};
use super::page::Part;
use super::picture::Place;
use super::state::Screen;
use ratatui::layout::Rect;

/// The lists.
#[derive(Debug, Clone, Copy, Default)]
pub struct Areas {
    pub title: Rect,
    pub host: Rect,
    /// Of each list, with its heading.
    pub panes: [Rect; 3],
    /// What the chosen job waits for, or a message.
    pub status: Rect,
    pub keys: Rect,
}

/// Takes so many lines from the top.
fn cut(rest: &mut Rect, lines: u16) -> Rect {
    let lines = lines.min(rest.height);
    let taken = Rect { height: lines, ..*rest };
    rest.y += lines;
    rest.height -= lines;
    taken
}

/// GPUs that have a line of their own at most.
pub const MOST_GPUS: usize = 8;

/// Lines of keys at most, and the height of a screen below which there is one.
const MOST_FOOT: u16 = 3;
const LOW: u16 = 16;

/// Lines of what a job used over time.
const PLOTS: u16 = 2;

/// As many again where there are GPUs.
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
        let heights = self.heights(rest.height);
        let panes = heights.map(|height| cut(&mut rest, height));
        Areas { title, host, panes, status: cut(&mut foot, 1), keys: foot }
    }

    /// Each list has what it needs up to a third, and the one that keys are for what the others
    /// leave.
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

    /// How many rows of this list are in sight.
    pub fn lines(&self, place: Place) -> usize {
        let at = Place::ALL.iter().position(|known| *known == place).unwrap_or(0);
        usize::from(self.areas().panes[at].height.saturating_sub(1))
    }

    /// The parts of the page of a job: its details and its outputs, each with a heading.
    pub fn parts(&self) -> [Rect; 3] {
        self.page_areas().0
    }

    /// On that page, below the details: what the job used over time.
    pub fn plots(&self) -> Rect {
        self.page_areas().1
    }

    /// The lowest lines of the page.
    pub fn page_foot(&self) -> Rect {
        let height = self.foot_lines(Spot::Page).min(self.size.1);
        Rect { x: 0, y: self.size.1 - height, width: self.size.0, height }
    }

    /// What the keys do that have a meaning here, in a word each, on as many lines as that takes.
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

    /// How many lines of this part are in sight.
    pub fn part_lines(&self, part: Part) -> usize {
        usize::from(self.parts()[part.index()].height.saturating_sub(1))
    }
}
