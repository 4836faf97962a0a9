//! The one binary: the daemon, the launcher, and every Slurm command by the name it is called by.

fn main() -> std::process::ExitCode {
    slotd::main()
}
