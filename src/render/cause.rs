//! The usual causes of exit codes and signals, in words.

use slotd_model::{ExitCode, counted};

/// The signals that end a process, by their Linux numbers, with what usually sends or causes them.
const SIGNALS: [(i32, &str, &str); 16] = [
    (1, "SIGHUP", "its terminal or session was closed"),
    (2, "SIGINT", "it was interrupted, for example by Ctrl-C or `scancel --signal=INT`"),
    (3, "SIGQUIT", "it was asked to quit, for example by Ctrl-\\"),
    (
        4,
        "SIGILL",
        "it executed an instruction that this CPU lacks: it may have been built for another CPU",
    ),
    (5, "SIGTRAP", "it hit a breakpoint or a failed internal check"),
    (
        6,
        "SIGABRT",
        "it aborted, for example on a failed assertion, an uncaught exception or heap corruption",
    ),
    (
        7,
        "SIGBUS",
        "it accessed memory with no page behind it: a mapped file shrank, or /dev/shm is full",
    ),
    (8, "SIGFPE", "it divided an integer by zero"),
    (9, SIGKILL, "another process killed it"),
    (
        11,
        "SIGSEGV",
        "it accessed invalid memory: a bug in the program, or too small a stack (ulimit -s)",
    ),
    (13, "SIGPIPE", "it wrote to a pipe or socket that no process reads any more"),
    (14, "SIGALRM", "one of its own timers expired"),
    (15, "SIGTERM", "it was asked to terminate, for example by scancel, `kill` or `timeout`"),
    (24, "SIGXCPU", "it reached its CPU time limit (ulimit -t)"),
    (25, "SIGXFSZ", "it reached its file size limit (ulimit -f)"),
    (31, "SIGSYS", "it made a forbidden system call (seccomp)"),
];

const SIGKILL: &str = "SIGKILL";

/// Describes the likely cause of this exit code in a sentence; `None` if the code alone suggests
/// nothing. `host_ooms` comes from the [`Usage`](slotd_model::tres::Usage) of the job.
pub fn sentence(exit: ExitCode, host_ooms: Option<u64>) -> Option<String> {
    let likely = |signal: i32| {
        let (_, name, cause) = SIGNALS.iter().find(|(number, ..)| *number == signal)?;
        Some((*name, if *name == SIGKILL { of_kill(host_ooms) } else { (*cause).to_owned() }))
    };
    match (exit.signal, exit.status) {
        (0, 126) => Some(
            "Exit code 126: usually the command is not a program or lacks execute permission."
                .to_owned(),
        ),
        (0, 127) => Some(
            "Exit code 127: usually the command was not found: check its name and PATH.".to_owned(),
        ),
        (0, status @ 129..) => {
            let (name, cause) = likely(status - 128)?;
            Some(format!(
                "Exit code {status} is 128 + {}: usually a command was killed by {name}: {cause}.",
                status - 128
            ))
        }
        (0, _) => None,
        (signal, _) => likely(signal).map(|(name, cause)| format!("{name}: {cause}.")),
    }
}

fn of_kill(host_ooms: Option<u64>) -> String {
    const SENDERS: &str = "`kill -9`, `scancel --signal=KILL` or a supervising program";
    match host_ooms {
        None => format!(
            "sent by {SENDERS}, or by the kernel because memory ran out (check `journalctl -k`)"
        ),
        Some(0) => format!(
            "sent by {SENDERS}; the kernel's out-of-memory killer did not kill any of its processes"
        ),
        Some(count) => {
            let processes = counted(count, "process");
            format!(
                "probably the kernel's out-of-memory killer, which killed {processes} on this host meanwhile; otherwise \
                 sent by {SENDERS}"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_signals_have_causes() {
        let of = |exit, ooms| sentence(exit, ooms).unwrap_or_default();
        let segv = "accessed invalid memory";
        assert!(
            of(ExitCode::signal(11), None).starts_with("SIGSEGV: it ")
                && of(ExitCode::signal(11), None).contains(segv)
        );
        let shell = of(ExitCode::status(139), None);
        assert!(
            shell.starts_with(
                "Exit code 139 is 128 + 11: usually a command was killed by SIGSEGV: it "
            ),
            "{shell}"
        );
        assert!(of(ExitCode::status(126), None).contains("not a program"));
        assert!(of(ExitCode::status(127), None).contains("not found"));
        for exit in [0, 1, 3, 125, 128, 160, 192, 255, 1000] {
            assert_eq!(sentence(ExitCode::status(exit), Some(1)), None, "{exit}");
        }
        assert_eq!(sentence(ExitCode::signal(64), None), None);
        assert_eq!(sentence(ExitCode::OUT_OF_MEMORY, None), None);
    }

    #[test]
    fn the_out_of_memory_killer_is_named_only_with_evidence() {
        for exit in [ExitCode::signal(9), ExitCode::status(137)] {
            let of = |ooms| sentence(exit, ooms).unwrap_or_default();
            assert!(of(Some(2)).contains(
                "SIGKILL: probably the kernel's out-of-memory killer, which killed 2 processes "
            ));
            assert!(
                of(Some(0)).contains("SIGKILL: sent by `kill -9`, ")
                    && of(Some(0)).ends_with("killer did not kill any of its processes.")
            );
            assert!(!of(None).contains("probably"), "{}", of(None));
        }
        assert!(
            !sentence(ExitCode::signal(11), Some(2)).unwrap_or_default().contains("out-of-memory")
        );
    }
}
