//! Queries. The daemon answers them with the text to print.

use crate::ask::{ANSWER_HEAD, Answered, Asker, Place, Script};
use crate::kernel::{exit, is_terminal, write_all};
use crate::process::Process;
use crate::text::Text;
use slotd_protocol::request::MOST_PRINTED;

/// Prints the answer and exits. Returns if the program has to run: on a terminal the output depends
/// on its width and has colours, and the program reports that the answer cannot be printed.
pub(crate) fn run(process: &Process) {
    if is_terminal(1) {
        return;
    }
    let mut answer = Text::<{ ANSWER_HEAD + MOST_PRINTED }>::new();
    if let Some(asker) = Asker::connect(process)
        && let Some((Answered::Printed, text)) =
            asker.ask(Place::default(), Script::default(), &mut answer)
        && write_all(1, text).is_ok()
    {
        exit(0);
    }
}
