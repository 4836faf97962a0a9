//! Tables on a terminal fit its width and have coloured states. Other outputs have neither.

use super::{queue, squeue};
use slotd_kit::tmux::Tmux;

fn captured(terminal: &Tmux, options: &[&str]) -> String {
    let words = [&["capture-pane", "-p"], options].concat();
    String::from_utf8(terminal.run(&words).stdout).expect("text")
}

#[test]
fn table_fits_the_terminal_and_has_coloured_states() {
    let (slotd, [_, pending, _]) = queue();
    let name = "n".repeat(100);
    slotd
        .cmd("scontrol", &["update", &format!("JobId={pending}"), &format!("JobName={name}")])
        .ok();
    let commands = "squeue; squeue -l; sinfo -N; squeue | cat; NO_COLOR=1 squeue -h -j 1; echo the end; exec sleep 1000";
    let Some(terminal) = Tmux::start(&slotd, &format!("exec sh -c '{commands}'")) else { return };
    terminal.shows("the end");
    let lines: Vec<String> = captured(&terminal, &["-J"]).lines().map(str::to_owned).collect();
    let columns = 100;
    let cut = lines.iter().find(|line| line.contains("nnn+")).expect("a truncated name");
    assert!(cut.contains("(Resources)") && cut.chars().count() <= columns, "{cut:?}");
    let whole = lines.iter().filter(|line| line.contains(&name)).count();
    assert_eq!(whole, 1, "the full name appears only in a pipe: {lines:#?}");
    let coloured = captured(&terminal, &["-J", "-e"]);
    for state in ["\u{1b}[32mR ", "\u{1b}[33mPD", "\u{1b}[32mmix"] {
        assert!(coloured.contains(state), "{state:?} in {coloured:?}");
    }
    let last =
        coloured.lines().rev().find(|line| line.contains("runner")).expect("the running job");
    assert!(!last.contains('\u{1b}'), "{last:?}");
    assert!(!squeue(&slotd, &[]).stdout.contains('\u{1b}'));
}
