//! `-M`: other clusters. The Slurm behind it is a directory of small scripts, reached by a fake ssh
//! or by `local`. `tests/clusters/run` does the same with a real Slurm and a real sshd.

use slotd_kit::{Out, Slotd, until};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A cluster made of scripts: its commands in `bin`, its jobs in `jobs`, its home directory.
struct Lab {
    slotd: Slotd,
}

/// Submits: each job is a file with its script's path and its state. `$LAB/mode` is a shell script
/// that can misbehave first.
const SBATCH: &str = r#"#!/bin/sh
printf '%s\n' "$*" >> "$LAB/calls"
env | grep -E '^(SLURM|SBATCH)_' >> "$LAB/leaked"
parsable= hold= test= wait=
while [ $# -gt 0 ]; do case $1 in
--parsable) parsable=1 ;; --hold|-H) hold=1 ;; --test-only) test=1 ;; --version) echo 'slurm-wlm 22.05.8'; exit 0 ;;
-M|-n|-d|-D) shift ;; --bad) echo 'sbatch: error: no such thing' >&2; exit 255 ;; -*) ;; *) break ;; esac; shift; done
if [ "$test" ]; then cat > /dev/null
if [ -f "$LAB/full" ]; then echo 'allocation failure: Requested node configuration is not available' >&2; exit 1; fi
echo "sbatch: Job 9 to start at $(cat "$LAB/start" 2>/dev/null || echo 2030-01-01T00:00:00) using 1 processors on nodes n1 in partition cpu" >&2; exit 0; fi
submit() {
id=$(( $(cat "$LAB/last" 2>/dev/null || echo 16) + 1 )); echo $id > "$LAB/last"
state=RUNNING; [ "$hold" ] && state=HELD
printf '%s\n%s\n' "$state" "$1" > "$LAB/jobs/$id"; pwd > "$LAB/jobs/$id.dir"; cp "$1" "$LAB/jobs/$id.script"
}
[ -f "$LAB/mode" ] && . "$LAB/mode"
submit "$1"
if [ "$parsable" ]; then echo $id; else echo "Submitted batch job $id"; fi
"#;

const SQUEUE: &str = r#"#!/bin/sh
echo squeue >> "$LAB/queries"
[ -f "$LAB/squeue.fails" ] && { echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1; }
case "$*" in
*'-o %T') for j in "$LAB"/jobs/*[0-9]; do [ -f "$j" ] && head -n 1 "$j"; done; exit 0 ;;
*'%F|%o'*) for j in "$LAB"/jobs/*[0-9]; do [ -f "$j" ] && echo "${j##*/}|$(tail -n 1 "$j")"; done; exit 0 ;;
*'%T|%o|%Z'*) for j in "$LAB"/jobs/*[0-9]; do [ -f "$j" ] && echo "$(head -n 1 "$j")|$(tail -n 1 "$j")|$(cat "$j.dir")"; done; exit 0 ;;
*'|%i|%F|%T|'*) for j in "$LAB"/jobs/*[0-9]; do i=${j##*/}; [ -f "$j" ] && echo "|$i|$i|$(head -n 1 "$j")|"; done; exit 0 ;;
*-o\ %r*) for i; do :; done; case "$*" in *-j\ *) set -- $*; while [ "$1" != -j ]; do shift; done; head -n 1 "$LAB/jobs/$2" | sed 's/HELD/JobHeldUser/;s/RUNNING/None/' ;; esac; exit 0 ;;
*--unknown*) echo "squeue: unrecognized option '--unknown'" >&2; exit 255 ;;
*-j\ 999*) echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1 ;;
*-l*) date; echo ' JOBID STATE' ;;
*-h*) echo '                17       cpu' ;;
*--json*) echo '{"meta": {}, "jobs": [{"cluster": "lab"}]}' ;;
*) printf ' JOBID ARGS\n    17 [%s]\n' "$*"; echo 'a warning' >&2 ;;
esac
"#;

const SACCT: &str = r#"#!/bin/sh
echo sacct >> "$LAB/queries"
[ -f "$LAB/sacct.fails" ] && exit 1
case "$*" in
*SubmitLine*) exit 0 ;;
*JobID,State,ExitCode*) cat "$LAB/ended" 2>/dev/null ;;
*) printf 'JobID State\n----- -----\n3     DONE\n' ;;
esac
exit 0
"#;

const SCONTROL: &str = r#"#!/bin/sh
echo scontrol >> "$LAB/queries"
[ -f "$LAB/scontrol.fails" ] && exit 1
case "$1 $2" in
"show config") echo 'ClusterName             = real' ;;
"release "*) sed -i 's/HELD/RUNNING/' "$LAB/jobs/$2" ;;
"show job") [ -f "$LAB/jobs/$3" ] || { echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1; }
echo "JobId=$3 JobName=fit"; echo '   JobState=PENDING Reason=Resources Dependency=(null)'; echo "   StdOut=$(cat "$LAB/jobs/$3.dir")/slurm-$3.out" ;;
*) cat; exit 3 ;;
esac
"#;

/// A fake ssh whose login shell prints a greeting and a farewell, and can fail.
const SSH: &str = r#"#!/bin/sh
printf '%s\n' "$*" >> "$LAB/ssh"
[ -f "$LAB/denied" ] && { echo 'me@hpc: Permission denied (publickey,password).' >&2; exit 255; }
[ -f "$LAB/away" ] && { echo 'ssh: connect to host hpc port 22: Connection refused' >&2; exit 255; }
while [ "$1" != -- ]; do shift; done
shift 2
echo "Welcome to the cluster"; printf 'no newline at the end'
echo 'a notice' >&2
[ -f "$LAB/cut" ] && exec "$LAB/cutter" "$1"
home=$LAB/home
if [ -f "$LAB/nodes" ]; then
n=$(( $(wc -l < "$LAB/ssh") % 2 )); echo "login$n" > "$LAB/node"
[ -s "$LAB/nodes" ] || { home=$LAB/home$n; mkdir -p "$home"; }
fi
HOME=$home PATH=$LAB/bin:/usr/bin:/bin /bin/sh -c "$1"
echo 'Goodbye'
exit 7
"#;

impl Lab {
    fn start() -> Lab {
        let slotd = Slotd::start();
        let lab = Lab { slotd };
        for dir in ["bin", "jobs", "home"] {
            fs::create_dir_all(lab.at(dir)).unwrap();
        }
        let head = format!("#!/bin/sh\nexport LAB='{}'\n", lab.dir().display());
        let put = |path: PathBuf, text: &str| {
            let text = text.replacen("#!/bin/sh\n", &head, 1);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        for (name, text) in
            [("sbatch", SBATCH), ("squeue", SQUEUE), ("sacct", SACCT), ("scontrol", SCONTROL)]
        {
            put(lab.at("bin").join(name), text);
        }
        put(lab.at("bin/sinfo"), "#!/bin/sh\nprintf 'PARTITION\\ncpu*\\n'\n");
        put(lab.at("bin/scancel"), "#!/bin/sh\nfor i; do rm -f \"$LAB/jobs/$i\"; done\nexit 0\n");
        put(lab.at("bin/sdiag"), "#!/bin/sh\nprintf 'no newline'\nexit 255\n");
        put(lab.at("ssh-bin/ssh"), SSH);
        lab.configure("");
        lab
    }

    fn dir(&self) -> PathBuf {
        self.slotd.base.join("lab")
    }

    fn at(&self, name: &str) -> PathBuf {
        let path = self.dir().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.at(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.at(name)).unwrap_or_default()
    }

    fn config(&self) -> PathBuf {
        self.slotd.base.join("home/.config/slotd/clusters.toml")
    }

    /// Writes clusters.toml: `hpc` by ssh, with these lines, and `lab` on this host.
    fn configure(&self, lines: &str) {
        let file = self.config();
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::set_permissions(file.parent().unwrap(), fs::Permissions::from_mode(0o700)).unwrap();
        let bin = self.at("bin");
        let stage = self.at("stage");
        let text = format!(
            "[[cluster]]\nname = \"hpc\"\nssh = \"hpc\"\n{lines}\n[[cluster]]\nname = \"lab\"\nlocal = \"{}\"\ndir = \"{}\"\npoll = 1\n",
            bin.display(),
            stage.display()
        );
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Replaces clusters.toml.
    fn clusters(&self, tables: &[(&str, &str)]) {
        let table =
            |(name, link): &(&str, &str)| format!("[[cluster]]\nname = \"{name}\"\n{link}\n");
        fs::write(self.config(), tables.iter().map(table).collect::<String>()).unwrap();
    }

    /// Creates a program of the cluster.
    fn program(&self, name: &str, text: &str) {
        let path = self.at("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\nexport LAB='{}'\n{text}\n", self.dir().display()))
            .unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn command(&self, words: &[&str]) -> std::process::Command {
        let mut command = self.slotd.command(words[0]);
        let path = std::env::join_paths(
            [self.at("ssh-bin")].into_iter().chain(std::env::split_paths(
                command
                    .get_envs()
                    .find(|(name, _)| *name == "PATH")
                    .and_then(|(_, path)| path)
                    .unwrap(),
            )),
        );
        command.args(&words[1..]).env("PATH", path.unwrap());
        command
    }

    fn run(&self, words: &[&str]) -> Out {
        self.slotd.run(self.command(words))
    }

    fn run_with(&self, variables: &[(&str, &str)], words: &[&str]) -> Out {
        let mut command = self.command(words);
        command.envs(variables.iter().copied());
        self.slotd.run(command)
    }

    /// Creates a git work tree and returns its directory below the working directory.
    fn tree(&self) -> PathBuf {
        let top = self.slotd.work().join("tree");
        fs::create_dir_all(top.join("src")).unwrap();
        slotd_kit::git::repository(&self.slotd, "tree");
        top
    }

    /// The record of the first submission.
    fn record(&self) -> PathBuf {
        let dir = self.slotd.root.join("lib/clusters");
        let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        paths.filter(|path| path.extension().is_none()).min().unwrap()
    }

    fn jobs(&self) -> Vec<String> {
        let names = fs::read_dir(self.at("jobs")).unwrap();
        let mut names: Vec<String> = names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.contains('.'))
            .collect();
        names.sort();
        names
    }
}

const UNKNOWN: &str = "'nosuch' can't be reached now, or it is an invalid entry for --cluster.  Use 'sacctmgr list clusters' to see available clusters.";

// Queries

#[test]
fn output_and_exit_code_of_a_remote_command_pass_through() {
    let lab = Lab::start();
    let out = lab.run(&["squeue", "-u", "it's me", "-M", "HPC", "--name=a b", "$HOME"]).ok();
    assert_eq!(out.stdout, "CLUSTER: hpc\n JOBID ARGS\n    17 [-u it's me --name=a b $HOME]\n");
    assert_eq!(out.stderr, "a warning\n");
    let out = lab.run(&["sdiag", "-Mhpc"]).fails(255);
    assert_eq!((out.stdout.as_str(), out.stderr.as_str()), ("no newline", ""));
    let out = lab.run(&["squeue", "-M", "lab", "--unknown"]).fails(255);
    assert_eq!(
        (out.stdout.as_str(), out.stderr.as_str()),
        ("", "squeue: unrecognized option '--unknown'\n")
    );
    let out = lab.run(&["squeue", "-M", "hpc", "-j", "999"]).fails(1);
    assert_eq!(out.stdout, "CLUSTER: hpc\n");
    assert_eq!(lab.run(&["squeue", "-hMhpc"]).ok().stdout, "                17       cpu\n");
}

#[test]
fn ssh_never_prompts_and_never_shares() {
    let lab = Lab::start();
    lab.run(&["sinfo", "-M", "hpc"]).ok();
    let line = lab.read("ssh");
    for option in ["BatchMode=yes", "ConnectTimeout=", "ControlMaster=no", "ServerAliveInterval="] {
        assert!(line.contains(option), "{line}");
    }
    assert!(line.contains(" -- hpc exec sh -c "), "{line}");
}

#[test]
fn a_shared_connection_is_used_only_if_its_directory_is_private() {
    let lab = Lab::start();
    let runtime = lab.at("run");
    let dir = runtime.join("slotd-ssh");
    fs::create_dir_all(&dir).unwrap();
    let set = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    set(&runtime, 0o700);
    set(&dir, 0o700);
    // FNV-1a of "hpc\nhpc".
    let socket = dir.join("cb632f30f5c92f89");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let environment = [("XDG_RUNTIME_DIR", runtime.to_str().unwrap())];
    let option = format!("ControlPath={}", socket.display());
    let run = |words: &[&str]| lab.run_with(&environment, words);
    assert_eq!(run(&["sinfo", "-M", "hpc"]).ok().stderr, "");
    assert!(lab.read("ssh").contains(&option), "{}", lab.read("ssh"));
    assert!(run(&["slotd", "cluster", "list"]).ok().stdout.contains("shared connection"));
    set(&dir, 0o777);
    lab.write("ssh", "");
    let out = run(&["sinfo", "-M", "hpc"]).ok();
    assert!(
        out.stderr.contains("the shared connection to cluster hpc is not used: ")
            && out.stderr.contains("others have access to it (mode 0777)"),
        "{}",
        out.stderr
    );
    let used = lab.read("ssh");
    assert!(used.contains("BatchMode") && !used.contains("ControlPath"), "{used}");
    let out = run(&["slotd", "cluster", "login", "hpc"]).fails(1);
    assert!(out.stderr.contains("others have access"), "{}", out.stderr);
    set(&dir, 0o700);
    // A link to a directory of one's own may be replaced by anyone who owns the link.
    fs::rename(&dir, runtime.join("real")).unwrap();
    std::os::unix::fs::symlink(runtime.join("real"), &dir).unwrap();
    let out = run(&["sinfo", "-M", "hpc"]).ok();
    assert!(out.stderr.contains("must be a directory"), "{}", out.stderr);
    assert!(!lab.read("ssh").contains("ControlPath"));
}

#[test]
fn several_clusters_are_printed_in_the_order_of_the_file() {
    let lab = Lab::start();
    let out = lab.run(&["sinfo", "-M", "lab,hpc"]).ok();
    assert_eq!(out.stdout, "CLUSTER: hpc\nPARTITION\ncpu*\n\nCLUSTER: lab\nPARTITION\ncpu*\n");
    let all = lab.run(&["sinfo", "-M", "all"]).ok().stdout;
    assert!(all.starts_with("CLUSTER: slotd\nPARTITION"), "{all}");
    assert!(
        all.ends_with("\n\nCLUSTER: hpc\nPARTITION\ncpu*\n\nCLUSTER: lab\nPARTITION\ncpu*\n"),
        "{all}"
    );
    let out = lab.run(&["squeue", "-h", "-M", "hpc,lab"]).ok();
    assert_eq!(
        out.stdout,
        "hpc                        17       cpu\nlab                        17       cpu\n"
    );
    let out = lab.run(&["sacct", "-M", "hpc,lab"]).ok();
    assert_eq!(out.stdout, "JobID State\n----- -----\n3     DONE\n3     DONE\n");
    let out = lab.run(&["squeue", "--json", "-M", "slotd,hpc,lab"]).ok();
    assert_eq!(out.stdout.matches("\"cluster\": \"lab\"").count(), 2);
    let dated = lab.run(&["squeue", "-l", "-M", "hpc,lab"]).ok().stdout;
    let lines: Vec<&str> = dated.lines().skip(1).collect();
    assert_eq!(lines, ["CLUSTER: hpc", " JOBID STATE", "", "CLUSTER: lab", " JOBID STATE"]);
}

#[test]
fn an_unreachable_cluster_is_reported_with_exit_code_1() {
    let lab = Lab::start();
    lab.write("away", "");
    let out = lab.run(&["sinfo", "-M", "hpc,lab"]).fails(1);
    assert_eq!(out.stdout, "CLUSTER: lab\nPARTITION\ncpu*\n");
    assert!(out.stderr.starts_with("sinfo: error: cluster hpc cannot be reached: ssh: connect to host hpc port 22: Connection refused\n"), "{}", out.stderr);
    let out = lab.run(&["sinfo", "-M", "hpc"]).fails(1);
    assert_eq!(out.stdout, "");
    lab.write("denied", "");
    let out = lab.run(&["squeue", "-M", "hpc"]).fails(1);
    assert!(
        out.stderr.contains("Permission denied")
            && out.stderr.contains("slotd cluster login hpc\n"),
        "{}",
        out.stderr
    );
}

#[test]
fn unknown_names_are_refused_as_in_slurm() {
    let lab = Lab::start();
    for command in [
        "squeue", "sinfo", "sbatch", "scancel", "scontrol", "sdiag", "sprio", "srun", "salloc",
        "sacct",
    ] {
        let out = lab.run(&[command, "-M", "nosuch", "1"]).fails(1);
        let expected = format!(
            "{command}: error: No cluster 'nosuch' known by database.\n{command}: error: {UNKNOWN}\n"
        );
        assert_eq!((out.stdout.as_str(), out.stderr), ("", expected));
    }
    let out = lab.run(&["sinfo", "-M", "lab, hpc"]).ok();
    assert_eq!(out.stderr, "sinfo: error: No cluster ' hpc' known by database.\n");
    let out = lab.run_with(&[("SLURM_CLUSTERS", "nosuch")], &["squeue"]).fails(1);
    assert!(out.stderr.contains("invalid entry for SLURM_CLUSTERS."), "{}", out.stderr);
    let out = lab.run_with(&[("SLURM_CLUSTERS", "nosuch")], &["squeue", "-M", "lab"]).ok();
    assert!(out.stdout.starts_with("CLUSTER: lab\n"));
    lab.run_with(&[("SLURM_CLUSTERS", "nosuch")], &["sacct"]).ok();
}

#[test]
fn scontrol_takes_exactly_one_cluster() {
    let lab = Lab::start();
    let out = lab.run(&["scontrol", "-M", "hpc,lab", "ping"]).fails(1);
    assert_eq!(
        out.stderr,
        "scontrol: fatal: Only one cluster can be used at a time with scontrol\n"
    );
    lab.run(&["scontrol", "-M", "all", "ping"]).fails(1);
    let out = lab.run(&["scontrol", "-M", "lab,lab", "show", "config"]).ok();
    assert_eq!(out.stdout, "ClusterName             = real\n");
    let command = lab.command(&["scontrol", "-M", "hpc"]);
    let out = lab.slotd.feed(command, "show config\n").fails(3);
    assert_eq!(out.stdout, "show config\n");
}

#[test]
fn srun_and_salloc_print_the_command_line_that_does_it() {
    let lab = Lab::start();
    let out = lab.run(&["srun", "-M", "hpc", "-n1", "echo", "a b"]).fails(1);
    assert!(out.stderr.contains("ssh -t hpc \"srun -n1 echo 'a b'\""), "{}", out.stderr);
    let out = lab.run(&["salloc", "-M", "lab", "-n1"]).fails(1);
    assert!(out.stderr.contains("/bin/salloc -n1"), "{}", out.stderr);
}

#[test]
fn an_unsafe_or_invalid_file_is_refused_only_if_it_is_needed() {
    let lab = Lab::start();
    fs::set_permissions(lab.config(), fs::Permissions::from_mode(0o666)).unwrap();
    let out = lab.run(&["squeue", "-M", "hpc"]).fails(1);
    assert!(
        out.stderr.contains("clusters.toml: others can write to it (mode 0666)"),
        "{}",
        out.stderr
    );
    lab.configure("nme = 1");
    let out = lab.run(&["squeue", "-M", "hpc"]).fails(1);
    assert!(
        out.stderr.contains("clusters.toml: line 4: unknown key `nme`: did you mean `name`?"),
        "{}",
        out.stderr
    );
    lab.run(&["squeue"]).ok();
    lab.run(&["squeue", "-M", "slotd"]).ok();
    assert_eq!(lab.read("ssh"), "");
}

// Submissions

#[test]
fn a_job_is_submitted_with_all_its_options_and_its_work_tree() {
    let lab = Lab::start();
    let tree = lab.tree();
    fs::write(tree.join("data 'x'\n.txt"), "data").unwrap();
    fs::write(tree.join("src/job.sh"), "#!/bin/sh\n#SBATCH -M hpc\necho hi\n").unwrap();
    let mut command =
        lab.command(&["sbatch", "-M", "hpc", "-n", "2", "--comment=a b", "job.sh", "-M", "it's"]);
    command.current_dir(tree.join("src")).env("SLURM_JOB_ID", "5").env("SBATCH_ACCOUNT", "x");
    let out = lab.slotd.run(command).ok();
    assert_eq!(
        (out.stdout.as_str(), out.stderr.as_str()),
        ("Submitted batch job 17 on cluster hpc\n", "")
    );
    let (call, dir) = (lab.read("calls"), lab.read("jobs/17.dir"));
    let token = dir.split('/').rev().nth(2).unwrap();
    assert_eq!(token.len(), 32, "{dir}");
    assert!(call.starts_with("-M real -n 2 --comment=a b "), "{call}");
    assert!(call.ends_with(&format!("{token}/script/job.sh -M it's\n")), "{call}");
    assert_eq!(lab.read("jobs/17.script"), "#!/bin/sh\n#SBATCH -M hpc\necho hi\n");
    assert_eq!(lab.read("leaked"), "");
    let work = Path::new(dir.trim()).parent().unwrap().to_owned();
    assert!(dir.ends_with("/work/src\n"), "{dir}");
    assert_eq!(fs::read_to_string(work.join("data 'x'\n.txt")).unwrap(), "data");
}

#[test]
fn suffixes_appear_as_in_slurm() {
    let lab = Lab::start();
    lab.configure("options = [\"--account=x1\"]");
    let line =
        |more: &[&str]| lab.run(&[&["sbatch", "-M", "lab", "-D", "/"], more].concat()).ok().stdout;
    assert_eq!(line(&["--wrap", "true"]), "Submitted batch job 17 on cluster lab\n");
    assert_eq!(line(&["--parsable", "--wrap=true"]), "18;lab\n");
    lab.slotd.write("m.sh", "#!/bin/sh\n#SBATCH -M lab\n#SBATCH -D /\n#SBATCH --no-such-option\n");
    assert_eq!(lab.run(&["sbatch", "m.sh"]).ok().stdout, "Submitted batch job 19 on cluster lab\n");
    let both = [("SBATCH_CLUSTERS", "hpc"), ("SLURM_CLUSTERS", "lab")];
    assert_eq!(
        lab.run_with(&both, &["sbatch", "-D/", "--wrap=x"]).ok().stdout,
        "Submitted batch job 20 on cluster lab\n"
    );
    let one = [("SBATCH_CLUSTERS", "hpc")];
    assert_eq!(
        lab.run_with(&one, &["sbatch", "-D/", "m.sh"]).ok().stdout,
        "Submitted batch job 21 on cluster hpc\n"
    );
    assert!(lab.read("calls").contains("--account=x1 -D/ "), "{}", lab.read("calls"));
    assert_eq!(lab.run(&["sbatch", "-M", "slotd", "-H", "m.sh"]).fails(255).stdout, "");
    // A directive means the same as the option: both clusters are asked, and the first of the file
    // wins the tie.
    lab.slotd.write("all.sh", "#!/bin/sh\n#SBATCH -M all\n#SBATCH -w nonode\n#SBATCH -D /\n");
    let out = lab.run(&["sbatch", "all.sh"]).ok();
    assert_eq!(out.stdout, "Submitted batch job 22 on cluster hpc\n");
    let out = lab.run_with(&[("SBATCH_CLUSTERS", "lab")], &["sbatch", "all.sh"]).ok();
    assert_eq!(out.stdout, "Submitted batch job 23 on cluster lab\n");
    fs::remove_file(lab.config()).unwrap();
    lab.slotd.write("alone.sh", "#!/bin/sh\n#SBATCH -M all\n");
    let out = lab.run(&["sbatch", "alone.sh"]).ok();
    assert!(out.stdout.ends_with(" on cluster slotd\n"), "{}", out.stdout);
    lab.configure("");
    let command = lab.command(&["sbatch", "-M", "lab", "-D", "/"]);
    let out = lab.slotd.feed(command, "#!/bin/sh\n").ok();
    assert_eq!(out.stdout, "Submitted batch job 24 on cluster lab\n");
    assert!(lab.read("calls").ends_with("/script/sbatch\n"));
}

#[test]
fn errors_of_sbatch_pass_through_and_leave_no_copy() {
    let lab = Lab::start();
    let out = lab.run(&["sbatch", "-M", "lab", "-D/", "--bad", "--wrap", "true"]).fails(255);
    assert_eq!((out.stdout.as_str(), out.stderr.as_str()), ("", "sbatch: error: no such thing\n"));
    let out = lab.run(&["sbatch", "-M", "lab", "nosuchfile"]).fails(1);
    assert_eq!(out.stderr, "sbatch: error: Unable to open file nosuchfile\n");
    let out = lab.run(&["sbatch", "-M"]).fails(255);
    assert_eq!(
        out.stderr,
        "sbatch: option requires an argument -- 'M'\nTry \"sbatch --help\" for more information\n"
    );
    let out = lab.run(&["sbatch", "-M", "lab", "-D/", "--wrap=x", "arg"]).fails(1);
    assert_eq!(out.stderr, "sbatch: error: Script arguments not permitted with --wrap option\n");
    assert_eq!(lab.jobs(), Vec::<String>::new());
}

#[test]
fn dependencies_do_not_cross_clusters() {
    let lab = Lab::start();
    let own = lab.slotd.submit(&["-H", "--wrap", "true"]).to_string();
    for list in [&format!("afterok:{own}"), "afterok:1@slotd", "afterok:1@lab"] {
        let out = lab.run(&["sbatch", "-M", "hpc", "-D/", "-d", list, "--wrap=x"]).fails(1);
        assert!(
            out.stderr.starts_with(
                "sbatch: error: Batch job submission failed: Job dependency problem\n  hint: "
            ),
            "{}",
            out.stderr
        );
    }
    lab.run(&["sbatch", "-M", "hpc", "-D/", "-d", &format!("afterok:{own}@hpc"), "--wrap=x"]).ok();
    assert!(
        lab.read("calls").contains(&format!("--dependency=afterok:{own} ")),
        "{}",
        lab.read("calls")
    );
    lab.run(&["sbatch", "-M", "hpc", "-D/", "-d", "afterok:17", "--wrap=x"]).ok();
}

#[test]
fn dependencies_of_directives_and_of_the_configuration_do_not_cross() {
    let lab = Lab::start();
    let own = lab.slotd.submit(&["-H", "--wrap", "true"]).to_string();
    let script = |directive: &str| {
        let text =
            format!("#!/bin/sh\n#SBATCH --unknown value\n#SBATCH {directive}\n#SBATCH -D /\n");
        lab.slotd.write("d.sh", &text);
    };
    let refused = |words: &[&str]| {
        let out = lab.run(words).fails(1);
        assert!(out.stderr.contains("Job dependency problem\n  hint: "), "{}", out.stderr);
        out.stderr
    };
    for list in [&format!("-d afterok:{own}"), &format!("--dependency=after:0{own}+5"), "-d 1@lab"]
    {
        script(list);
        refused(&["sbatch", "-M", "hpc", "d.sh"]);
        refused(&["sbatch", "-M", "hpc", "--test-only", "d.sh"]);
    }
    script(&format!("-d afterok:{own}_[1,2]"));
    let why = refused(&["sbatch", "-M", "hpc", "d.sh"]);
    assert!(why.contains(&format!("job {own} is a job of this host; write {own}@hpc")), "{why}");
    // The command line overrides the script, and so does an option for a list that is rewritten.
    lab.run(&["sbatch", "-M", "hpc", "-d", "singleton", "d.sh"]).ok();
    script("-d afterok:5@hpc");
    lab.run(&["sbatch", "-M", "hpc", "d.sh", "an argument"]).ok();
    assert!(lab.read("calls").contains("--dependency=afterok:5 "), "{}", lab.read("calls"));
    assert_eq!(lab.jobs(), ["17", "18"]);
    lab.configure(&format!("options = [\"-dafterok:{own}\"]"));
    refused(&["sbatch", "-M", "hpc", "-D/", "--wrap=x"]);
}

#[test]
fn a_dependency_pins_the_job_to_the_cluster_of_the_other_job() {
    let lab = Lab::start();
    lab.run(&["sbatch", "-M", "hpc", "-D/", "--wrap=x"]).ok();
    let own = lab.slotd.submit(&["-H", "--wrap", "true"]).to_string();
    // The cluster would start the job first.
    lab.write("start", "2001-01-01T00:00:00");
    let here = format!("afterany:{own}");
    let out = lab.run(&["sbatch", "-M", "slotd,hpc", "-d", &here, "--wrap=true"]).ok();
    assert!(out.stdout.ends_with(" on cluster slotd\n"), "{}", out.stdout);
    assert!(
        out.stderr.starts_with(
            "sbatch: error: Problem with submit to cluster hpc: Job dependency problem\n  hint: "
        ),
        "{}",
        out.stderr
    );
    let here = format!("afterany:{own}@slotd");
    let out = lab.run(&["sbatch", "-M", "slotd,hpc", "-d", &here, "--wrap=true"]).ok();
    assert!(out.stdout.ends_with(" on cluster slotd\n"), "{}", out.stdout);
    lab.slotd.write("pin.sh", format!("#!/bin/sh\n#SBATCH -d afterany:{own}\ntrue\n"));
    let out = lab.run(&["sbatch", "-M", "slotd,hpc", "pin.sh"]).ok();
    assert!(out.stdout.ends_with(" on cluster slotd\n"), "{}", out.stdout);
    // A job of the cluster, by its name and by its number, though this host would start it first.
    lab.write("start", "2100-01-01T00:00:00");
    for list in ["afterany:17@hpc", "afterany:17"] {
        let out = lab.run(&["sbatch", "-M", "slotd,hpc", "-D/", "-d", list, "--wrap=x"]).ok();
        assert!(out.stdout.ends_with(" on cluster hpc\n"), "{}", out.stdout);
        assert!(
            out.stderr.contains("Problem with submit to cluster slotd: Job dependency problem\n"),
            "{}",
            out.stderr
        );
        assert!(lab.read("calls").contains("afterany:17 "), "{}", lab.read("calls"));
    }
    // Jobs of both: there is no place for such a job.
    let both = format!("afterany:{own}@slotd:17@hpc");
    let out = lab.run(&["sbatch", "-M", "slotd,hpc", "-d", &both, "--wrap=x"]).fails(1);
    assert!(out.stderr.ends_with("Can't run on any of the specified clusters\n"), "{}", out.stderr);
}

#[test]
fn the_cluster_with_the_earliest_start_gets_the_job() {
    let lab = Lab::start();
    // Both fake clusters are one, so the ties go to the first in the file.
    let out = lab.run(&["sbatch", "-M", "lab,hpc", "-D/", "--wrap=x"]).ok();
    assert_eq!(out.stdout, "Submitted batch job 17 on cluster hpc\n");
    let out = lab.run(&["sbatch", "-M", "lab,slotd", "--wrap=true"]).ok();
    assert!(out.stdout.ends_with(" on cluster slotd\n"), "{}", out.stdout);
    lab.write("start", "2001-01-01T00:00:00");
    let out = lab.run(&["sbatch", "-M", "slotd,lab", "-D/", "--wrap=x"]).ok();
    assert_eq!(out.stdout, "Submitted batch job 18 on cluster lab\n");
    lab.write("full", "");
    let out = lab.run(&["sbatch", "-M", "hpc,lab", "-D/", "--wrap=x"]).fails(1);
    assert_eq!(
        out.stderr,
        "sbatch: error: Problem with submit to cluster hpc: Requested node configuration is not available\n\
         sbatch: error: Problem with submit to cluster lab: Requested node configuration is not available\n\
         sbatch: error: Can't run on any of the specified clusters\n"
    );
}

#[test]
fn an_answer_that_is_lost_on_the_way_is_adopted() {
    let lab = Lab::start();
    // The connection breaks after sbatch has run, once.
    let cutter = format!(
        "#!/bin/sh\nrm '{0}/cut'\nHOME='{0}/home' PATH='{0}/bin':/usr/bin:/bin /bin/sh -c \"$1\" | head -n 1\n",
        lab.dir().display()
    );
    fs::write(lab.at("cutter"), cutter).unwrap();
    fs::set_permissions(lab.at("cutter"), fs::Permissions::from_mode(0o755)).unwrap();
    lab.write("cut", "");
    let out = lab.run(&["sbatch", "-M", "hpc", "-D/", "--wrap=x"]).ok();
    assert_eq!(out.stdout, "Submitted batch job 17 on cluster hpc\n");
    assert_eq!(lab.jobs(), ["17"]);
    assert_eq!(lab.read("ssh").lines().count(), 2);
}

#[test]
fn a_timeout_of_sbatch_that_has_submitted_is_adopted() {
    let lab = Lab::start();
    lab.write("mode", "submit \"$1\"; echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2; exit 1\n");
    let out = lab.run(&["sbatch", "-M", "hpc", "-D/", "--parsable", "--wrap=x"]).ok();
    assert_eq!(out.stdout, "17;hpc\n");
    assert_eq!(lab.jobs(), ["17"]);
}

#[test]
fn an_end_that_is_not_sbatchs_own_is_looked_up() {
    let lab = Lab::start();
    for (id, code) in (17..).zip([1, 2, 126, 127, 137, 143]) {
        let mode = format!("submit \"$1\"; echo 'out of memory' >&2; exit {code}\n");
        lab.write("mode", &mode);
        let out = lab.run(&["sbatch", "-M", "hpc", "-D/", "--parsable", "--wrap=x"]).ok();
        assert_eq!(out.stdout, format!("{id};hpc\n"), "{code}");
    }
    // The copies of the jobs are kept.
    let copies = fs::read_dir(lab.at("home/.slotd")).unwrap();
    assert_eq!(
        copies.filter(|copy| copy.as_ref().unwrap().path().join("work").exists()).count(),
        6
    );
    // A shell that is killed before it can record the answer.
    lab.write("mode", "submit \"$1\"; kill -9 $PPID $$\n");
    let mut running =
        lab.slotd.spawn(lab.command(&["sbatch", "-M", "hpc", "-D/", "--parsable", "--wrap=x"]));
    lab.slotd.wait("the job", || (lab.jobs().len() == 7).then_some(()));
    assert!(running.is_running());
    running.signal(9);
    assert!(until(|| (!running.is_running()).then_some(())).is_some());
}

#[test]
fn a_strange_end_without_a_job_is_reported_and_not_repeated() {
    let lab = Lab::start();
    lab.write("mode", "echo 'quota exceeded' >&2; exit 3\n");
    let mut running = lab.slotd.spawn(lab.command(&["sbatch", "-M", "hpc", "-D/", "--wrap=x"]));
    lab.slotd.wait("a lookup", || lab.read("queries").contains("sacct").then_some(()));
    assert!(running.is_running(), "a job may still appear");
    running.signal(9);
    let out = running.end();
    let message = "quota exceeded\nsbatch: error: sbatch of cluster hpc exited with 3, which does not show whether there is a job; looking for it\n";
    assert!(out.stderr.starts_with(message), "{}", out.stderr);
    // As if that was long ago.
    let record = lab.record();
    let token = record.file_name().unwrap().to_str().unwrap();
    lab.write(&format!("home/.slotd/{token}/run.1/code"), "3\n5\n");
    let text = fs::read_to_string(&record).unwrap();
    fs::write(&record, text.replace("\"doubted\":null", "\"doubted\":5")).unwrap();
    let out = lab.run(&["slotd", "cluster", "resolve", token]).fails(1);
    assert!(out.stderr.contains("it is safe to submit it again"), "{}", out.stderr);
    assert_eq!(lab.read("calls").lines().count(), 1);
}

#[test]
fn a_directory_that_does_not_exist_there_is_refused_at_once() {
    let lab = Lab::start();
    lab.configure("workdir = [[\"/\", \"/nonexistent\"]]");
    let out = lab.run(&["sbatch", "-M", "hpc", "--wrap=x"]).fails(1);
    let message = "sbatch: error: the working directory of the job cannot be entered\n";
    assert!(out.stderr.ends_with(message), "{}", out.stderr);
    assert_eq!(lab.read("calls"), "");
}

#[test]
fn the_id_of_a_job_is_printed_even_if_standard_output_is_full() {
    let lab = Lab::start();
    for (id, more) in [(17, &["--parsable"][..]), (18, &[]), (19, &["-W"])] {
        let words = [&["sbatch", "-M", "hpc", "-D/", "--wrap=x"][..], more].concat();
        let mut command = lab.command(&words);
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let out = command.stdout(full).stderr(std::process::Stdio::piped()).output().unwrap();
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{stderr}");
        assert!(
            stderr.contains("sbatch: error: cannot write to standard output: No space left"),
            "{stderr}"
        );
        assert!(
            stderr.ends_with(&format!("\nSubmitted batch job {id} on cluster hpc\n")),
            "{stderr}"
        );
    }
    // A reader that has exited.
    let mut command = lab.command(&["sbatch", "-M", "hpc", "-D/", "--wrap=x"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let out = command.stdout(writer).stderr(std::process::Stdio::piped()).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&out.stderr).contains("Submitted batch job 20 on cluster hpc\n")
    );
    let list = lab.run(&["slotd", "cluster", "list"]).ok().stdout;
    for id in 17..21 {
        let line = format!("submitted: slotd why {id}@hpc    # sbatch -M hpc ");
        assert!(list.contains(&line), "{list}");
    }
}

#[test]
fn only_the_latest_jobs_are_listed() {
    let lab = Lab::start();
    lab.run(&["sbatch", "-M", "hpc", "-D/", "--wrap=x"]).ok();
    let text = fs::read_to_string(lab.record()).unwrap();
    let token = lab.record().file_name().unwrap().to_str().unwrap().to_owned();
    for id in 18..40 {
        let next = format!("{id:032x}");
        let text =
            text.replace(&token, &next).replace("\"submitted\":17", &format!("\"submitted\":{id}"));
        let later = text.replace("\"at\":", "\"at\":9");
        fs::write(lab.record().with_file_name(next), later).unwrap();
    }
    let list = lab.run(&["slotd", "cluster", "list"]).ok().stdout;
    assert!(
        list.contains("submitted: 3 jobs before these\nsubmitted: slotd why 20@hpc "),
        "{list}"
    );
    assert!(list.contains("slotd why 39@hpc "), "{list}");
}

#[test]
fn a_killed_sbatch_is_resolved_later() {
    let lab = Lab::start();
    lab.write("mode", "submit \"$1\"; echo there > \"$LAB/running\"; while [ -f \"$LAB/running\" ]; do sleep 0.1; done; echo \"Submitted batch job $id\"; exit 0\n");
    let mut running = lab.slotd.spawn(lab.command(&["sbatch", "-M", "lab", "-D/", "--wrap=x"]));
    lab.slotd.wait("sbatch there", || lab.at("running").exists().then_some(()));
    running.signal(9);
    assert!(until(|| (!running.is_running()).then_some(())).is_some());
    let list = lab.run(&["slotd", "cluster", "list"]).ok().stdout;
    let token = list.split("resolve ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    fs::remove_file(lab.at("running")).unwrap();
    let out = lab.run(&["slotd", "cluster", "resolve", &token]).ok();
    assert_eq!(out.stdout, "Submitted batch job 17 on cluster lab\n");
    assert!(!lab.run(&["slotd", "cluster", "list"]).ok().stdout.contains("resolve"));
    assert_eq!(lab.jobs(), ["17"]);
}

#[test]
fn a_submission_that_was_never_sent_is_closed_for_good() {
    let lab = Lab::start();
    lab.write("away", "");
    let out = lab.run(&["sbatch", "-M", "hpc", "-D/", "--wrap=x"]).fails(1);
    assert!(out.stderr.contains("cluster hpc cannot be reached"), "{}", out.stderr);
    let out =
        lab.run(&["slotd", "cluster", "resolve", "0123456789abcdef0123456789abcdef"]).fails(1);
    assert!(out.stderr.contains("there is no submission"), "{}", out.stderr);
    lab.run(&["slotd", "cluster", "resolve", "../../x"]).fails(2);
    fs::remove_file(lab.at("away")).unwrap();
    // As if sbatch was killed before its first connection.
    let record = lab.record();
    let text = fs::read_to_string(&record).unwrap().replace("\"refused\"", "\"prepared\"");
    let token = record.file_name().unwrap().to_str().unwrap();
    fs::write(&record, &text).unwrap();
    // Its directory may be elsewhere, so squeue and sacct must not know it for three minutes.
    let mut running = lab.slotd.spawn(lab.command(&["slotd", "cluster", "resolve", token]));
    lab.slotd
        .wait("two lookups", || (lab.read("queries").matches("squeue").count() >= 2).then_some(()));
    assert!(running.is_running());
    running.signal(9);
    assert!(until(|| (!running.is_running()).then_some(())).is_some());
    assert_eq!(stages(&lab), 0, "a query creates no directory");
    let asked = fs::read_to_string(&record).unwrap();
    assert!(!asked.contains("\"doubted\":null"), "{asked}");
    let earlier = text.replace("\"doubted\":null", "\"doubted\":5");
    fs::write(&record, &earlier).unwrap();
    let out = lab.run(&["slotd", "cluster", "resolve", token]).fails(1);
    assert!(out.stderr.contains("it is safe to submit it again"), "{}", out.stderr);
    assert_eq!((lab.jobs(), stages(&lab)), (Vec::new(), 0));
    // A job that squeue shows counts, although its directory is not visible.
    fs::write(&record, &earlier).unwrap();
    lab.write("jobs/23", &format!("RUNNING\n/scratch/{token}/script/x\n"));
    // A job that it submitted from its copy is another job.
    lab.write("jobs/22", &format!("RUNNING\n/scratch/{token}/work/next.sh\n"));
    lab.write("jobs/24", &format!("RUNNING\n/scratch/{token}/work/next.sh\n"));
    let out = lab.run(&["slotd", "cluster", "resolve", token]).ok();
    assert_eq!(out.stdout, "Submitted batch job 23 on cluster hpc\n");
    assert_eq!(lab.jobs(), ["22", "23", "24"]);
}

#[test]
fn the_id_of_a_quiet_submission_is_known_to_other_commands() {
    let lab = Lab::start();
    lab.write("mode", "submit \"$1\"; exit 0\n");
    let out = lab.run(&["sbatch", "-M", "hpc", "-Q", "-D/", "--wrap=x"]).ok();
    assert_eq!((out.stdout.as_str(), out.stderr.as_str()), ("", ""));
    let text = fs::read_to_string(lab.record()).unwrap();
    assert!(text.contains("{\"submitted\":17}"), "{text}");
    // A cluster that does not print IDs and does not answer: the job exists all the same.
    lab.write("squeue.fails", "");
    lab.run(&["sbatch", "-M", "hpc", "-Q", "-D/", "--wrap=x"]).ok();
    assert_eq!(lab.jobs(), ["17", "18"]);
}

#[test]
fn dependencies_are_rewritten_only_for_the_cluster_itself() {
    let lab = Lab::start();
    let file = fs::read_to_string(lab.config()).unwrap();
    fs::write(lab.config(), file + "[[cluster]]\nname = \"hpc2\"\nssh = \"hpc2\"\n").unwrap();
    let out =
        lab.run(&["sbatch", "-M", "hpc", "-D/", "-d", "afterok:17@hpc2", "--wrap=x"]).fails(1);
    assert!(out.stderr.contains("17@hpc2 is not a job of hpc"), "{}", out.stderr);
    assert_eq!(lab.jobs(), Vec::<String>::new());
    let comment = "--comment=afterok:17@hpc";
    lab.run(&["sbatch", "-M", "hpc", "-D/", comment, "-d", "afterok:17@hpc", "--wrap=x"]).ok();
    let call = lab.read("calls");
    assert!(call.contains("--comment=afterok:17@hpc --dependency=afterok:17 "), "{call}");
}

// Names that change

#[test]
fn a_name_that_now_means_another_cluster_does_not_adopt_its_jobs() {
    let lab = Lab::start();
    lab.run(&["sbatch", "-M", "hpc", "--wrap=x"]).ok();
    let work = PathBuf::from(lab.read("jobs/17.dir").trim());
    fs::write(work.join("slurm-17.out"), "ours\n").unwrap();
    let record = lab.record();
    let token = record.file_name().unwrap().to_str().unwrap();
    let text = fs::read_to_string(&record).unwrap();
    let local = format!("local = \"{}\"", lab.at("bin").display());
    for now in ["ssh = \"other\"", &local] {
        lab.clusters(&[("hpc", now)]);
        lab.write("ssh", "");
        lab.write("queries", "");
        for command in ["wait", "log", "why", "fetch"] {
            let out = lab.run(&["slotd", command, "17@hpc"]).fails(1);
            let message = "error: job 17@hpc was submitted to ssh hpc, but hpc is now ";
            assert!(out.stderr.contains(message), "{command}: {}", out.stderr);
            assert!(out.stderr.contains("another name and ssh = \"hpc\" to "), "{}", out.stderr);
        }
        fs::write(&record, text.replace("{\"submitted\":17}", "\"unknown\"")).unwrap();
        let out = lab.run(&["slotd", "cluster", "resolve", token]).fails(1);
        assert!(out.stderr.contains("was submitted to ssh hpc, but hpc is now "), "{}", out.stderr);
        fs::write(&record, &text).unwrap();
        assert_eq!((lab.read("ssh"), lab.read("queries")), (String::new(), String::new()));
        let list = lab.run(&["slotd", "cluster", "list"]).ok().stdout;
        assert!(list.contains("submitted: job 17 of ssh hpc    # sbatch -M hpc "), "{list}");
    }
    // Under another name it is found, and the files are where they were put.
    lab.clusters(&[("hpc", "ssh = \"other\""), ("old", "ssh = \"hpc\"\ndir = \"~/elsewhere\"")]);
    assert_eq!(lab.run(&["slotd", "log", "017@old"]).ok().stdout, "ours\n");
    lab.run(&["slotd", "fetch", "17@old"]).ok();
    assert_eq!(lab.slotd.read("old-17/slurm-17.out"), "ours\n");
    // The other cluster gives the same number to a job of ours.
    fs::remove_file(lab.at("last")).unwrap();
    lab.run(&["sbatch", "-M", "hpc", "--wrap=y"]).ok();
    end_jobs(&lab, "2026-01-01T00:00:00");
    lab.run(&["slotd", "wait", "17@hpc"]).ok();
    let ended: Vec<bool> = fs::read_dir(record.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_none())
        .map(|path| fs::read_to_string(path).unwrap())
        .map(|text| (text.contains("\"end\":{"), text.contains("\"other\"")))
        .map(|(has_ended, is_other)| has_ended == is_other)
        .collect();
    assert_eq!(ended, [true, true]);
}

#[test]
fn another_staging_directory_leaves_old_files_in_reach() {
    let lab = Lab::start();
    lab.run(&["sbatch", "-M", "hpc", "--wrap=x"]).ok();
    let work = PathBuf::from(lab.read("jobs/17.dir").trim());
    fs::write(work.join("out"), "ours\n").unwrap();
    lab.configure("dir = \"~/elsewhere\"");
    lab.run(&["slotd", "fetch", "17@HPC"]).ok();
    assert_eq!(lab.slotd.read("hpc-17/out"), "ours\n");
    // A record of an earlier version names no host.
    let record = lab.record();
    let text = fs::read_to_string(&record).unwrap();
    let earlier = text.replace("\"link\":{\"ssh\":\"hpc\"},", "");
    assert_ne!(earlier, text);
    fs::write(&record, earlier).unwrap();
    lab.run(&["slotd", "fetch", "--into", "again", "17@hpc"]).ok();
}

#[test]
fn records_of_a_removed_cluster_are_cleaned_and_its_copies_named() {
    let lab = Lab::start();
    for _ in 0..2 {
        lab.run(&["sbatch", "-M", "hpc", "--wrap=x"]).ok();
    }
    let records = lab.slotd.root.join("lib/clusters");
    let names = || {
        let names = fs::read_dir(&records).unwrap();
        let mut names: Vec<String> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let [one, two] = names().try_into().unwrap();
    let text = fs::read_to_string(records.join(&two)).unwrap();
    let start = text.find("{\"submitted\":").unwrap();
    let end = start + text[start..].find('}').unwrap() + 1;
    fs::write(records.join(&two), text.replace(&text[start..end], "\"unknown\"")).unwrap();
    let clean = |more: &[&str]| lab.run(&[&["slotd", "cluster", "clean", "hpc"], more].concat());
    for tables in [&[("lab", "ssh = \"lab\"")][..], &[("hpc", "ssh = \"other\"")]] {
        lab.clusters(tables);
        let out = clean(&["--dry-run"]).ok().stdout;
        assert!(
            out.contains(
                "1 submission is kept, because its cluster is not in clusters.toml any more"
            ),
            "{out}"
        );
        assert!(out.contains("its outcome is unknown (slotd cluster resolve): "), "{out}");
        let out = clean(&["--dry-run", "--older-than", "0s"]).ok().stdout;
        let line = format!(
            "1 record of submissions to ssh hpc would be deleted, which is not in clusters.toml any more; copies may be left there in ~/.slotd: {one}\n"
        );
        assert!(out.contains(&line), "{out}");
        assert_eq!(names(), [one.as_str(), &two]);
    }
    let out = clean(&["--yes", "--older-than", "0s"]).ok().stdout;
    assert!(out.contains("1 record of submissions to ssh hpc was deleted"), "{out}");
    assert_eq!((names(), stages(&lab)), (vec![two], 2));
    lab.run(&["slotd", "cluster", "clean", "nosuch", "--yes"]).fails(1);
}

#[test]
fn damaged_records_and_leftovers_are_named_and_cleaned() {
    let lab = Lab::start();
    lab.run(&["sbatch", "-M", "hpc", "--wrap=x"]).ok();
    let dir = lab.slotd.root.join("lib/clusters");
    let (empty, cut) = ("0".repeat(32), "1".repeat(32));
    fs::write(dir.join(&empty), "").unwrap();
    fs::write(dir.join(&cut), "{\"token\":\"11").unwrap();
    // As if sbatch was killed while git listed the work tree.
    let leftover = dir.join(format!("{}.git", "2".repeat(32)));
    fs::create_dir(&leftover).unwrap();
    std::os::unix::fs::symlink(lab.slotd.work(), leftover.join("link")).unwrap();
    let out = lab.run(&["slotd", "cluster", "list"]).fails(1);
    for (token, why) in [(&empty, "it is empty"), (&cut, "it is incomplete or damaged: ")] {
        let path = dir.join(token);
        let line = format!(
            "slotd: error: the record {} of a submission cannot be read: {why}",
            path.display()
        );
        assert!(
            out.stderr.contains(&line) && out.stderr.contains(&format!("grep {token};")),
            "{}",
            out.stderr
        );
        let out = lab.run(&["slotd", "cluster", "resolve", token]).fails(1);
        assert!(out.stderr.contains(&line), "{}", out.stderr);
    }
    assert!(out.stdout.contains("submitted: slotd why 17@hpc "), "{}", out.stdout);
    let out = lab.run(&["slotd", "cluster", "clean", "hpc", "--dry-run"]).ok();
    assert!(
        out.stdout.ends_with("1 file of interrupted submissions would be deleted on this host\n"),
        "{}",
        out.stdout
    );
    assert!(out.stderr.contains(&empty) && leftover.exists());
    let out = lab.run(&["slotd", "cluster", "clean", "hpc", "--yes"]).ok();
    assert!(
        out.stdout.ends_with("1 file of interrupted submissions was deleted on this host\n"),
        "{}",
        out.stdout
    );
    assert!(!leftover.exists() && lab.slotd.work().is_dir());
    assert!(dir.join(&empty).exists() && dir.join(&cut).exists());
}

// Waiting and results

#[test]
fn a_wait_for_many_jobs_sends_one_query_per_poll() {
    let lab = Lab::start();
    lab.configure("poll = 1");
    for id in 17..117 {
        lab.write(&format!("jobs/{id}"), "RUNNING\n/x\n");
    }
    let words: Vec<String> = (17..117).map(|id| format!("{id}@hpc")).collect();
    let line: Vec<&str> =
        ["slotd", "wait"].into_iter().chain(words.iter().map(String::as_str)).collect();
    let started = std::time::Instant::now();
    let mut running = lab.slotd.spawn(lab.command(&line));
    let count = |name: &str| lab.read("queries").lines().filter(|line| *line == name).count();
    lab.slotd.wait("three queries", || (count("squeue") >= 3).then_some(()));
    assert!(running.is_running());
    assert_eq!([count("sacct"), count("scontrol")], [0, 0], "squeue knows all jobs");
    // Jobs that only scontrol may know share a query.
    fs::rename(lab.at("jobs"), lab.at("forgotten")).unwrap();
    fs::create_dir(lab.at("jobs")).unwrap();
    lab.slotd.wait("two queries", || (count("scontrol") >= 2).then_some(()));
    let ended: String = (17..117)
        .map(|id| format!("{id}|{}\n", if id == 50 { "FAILED|7:0" } else { "COMPLETED|0:0" }))
        .collect();
    lab.write("ended", &ended);
    running.end().fails(7);
    let polls = lab.read("ssh").lines().count();
    let most = 1 + usize::try_from(started.elapsed().as_secs()).unwrap();
    assert!(polls <= most, "{polls} connections in {:?}", started.elapsed());
    assert_eq!(count("squeue"), polls);
    assert!(count("sacct") < polls && count("scontrol") < polls, "{}", lab.read("queries"));
}

#[test]
fn sbatch_with_wait_exits_with_the_code_of_the_job() {
    let lab = Lab::start();
    lab.write("mode", "submit \"$1\"; rm \"$LAB/jobs/$id\"; echo \"$id|FAILED|7:0\" > \"$LAB/ended\"; echo \"Submitted batch job $id\"; exit 0\n");
    let out = lab.run(&["sbatch", "-W", "-M", "lab", "-D/", "--wrap", "exit 7"]).fails(7);
    assert_eq!(out.stdout, "Submitted batch job 17 on cluster lab\n");
}

#[test]
fn output_explanation_and_files_of_a_job_are_read_there() {
    let lab = Lab::start();
    let tree = lab.tree();
    fs::write(tree.join("input"), "1").unwrap();
    let mut command = lab.command(&["sbatch", "-M", "hpc", "--wrap=x"]);
    command.current_dir(&tree);
    lab.slotd.run(command).ok();
    let work = PathBuf::from(lab.read("jobs/17.dir").trim());
    fs::write(work.join("slurm-17.out"), "one\ntwo\n").unwrap();
    fs::create_dir(work.join("out")).unwrap();
    fs::write(work.join("out/a"), "result").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", work.join("leak")).unwrap();
    assert_eq!(lab.run(&["slotd", "log", "17@hpc"]).ok().stdout, "one\ntwo\n");
    assert_eq!(lab.run(&["slotd", "log", "-n", "1", "17@hpc"]).ok().stdout, "two\n");
    let why = lab.run(&["slotd", "why", "17@hpc"]).ok().stdout;
    assert!(why.starts_with("Job 17@hpc (fit) is PENDING.\n  Reason: Resources\n"), "{why}");
    let out = lab.run(&["slotd", "fetch", "17@hpc"]).fails(1);
    assert_eq!(out.stdout, "2 files in hpc-17\n");
    assert!(
        out.stderr.contains("not fetched: ./leak: it is a link that leads out of the directory"),
        "{}",
        out.stderr
    );
    assert_eq!(lab.slotd.read("hpc-17/out/a"), "result");
    assert!(!lab.slotd.exists("hpc-17/input"));
    let out = lab.run(&["slotd", "fetch", "17@hpc"]).fails(1);
    assert!(out.stderr.contains("hpc-17 contains "), "{}", out.stderr);
    lab.run(&["slotd", "fetch", "18@hpc"]).fails(1);
}

#[test]
fn text_from_a_cluster_cannot_control_the_terminal() {
    let lab = Lab::start();
    lab.run(&["sbatch", "-M", "hpc", "--wrap=x"]).ok();
    lab.program("scontrol", "printf 'JobId=17 JobName=a\\033[2Jb\\n   JobState=RUN\\233NING\\n   StdOut=/d/\\033]0;x\\007\\n'");
    let why = lab.run(&["slotd", "why", "17@hpc"]).ok().stdout;
    assert!(why.starts_with("Job 17@hpc (a\\033[2Jb) is "), "{why:?}");
    assert!(!why.contains(|c: char| c.is_control() && c != '\n'), "{why:?}");
    let out = lab.run(&["slotd", "log", "17@hpc"]).ok();
    assert_eq!(out.stderr, "job 17 has no output yet: /d/\\033]0;x\\007\n");
    lab.program("tar", "printf 'tar: \\033[31mno\\n' >&2; PATH=/usr/bin:/bin; exec tar \"$@\"");
    let out = lab.run(&["slotd", "fetch", "17@hpc"]).ok();
    assert_eq!(out.stderr, "tar: \\033[31mno\n");
    lab.program("scontrol", "exit 1");
    lab.program("sacct", "printf '17|a\\033b|FAILED|3:0|||1|2\\n'");
    let why = lab.run(&["slotd", "why", "17@hpc"]).ok().stdout;
    assert!(why.starts_with("Job 17@hpc (a\\033b) is FAILED."), "{why:?}");
    // The output of Slurm's own commands passes through as it is.
    lab.program("sdiag", "printf '\\033[31m\\n'");
    assert_eq!(lab.run(&["sdiag", "-M", "hpc"]).ok().stdout, "\u{1b}[31m\n");
}

#[test]
fn a_fetch_that_fails_leaves_no_file_and_can_be_tried_again() {
    let lab = Lab::start();
    lab.run(&["sbatch", "-M", "hpc", "--wrap=x"]).ok();
    let work = PathBuf::from(lab.read("jobs/17.dir").trim());
    fs::create_dir(work.join("deep")).unwrap();
    fs::write(work.join("deep/whole"), vec![7; 1 << 20]).unwrap();
    let sparse = fs::File::create(work.join("sparse")).unwrap();
    sparse.set_len(1 << 28).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", (1 << 28) - 3).unwrap();
    fs::write(work.join("deep/zero"), vec![0; 1 << 20]).unwrap();
    // The connection breaks in the middle of a file.
    let cutter = format!(
        "#!/bin/sh\nHOME='{0}/home' PATH='{0}/bin':/usr/bin:/bin /bin/sh -c \"$1\" | head -c 300000\n",
        lab.dir().display()
    );
    fs::write(lab.at("cutter"), cutter).unwrap();
    fs::set_permissions(lab.at("cutter"), fs::Permissions::from_mode(0o755)).unwrap();
    lab.write("cut", "");
    let out = lab.run(&["slotd", "fetch", "17@hpc"]).fails(1);
    assert!(out.stderr.contains("the connection to cluster hpc broke"), "{}", out.stderr);
    assert!(!lab.slotd.exists("hpc-17"));
    fs::remove_file(lab.at("cut")).unwrap();
    // A directory that existed stays, without the unfinished files of a fetch that was killed.
    let token = lab.record().file_name().unwrap().to_str().unwrap().to_owned();
    let part = format!("hpc-17/.{token}.part");
    fs::create_dir_all(lab.slotd.work().join(&part).join("half")).unwrap();
    let outside = lab.slotd.work().join("outside");
    fs::write(&outside, "").unwrap();
    std::os::unix::fs::symlink(&outside, lab.slotd.work().join(&part).join("link")).unwrap();
    lab.run(&["slotd", "fetch", "17@hpc"]).ok();
    assert!(!lab.slotd.exists(&part) && outside.exists());
    let found = fs::metadata(lab.slotd.work().join("hpc-17/sparse")).unwrap();
    let blocks = std::os::unix::fs::MetadataExt::blocks(&found);
    assert_eq!(found.len(), 1 << 28);
    assert!(blocks * 512 < 1 << 20, "{blocks}");
    assert_eq!(fs::read(lab.slotd.work().join("hpc-17/deep/whole")).unwrap(), vec![7; 1 << 20]);
    // A link in the place of the unfinished directory is not followed, nor a link to the directory.
    fs::create_dir(lab.slotd.work().join("odd")).unwrap();
    let link = lab.slotd.work().join(format!("odd/.{token}.part"));
    std::os::unix::fs::symlink(lab.slotd.work().join("hpc-17"), &link).unwrap();
    let out = lab.run(&["slotd", "fetch", "--into", "odd", "17@hpc"]).fails(1);
    assert!(out.stderr.contains("odd contains "), "{}", out.stderr);
    assert!(lab.slotd.exists("hpc-17/deep/whole"));
    std::os::unix::fs::symlink("nowhere", lab.slotd.work().join("to")).unwrap();
    lab.run(&["slotd", "fetch", "--into", "to", "17@hpc"]).fails(1);
    assert!(!lab.slotd.exists("nowhere"));
}

#[test]
fn a_fetch_onto_a_full_disk_keeps_nothing() {
    let lab = Lab::start();
    lab.run(&["sbatch", "-M", "hpc", "--wrap=x"]).ok();
    let work = PathBuf::from(lab.read("jobs/17.dir").trim());
    for name in ["a", "b", "c"] {
        fs::write(work.join(name), vec![7; 1 << 20]).unwrap();
    }
    let into = lab.slotd.work().join("small");
    fs::create_dir(&into).unwrap();
    let Some(disk) = slotd_kit::disk::SmallDisk::mount(&into, 2 << 20) else { return };
    let out = lab.run(&["slotd", "fetch", "--into", "small", "17@hpc"]).fails(1);
    assert!(
        out.stderr.contains("cannot unpack the files of job 17@hpc into small: ")
            && out.stderr.contains("No space left on device"),
        "{}",
        out.stderr
    );
    assert_eq!((out.stdout.as_str(), fs::read_dir(&into).unwrap().count()), ("", 0));
    assert!(!fs::read_to_string(lab.record()).unwrap().contains("\"fetched\":true"));
    fs::remove_file(work.join("c")).unwrap();
    fs::remove_file(work.join("b")).unwrap();
    lab.run(&["slotd", "fetch", "--into", "small", "17@hpc"]).ok();
    drop(disk);
}

#[test]
fn files_with_old_times_and_names_are_fetched() {
    let lab = Lab::start();
    let tree = lab.tree();
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    for name in ["same", "changed", "src/same"] {
        fs::write(tree.join(name), "1").unwrap();
    }
    let earlier = lab.at("home/earlier/deep/file");
    fs::write(&earlier, "moved").unwrap();
    fs::write(earlier.with_file_name("it's\\ odd"), "odd").unwrap();
    let mut command = lab.command(&["sbatch", "-M", "hpc", "--wrap=x"]);
    command.current_dir(&tree);
    lab.slotd.run(command).ok();
    let work = PathBuf::from(lab.read("jobs/17.dir").trim());
    let put = |name: &str, text: &str| {
        fs::write(work.join(name), text).unwrap();
        let file = fs::File::options().write(true).open(work.join(name)).unwrap();
        file.set_modified(old).unwrap();
    };
    put("copied", "cp -p");
    put("changed", "2");
    // No file of a moved directory changes by it, neither a new one nor one that is replaced.
    fs::rename(lab.at("home/earlier"), work.join("moved")).unwrap();
    fs::rename(work.join("src"), work.join("renamed")).unwrap();
    fs::create_dir_all(work.join("empty/below")).unwrap();
    lab.run(&["slotd", "fetch", "17@hpc"]).ok();
    let find = |dir: &Path| {
        let mut find = std::process::Command::new("find");
        find.args([".", "!", "-name", "*.out"]).current_dir(dir);
        String::from_utf8(find.output().unwrap().stdout).unwrap()
    };
    let found = find(&lab.slotd.work().join("hpc-17"));
    let mut names: Vec<&str> = found.lines().collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            ".",
            "./changed",
            "./copied",
            "./empty",
            "./empty/below",
            "./moved",
            "./moved/deep",
            "./moved/deep/file",
            "./moved/deep/it's\\ odd",
            "./renamed",
            "./renamed/same"
        ]
    );
    assert_eq!(lab.slotd.read("hpc-17/changed"), "2");
    // A FIFO has no content to fetch, and is reported.
    std::process::Command::new("mkfifo").arg(work.join("fifo")).status().unwrap();
    let out = lab.run(&["slotd", "fetch", "--into", "again", "17@hpc"]).fails(1);
    assert!(out.stderr.contains("not fetched: ./fifo: it is a FIFO"), "{}", out.stderr);
}

#[test]
fn a_wait_outlasts_a_controller_that_does_not_answer() {
    let lab = Lab::start();
    lab.configure("poll = 1");
    for name in ["squeue.fails", "sacct.fails", "scontrol.fails"] {
        lab.write(name, "");
    }
    let mut running = lab.slotd.spawn(lab.command(&["slotd", "wait", "17@hpc"]));
    lab.slotd.wait("three queries", || {
        (lab.read("queries").matches("scontrol").count() >= 3).then_some(())
    });
    assert!(running.is_running());
    lab.write("ended", "17|FAILED|7:0\n");
    fs::remove_file(lab.at("sacct.fails")).unwrap();
    let out = running.end().fails(7);
    assert_eq!(
        out.stderr,
        "slotd: squeue, sacct or scontrol of cluster hpc does not answer; trying again every 1 seconds\n"
    );
}

#[test]
fn a_log_is_followed_while_squeue_fails() {
    let lab = Lab::start();
    lab.configure("poll = 1");
    lab.run(&["sbatch", "-M", "hpc", "--wrap=x"]).ok();
    let work = PathBuf::from(lab.read("jobs/17.dir").trim());
    fs::write(work.join("slurm-17.out"), "one\n").unwrap();
    lab.write("squeue.fails", "");
    lab.write("sacct.fails", "");
    let running = lab.slotd.spawn(lab.command(&["slotd", "log", "-f", "17@hpc"]));
    let asked = || lab.read("queries").matches("squeue").count();
    lab.slotd.wait("three queries", || (asked() >= 6).then_some(()));
    let mut log = fs::File::options().append(true).open(work.join("slurm-17.out")).unwrap();
    std::io::Write::write_all(&mut log, b"two\n").unwrap();
    let before = asked();
    lab.slotd.wait("another query", || (asked() >= before + 2).then_some(()));
    end_jobs(&lab, "2026-01-01T00:00:00");
    fs::remove_file(lab.at("squeue.fails")).unwrap();
    fs::remove_file(lab.at("sacct.fails")).unwrap();
    let out = running.end().ok();
    assert_eq!(out.stdout, "one\ntwo\n");
}

#[test]
fn a_log_whose_reader_exits_ends_silently() {
    let lab = Lab::start();
    lab.run(&["sbatch", "-M", "hpc", "--wrap=x"]).ok();
    let work = PathBuf::from(lab.read("jobs/17.dir").trim());
    fs::write(work.join("slurm-17.out"), "line\n".repeat(1 << 20)).unwrap();
    let mut command = lab.command(&["slotd", "log", "17@hpc"]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let out = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stderr), "");
}

#[test]
fn nothing_is_deleted_while_the_staging_directory_is_not_visible() {
    let lab = Lab::start();
    for _ in 0..2 {
        lab.run(&["sbatch", "-M", "hpc", "--wrap=x"]).ok();
    }
    fs::remove_file(lab.at("jobs/17")).unwrap();
    lab.write("ended", "17|COMPLETED|0:0|2001-01-01T00:00:00\n");
    let (stage, away) = (lab.at("home/.slotd"), lab.at("home/unmounted"));
    fs::rename(&stage, &away).unwrap();
    for more in [&["--dry-run"][..], &["--yes", "--older-than", "0s"]] {
        let out = lab.run(&[&["slotd", "cluster", "clean", "hpc"], more].concat()).fails(1);
        assert!(
            out.stderr.contains("nothing was deleted: the staging directory"),
            "{}",
            out.stderr
        );
    }
    let records = || fs::read_dir(lab.slotd.root.join("lib/clusters")).unwrap().count();
    assert_eq!((records(), stage.exists()), (2, false));
    // Replace the stage by an empty directory. squeue shows another directory for job 18.
    fs::create_dir(&stage).unwrap();
    lab.write("jobs/18", "RUNNING\n/elsewhere\n");
    lab.write("jobs/18.dir", "/elsewhere\n");
    let out = lab.run(&["slotd", "cluster", "clean", "hpc", "--yes", "--older-than", "0s"]).ok();
    assert!(out.stdout.contains("because its job has not ended: 18\n"), "{}", out.stdout);
    assert!(!fs::read_to_string(lab.record()).unwrap().contains("\"end\":{"));
}

/// Ends all jobs, at this time.
fn end_jobs(lab: &Lab, at: &str) {
    let ended: String = lab.jobs().iter().map(|id| format!("{id}|COMPLETED|0:0|{at}\n")).collect();
    lab.write("ended", &(lab.read("ended") + &ended));
    for id in lab.jobs() {
        fs::remove_file(lab.at("jobs").join(id)).unwrap();
    }
}

fn stages(lab: &Lab) -> usize {
    fs::read_dir(lab.at("home/.slotd")).map_or(0, |entries| entries.count())
}

#[test]
fn copies_of_fetched_and_old_jobs_are_deleted_with_their_records() {
    let lab = Lab::start();
    let records = lab.slotd.root.join("lib/clusters");
    let records = || fs::read_dir(&records).unwrap().count();
    for _ in 0..2 {
        lab.run(&["sbatch", "-M", "hpc", "--wrap=x"]).ok();
    }
    let clean = |more: &[&str]| lab.run(&[&["slotd", "cluster", "clean", "hpc"], more].concat());
    let out = clean(&["--yes", "--older-than", "0s"]).ok();
    assert_eq!(
        out.stdout,
        "0 submissions to hpc were deleted; their copies there freed 0\n\
         2 submissions are kept, because their job has not ended: 17 18\n"
    );
    // They ended just now, whatever the clock of the cluster says.
    end_jobs(&lab, "2001-01-01T00:00:00");
    let out = clean(&["--yes"]).ok();
    assert!(
        out.stdout.ends_with("their job ended recently (--older-than): 17 18\n"),
        "{}",
        out.stdout
    );
    // They were submitted and ended long ago, and their files were not fetched.
    for entry in fs::read_dir(lab.slotd.root.join("lib/clusters")).unwrap() {
        let path = entry.unwrap().path();
        let mut record: serde_json::Value =
            serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        record["at"] = 978_307_200.into();
        record["end"]["at"] = 978_307_200.into();
        fs::write(&path, record.to_string()).unwrap();
    }
    lab.run(&["sbatch", "-M", "hpc", "--wrap=x"]).ok();
    lab.write("squeue.fails", "");
    let out = clean(&["--yes"]).fails(1);
    assert!(out.stderr.contains("squeue of cluster hpc does not answer"), "{}", out.stderr);
    fs::remove_file(lab.at("squeue.fails")).unwrap();
    clean(&[]).fails(2);
    assert_eq!((stages(&lab), records()), (3, 3));
    let out = clean(&["--dry-run"]).ok();
    assert!(out.stdout.starts_with("2 submissions to hpc would be deleted; "), "{}", out.stdout);
    assert!(out.stdout.ends_with("because its job has not ended: 19\n"), "{}", out.stdout);
    assert_eq!((stages(&lab), records()), (3, 3));
    let list = lab.run(&["slotd", "cluster", "list"]).ok().stdout;
    assert!(list.contains("old: slotd cluster clean hpc    # 2 submissions\n"), "{list}");
    clean(&["--yes"]).ok();
    assert_eq!((stages(&lab), records()), (1, 1));
    // Files that were fetched while the job ran are not complete.
    lab.run(&["slotd", "fetch", "--into", "early", "19@hpc"]).ok();
    end_jobs(&lab, "2100-01-01T00:00:00");
    let out = clean(&["--yes"]).ok();
    assert!(out.stdout.contains("its files were not fetched"), "{}", out.stdout);
    lab.run(&["slotd", "fetch", "19@hpc"]).ok();
    let out = clean(&["--yes"]).ok();
    assert!(out.stdout.starts_with("1 submission to hpc was deleted; "), "{}", out.stdout);
    assert_eq!((stages(&lab), records()), (0, 0));
}

#[test]
fn a_submission_whose_outcome_is_unknown_is_never_deleted() {
    let lab = Lab::start();
    lab.run(&["sbatch", "-M", "hpc", "--wrap=x"]).ok();
    end_jobs(&lab, "2001-01-01T00:00:00");
    let dir = lab.slotd.root.join("lib/clusters");
    let record = fs::read_dir(&dir).unwrap().next().unwrap().unwrap().path();
    let text = fs::read_to_string(&record).unwrap();
    for state in ["\"unknown\"", "\"prepared\"", "{\"submitted\":null}"] {
        fs::write(&record, text.replace("{\"submitted\":17}", state)).unwrap();
        let out =
            lab.run(&["slotd", "cluster", "clean", "hpc", "--yes", "--older-than", "0s"]).ok();
        assert!(out.stdout.contains("because its outcome is unknown"), "{state}: {}", out.stdout);
        assert_eq!((stages(&lab), record.exists()), (1, true), "{state}");
    }
}

#[test]
fn top_lists_jobs_of_other_clusters_and_asks_no_more_often_than_poll() {
    let lab = Lab::start();
    lab.configure("poll = 2");
    let line = format!("PATH='{}':$PATH exec slotd top", lab.at("ssh-bin").display());
    let Some(top) = slotd_kit::tmux::Tmux::start(&lab.slotd, &line) else { return };
    top.shows("0 running");
    assert_eq!((lab.read("ssh"), top.screen().contains("ELSEWHERE")), (String::new(), false));
    // The list appears with the submission.
    lab.run(&["sbatch", "-M", "hpc", "--wrap=x"]).ok();
    let before = lab.read("ssh").lines().count();
    let started = std::time::Instant::now();
    top.shows("17@hpc");
    top.shows("RUNNING  ");
    let polls = || lab.read("ssh").lines().count() - before;
    lab.slotd.wait("two queries", || (polls() >= 2).then_some(()));
    let most = 1 + usize::try_from(started.elapsed().as_secs() / 2).unwrap();
    assert!(polls() <= most + 1, "{} queries in {:?}", polls(), started.elapsed());
    // A cluster that does not answer costs one line, and keys work meanwhile.
    lab.write("away", "");
    top.shows("cluster hpc cannot be reached: ssh: connect to host hpc port 22");
    top.press(&["?"]);
    top.shows("q or Esc to return");
    top.press(&["Escape"]);
    fs::remove_file(lab.at("away")).unwrap();
    top.shows("17@hpc");
    // After the end of the last job no queries are sent.
    end_jobs(&lab, "2026-01-01T00:00:00");
    top.shows("COMPLETED");
    let record = fs::read_dir(lab.slotd.root.join("lib/clusters")).unwrap().next().unwrap();
    let text = fs::read_to_string(record.unwrap().path()).unwrap();
    assert!(text.contains("\"state\":\"COMPLETED\""), "{text}");
    let ended = lab.read("ssh").lines().count();
    lab.slotd.wrap(&["-J", "local"], "true");
    top.shows("local");
    assert_eq!(lab.read("ssh").lines().count(), ended);
}

#[test]
fn a_screen_without_other_clusters_starts_no_ssh() {
    let lab = Lab::start();
    lab.run(&["sbatch", "-M", "hpc", "--wrap=x"]).ok();
    fs::remove_file(lab.config()).unwrap();
    let before = lab.read("ssh");
    let line = format!("PATH='{}':$PATH exec slotd top", lab.at("ssh-bin").display());
    let Some(top) = slotd_kit::tmux::Tmux::start(&lab.slotd, &line) else { return };
    top.shows("0 running");
    lab.slotd.wrap(&["-J", "local"], "true");
    let screen = top.shows("local");
    assert!(!screen.contains("hpc"), "{screen}");
    assert_eq!(lab.read("ssh"), before);
}

// slotd cluster

#[test]
fn clusters_are_listed_checked_and_known_to_sacctmgr() {
    let lab = Lab::start();
    let out =
        lab.run(&["sacctmgr", "-n", "-P", "show", "clusters", "format=cluster,controlhost"]).ok();
    assert_eq!(out.stdout, "slotd|127.0.0.1\nhpc|hpc\nlab|127.0.0.1\n");
    assert!(
        lab.run(&["slotd", "cluster", "list"])
            .ok()
            .stdout
            .contains("hpc          ssh hpc  dir ~/.slotd  workdir snapshot\n")
    );
    let out = lab.run(&["slotd", "cluster", "check", "hpc"]).ok();
    assert!(out.stdout.contains("ok    ClusterName: real\n"), "{}", out.stdout);
    fs::write(lab.at("bin/sbatch"), "#!/bin/sh\necho slurm-wlm 22.05.8-slotd-0.6.0\n").unwrap();
    lab.write("sacct.fails", "");
    let out = lab.run(&["slotd", "cluster", "check", "hpc"]).fails(1);
    assert!(out.stdout.contains("FAIL  sbatch there is slotd's: "), "{}", out.stdout);
    lab.write("denied", "");
    let out = lab.run(&["slotd", "cluster", "check", "hpc"]).fails(1);
    assert!(out.stdout.contains("run: slotd cluster login hpc\n"), "{}", out.stdout);
    lab.run(&["slotd", "cluster", "check", "nosuch"]).fails(1);
    lab.run(&["slotd", "cluster", "login", "lab"]).fails(1);
}

#[test]
fn login_nodes_that_do_not_share_the_staging_directory_are_found() {
    let lab = Lab::start();
    lab.program("uname", "cat \"$LAB/node\" 2>/dev/null || echo login");
    let out = lab.run(&["slotd", "cluster", "check", "hpc"]).ok().stdout;
    assert!(!out.contains("share the staging directory"), "{out}");
    lab.write("nodes", "one home\n");
    let out = lab.run(&["slotd", "cluster", "check", "hpc"]).ok().stdout;
    let line = "share the staging directory ~/.slotd\n";
    assert!(out.contains("ok    the login nodes login") && out.contains(line), "{out}");
    lab.write("nodes", "");
    let out = lab.run(&["slotd", "cluster", "check", "hpc"]).fails(1).stdout;
    assert!(
        out.contains(" do not share the staging directory ~/.slotd: a submission whose connection breaks could be made twice\n"),
        "{out}"
    );
    // No file is left where a node sees it.
    let left = fs::read_dir(lab.at("home/.slotd")).unwrap().count();
    assert_eq!(left, 0);
}
