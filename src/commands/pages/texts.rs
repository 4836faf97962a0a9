//! What the definitions do not tell: descriptions, exit codes, variables that are no options.

/// The texts of one page.
pub struct Page {
    pub description: &'static [&'static str],
    /// Variables besides those that stand for options.
    pub variables: &'static [(&'static str, &'static str)],
    pub exits: &'static [(&'static str, &'static str)],
}

/// Of every command.
pub const COMMON_VARIABLES: &[(&str, &str)] = &[(
    "SLOTD_ROOT",
    "The runtime root of the daemon to talk to. Where it is not set: ~/.local/share/slotd.",
)];

const TIME_FORMAT: (&str, &str) = (
    "SLURM_TIME_FORMAT",
    "How times are written: standard, relative, or a strftime pattern with a %.",
);
const BITSTR_LEN: (&str, &str) = (
    "SLURM_BITSTR_LEN",
    "The longest list of array tasks that is printed, in bytes; 0 lifts the limit.",
);
const OUTPUT: (&str, &str) = (
    "SLOTD_OUTPUT",
    "slurm: Slurm's own columns where no format is asked for, rather than the table with bars.",
);
const EXIT_ERROR: (&str, &str) = ("SLURM_EXIT_ERROR", "The exit code of a refusal, rather than 1.");
const EXIT_IMMEDIATE: (&str, &str) =
    ("SLURM_EXIT_IMMEDIATE", "The exit code where --immediate was in vain, rather than 1.");

const SHOWN: (&str, &str) = ("0", "What was asked for was shown.");
const QUERY_FAILED: (&str, &str) =
    ("1", "An option or a value cannot be read, or the daemon does not answer.");
const USAGE: (&str, &str) = ("255", "An option does not exist, or its value cannot be read.");

pub const SBATCH: Page = Page {
    description: &[
        "Puts a script into the queue and prints its number, which it has when it is on disk and not before. The script is \
         a file, standard input where no file is named, or the text of --wrap.",
        "Lines of the script that begin with #SBATCH hold options too. Options of the command line win over variables of \
         the environment, and these over the lines of the script.",
    ],
    variables: &[EXIT_ERROR],
    exits: &[
        ("0", "The job was submitted; with --wait: it ended well."),
        (
            "1",
            "The job was refused, or the daemon does not answer; with --wait also: a signal or a cancellation ended it.",
        ),
        USAGE,
        ("other", "With --wait: the exit code of the job, of an array the largest one."),
    ],
};

pub const SRUN: Page = Page {
    description: &[
        "Runs a command as a step: within a job in the job's allocation, otherwise in an allocation of its own, for which \
         it waits. Output comes as it is written, and signals such as Ctrl-C reach the step.",
    ],
    variables: &[EXIT_ERROR, EXIT_IMMEDIATE],
    exits: &[
        ("0", "All tasks ended well."),
        ("1", "The launch was refused, or the daemon does not answer."),
        ("128+N", "Signal N ended a task."),
        USAGE,
        ("other", "The largest exit code of a task."),
    ],
};

pub const SALLOC: Page = Page {
    description: &[
        "Waits for an allocation and runs a command in it, your shell where none is named. srun starts steps in it. The \
         allocation ends with the command.",
    ],
    variables: &[EXIT_ERROR, EXIT_IMMEDIATE],
    exits: &[
        ("1", "The allocation was refused, or the daemon does not answer."),
        USAGE,
        ("other", "The exit code of the command."),
    ],
};

pub const SQUEUE: Page = Page {
    description: &[
        "Shows the jobs that wait, with the reason why, and those that run. The rest of a pending array is one row; --array \
         shows each of its tasks.",
        "Where no format is asked for, a table with bars is printed; --format and --Format are Slurm's.",
    ],
    variables: &[OUTPUT, TIME_FORMAT, BITSTR_LEN],
    exits: &[
        ("0", "The jobs were shown."),
        (
            "1",
            "An option or a value cannot be read, the only job that --jobs names is unknown, or the daemon does not answer.",
        ),
    ],
};

pub const SACCT: Page = Page {
    description: &[
        "Shows jobs and their steps from the database, those that wait and run included: since midnight, or those that are \
         named. With --state it shows those that are in such a state now, or were between --starttime and --endtime; \
         without --endtime, in the second of --starttime.",
        "Where no format is asked for, a table with bars is printed; --format is Slurm's.",
    ],
    variables: &[OUTPUT, TIME_FORMAT, BITSTR_LEN],
    exits: &[SHOWN, QUERY_FAILED],
};

pub const SCONTROL: Page = Page {
    description: &[
        "Shows jobs, steps, the node, the partitions and the configuration (show), and changes jobs: hold, uhold, release, \
         requeue, requeuehold, suspend, resume, update, top, notify. It prints a job's script (write batch_script) and its \
         processes (listpids), tells whether a job has its node (wait_job), and asks whether the daemon is there (ping).",
        "update NodeName=NAME State=DRAIN Reason=TEXT takes the node out of use, and State=RESUME puts it back. With CPUs=2-3 or \
         Gres=gpu:0,2, which are numbers, it is these CPUs and GPUs: no job gets them, and jobs that have one go on.",
        "Without a command it reads commands from standard input, a line each.",
    ],
    variables: &[TIME_FORMAT, BITSTR_LEN],
    exits: &[
        ("0", "It was done."),
        ("1", "It was refused, the command cannot be read, or the daemon does not answer."),
    ],
};

pub const SCANCEL: Page = Page {
    description: &[
        "Cancels jobs, array tasks and steps, or sends them a signal. A job that runs gets SIGTERM, and SIGKILL when the \
         daemon's SLOTD_KILL_WAIT is over.",
    ],
    variables: &[],
    exits: &[
        (
            "0",
            "All was done. A job that is over or unknown is no failure, unless --signal is given.",
        ),
        ("1", "A number or an option cannot be read, or the daemon does not answer."),
        ("other", "The daemon refused."),
    ],
};

pub const SINFO: Page = Page {
    description: &["Shows the partitions, the node, and what of it is in use."],
    variables: &[OUTPUT, TIME_FORMAT],
    exits: &[SHOWN, QUERY_FAILED],
};

/// How far MaxRSS can be trusted.
const SAMPLING: &str = "Memory is sampled: 50 times a second while a step is young or grows, and every 30 seconds at last. MaxRSS is \
                        the largest sample, or the peak of a single process that the kernel knows. A short peak of several \
                        processes together may be missing.";

pub const SSTAT: Page = Page {
    description: &[
        "Shows what running steps use at this moment: memory, CPU time, processes.",
        SAMPLING,
        "With --series it shows what steps used from their start on, also of jobs that have ended: a line for each span of time, \
         120 of a step at most, with the CPUs that were busy, the most and the mean of its memory, and the bytes that it read \
         and wrote. --series --json is the same for programs. A step that is over within a hundredth of a second or two has no \
         such lines, and neither has a single step of sjobmgr: the batch step of its job has all of them together.",
    ],
    variables: &[],
    exits: &[SHOWN, QUERY_FAILED],
};

pub const SATTACH: Page = Page {
    description: &["Shows the output of a running step and sends it what is typed."],
    variables: &[],
    exits: &[
        ("1", "There is no such running step, or the daemon does not answer."),
        ("other", "The exit code of the step."),
    ],
};

pub const SPRIO: Page = Page {
    description: &[
        "Shows pending jobs in the order of their priority, with what it is made of. The priority is the number that was \
         asked for (SITE; 1 where none was), less the nice value, and at least 1. A held job has 0. Other factors of Slurm \
         do not count, and are shown as 0.",
        "Among equal priorities the job that was submitted first is first, and arrays take turns.",
    ],
    variables: &[],
    exits: &[SHOWN, QUERY_FAILED],
};

pub const SDIAG: Page = Page {
    description: &[
        "Shows what the daemon did since its counters were last set to zero: jobs, scheduling rounds, jobs that passed others \
         that wait, requests by kind and by user, commits to the database, and how long all of these took.",
        "A server thread is a connected client, an agent looks after one running job, and the DBD agent queue are the commits \
         that are not durable yet.",
    ],
    variables: &[],
    exits: &[SHOWN, QUERY_FAILED],
};

pub const SEFF: Page = Page {
    description: &[
        "Shows how much of the CPU time and the memory that a job had it used. Of an array all tasks are shown. What a \
         running job uses is measured when it is asked for.",
        "On a terminal it also plots the CPUs and the memory of one job over time, as parts of what the job has; with --plot it \
         does so anywhere, and of each job. There, lines that begin with NOTE name the likely cause of a failure, and say when a \
         job used more memory than it had.",
        SAMPLING,
    ],
    variables: &[],
    exits: &[
        SHOWN,
        ("1", "A number or an option cannot be read, or the daemon does not answer."),
        ("2", "A job was not found."),
    ],
};

pub const SACCTMGR: Page = Page {
    description: &[
        "Shows what the accounting has: show or list, and what of: user, account, association, cluster, qos, tres and the like. \
         One host with one user has no accounts and no associations: those lists are empty, with Slurm's columns.",
        "Names after it, or name=NAMES, choose records; format=COLUMNS chooses columns, each with %WIDTH after it where it \
         needs one. What changes anything is refused.",
    ],
    variables: &[],
    exits: &[SHOWN, QUERY_FAILED],
};

pub const SSHARE: Page = Page {
    description: &[
        "Shows the shares of accounts. One host has none: the list is empty, with Slurm's columns.",
    ],
    variables: &[],
    exits: &[SHOWN, ("1", "An option or a value cannot be read.")],
};

pub const SBCAST: Page = Page {
    description: &[
        "Copies a file to the node of a running job, which is this host: SOURCE to DEST, with its mode. A file that is there \
         is replaced with --force only, and then as a whole.",
    ],
    variables: &[],
    exits: &[
        ("0", "The file was copied."),
        ("1", "An option or a value cannot be read, or there is no job."),
        ("255", "The job does not run, or SOURCE cannot be read."),
        ("other", "The number of the error for which DEST could not be written."),
    ],
};

pub const SREPORT: Page = Page {
    description: &[
        "Prints Slurm's reports of clusters, accounts and users: their columns, and no lines, as one host with one user has \
         no accounts. sacct shows jobs and what they used, seff how well they used it, sdiag what the daemon did.",
    ],
    variables: &[],
    exits: &[
        ("0", "The report was printed."),
        ("1", "An option, a report or a time cannot be read."),
    ],
};

pub const NEEDLESS: Page = Page {
    description: &["One host has no need of it. It says so, and what there is in its place."],
    variables: &[],
    exits: &[("1", "Always, but for --help and --version.")],
};

pub const SJOBMGR: Page = Page {
    description: &[
        "Takes over the CPUs, the memory and the GPUs of the job that it is called in, and runs steps there: by their \
         dependencies, by their priorities, as many side by side as have room. No step asks the daemon for anything, so \
         that masses of short ones cost little; yet each is a step of the job for squeue -s, sacct, sstat, scontrol and \
         scancel.",
        "run takes lines of shell commands, a TOML file, or JSON lines. It ends when all steps have ended. Outside of a \
         job it submits one. The other verbs talk to the manager that runs in the job; a second run hands its steps to \
         the first.",
        "Ctrl-C, or SIGINT, starts no other step; a second one ends those that run. What happened stands in a journal in \
         the directory of the job: run --resume goes on by it.",
    ],
    variables: &[
        ("SLURM_JOB_ID", "The job whose steps are managed."),
        ("SLURM_JOBMGR_SOCKET", "Is set for the steps: the socket of their manager."),
    ],
    exits: &[
        ("0", "All steps ended well."),
        (
            "1",
            "The text makes no sense, or the daemon does not answer; steps were cancelled, or were not run.",
        ),
        ("2", "The command line makes no sense."),
        (
            "other",
            "The largest exit code of a step that failed, 128 and the signal where a signal ended it.",
        ),
    ],
};

/// The page of slotd itself.
pub const SLOTD: Page = Page {
    description: &[
        "slotd queues batch scripts, arrays, pipelines and interactive work on one machine, and reserves CPUs, memory and \
         GPUs for them. The daemon serves one runtime root. The Slurm commands are links to the program slotd, and talk to \
         the daemon through a socket below the root.",
        "A job outlives the daemon: the next one takes it over, with its true exit code.",
    ],
    variables: &[],
    exits: &[
        ("0", "The daemon was told to end, by SIGTERM or SIGINT; or what was asked for was done."),
        ("1", "The daemon could not start or go on, or a file could not be written."),
        ("78", "The daemon could not start with these settings, or in this place."),
        ("2", "The command is unknown or its words make no sense."),
        ("3", "slotd daemon status: no daemon serves the root."),
        ("4", "slotd daemon status: there is one, and it does not answer."),
    ],
};

/// The ways to call slotd.
pub const SLOTD_FORMS: &[(&str, &str)] = &[
    ("slotd daemon", "[start|stop|restart|status] [--env-file PATH]"),
    ("slotd install", "[OPTIONS]"),
    ("slotd uninstall", "[OPTIONS]"),
    ("slotd clean", "--older-than AGE [--dry-run] [--yes]"),
    ("slotd drain", "[gpu:LIST] [cpu:LIST] [REASON...]"),
    ("slotd resume", "[gpu:LIST] [cpu:LIST]"),
    ("slotd db", "check|backup FILE|restore FILE|vacuum"),
    ("slotd log", "[-f] [-e] [-n LINES] JOB..."),
    ("slotd run", "[OPTIONS of sbatch] -- COMMAND [ARGS...]"),
    ("slotd wait", "JOB..."),
    ("slotd why", "[--json] JOB..."),
    ("slotd source", "[--diff|--json] JOB"),
    ("slotd edit", "JOB"),
    ("slotd retry", "[--all] [--with-dependents] [--parsable] JOB..."),
    ("slotd report", "[-S TIME] [-E TIME] [-u USERS] [-n NAMES] [--html FILE] [--svg FILE]"),
    ("slotd submit", "[OPTIONS of sbatch] <LINES"),
    (
        "slotd sweep",
        "[--param NAME=VALUES]... [--csv FILE] [--at-once N] [--dry-run] [OPTIONS of sbatch] SCRIPT [ARGS...]",
    ),
    ("slotd doctor", ""),
    ("slotd compat", ""),
    ("slotd top", ""),
    ("slotd web", "[--port N] [--listen ADDRESS]"),
    ("slotd commands", ""),
    ("slotd man", "DIR"),
    ("slotd completions", "bash|zsh|fish DIR"),
    ("slotd", "COMMAND [ARGS...]"),
];

/// What only slotd itself does.
pub const SLOTD_COMMANDS: &[(&str, &str)] = &[
    (
        "daemon",
        "Serves the runtime root until SIGTERM or SIGINT. Running jobs go on after that. With start, stop, restart or status \
         it is about a daemon beside the caller, with its log in run/slotd.log: start returns when it serves, or says why it \
         does not, stop when it has ended. Such a daemon has the settings of the environment file and none of the caller's \
         but SLOTD_ROOT.",
    ),
    (
        "install",
        "Installs this program for the user, with its links, settings, man pages, completions and service, and starts it. \
         --help lists the options.",
    ),
    (
        "doctor",
        "Looks for what keeps the queue from working, and says the mend of each: the daemon, the settings, the disk, the GPUs, \
         what shells find, and jobs that are held. The exit code is 0 where all is well.",
    ),
    ("uninstall", "Removes all that. Jobs and history stay, unless --purge-runtime is given."),
    (
        "log",
        "Shows the output of jobs by their numbers: standard output and, where it has a file of its own, standard error; -e \
         shows that alone. Of several jobs, or an array, each line begins with the job. -n shows the last lines of each file. -f \
         goes on until the jobs have ended, over requeues and restarts of the daemon, tells how each ended, and exits with the \
         worst exit code.",
    ),
    (
        "run",
        "Submits a command with options of sbatch, shows its output as it comes, and exits with its exit code. Ctrl-C asks \
         whether to leave the job running or to cancel it; a second one cancels. Without a terminal SIGINT cancels it. SIGTERM \
         cancels it in any case, and a terminal that goes away leaves it running.",
    ),
    (
        "wait",
        "Waits until jobs have ended, and exits with the worst of their exit codes. On a terminal it shows how many are over, \
         run and failed, and how long the others may take.",
    ),
    (
        "why",
        "Tells all that keeps a pending job from starting, with figures and what would change it, and when it is expected to \
         start; of a job that runs, how long it may; of one that has ended, why, with the last lines of its standard error \
         where it failed. The reasons are those that the scheduler goes by. --json prints a document: of each job among others \
         blockers, a list of objects with reason, text, remedy and what, which has the figures. Times are seconds since 1970.",
    ),
    (
        "edit",
        "Opens the options and the script of a job that waits, as one text, in the editor that VISUAL or EDITOR names. What was \
         changed is checked and done at once, all of it or nothing; what is wrong is told, and the editor opened again if that \
         is wanted. The #SBATCH lines of the script itself counted when it was submitted; the options stand above it.",
    ),
    (
        "retry",
        "Submits jobs that are over again, with the script, environment and options that they were submitted with, and prints \
         their new numbers as sbatch does. Of an array the tasks that did not end well, under the same task numbers; --all: all \
         of them. What the job waited for has happened and is not waited for again. With --with-dependents, jobs that were \
         cancelled since they depended on one of these (afterok, aftercorr) are submitted again too and depend on the new one, \
         and jobs that still wait in vain wait for the new one.",
    ),
    (
        "drain",
        "Takes the host out of use, for this reason: what runs goes on, and what waits stays. With gpu:0,2 or cpu:4-7 only \
         these GPUs and CPUs. `sinfo -R` tells what is out of use, and why.",
    ),
    ("resume", "Uses the host, or these GPUs and CPUs, again."),
    (
        "report",
        "Tells by name what jobs that ended in a time (-S, -E, as sacct reads them; the last seven days) used of the CPU time \
         and the memory that they had, what was wasted, and what to ask for next time: the most that one of them used, and a \
         quarter more. A job that took less than ten seconds does not tell how many CPUs it needs. On a terminal, or with \
         --plot, it plots the CPU-hours; --svg writes that as a picture, --html a page with all of it, --json a document.",
    ),
    (
        "submit",
        "Submits many jobs: each line of standard input is one, as a JSON object with script or wrap, and perhaps name, args and \
         options, and is answered with a line, {\"line\":1,\"job\":17} or {\"line\":1,\"error\":\"...\"}. The options are \
         sbatch's and hold for all. The exit code is 1 where a line is no job.",
    ),
    (
        "sweep",
        "Submits a script once for each combination of parameters, as the tasks of one array. A task has its parameters in its \
         environment: with --param lr=0.1,0.01 --param fold=1-5 there are ten tasks, each with $lr and $fold. A file for --csv \
         names parameters in its first line and has a combination on each other one; each goes with each combination of \
         --param. Its own options stand before those of sbatch. --at-once limits how many run at the same time; --dry-run \
         prints the parameters of each task.",
    ),
    (
        "compat",
        "Prints what each command and option of Slurm comes to here: the same, another thing, kept without effect, or refused.",
    ),
    (
        "web",
        "Shows the queue in a browser, and changes it from there: prints an address of this host that opens a page once, and \
         serves that page until Ctrl-C. Any other user, and any other site that the browser shows, is refused.",
    ),
    (
        "commands",
        "Prints the names of the commands, a line each: the links that an installation needs.",
    ),
    (
        "man",
        "Writes the man pages of all commands into a directory, which is made where it is missing.",
    ),
    (
        "completions",
        "Writes the completions of all commands for a shell into a directory, which is made where it is missing.",
    ),
];

/// What signals mean to the daemon.
pub const SIGNALS: &[(&str, &str)] = &[
    ("SIGTERM, SIGINT", "The daemon ends; running jobs go on."),
    ("SIGHUP", "The daemon looks for CPUs, memory and GPUs again."),
];

/// Below the runtime root, and the settings.
pub const FILES: &[(&str, &str)] = &[
    ("run/slotd.sock", "The socket that commands talk to."),
    ("run/slotd.log", "The log of a daemon that slotd daemon start has started."),
    ("~/.config/slotd/slotd.env", "Its settings, as systemd reads an EnvironmentFile=."),
    ("lib/state.db", "The database."),
    (
        "lib/jobs/ID",
        "The directory of a job: script.sh, runner.sh (which reproduces the launch by hand), exit_status.",
    ),
];
