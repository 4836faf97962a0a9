//! The parts of the man pages that the clap definitions do not contain: descriptions, exit codes,
//! and variables that do not correspond to options.

/// The texts of one page.
pub struct Page {
    pub description: &'static [&'static str],
    /// Variables besides those that correspond to options.
    pub variables: &'static [(&'static str, &'static str)],
    pub exits: &'static [(&'static str, &'static str)],
}

/// Environment variables that every command reads.
pub const COMMON_VARIABLES: &[(&str, &str)] = &[(
    "SLOTD_ROOT",
    "The runtime root of the daemon to connect to. The default is ~/.local/share/slotd.",
)];

const TIME_FORMAT: (&str, &str) = (
    "SLURM_TIME_FORMAT",
    "The format of times: standard, relative, or a strftime pattern that contains a %.",
);
const BITSTR_LEN: (&str, &str) = (
    "SLURM_BITSTR_LEN",
    "The maximum length of a printed list of array tasks, in bytes. 0 means no limit.",
);
const OUTPUT: (&str, &str) = (
    "SLOTD_OUTPUT",
    "If set to slurm, print Slurm's columns instead of slotd's table when no format is specified.",
);
const EXIT_ERROR: (&str, &str) =
    ("SLURM_EXIT_ERROR", "The exit code for refused requests, instead of 1.");
const EXIT_IMMEDIATE: (&str, &str) =
    ("SLURM_EXIT_IMMEDIATE", "The exit code if --immediate fails, instead of 1.");

const SHOWN: (&str, &str) = ("0", "Success.");
const QUERY_FAILED: (&str, &str) =
    ("1", "An option or a value is invalid, or the daemon does not answer.");
const USAGE: (&str, &str) = ("255", "An option is unknown, or its value is invalid.");

pub const SBATCH: Page = Page {
    description: &[
        "sbatch submits a batch script and prints the job ID. The ID is printed only after the job has been written to \
         disk. The script is a file, standard input if no file is specified, or the text of --wrap.",
        "Lines of the script that begin with #SBATCH contain further options. Options on the command line override \
         environment variables, which override the options in the script.",
    ],
    variables: &[EXIT_ERROR],
    exits: &[
        ("0", "The job was submitted. With --wait: it completed."),
        (
            "1",
            "The job was refused, or the daemon does not answer. With --wait also: the job was killed by a signal or cancelled.",
        ),
        USAGE,
        ("other", "With --wait: the exit code of the job. For an array, the highest one."),
    ],
};

pub const SRUN: Page = Page {
    description: &[
        "srun runs a command as a step. Inside a job, the step runs in the job's allocation. Otherwise, srun waits for an \
         allocation of its own. The output appears as it is written, and signals such as Ctrl-C are sent to the step.",
    ],
    variables: &[EXIT_ERROR, EXIT_IMMEDIATE],
    exits: &[
        ("0", "All tasks succeeded."),
        ("1", "The step was refused, or the daemon does not answer."),
        ("128+N", "A task was killed by signal N."),
        USAGE,
        ("other", "The highest exit code of a task."),
    ],
};

pub const SALLOC: Page = Page {
    description: &[
        "salloc waits for an allocation and runs a command in it, by default your shell. Use srun to start steps in the \
         allocation. It is released when the command ends.",
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
        "squeue shows running jobs, and pending jobs with the reasons why they are pending. The pending tasks of an array \
         share a row; --array shows each task on a row of its own.",
        "Without a format, slotd's own table is printed. --format and --Format work as in Slurm.",
    ],
    variables: &[OUTPUT, TIME_FORMAT, BITSTR_LEN],
    exits: &[
        ("0", "Success."),
        (
            "1",
            "An option or a value is invalid, the only job specified by --jobs is unknown, or the daemon does not answer.",
        ),
    ],
};

pub const SACCT: Page = Page {
    description: &[
        "sacct shows the accounting records of jobs and their steps, including pending and running jobs: those since \
         midnight by default, or the specified jobs. With --state, it shows jobs that are in one of these states now, or \
         that were between --starttime and --endtime. Without --endtime, the states at --starttime count.",
        "Without a format, slotd's own table is printed. --format works as in Slurm.",
    ],
    variables: &[OUTPUT, TIME_FORMAT, BITSTR_LEN],
    exits: &[SHOWN, QUERY_FAILED],
};

pub const SCONTROL: Page = Page {
    description: &[
        "scontrol shows jobs, steps, the node, the partitions and the configuration (show), and changes jobs: hold, uhold, \
         release, requeue, requeuehold, suspend, resume, update, top, notify. It also prints the script of a job (write \
         batch_script) and its processes (listpids), reports whether a job has its node (wait_job), and checks whether \
         the daemon answers (ping).",
        "update NodeName=NAME State=DRAIN Reason=TEXT takes the node out of use, and State=RESUME returns it to use. With \
         CPUs=2-3 or Gres=gpu:0,2, this applies only to the CPUs or GPUs with these numbers: they are not allocated to \
         jobs any more, and jobs that already have them continue.",
        "Without a command, scontrol reads commands from standard input, one per line.",
    ],
    variables: &[TIME_FORMAT, BITSTR_LEN],
    exits: &[
        ("0", "Success."),
        ("1", "The command is invalid or was refused, or the daemon does not answer."),
    ],
};

pub const SCANCEL: Page = Page {
    description: &[
        "scancel cancels jobs, array tasks and steps, or sends them a signal. A running job receives SIGTERM and, after \
         SLOTD_KILL_WAIT seconds (a setting of the daemon), SIGKILL.",
    ],
    variables: &[],
    exits: &[
        ("0", "Success. Ended and unknown jobs are not errors, unless --signal is given."),
        ("1", "A job ID or an option is invalid, or the daemon does not answer."),
        ("other", "The daemon refused the request."),
    ],
};

pub const SINFO: Page = Page {
    description: &["sinfo shows the partitions, the node, and how much of it is in use."],
    variables: &[OUTPUT, TIME_FORMAT],
    exits: &[SHOWN, QUERY_FAILED],
};

/// The accuracy of MaxRSS.
const SAMPLING: &str = "Memory is sampled: 50 times a second while a step is young or growing, and less often later, down to every 30 \
                        seconds. MaxRSS is the largest sample, or the peak of a single process as recorded by the kernel. A \
                        short peak of several processes together may be missed.";

pub const SSTAT: Page = Page {
    description: &[
        "sstat shows the current resource usage of running steps: memory, CPU time, processes.",
        SAMPLING,
        "With --series, it shows the usage of steps since their start, also for ended jobs: one line per time span, at most \
         120 per step, with the number of busy CPUs, the maximum and mean of memory, and the bytes read and written. --series \
         --json prints the same data as JSON. Steps that end within one or two hundredths of a second have no lines. \
         Neither do the individual steps of sjobmgr: they are included in the batch step of their job.",
    ],
    variables: &[],
    exits: &[SHOWN, QUERY_FAILED],
};

pub const SATTACH: Page = Page {
    description: &["sattach shows the output of a running step, and sends keyboard input to it."],
    variables: &[],
    exits: &[
        ("1", "The step is not running, or the daemon does not answer."),
        ("other", "The exit code of the step."),
    ],
};

pub const SPRIO: Page = Page {
    description: &[
        "sprio shows pending jobs in order of priority, with the factors of the priority. The priority is the requested \
         value (SITE), or else 1 plus the priority of the QOS, minus the nice value, and at least 1. Held jobs have priority \
         0. Slurm's other factors do not exist, and are shown as 0.",
        "Jobs with equal priorities are ordered by submission time, and arrays take turns.",
    ],
    variables: &[],
    exits: &[SHOWN, QUERY_FAILED],
};

pub const SDIAG: Page = Page {
    description: &[
        "sdiag shows statistics of the daemon since its counters were last reset: jobs, scheduling cycles, backfilled jobs, \
         requests by type and by user, database commits, and how long all of these took.",
        "Server threads are connected clients, agents are processes that watch one running job each, and the DBD agent queue \
         contains commits that are not durable yet.",
    ],
    variables: &[],
    exits: &[SHOWN, QUERY_FAILED],
};

pub const SEFF: Page = Page {
    description: &[
        "seff shows how much of their allocated CPU time and memory jobs used. For an array, all tasks are shown. The usage \
         of running jobs is measured when seff runs.",
        "On a terminal, it also plots the CPUs and the memory of a single job over time, as fractions of its allocation. With \
         --plot, it does so for any output and for each job. There, lines that begin with NOTE give the likely cause of a \
         failure, and report if a job used more memory than its allocation.",
        SAMPLING,
    ],
    variables: &[],
    exits: &[
        SHOWN,
        ("1", "A job ID or an option is invalid, or the daemon does not answer."),
        ("2", "A job was not found."),
    ],
};

pub const SACCTMGR: Page = Page {
    description: &[
        "sacctmgr shows the contents of the accounting database: show or list, followed by the type of record: user, account, \
         association, cluster, qos, tres and so on. Since there is one host with one user, there are no accounts; lists \
         without entries are empty, with Slurm's columns. The associations are the user with the QOS of slotd.toml, if it \
         has any, and the limits of slotd.toml.",
        "To select records, append their names or name=NAMES. To select columns, use format=COLUMNS, optionally with %WIDTH \
         after each. Commands that would change anything are refused.",
    ],
    variables: &[],
    exits: &[SHOWN, QUERY_FAILED],
};

pub const SSHARE: Page = Page {
    description: &[
        "sshare shows the fair shares of accounts. slotd has no accounts, so the list is empty, with Slurm's columns.",
    ],
    variables: &[],
    exits: &[SHOWN, ("1", "An option or a value is invalid.")],
};

pub const SBCAST: Page = Page {
    description: &[
        "sbcast copies the file SOURCE, with its mode, to DEST on the node of a running job, which is this host. An existing \
         file is replaced only with --force, and then atomically.",
    ],
    variables: &[],
    exits: &[
        ("0", "The file was copied."),
        ("1", "An option or a value is invalid, or there is no job."),
        ("255", "The job is not running, or SOURCE cannot be read."),
        ("other", "The number (errno) of the error that occurred while writing DEST."),
    ],
};

pub const SREPORT: Page = Page {
    description: &[
        "sreport prints Slurm's reports on clusters, accounts and users. They contain only column headers, since slotd has \
         one user and no accounts. See sacct for jobs and their usage, seff for their efficiency, and sdiag for the daemon.",
    ],
    variables: &[],
    exits: &[("0", "The report was printed."), ("1", "An option, a report or a time is invalid.")],
};

pub const SCRONTAB: Page = Page {
    description: &[
        "scrontab manages your crontab: jobs that run again and again at certain times. An entry is a line with five fields \
         (minute, hour, day of the month, month, day of the week) or one of @hourly, @daily, @midnight, @weekly, @monthly, \
         @yearly and @annually, followed by a command for /bin/sh. A field is *, a number, a list, a range, any of these with \
         a step (*/5), or the first three letters of one month or day. If both days are restricted, one of them is enough.",
        "Lines that begin with #SCRON contain sbatch options for the next entry. Lines of the form NAME=value define \
         variables: $NAME in later commands is replaced by the value. Other lines that begin with # are comments.",
        "An entry is a job that keeps its ID: squeue shows when it runs next, and sacct --duplicates has a line for each run. \
         It never runs twice at once. If its time comes while the host is off or while no resources are free, it runs late, \
         once. Times that come while it runs are skipped. Times are in the time zone of the daemon.",
        "scancel ends an entry for good: scrontab -l then shows its lines after #DISABLED:. scontrol cannot change it. A new \
         crontab replaces all entries. Jobs that are running then finish, but do not recur.",
    ],
    variables: &[
        ("VISUAL, EDITOR", "The editor. Default: vi."),
        ("TMPDIR", "The directory for the edited text. Default: /tmp."),
    ],
    exits: &[
        ("0", "The crontab was printed, replaced or removed."),
        (
            "1",
            "There is no crontab, a line is invalid, or the editor failed. The crontab is unchanged.",
        ),
    ],
};

pub const NEEDLESS: Page = Page {
    description: &[
        "slotd does not support this command, which has no purpose on one host. It prints an error and what to use instead.",
    ],
    variables: &[],
    exits: &[("1", "Every call except --help, --version and strigger --get.")],
};

pub const SJOBMGR: Page = Page {
    description: &[
        "sjobmgr manages the CPUs, memory and GPUs of the job in which it runs, and runs steps in it: in the order of their \
         dependencies and priorities, and as many in parallel as fit. Starting a step needs no request to the daemon, so \
         that large numbers of short steps cost little. Nevertheless, each is a step of the job in squeue -s, sacct, sstat, \
         scontrol and scancel.",
        "run reads the steps from lines of shell commands, a TOML file, or JSON lines, and ends when all steps have ended. \
         Outside a job, it submits one. The other commands talk to the manager that is running in the job. A second run \
         passes its steps to the first.",
        "After Ctrl-C or SIGINT, no more steps are started; a second one terminates the running steps. The manager keeps a \
         journal in the directory of the job, and run --resume continues from it.",
    ],
    variables: &[
        ("SLURM_JOB_ID", "The job to manage steps for."),
        ("SLURM_JOBMGR_SOCKET", "Set in the environment of steps: the socket of their manager."),
    ],
    exits: &[
        ("0", "All steps completed."),
        (
            "1",
            "The steps are invalid, the daemon does not answer, or steps were cancelled or not run.",
        ),
        ("2", "The command line is invalid."),
        (
            "other",
            "The highest exit code of a failed step: 128 plus the signal number if it was killed by a signal.",
        ),
    ],
};

/// The page of slotd itself.
pub const SLOTD: Page = Page {
    description: &[
        "slotd queues batch scripts, arrays, pipelines and interactive work on one machine, and allocates CPUs, memory and \
         GPUs to them. Each daemon serves one runtime root. The Slurm commands are links to the program slotd. They connect \
         to the daemon through a socket below the root.",
        "Jobs outlive the daemon: the next daemon adopts them and records their true exit codes.",
    ],
    variables: &[],
    exits: &[
        ("0", "The command succeeded. For the daemon: it was stopped by SIGTERM or SIGINT."),
        ("1", "The command failed. For the daemon: it could not start or continue."),
        ("78", "The daemon could not start because of its settings or its runtime root."),
        ("2", "The command is unknown or its arguments are invalid."),
        ("3", "slotd daemon status: no daemon is running."),
        ("4", "slotd daemon status: the daemon is running but does not answer."),
    ],
};

/// The synopsis of slotd.
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

/// The commands of slotd itself.
pub const SLOTD_COMMANDS: &[(&str, &str)] = &[
    (
        "daemon",
        "Runs the daemon in the foreground until SIGTERM or SIGINT. Running jobs continue after that. start, stop, restart \
         and status control a daemon in the background, which logs to run/slotd.log. start returns when the daemon accepts \
         requests, or reports why it does not; stop returns when it has exited. A daemon in the background takes its \
         settings from the environment file, and from the caller's environment only SLOTD_ROOT.",
    ),
    (
        "install",
        "Installs this program for the current user, with its links, settings, man pages, completions and service, and \
         starts the daemon. --help lists the options.",
    ),
    (
        "doctor",
        "Checks the daemon, the settings, the disk, the GPUs, the PATH of shells, and held jobs, and suggests a fix for each \
         problem. The exit code is 0 if it finds no problems.",
    ),
    (
        "uninstall",
        "Removes the installation. Keeps jobs and history, unless --purge-runtime is given.",
    ),
    (
        "cluster",
        "Manages the clusters of ~/.config/slotd/clusters.toml, which -M of sbatch, squeue, sacct, sinfo, scancel, scontrol, \
         sprio and sdiag names. list prints them, the latest jobs submitted to them whose end is not known, and the submissions \
         whose outcome is unknown; it exits with 1 if the record of a submission cannot be read. check connects to one, looks \
         for what is missing there, and suggests a fix for each problem. login opens a shared connection, which all later calls \
         use, and is the only call that prompts. clean deletes the copies of work trees whose jobs have ended, if their files \
         were fetched or if they ended longer ago than keep in clusters.toml; it asks for confirmation, never deletes anything \
         whose job has not ended or is unknown, and exits with 1 if it could not delete all of them. It also deletes files of \
         submissions that were killed on this host, and, by their age, the records of a cluster that is not in clusters.toml \
         any more, whose copies it names. resolve finds out whether a submission became a job: it exits with 0 and prints the \
         job, with 1 if there is no job and it is safe to submit again, and with 75 if it cannot be known yet.",
    ),
    (
        "fetch",
        "Copies the files that a job on another cluster wrote in its copy of the work tree to a directory of their own, which \
         must be new or empty. Files with names or links that lead out of the directory, devices, FIFOs and hard links are \
         left out and reported, and the exit code is 1 then. If the connection breaks or the disk is full, no file is kept. Once \
         the files of a job that has ended were fetched, slotd cluster clean deletes its copy there.",
    ),
    (
        "log",
        "Prints the output of jobs: standard output and, if it has a file of its own, standard error. -e prints only standard \
         error. For several jobs or an array, each line begins with the job ID. -n prints the last lines of each file. -f \
         follows the output until the jobs end, across requeues and restarts of the daemon, reports how each job ended, and \
         exits with the highest exit code.",
    ),
    (
        "run",
        "Submits a command with options of sbatch, follows its output, and exits with its exit code. Ctrl-C asks whether to \
         leave the job running or to cancel it; a second Ctrl-C cancels it. Without a terminal, SIGINT cancels it. SIGTERM \
         always cancels it. If the terminal is closed, the job continues.",
    ),
    (
        "wait",
        "Waits until jobs have ended, and exits with the highest of their exit codes. On a terminal, it shows how many have \
         ended, are running and failed, and an estimate of the remaining time.",
    ),
    (
        "why",
        "For a pending job, prints everything that keeps it from starting, with figures and remedies, and its expected start \
         time. For a running job, prints how long it may run. For an ended job, prints why it ended, with the last lines of \
         its standard error if it failed. The reasons are those of the scheduler. --json prints JSON, in \
         which blockers lists reason, text, remedy and what (the figures) for each job. Times are seconds since 1970.",
    ),
    (
        "edit",
        "Opens the options and the script of a pending job as one text in an editor (VISUAL or EDITOR). The changes are checked \
         and applied together: either all of them or none. Errors are reported, and you can edit the text again. The \
         #SBATCH lines in the script are read only at submission: change the options above the script instead.",
    ),
    (
        "retry",
        "Resubmits ended jobs with their original script, environment and options, and prints the new job IDs as sbatch does. \
         For an array, resubmits the tasks that did not complete, with the same task numbers; with --all, all tasks. \
         Dependencies that were already satisfied are dropped. With --with-dependents, also resubmits jobs that were \
         cancelled because they depended on one of these jobs (afterok, aftercorr), and makes them depend on the new job. \
         Pending jobs whose dependency can never be satisfied then depend on the new job, too.",
    ),
    (
        "drain",
        "Takes the host out of use, for this reason. Running jobs continue, and pending jobs stay pending. With gpu:0,2 or \
         cpu:4-7, only these GPUs or CPUs. `sinfo -R` lists everything that is out of use, and why.",
    ),
    ("resume", "Returns the host, or these GPUs and CPUs, to use."),
    (
        "report",
        "For jobs that ended within a period (-S and -E, as in sacct; the last seven days by default), shows by name how much \
         of the allocated CPU time and memory they used and wasted, and suggests what to request next time: a quarter more \
         than the maximum that one of them used. For CPUs, jobs shorter than ten seconds do not count. On a terminal, or \
         with --plot, it plots the CPU-hours. --svg writes the chart, --html a page with everything, and --json prints JSON.",
    ),
    (
        "submit",
        "Submits many jobs. Each line of standard input is a job: a JSON object with script or wrap, and optionally name, args \
         and options. It is answered with a line: {\"line\":1,\"job\":17} or {\"line\":1,\"error\":\"...\"}. The options \
         on the command line are those of sbatch, and apply to all jobs. The exit code is 1 if a line was refused.",
    ),
    (
        "sweep",
        "Submits a script once for each combination of parameters, as the tasks of one array. Each task has its parameters in \
         its environment: --param lr=0.1,0.01 --param fold=1-5 results in ten tasks, each with $lr and $fold. A file for --csv \
         names parameters in its first line and contains one combination on each other line, which are combined with all \
         combinations of --param. The options of sweep come before those of sbatch. --at-once limits how many tasks run at \
         the same time. --dry-run prints the parameters of each task.",
    ),
    (
        "compat",
        "Prints how each Slurm command and option is supported: the same, different, without effect, or refused.",
    ),
    (
        "web",
        "Shows and controls the queue in a browser. Prints a URL on this host that can be opened only once, and serves the \
         page until Ctrl-C. Requests from other users and from other websites are refused.",
    ),
    (
        "commands",
        "Prints the names of the commands, one per line: the links that an installation needs.",
    ),
    (
        "man",
        "Writes the man pages to the directories man1 and man5 below a directory, which are created if necessary. `MANPATH=DIR \
         man sbatch` shows them.",
    ),
    (
        "completions",
        "Writes the completions of all commands for a shell to a directory, which is created if necessary.",
    ),
];

/// Signals to the daemon.
pub const SIGNALS: &[(&str, &str)] = &[
    ("SIGTERM, SIGINT", "The daemon exits. Running jobs continue."),
    ("SIGHUP", "The daemon detects CPUs, memory and GPUs again."),
];

/// Files below the runtime root, and the settings.
pub const FILES: &[(&str, &str)] = &[
    ("run/slotd.sock", "The socket that commands connect to."),
    ("run/slotd.log", "The log of a daemon that was started with slotd daemon start."),
    (
        "~/.config/slotd/slotd.env",
        "The settings of the daemon, in the format of systemd's EnvironmentFile=.",
    ),
    ("lib/state.db", "The database."),
    (
        "lib/jobs/ID",
        "The directory of a job: script.sh, runner.sh (for reproducing the launch manually) and exit_status.",
    ),
];

/// The description of slotd.env(5).
pub const ENV: &[&str] = &[
    "slotd.env contains the settings of the daemon. The systemd service and slotd daemon start read it when the daemon \
     starts. slotd install creates it, and keeps existing settings.",
    "The file has the format of systemd's EnvironmentFile=: one NAME=VALUE per line, with quotes around values that contain \
     spaces. Empty lines and lines that begin with # are ignored. An empty value counts as unset.",
    "scontrol reconfigure applies new values of the settings that mention it. The others take effect when the daemon is \
     restarted, which does not affect running jobs.",
];

/// The description of clusters.toml(5).
pub const CLUSTERS: &[&str] = &[
    "clusters.toml lists the clusters that -M reaches, each in a [[cluster]] table. It is read by the commands, not by the \
     daemon, and only if -M, SLURM_CLUSTERS, SBATCH_CLUSTERS or a #SBATCH -M line names a cluster other than this host \
     (slotd).",
    "The file names programs to run, so it must belong to you or to root, and no one else may be able to write to it or to \
     its directory. Unknown keys are errors, with their line. slotd cluster check NAME connects to a cluster, looks for what \
     is missing there, and suggests a fix for each problem.",
];

/// The description of slotd.toml(5).
pub const TOML: &[&str] = &[
    "slotd.toml divides the host into partitions, limits groups of jobs, counts licenses, and defines QOS. It is optional. \
     The daemon reads it when it starts and on scontrol reconfigure. SLOTD_CONFIG names another file.",
    "A file with an error is refused as a whole. A running daemon then keeps its configuration, and a starting one exits \
     with code 78.",
    "If SLOTD_CPU_PARTITIONS is set to more than its default cpu, only the CPU partitions that it names exist, with their \
     keys in the file. The same is true of SLOTD_GPU_PARTITIONS and gpu.",
];

pub const TOML_HOST: &[(&str, &str)] = &[
    (
        "cpus",
        "CPUs for jobs: a number, a number to keep back (-2), or a percentage of the total (\"75%\"). SLOTD_CPUS takes \
         precedence.",
    ),
    ("memory_mb", "Memory for jobs in MB, in the same forms. SLOTD_MEMORY_MB takes precedence."),
];

/// The keys that only the file has. `parse::partition` contains the others.
pub const TOML_PARTITION: &[(&str, &str)] = &[
    ("name", "The name of the partition: letters, digits, _, - and dots. Required."),
    (
        "gpu",
        "true or false: whether its jobs get a GPU if they request none. The partition exists only if the host has \
         GPUs.",
    ),
];

pub const TOML_LIMIT: &[(&str, &str)] = &[
    ("account", "Limits jobs with this account."),
    (
        "name",
        "Limits jobs with this name; * matches any characters and ? one. With account, both must match.",
    ),
    ("jobs", "The number of these jobs that may run at once."),
    ("cpus", "The number of CPUs that these jobs may use together."),
];

pub const TOML_LICENSE: &[(&str, &str)] = &[
    ("name", "The name of the license: letters, digits, _, - and dots. Required."),
    (
        "count",
        "The number of these licenses that jobs may hold together. Required. If it becomes less than jobs hold, these keep \
         theirs, and no other job gets one until enough of them have ended.",
    ),
];
