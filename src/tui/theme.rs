//! The colours and characters of the screen.
//!
//! Colours mean states and nothing else. Each state also has a letter, so the screen can be read
//! without colours.

use ratatui::style::{Color, Modifier, Style};
use slotd_model::view::JobView;
use slotd_model::{JobState, Outcome, Reason};
use slotd_render::job::is_held;

/// The colours that the screen may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Palette {
    /// Only weight, underlines and reversed cells.
    None,
    /// The 16 colours of the terminal, which the user chose to fit its background.
    #[default]
    Terminal,
    /// 256 colours on a dark background.
    Dark,
    /// 256 colours on a light background.
    Light,
}

/// The brightness of the terminal's background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Background {
    Dark,
    Light,
}

impl Background {
    /// Reads `COLORFGBG`, whose last field is the number of the background colour: `15;0`,
    /// `0;default;15`. Returns `None` if it is not a number below 16.
    pub fn of(variable: &str) -> Option<Background> {
        match variable.rsplit(';').next()?.parse().ok()? {
            0u8..=6 | 8 => Some(Background::Dark),
            7 | 9..=15 => Some(Background::Light),
            _ => None,
        }
    }
}

impl Palette {
    /// `has_256`: the terminal has 256 colours. Without a known background, only its own 16 colours
    /// are sure to be readable.
    pub fn of(has_256: bool, background: Option<Background>) -> Palette {
        match background.filter(|_| has_256) {
            Some(Background::Dark) => Palette::Dark,
            Some(Background::Light) => Palette::Light,
            None => Palette::Terminal,
        }
    }
}

/// The appearance of the screen.
#[derive(Debug, Clone, Copy, Default)]
pub struct Theme {
    pub palette: Palette,
    /// Whether bars consist of characters that every terminal has.
    pub ascii: bool,
}

/// The meaning of a coloured text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ink {
    Running,
    Pending,
    Completed,
    Failed,
    /// Held, cancelled, or of less importance.
    Off,
}

impl Ink {
    const fn of_16(self) -> Option<Color> {
        match self {
            Ink::Running => Some(Color::LightBlue),
            Ink::Pending => Some(Color::Yellow),
            Ink::Completed => Some(Color::Green),
            Ink::Failed => Some(Color::LightRed),
            Ink::Off => None,
        }
    }

    /// Returns the colours for a dark and a light background.
    const fn of_256(self) -> (u8, u8) {
        match self {
            Ink::Running => (111, 26),
            Ink::Pending => (179, 94),
            Ink::Completed => (78, 28),
            Ink::Failed => (210, 160),
            Ink::Off => (247, 241),
        }
    }
}

impl Theme {
    pub fn ink(self, ink: Ink) -> Style {
        let (dark, light) = ink.of_256();
        match (self.palette, ink.of_16()) {
            (Palette::Dark, _) => Style::new().fg(Color::Indexed(dark)),
            (Palette::Light, _) => Style::new().fg(Color::Indexed(light)),
            (Palette::Terminal, Some(colour)) => Style::new().fg(colour),
            (Palette::None | Palette::Terminal, _) if ink == Ink::Off => {
                Style::new().add_modifier(Modifier::DIM)
            }
            (Palette::None | Palette::Terminal, _) => Style::new(),
        }
    }

    pub fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub fn weak(self) -> Style {
        self.ink(Ink::Off)
    }

    /// Text that the user must not miss.
    pub fn alarm(self) -> Style {
        self.ink(Ink::Failed).add_modifier(Modifier::BOLD)
    }

    /// The line above a list.
    pub fn heading(self) -> Style {
        match self.palette {
            Palette::Dark => Style::new().bg(Color::Indexed(235)),
            Palette::Light => Style::new().bg(Color::Indexed(254)),
            Palette::None | Palette::Terminal => Style::new().add_modifier(Modifier::UNDERLINED),
        }
    }

    /// The selected row, or the focused part of a page.
    pub fn chosen(self) -> Style {
        match self.palette {
            Palette::Dark => Style::new().bg(Color::Indexed(238)),
            Palette::Light => Style::new().bg(Color::Indexed(252)),
            Palette::None | Palette::Terminal => Style::new().add_modifier(Modifier::REVERSED),
        }
    }

    /// The characters of used, allocated and free cells of a bar.
    pub fn bar(self) -> [&'static str; 3] {
        if self.ascii { ["#", "=", "."] } else { ["━", "┅", "─"] }
    }

    /// The end of a text that was cut.
    pub fn cut(self) -> &'static str {
        if self.ascii { "+" } else { "…" }
    }
}

/// Returns the letters of a job's state and their colour.
pub fn badge(job: &JobView) -> (&'static str, Ink) {
    let state = job.run.state;
    match state {
        JobState::Pending if is_held(job) => ("H", Ink::Off),
        JobState::Pending if job.run.reason == Reason::DependencyNeverSatisfied => {
            ("!", Ink::Failed)
        }
        JobState::Pending | JobState::Suspended => (state.code(), Ink::Pending),
        JobState::Running | JobState::Completing => (state.code(), Ink::Running),
        JobState::Ended(end) => {
            let ink = match end.outcome() {
                Outcome::Success => Ink::Completed,
                Outcome::Failure => Ink::Failed,
                Outcome::Cancelled => Ink::Off,
            };
            (end.code(), ink)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_background_decides_the_palette() {
        for (variable, palette) in [
            ("15;0", Palette::Dark),
            ("0;default;15", Palette::Light),
            ("0;7", Palette::Light),
            ("7;8", Palette::Dark),
            ("15;default", Palette::Terminal),
            ("", Palette::Terminal),
            ("0;999", Palette::Terminal),
        ] {
            let background = Background::of(variable);
            assert_eq!(Palette::of(true, background), palette, "{variable:?}");
            assert_eq!(Palette::of(false, background), Palette::Terminal, "{variable:?}");
        }
    }
}
