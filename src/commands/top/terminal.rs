//! The terminal while the program has it: raw, on its second screen, with the mouse. It is given
//! back as it was whatever ends the program, but for SIGKILL.

use crate::tui::{Input, Screen, draw};
use crossterm::cursor::{Hide, Show};
use crossterm::event::{DisableMouseCapture, EnableMouseCapture, Event, KeyEventKind};
use crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
};
use crossterm::{event, execute, terminal};
use ratatui::backend::CrosstermBackend;
use std::io::{self, Stdout};
use std::sync::Once;
use std::time::Duration;

pub struct Terminal {
    inner: ratatui::Terminal<CrosstermBackend<Stdout>>,
}

fn take() -> io::Result<()> {
    // Whoever had the terminal meanwhile has set it as he pleased, and raw mode is set once only.
    let _ = terminal::disable_raw_mode();
    terminal::enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen, EnableMouseCapture, Hide)
}

/// As it was. What fails is left: there is nobody to be told.
fn give_back() {
    let _ = execute!(io::stdout(), DisableMouseCapture, LeaveAlternateScreen, Show);
    let _ = terminal::disable_raw_mode();
}

impl Terminal {
    /// # Errors
    /// What the terminal says.
    pub fn enter() -> io::Result<Terminal> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let tell = std::panic::take_hook();
            // Before the message, which is to be read.
            std::panic::set_hook(Box::new(move |info| {
                give_back();
                tell(info);
            }));
        });
        take()?;
        Ok(Terminal { inner: ratatui::Terminal::new(CrosstermBackend::new(io::stdout()))? })
    }

    /// Columns and rows.
    ///
    /// # Errors
    /// What the terminal says.
    pub fn size(&self) -> io::Result<(u16, u16)> {
        terminal::size()
    }

    /// Writes what is another than before, which a terminal that can shows at once. Its size, where
    /// it is not the one that the screen is laid out for, and nothing was drawn.
    ///
    /// # Errors
    /// What the terminal says.
    pub fn draw(&mut self, screen: &Screen) -> io::Result<Option<(u16, u16)>> {
        execute!(io::stdout(), BeginSynchronizedUpdate)?;
        let frame = self.inner.draw(|frame| draw::draw(screen, frame.buffer_mut()))?;
        let size = (frame.area.width, frame.area.height);
        execute!(io::stdout(), EndSynchronizedUpdate)?;
        Ok((size != screen.size).then_some(size))
    }

    /// The keys and the mouse, as far as they have come in.
    ///
    /// # Errors
    /// What the terminal says.
    pub fn events(&self) -> io::Result<Vec<Input>> {
        let mut inputs = Vec::new();
        while event::poll(Duration::ZERO)? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    inputs.push(Input::Key(key))
                }
                Event::Mouse(mouse) => inputs.push(Input::Mouse(mouse)),
                Event::Resize(columns, rows) => inputs.push(Input::Size(columns, rows)),
                _ => {}
            }
        }
        Ok(inputs)
    }

    /// Gives it back for a while.
    pub fn leave(&self) {
        give_back();
    }

    /// Takes it again, and draws all anew.
    ///
    /// # Errors
    /// What the terminal says.
    pub fn back(&mut self) -> io::Result<()> {
        take()?;
        self.inner.clear()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        give_back();
    }
}
