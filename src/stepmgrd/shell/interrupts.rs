//! Merges the SIGINTs received by the manager and by the launcher.
//!
//! The manager and its parent, the launcher, share a process group. Ctrl-C or a signal to the group
//! reaches both; a signal to one process reaches only that one. The launcher forwards its
//! interrupts.

use std::collections::HashMap;

/// The process that received an interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Manager,
    Launcher,
}

/// For each sender (0: the terminal), how many more interrupts the manager received than the
/// launcher.
#[derive(Debug, Default)]
pub struct Interrupts(HashMap<u32, i64>);

impl Interrupts {
    /// Returns whether this interrupt is new, and not one that the other process already received.
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
    fn interrupt_received_by_both_counts_once() {
        let mut interrupts = Interrupts::default();
        for order in [[By::Manager, By::Launcher], [By::Launcher, By::Manager]] {
            assert_eq!(order.map(|by| interrupts.is_new(0, by)), [true, false]);
        }
        for by in [By::Launcher, By::Manager] {
            assert!(
                [7, 8, 9]
                    .into_iter()
                    .all(|sender| interrupts.is_new(sender + 10 * u32::from(by == By::Manager), by))
            );
        }
        assert!(
            interrupts.is_new(19, By::Manager) && interrupts.is_new(9, By::Launcher),
            "a second one, received by the other process"
        );
    }
}
