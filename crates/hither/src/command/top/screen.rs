//! The full screen of `hither top`: a text that is updated and that keys scroll.
//!
//! It uses the terminal's alternate screen and raw mode. Both are restored before the process ends,
//! whether by a key, a signal, an error or the end of the runs.

use std::io::{self, Stdout, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ratatui_core::layout::{Constraint, Layout};
use ratatui_core::style::Stylize;
use ratatui_core::terminal::{Frame, Terminal};
use ratatui_core::text::{Line, Text};
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::cursor::{Hide, Show};
use ratatui_crossterm::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui_crossterm::crossterm::execute;
use ratatui_crossterm::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::{flag, low_level};

/// The longest time until a signal is handled.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

const KEYS_HELP: &str = "q ends the watching; the arrow and page keys scroll";

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Show a new text.
    Refresh,
    /// Quit, since the user pressed a key.
    Quit,
    /// End by this signal.
    Signal(i32),
}

/// The terminal in raw mode with its alternate screen, until the value is dropped.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    /// The first line of the text that is shown.
    first_line: usize,
    /// The number of a signal that was received; 0 before.
    signal: Arc<AtomicUsize>,
}

impl Screen {
    /// Switches the terminal to the alternate screen and raw mode.
    pub(super) fn open() -> io::Result<Screen> {
        let signal = Arc::new(AtomicUsize::new(0));
        for number in [SIGHUP, SIGINT, SIGTERM] {
            flag::register_usize(number, Arc::clone(&signal), number as usize)?;
        }
        let screen = Screen {
            terminal: Terminal::new(CrosstermBackend::new(stdout()))?,
            first_line: 0,
            signal,
        };
        take_over()?;
        Ok(screen)
    }

    /// Shows the text and handles keys until the next update is due.
    pub(super) fn show(&mut self, text: &str, time: Duration) -> io::Result<Next> {
        let until = Instant::now() + time;
        loop {
            let mut first_line = self.first_line;
            self.terminal
                .draw(|frame| first_line = draw(frame, text, first_line))?;
            self.first_line = first_line;
            let left = until.saturating_duration_since(Instant::now());
            let signal = self.signal.load(Ordering::Relaxed);
            if signal > 0 {
                return Ok(Next::Signal(signal as i32));
            }
            if left.is_zero() {
                return Ok(Next::Refresh);
            }
            if event::poll(left.min(POLL_INTERVAL))?
                && let Event::Key(key) = event::read()?
                && let Some(next) = self.on_key(key)?
            {
                return Ok(next);
            }
        }
    }

    fn on_key(&mut self, key: KeyEvent) -> io::Result<Option<Next>> {
        let page = usize::from(self.terminal.size()?.height)
            .saturating_sub(2)
            .max(1);
        let ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if ctrl => return Ok(Some(Next::Signal(SIGINT))),
            KeyCode::Char('\\') if ctrl => return Ok(Some(Next::Signal(SIGQUIT))),
            KeyCode::Char('z') if ctrl => self.suspend()?,
            KeyCode::Char('q') | KeyCode::Esc => return Ok(Some(Next::Quit)),
            KeyCode::Up | KeyCode::Char('k') => {
                self.first_line = self.first_line.saturating_sub(1);
            }
            KeyCode::Down | KeyCode::Char('j') => self.first_line += 1,
            KeyCode::PageUp => self.first_line = self.first_line.saturating_sub(page),
            KeyCode::PageDown | KeyCode::Char(' ') => self.first_line += page,
            KeyCode::Home => self.first_line = 0,
            KeyCode::End => self.first_line = usize::MAX / 2,
            _ => {}
        }
        Ok(None)
    }

    /// Stops this process, as Ctrl-Z does in a terminal that is not raw.
    fn suspend(&mut self) -> io::Result<()> {
        give_back();
        low_level::raise(SIGTSTP)?;
        take_over()?;
        self.terminal.clear()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn take_over() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, Hide)
}

/// Errors are ignored: the terminal may be gone.
fn give_back() {
    let _ = execute!(stdout(), Show, LeaveAlternateScreen);
    let _ = disable_raw_mode();
}

/// Draws what fits of the text, from this line or an earlier one on, so that none of the screen
/// stays empty while there is more. Returns the first line.
fn draw(frame: &mut Frame<'_>, text: &str, first_line: usize) -> usize {
    let rows = Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]);
    let [body, foot] = rows.areas(frame.area());
    let mut opens_paragraph = true;
    let lines = text.lines().map(|line| {
        let heads = std::mem::replace(&mut opens_paragraph, line.is_empty());
        if heads {
            Line::from(line).bold()
        } else {
            Line::from(line)
        }
    });
    let lines: Vec<Line<'_>> = lines.collect();
    let last_start = lines.len().saturating_sub(body.height.into());
    let first_line = first_line.min(last_start);
    let shown = lines.into_iter().skip(first_line);
    frame.render_widget(Text::from_iter(shown), body);
    frame.render_widget(Line::from(KEYS_HELP).dim(), foot);
    first_line
}

#[cfg(test)]
mod tests {
    use ratatui_core::backend::TestBackend;

    use super::*;

    #[test]
    fn what_does_not_fit_is_scrolled_to() {
        let text = "head\n  1\n  2\n\n  head\n  3, which is wider than the screen\n";
        let drawn = |first_line| {
            let mut terminal = Terminal::new(TestBackend::new(20, 4)).expect("no terminal fails");
            let mut first = 0;
            let frame = terminal.draw(|frame| first = draw(frame, text, first_line));
            frame.expect("drawn");
            (first, format!("{}", terminal.backend()))
        };
        let (first, top) = drawn(0);
        assert_eq!(first, 0);
        assert!(top.starts_with("\"head                \"\n\"  1 "), "{top}");
        assert!(top.ends_with("\"q ends the watching;\"\n"), "{top}");
        let (first, bottom) = drawn(usize::MAX);
        assert_eq!(first, 3);
        assert!(
            bottom.contains("\"  3, which is wider \"\n\"q ends"),
            "{bottom}"
        );
    }
}
