//! The columns of the lists. All lists have the same columns, so that they line up.

use super::log::escaped;
use super::order::Sort;
use super::pane::{Key, Pane, Row};
use super::state::Screen;
use crate::live::Place;
use crate::live::picture::label;
use ratatui::text::Span;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    State,
    Id,
    Name,
    User,
    Partition,
    Cpus,
    Memory,
    Gpus,
    /// The end of a running job, the start of a pending one.
    When,
    /// The progress of a running job, why a pending one waits, how one ended.
    Last,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    pub field: Field,
    pub x: u16,
    pub width: u16,
}

impl Field {
    /// Returns the heading. The name of the list is above the state, ID and name.
    pub fn heading(self, place: Place, is_wide: bool) -> &'static str {
        match (self, place) {
            (Field::State | Field::Id | Field::Name, _) => "",
            (Field::User, _) => "USER",
            (Field::Partition, _) => "PARTITION",
            (Field::Cpus, _) => "CPUS",
            (Field::Memory, _) => "MEM",
            (Field::Gpus, _) => "GPU",
            (Field::When, Place::Running) => "ENDS",
            (Field::When, Place::Waiting) => "STARTS",
            (Field::When, Place::Ended) => "AT",
            (Field::Last, Place::Running) if is_wide => "TIME",
            (Field::Last, Place::Running) => "OF LIMIT",
            (Field::Last, Place::Waiting) => "WAITS FOR",
            (Field::Last, Place::Ended) => "HOW",
        }
    }

    pub fn is_right(self) -> bool {
        matches!(self, Field::Id | Field::Cpus | Field::Memory | Field::Gpus | Field::When)
    }

    /// Returns the order that a click on the heading selects.
    pub fn sort(self) -> Sort {
        match self {
            Field::State | Field::When | Field::Last | Field::Partition => Sort::Queue,
            Field::Id => Sort::Number,
            Field::Name => Sort::Name,
            Field::User => Sort::User,
            Field::Cpus => Sort::Cpus,
            Field::Memory => Sort::Memory,
            Field::Gpus => Sort::Gpus,
        }
    }
}

/// The width of the screen from which texts are written out.
const WIDE: u16 = 100;

/// The widths of the screen from which these columns are shown.
const WITH_ID: u16 = 56;
const WITH_MEMORY: u16 = 72;
const WITH_OWNER: u16 = 160;

/// The bounds of the width of IDs.
const ID: (usize, usize) = (4, 12);

/// The width of names grows in steps, so that the columns stay in place while the list scrolls.
const NAME_STEP: usize = 8;

impl Screen {
    /// Returns whether there is space to write texts out.
    pub fn is_wide(&self) -> bool {
        self.size.0 >= WIDE
    }

    /// Returns the columns that fit the width. Names get the width that they need, and reasons the
    /// rest.
    pub fn columns(&self) -> Vec<Column> {
        let width = self.size.0;
        let (id, name) = self.longest();
        let fixed = [
            (Field::State, 3, 0),
            (Field::Id, id.clamp(ID.0, ID.1) as u16, WITH_ID),
            (Field::Name, 0, 0),
            (Field::User, 8, WITH_OWNER),
            (Field::Partition, 9, WITH_OWNER),
            (Field::Cpus, 7, WITH_ID),
            (Field::Memory, 8, WITH_MEMORY),
            (Field::Gpus, 4, WITH_MEMORY),
            (Field::When, 6, 0),
            (Field::Last, 0, 0),
        ];
        let shown: Vec<(Field, u16)> = fixed
            .into_iter()
            .filter(|(_, _, least)| width >= *least)
            .map(|(field, width, _)| (field, width))
            .collect();
        // A column for the marks, and one between two columns.
        let taken: u16 = shown.iter().map(|(_, width)| width + 1).sum();
        let rest = width.saturating_sub(taken);
        let least = if width < WITH_ID { rest / 3 } else { (rest * 2 / 5).clamp(14, 64) };
        let name = u16::try_from(name.next_multiple_of(NAME_STEP)).unwrap_or(u16::MAX);
        let name = name.max(12).min(rest.saturating_sub(least));
        let mut x = 1;
        let mut columns = Vec::new();
        for (field, fixed) in shown {
            let width = match field {
                Field::Name => name,
                Field::Last => rest - name,
                _ => fixed,
            };
            columns.push(Column { field, x, width });
            x += width + 1;
        }
        columns
    }

    /// Returns the width of the longest visible ID and name.
    fn longest(&self) -> (usize, usize) {
        let rows = self
            .panes
            .iter()
            .flat_map(|pane| pane.shown(self.lines(pane.place)).map(move |row| (pane, row)));
        rows.fold((0, 0), |(id, name), (pane, row)| {
            let (this_id, this_name) = (self.id_of(row), self.name_of(pane, row));
            (id.max(this_id.len()), name.max(Span::raw(this_name).width()))
        })
    }

    pub fn id_of(&self, row: Row) -> String {
        match row.key {
            Key::Job(id) => self.picture.jobs.get(&id).map(|job| label(job)).unwrap_or_default(),
            Key::Array(array) => array.to_string(),
        }
    }

    /// Returns the name as it is shown. An array has a sign, which says whether it is open, and its
    /// number of tasks.
    pub fn name_of(&self, pane: &Pane, row: Row) -> String {
        let name = |id| {
            self.picture.jobs.get(&id).map(|job| escaped(&job.request.name)).unwrap_or_default()
        };
        match row.key {
            Key::Job(id) if row.is_inner => format!("  {}", name(id)),
            Key::Job(id) => name(id),
            Key::Array(array) => {
                let Some(group) = pane.group(array) else { return String::new() };
                let sign = if pane.is_open(array) { "-" } else { "+" };
                let name = group.first().map(name).unwrap_or_default();
                format!("{sign} {name} [{}]", group.tasks)
            }
        }
    }
}
