//! What usually causes an exit code or a signal, for people.

use crate::model::ExitCode;

/// The names of the signals that end a process, by their numbers on Linux, and what usually sends
/// or causes them.
const SIGNALS: [(i32, &str, &str); 16] = [
    (1, "SIGHUP", "its terminal or session ended"),
    (2, "SIGINT", "it was interrupted, as by Ctrl-C or `scancel --signal=INT`"),
    (3, "SIGQUIT", "it was asked to quit, as by Ctrl-\\"),
    (
        4,
        "SIGILL",
        "it ran an instruction that this CPU does not have: the program may be built for another one",
    ),
    (5, "SIGTRAP", "it reached a trap: a debugger's, or a check of the program itself"),
    (
        6,
        "SIGABRT",
        "the program ended itself, as after a failed assertion, an uncaught exception or a corrupted heap",
    ),
    (
        7,
        "SIGBUS",
        "it used memory without a page behind it: a mapped file became shorter, or /dev/shm is full",
    ),
    (8, "SIGFPE", "an integer was divided by zero"),
    (9, SIGKILL, "another process ended it"),
    (
        11,
        "SIGSEGV",
        "it used memory that is not its own: a fault of the program, or a stack too small (ulimit -s)",
    ),
    (13, "SIGPIPE", "it wrote to a pipe or socket that nobody reads any more"),
    (14, "SIGALRM", "a timer of its own expired"),
    (15, "SIGTERM", "it was asked to end, as by scancel, `kill` or `timeout`"),
    (24, "SIGXCPU", "it reached its limit of CPU time (ulimit -t)"),
    (25, "SIGXFSZ", "it reached its limit of file size (ulimit -f)"),
    (31, "SIGSYS", "it made a system call that is not allowed to it (seccomp)"),
];

const SIGKILL: &str = "SIGKILL";

/// The likely cause of an end with this code, as a sentence; `None` if the code says nothing by
/// itself. `host_ooms` is that of its [`Usage`](crate::model::tres::Usage).
pub fn sentence(exit: ExitCode, host_ooms: Option<u64>) -> Option<String> {
    let likely = |signal: i32| {
        let (_, name, cause) = SIGNALS.iter().find(|(number, ..)| *number == signal)?;
        Some((*name, if *name == SIGKILL { of_kill(host_ooms) } else { (*cause).to_owned() }))
    };
    match (exit.signal, exit.status) {
        (0, 126) => Some(
            "Exit code 126: usually a command that is no program, or lacks execute permission."
                .to_owned(),
        ),
        (0, 127) => Some(
            "Exit code 127: usually a command that was not found: check its name and PATH."
                .to_owned(),
        ),
        (0, status @ 129..) => {
            let (name, cause) = likely(status - 128)?;
            Some(format!(
                "Exit code {status} is 128 + {}: usually a command ended by {name}: {cause}.",
                status - 128
            ))
        }
        (0, _) => None,
        (signal, _) => likely(signal).map(|(name, cause)| format!("{name}: {cause}.")),
    }
}

fn of_kill(host_ooms: Option<u64>) -> String {
    const SENDERS: &str = "`kill -9`, `scancel --signal=KILL` or a program that supervises it";
    match host_ooms {
        None => format!(
            "sent by {SENDERS}, or by the kernel for lack of memory (`journalctl -k` shows that)"
        ),
        Some(0) => format!(
            "sent by {SENDERS}; the kernel's out-of-memory killer ended none of its processes"
        ),
        Some(count) => {
            let processes =
                if count == 1 { "1 process".to_owned() } else { format!("{count} processes") };
            format!(
                "probably the kernel's out-of-memory killer, which ended {processes} on this host meanwhile; otherwise \
                 sent by {SENDERS}"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_signals_have_their_causes() {
        let of = |exit, ooms| sentence(exit, ooms).unwrap_or_default();
        let segv = "used memory that is not its own";
        assert!(
            of(ExitCode::signal(11), None).starts_with("SIGSEGV: it ")
                && of(ExitCode::signal(11), None).contains(segv)
        );
        let shell = of(ExitCode::status(139), None);
        assert!(
            shell.starts_with(
                "Exit code 139 is 128 + 11: usually a command ended by SIGSEGV: it used "
            ),
            "{shell}"
        );
        assert!(of(ExitCode::status(126), None).contains("no program"));
        assert!(of(ExitCode::status(127), None).contains("not found"));
        for exit in [0, 1, 3, 125, 128, 160, 192, 255, 1000] {
            assert_eq!(sentence(ExitCode::status(exit), Some(1)), None, "{exit}");
        }
        assert_eq!(sentence(ExitCode::signal(64), None), None);
        assert_eq!(sentence(ExitCode::OUT_OF_MEMORY, None), None);
    }

    #[test]
    fn the_out_of_memory_killer_is_named_with_evidence_alone() {
        for exit in [ExitCode::signal(9), ExitCode::status(137)] {
            let of = |ooms| sentence(exit, ooms).unwrap_or_default();
            assert!(of(Some(2)).contains(
                "SIGKILL: probably the kernel's out-of-memory killer, which ended 2 processes "
            ));
            assert!(
                of(Some(0)).contains("SIGKILL: sent by `kill -9`, ")
                    && of(Some(0)).ends_with("killer ended none of its processes.")
            );
            assert!(!of(None).contains("probably"), "{}", of(None));
        }
        assert!(
            !sentence(ExitCode::signal(11), Some(2)).unwrap_or_default().contains("out-of-memory")
        );
    }
}
