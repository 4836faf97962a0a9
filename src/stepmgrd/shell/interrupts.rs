//! SIGINT that one or two processes hear of.
//!
//! The manager and the launcher, its parent, are in one process group: Ctrl-C and whoever signals
//! the group tell both, and whoever signals a process tells one of them. The launcher passes on
//! what it hears.

use std::collections::HashMap;

/// Who of the two heard of an interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Manager,
    Launcher,
}

/// What was heard from each sender (0: the terminal): how many times more often by the manager than
/// by the launcher.
#[derive(Debug, Default)]
pub struct Interrupts(HashMap<u32, i64>);

impl Interrupts {
    /// Whether this one is news, and not what the other of the two has told before.
    pub fn is_new(&mut self, sender: u32, by: By) -> bool {
        let ahead = self.0.entry(sender).or_default();
        match by {
            By::Manager => {
                *ahead += 1;
                *ahead > 0
            }
            By::Launcher => {
                *ahead -= 1;
                *ahead < 0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_that_both_hear_of_counts_once_in_whatever_order() {
        let mut heard = Interrupts::default();
        for order in [[By::Manager, By::Launcher], [By::Launcher, By::Manager]] {
            assert_eq!(order.map(|by| heard.is_new(0, by)), [true, false]);
        }
        for by in [By::Launcher, By::Manager] {
            assert!(
                [7, 8, 9]
                    .into_iter()
                    .all(|sender| heard.is_new(sender + 10 * u32::from(by == By::Manager), by))
            );
        }
        assert!(
            heard.is_new(19, By::Manager) && heard.is_new(9, By::Launcher),
            "a second one from each"
        );
    }
}
