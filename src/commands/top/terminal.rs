//! The terminal while the program uses it: in raw mode, on the alternate screen, with mouse events.
//! It is always restored, except after SIGKILL.

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

fn set_up() -> io::Result<()> {
    // Another program may have changed the mode in the meantime, and crossterm enables raw mode
    // only if it is disabled.
    let _ = terminal::disable_raw_mode();
    terminal::enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen, EnableMouseCapture, Hide)
}

/// Restores the terminal. Ignores errors, which could not be reported.
fn restore() {
    let _ = execute!(io::stdout(), DisableMouseCapture, LeaveAlternateScreen, Show);
    let _ = terminal::disable_raw_mode();
}

impl Terminal {
    /// Sets up the terminal, and restores it before a panic message is printed.
    ///
    /// # Errors
    /// Fails if the terminal cannot be used.
    pub fn enter() -> io::Result<Terminal> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let report = std::panic::take_hook();
            // Before the message, so that it stays visible.
            std::panic::set_hook(Box::new(move |info| {
                restore();
                report(info);
            }));
        });
        set_up()?;
        Ok(Terminal { inner: ratatui::Terminal::new(CrosstermBackend::new(io::stdout()))? })
    }

    /// Returns the columns and rows.
    ///
    /// # Errors
    /// Fails if the terminal cannot be used.
    pub fn size(&self) -> io::Result<(u16, u16)> {
        terminal::size()
    }

    /// Draws the changes, which terminals that support it show at once. If the size differs from
    /// the layout of the screen, draws nothing and returns the actual size.
    ///
    /// # Errors
    /// Fails if the terminal cannot be used.
    pub fn draw(&mut self, screen: &Screen) -> io::Result<Option<(u16, u16)>> {
        execute!(io::stdout(), BeginSynchronizedUpdate)?;
        let frame = self.inner.draw(|frame| draw::draw(screen, frame.buffer_mut()))?;
        let size = (frame.area.width, frame.area.height);
        execute!(io::stdout(), EndSynchronizedUpdate)?;
        Ok((size != screen.size).then_some(size))
    }

    /// Returns the pending key, mouse and resize events.
    ///
    /// # Errors
    /// Fails if the terminal cannot be used.
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

    /// Restores the terminal temporarily.
    pub fn leave(&self) {
        restore();
    }

    /// Sets up the terminal again. The next draw is complete.
    ///
    /// # Errors
    /// Fails if the terminal cannot be used.
    pub fn back(&mut self) -> io::Result<()> {
        set_up()?;
        self.inner.clear()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
    }
}
