//! The shell programs that run on a cluster.
//!
//! sshd hands a command to the user's login shell, which may be csh or fish. So the command is one
//! fixed line that all shells read alike: no backslash, no `!`, no nested quote. It starts a POSIX
//! shell, which takes exactly the length of its program from standard input. The data follows.

use crate::clusters::config::{Cluster, Link};
use crate::clusters::states::ENDED;
use crate::clusters::token::{OF_SHELLS, OWN_ERROR, UNSURE};
use std::os::unix::ffi::OsStrExt;

/// A program for one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The command for the login shell.
    pub command: String,
    /// The program, sent ahead of the data.
    pub text: Vec<u8>,
}

/// Quotes a word for a POSIX shell. It must not contain a zero byte.
pub fn quote(word: &[u8]) -> Vec<u8> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-=,:@%+".contains(byte);
    if !word.is_empty() && word.iter().all(is_plain) {
        return word.to_vec();
    }
    let mut quoted = vec![b'\''];
    for byte in word {
        match byte {
            b'\'' => quoted.extend_from_slice(b"'\\''"),
            byte => quoted.push(*byte),
        }
    }
    quoted.push(b'\'');
    quoted
}

/// Quotes words and joins them with blanks.
pub fn line<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
    let words: Vec<Vec<u8>> = words.into_iter().map(|word| quote(word.as_bytes())).collect();
    words.join(&b' ')
}

/// Returns a path of the configuration as a shell word. `~/` is the home directory there.
pub fn path(path: &str) -> Vec<u8> {
    match path.strip_prefix("~/") {
        Some(rest) => [b"\"$HOME\"/".to_vec(), quote(rest.as_bytes())].concat(),
        None => quote(path.as_bytes()),
    }
}

/// The variables of the programs with longer names that do not begin with `slotd_`.
const LONGER: [&str; 3] = ["now", "there", "why"];

/// Returns whether a variable cannot be passed, because the programs here or a shell use it.
pub fn is_own(name: &str) -> bool {
    let is_short = name.len() <= 2 && name.starts_with(|c: char| c.is_ascii_lowercase());
    let of_shells =
        ["IFS", "UID", "EUID", "PPID", "SHELLOPTS", "BASHOPTS", "BASH_VERSINFO", "OPTIND"];
    is_short || name.starts_with("slotd_") || LONGER.contains(&name) || of_shells.contains(&name)
}

/// Slurm's commands. A cluster on this host (`local`) has all of them in one directory.
const SLURMS: [&str; 9] =
    ["sbatch", "squeue", "sacct", "scontrol", "scancel", "sinfo", "sprio", "sdiag", "srun"];

/// Builds the program of a call. `mark` names its frames, `variables` are passed to it, `needs` is
/// the command that must exist on the cluster, and `body` is the part to run.
pub fn program(
    cluster: &Cluster,
    mark: &str,
    variables: &[(String, Vec<u8>)],
    needs: &str,
    body: &[u8],
) -> Program {
    let mut text = Vec::new();
    let mut put = |bytes: &[u8]| text.extend_from_slice(bytes);
    put(format!("slotd_m={mark}\n").as_bytes());
    if let Link::Local(dir) = &cluster.link {
        put(b"PATH=");
        put(&quote(dir.as_os_str().as_bytes()));
        put(b":$PATH\nexport PATH\n");
    }
    for (name, value) in variables {
        put(name.as_bytes());
        put(b"=");
        put(&quote(value));
        put(format!("\nexport {name}\n").as_bytes());
    }
    put(b"printf '%s-begin\\n' \"$slotd_m\"\nprintf '%s-begin\\n' \"$slotd_m\" >&2\n");
    put(b"if command -v ");
    match &cluster.link {
        // Another command of this name in PATH may be slotd's own.
        Link::Local(dir) if SLURMS.contains(&needs) => {
            put(&quote(dir.join(needs).as_os_str().as_bytes()));
        }
        Link::Local(_) | Link::Ssh(_) => put(&quote(needs.as_bytes())),
    }
    put(b" >/dev/null 2>&1\nthen (\n");
    put(body);
    put(b"\n)\nslotd_c=$?\nelse slotd_c=missing\nfi\n");
    put(b"printf '%s-end %s\\n' \"$slotd_m\" \"$slotd_c\" >&2\nprintf '%s-end %s\\n' \"$slotd_m\" \"$slotd_c\"\nexit 0\n");
    let shell = cluster.shell.join(" ");
    // Command substitution drops trailing newlines, which the program does not need.
    let command = format!("exec {shell} -c 'eval \"$(dd bs=1 count={} 2>/dev/null)\"'", text.len());
    Program { command, text }
}

/// The stage of a submission on the cluster.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The staging directory, as configured.
    pub dir: &'a str,
    pub token: &'a str,
}

impl Place<'_> {
    /// Returns the variable assignments at the beginning of all programs that use a stage.
    fn head(&self) -> Vec<u8> {
        let dir = path(self.dir);
        [b"d=", dir.as_slice(), b"\nt=$d/", self.token.as_bytes(), b"\n"].concat()
    }
}

/// How sbatch is started on the cluster.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    pub attempt: u32,
    /// The cluster has reported on this attempt. If its stage is no longer visible, it may be
    /// elsewhere, so it is not created again.
    pub again: bool,
    /// The name of the script in the stage.
    pub script: &'a str,
    /// The options of sbatch.
    pub options: &'a [String],
    /// The arguments of the script.
    pub arguments: &'a [String],
    /// The directory in which the job starts: below the copy, or a path there.
    pub start: Start<'a>,
    /// The script names clusters in a directive, which an option with the cluster's own name
    /// overrides.
    pub overrides_cluster: bool,
}

/// The directory in which a job starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start<'a> {
    /// Below the copied work tree.
    Copy(&'a str),
    Path(&'a str),
}

/// Defines a function that succeeds if no other user but root can rename what is in a directory.
const SAFE: &str = r#"safe() { [ -n "$(find "$1/." -prune '(' -user "$(id -u)" -o -user 0 ')' '(' ! -perm -2 -o -perm -1000 ')')" ]; }
"#;

/// Unpacks the archive on standard input unless the stage already exists. Nothing may follow the
/// archive.
const UNPACK: &str = r#"o=$(umask)
umask 077
# The files of the stage, by their inodes, since a directory can be replaced with another.
names() { (cd "$p/work" && LC_ALL=C QUOTING_STYLE=literal find . -exec ls -1di '{}' + | sed 's/^ *//') >"$p/names"; }
# Files that the job writes are newer than `staged`, even if times there are whole seconds.
later() {
n=0
while echo >"$t/later" && [ -z "$(find "$t/later" -newer "$t/staged")" ] && [ "$n" -lt 40 ]; do
n=$((n+1)); [ "$n" -le 30 ] || sleep 1
done
}
failed() { printf 'slotd: the stage %s cannot be made\n' "$t" >&2; echo stage; exit 0; }
if [ ! -d "$t" ]; then
mkdir -p "$d" || failed
safe "$d" || { printf 'slotd: other users can change the staging directory %s\n' "$d" >&2; failed; }
rm -rf "$t".part*
p=$t.part.$$
mkdir "$p" || failed
if (umask "$o"; cd "$p" && tar xf -) && [ -f "$p/complete" ] && names && : >"$p/staged" && mv "$p" "$t"
then :
else rm -rf "$p"; failed
fi
fi
"#;

/// Reports sbatch's answer: a line with its state, then its output.
const REPORT: &str = r#"n=0
while [ ! -f "$r/code" ] && [ "$n" -lt 20 ]; do sleep 1; n=$((n+1)); done
now=$(date +%s)
if [ -f "$r/code" ]; then
{ read -r c; read -r e; } <"$r/code"
echo "answered $c $((now-e))"
cat "$r/out"
cat "$r/err" >&2
else
s=
[ -s "$r/started" ] && read -r s <"$r/started"
[ -n "$s" ] || s=$(date -r "$r" +%s 2>/dev/null) || s=$now
echo "running $((now-s))"
fi
"#;

/// Returns the program that stages a submission, runs sbatch for this attempt unless it has run,
/// and reports its answer. The archive follows on standard input.
///
/// The first line of its output is `stage`, `none` (see [`Launch::again`]), `answered CODE AGE` or
/// `running AGE`, in seconds.
pub fn submit(place: Place<'_>, launch: &Launch<'_>) -> Vec<u8> {
    let mut text = place.head();
    let mut put = |bytes: &[u8]| text.extend_from_slice(bytes);
    put(SAFE.as_bytes());
    if launch.again {
        put(b"[ -d \"$t\" ] || { echo none; exit 0; }\n");
    }
    put(UNPACK.as_bytes());
    put(format!("later 2>/dev/null\nr=$t/run.{}\n", launch.attempt).as_bytes());
    // Created ahead of the claim, so that a full disk is noticed before sbatch runs.
    put(b"o1=$t/out.$$; : >\"$o1\" && : >\"$o1.err\" && printf '%4096s' ' ' >\"$o1.code\" || failed\n");
    put(b"if mkdir \"$r\" 2>/dev/null; then\ntrap '' HUP PIPE\nmv \"$o1\" \"$r/out\"; mv \"$o1.err\" \"$r/err\"; mv \"$o1.code\" \"$r/code.part\"\n");
    put(b"date +%s >\"$r/started\"\n(umask \"$o\"; cd ");
    match launch.start {
        Start::Copy("") => put(b"\"$t/work\""),
        Start::Copy(below) => {
            put(b"\"$t/work\"/");
            put(&quote(below.as_bytes()));
        }
        Start::Path(path) => put(&quote(path.as_bytes())),
    }
    // The shell prints the path and the reason.
    put(b" || { echo 'sbatch: error: the working directory of the job cannot be entered' >&2; exit 1; }\nexec sbatch");
    if launch.overrides_cluster {
        put(b" -M \"$(scontrol show config | sed -n 's/^ClusterName *= *//p')\"");
    }
    for option in launch.options {
        put(b" ");
        put(&quote(option.as_bytes()));
    }
    put(b" \"$t/script/\"");
    put(&quote(launch.script.as_bytes()));
    for argument in launch.arguments {
        put(b" ");
        put(&quote(argument.as_bytes()));
    }
    put(b") </dev/null >\"$r/out\" 2>\"$r/err\"\nc=$?\n");
    put(b"printf '%s\\n%s\\n' \"$c\" \"$(date +%s)\" 1<>\"$r/code.part\"\n");
    put(b"sync \"$r/code.part\" \"$r/out\" 2>/dev/null || sync\nmv \"$r/code.part\" \"$r/code\"\n");
    // A refused submission needs no copy. If sbatch may have submitted the job, the copy stays.
    put(b"[ \"$c\" = 0 ] || [ -s \"$r/out\" ]");
    for codes in OF_SHELLS {
        let (first, last) = (codes.start(), codes.end());
        put(format!(" || {{ [ \"$c\" -ge {first} ] && [ \"$c\" -le {last} ]; }}").as_bytes());
    }
    put(format!(" || ! LC_ALL=C grep -qE '{OWN_ERROR}' \"$r/err\"").as_bytes());
    put(format!(" || LC_ALL=C grep -qE '{}' \"$r/err\"", UNSURE.join("|")).as_bytes());
    put(b" || rm -rf \"$t/work\" \"$t/script\"\n");
    put(b"elif [ -d \"$r\" ]; then rm -f \"$o1\" \"$o1.err\" \"$o1.code\"\nelse failed\nfi\n");
    put(REPORT.as_bytes());
    text
}

/// Returns the program that reports the answer of the last attempt. The first line of its output is
/// the number of the attempt, the second is that of [`submit`], or `none` if nothing shows an
/// attempt.
///
/// If the stage is there and no attempt was made, it claims the first, so that none can be made
/// later. If the stage is not visible, it may be elsewhere: it is not created, and both attempts may
/// have been made.
pub fn ask(place: Place<'_>) -> Vec<u8> {
    let claim = b"umask 077\n[ -d \"$t\" ] || { echo 2; echo none; exit 0; }\n\
        if mkdir \"$t/run.1\" 2>/dev/null; then : >\"$t/run.1/closed\"; fi\n\
        if [ -f \"$t/run.1/closed\" ] || [ ! -d \"$t/run.1\" ]; then echo 1; echo none; exit 0; fi\n\
        if [ -d \"$t/run.2\" ]; then k=2; else k=1; fi\nr=$t/run.$k\necho \"$k\"\n";
    [place.head(), claim.to_vec(), REPORT.as_bytes().to_vec()].concat()
}

/// Returns the program that looks for jobs with a token, submitted in the last `days` days. Each
/// answer is followed by a line with the exit code. Only jobs that run the script of the stage
/// count, and not those that such a job submits from its copy.
pub fn look_up(token: &str, days: u64) -> Vec<u8> {
    format!(
        "u=$(id -un)\n\
         o=$(squeue -h -a -t all -u \"$u\" -o '%F|%o' 2>/dev/null); c=$?\n\
         printf '%s\\n' \"$o\" | LC_ALL=C grep -F /{token}/script/\necho \"squeue $c\"\n\
         o=$(sacct -n -P -X -u \"$u\" -S now-{days}days -o JobID,SubmitLine 2>/dev/null); c=$?\n\
         printf '%s\\n' \"$o\" | LC_ALL=C grep -F /{token}/script/\necho \"sacct $c\"\n"
    )
    .into_bytes()
}

/// The answers to [`look_up`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookedUp {
    /// The job IDs, each once, in increasing order.
    pub jobs: Vec<u64>,
    /// Both squeue and sacct answered.
    pub whole: bool,
}

/// Reads the output of [`look_up`].
pub fn looked_up(out: &[u8]) -> LookedUp {
    let text = String::from_utf8_lossy(out);
    let mut jobs = Vec::new();
    let mut answered = [false; 2];
    for line in text.lines() {
        match line {
            "squeue 0" => answered[0] = true,
            "sacct 0" => answered[1] = true,
            _ => {
                let digits = line.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
                jobs.extend(line.contains('|').then(|| digits.parse::<u64>().ok()).flatten());
            }
        }
    }
    jobs.sort_unstable();
    jobs.dedup();
    LookedUp { jobs, whole: answered == [true; 2] }
}

/// Returns the program that releases a held job. Its exit code is 0 if the job is not held any
/// more.
pub fn release(job: u64) -> Vec<u8> {
    format!(
        "scontrol release {job} >/dev/null 2>&1\nr=$(squeue -h -j {job} -o %r) || exit 1\n[ \"$r\" != JobHeldUser ]\n"
    )
    .into_bytes()
}

/// Returns the program that cancels a repeat that is held. A job that runs is never cancelled.
pub fn cancel(job: u64) -> Vec<u8> {
    format!("scancel --state=PENDING {job}\n").into_bytes()
}

/// Returns the program that reports the states of jobs: squeue first, then sacct for those that
/// squeue does not show as active, then scontrol. Each command runs at most once, and each line
/// begins with its name; a line with the name alone means that it answered. Times are in UTC.
pub fn states(ids: &[String]) -> Vec<u8> {
    let list = ids.join(",");
    let words = ids.join(" ");
    let ended = ENDED.join("|");
    format!(
        r#"TZ=UTC0 SLURM_TIME_FORMAT=standard
export TZ SLURM_TIME_FORMAT
o=$(squeue -h -a -t all -j {list} -o '|%i|%F|%T|' 2>&1) && echo squeue ||
case "$o" in *'Invalid job id'*) echo squeue; o= ;; *) o= ;; esac
printf '%s\n' "$o" | sed -n 's/^|/squeue|/p'
a=$(printf '%s\n' "$o" | LC_ALL=C grep -vE '\|({ended})\|')
m=
for i in {words}; do case "$a" in *"|$i|"*) ;; *) m=$m,$i ;; esac; done
[ -n "$m" ] || exit 0
s=$(sacct -n -P -X -j "${{m#,}}" -o JobID,State,ExitCode,End 2>&1); c=$?
case "$c $s" in
'0 '*) echo sacct ;;
# Without accounting, or with commands that the site forbids, there is nothing to wait for.
'126 '*|'127 '*|*disabled*|*'ermission denied'*|*'ccess denied'*) echo sacct; s= ;;
*) s= ;;
esac
printf '%s\n' "$s" | sed -n 's/^./sacct|&/p'
IFS=,
n=0 w=
for i in ${{m#,}}; do
case "|
$s" in *"
$i|"*|*"
$i"_*|"|
$i"*) ;; *) n=$((n+1)) j=$i w="$w|${{i%%_*}}" ;; esac
done
case $n in
0) ;;
1) c=$(scontrol -o show job "$j" 2>&1) && echo scontrol && printf '%s\n' "$c" | sed 's/^/scontrol|/' ||
case "$c" in *'Invalid job id'*) echo scontrol ;; esac ;;
*) c=$(scontrol -o show job 2>/dev/null) && echo scontrol
printf '%s\n' "$c" | LC_ALL=C grep -E "(^| )(JobId|ArrayJobId)=(${{w#?}}) " | sed 's/^/scontrol|/' ;;
esac
exit 0
"#
    )
    .into_bytes()
}

/// Sets `q` to lines about this user's jobs that have not ended: the path of the script and the
/// working directory, which contain the token of a submission. `r` is 0 if squeue answered. A line
/// whose state is hidden by a newline in a path is kept.
fn queue() -> String {
    let ended = ENDED.join("|");
    format!(
        r#"v=$(env | sed -n 's/^\(SQUEUE_[A-Z_]*\)=.*/\1/p')
[ -z "$v" ] || unset $v
q=$(squeue -h -a -t all -u "$(id -un)" -o '%T|%o|%Z' 2>/dev/null); r=$?
q=$(printf '%s\n' "$q" | LC_ALL=C grep -vE '^({ended})\|')
"#
    )
}

/// Returns the program that examines the stages whose tokens are on standard input, one per line,
/// or deletes them. Its output is read by [`clean::read`](super::clean::read).
///
/// It fails if the staging directory is not visible, since the stages may be elsewhere. Only
/// directories of this user directly in the staging directory are deleted, only if slotd has
/// made them, and never through a link or beyond a file system.
pub fn clean(dir: &str, deletes: bool) -> Vec<u8> {
    let rest = r#"echo "squeue $r"
[ "$r" = 0 ] || exit 0
cd -P "$d" || exit 1
u=$(id -u)
while read -r k; do
case "$q" in *"$k"*) echo "busy $k"; continue ;; esac
kb=0 there= why=
for s in "$k" "$k".part.*; do
[ -e "./$s" ] || [ -h "./$s" ] || continue
there=1
if [ -h "./$s" ]; then why=link
elif [ ! -d "./$s" ]; then why=file
elif [ -z "$(find "./$s" -prune -user "$u")" ]; then why=owner
elif [ "$s" = "$k" ] && [ ! -d "./$s/run.1" ] && [ ! -f "./$s/staged" ]; then why=strange
# rm does not recognize a bind mount of the same file system.
elif grep -qF "/$s/" /proc/self/mountinfo 2>/dev/null; then why=mount
else
n=$(du -skx "./$s" 2>/dev/null | sed 's/[^0-9].*//'); kb=$((kb+${n:-0}))
if [ "$x" ]; then
# By this name, the remains of a failed deletion are recognized.
p=./$k.part.$$
e=$( { { [ "./$s" = "$p" ] || mv "./$s" "$p"; } && rm -rf --one-file-system "$p"; } 2>&1 | head -n 1)
[ ! -e "./$s" ] && [ ! -e "$p" ] || why="rm $e"
fi
fi
done
if [ -n "$why" ]; then echo "kept $k $why"
elif [ -z "$there" ]; then echo "gone $k"
else echo "${x:-there} $k $kb"
fi
done
exit 0
"#;
    let x: &[u8] = if deletes { b"x=deleted\n" } else { b"x=\n" };
    [b"d=".to_vec(), path(dir), b"\n".to_vec(), x.to_vec(), queue().into_bytes(), rest.into()]
        .concat()
}

/// Returns the program that prints the output file of a job. `fallback` is its path in the stage,
/// for jobs that the controller has forgotten. With `follow`, it continues until the job has ended,
/// which it checks at this interval in seconds.
pub fn log(
    place: Option<Place<'_>>,
    job: &str,
    error: bool,
    lines: Option<u64>,
    follow: Option<u64>,
    fallback: &str,
) -> Vec<u8> {
    let mut text = place.map(|place| place.head()).unwrap_or_default();
    let key = if error { "StdErr" } else { "StdOut" };
    let lines = lines.map_or("+1".to_owned(), |lines| lines.to_string());
    let find =
        format!("f=$(scontrol show job {job} 2>/dev/null | sed -n 's/^ *{key}=//p' | head -n 1)\n");
    text.extend_from_slice(find.as_bytes());
    if place.is_some() {
        text.extend_from_slice(b"[ -n \"$f\" ] || f=$t/work/");
        text.extend_from_slice(&quote(fallback.as_bytes()));
        text.push(b'\n');
    }
    let rest = match follow {
        None => format!(
            "[ -n \"$f\" ] || {{ echo 'the cluster has no record of the output file of job {job}' >&2; exit 1; }}\n\
             [ -f \"$f\" ] || {{ printf 'job {job} has no output yet: %s\\n' \"$f\" >&2; exit 0; }}\n\
             tail -n {lines} -- \"$f\"\n"
        ),
        Some(poll) => format!(
            "[ -n \"$f\" ] || {{ echo 'the cluster has no record of the output file of job {job}' >&2; exit 1; }}\n\
             # If squeue fails, the state of the job is unknown.\n\
             active() {{\n\
             if s=$(squeue -h -j {job} -o %T 2>/dev/null); then [ -n \"$s\" ]; return; fi\n\
             s=$(squeue -h -j {job} -o %T 2>&1 >/dev/null)\n\
             case \"$s\" in *'Invalid job id'*) return 1 ;; esac\n\
             }}\n\
             while [ ! -f \"$f\" ] && active; do sleep 2; done\n\
             [ -f \"$f\" ] || exit 0\n\
             tail -n {lines} -f -- \"$f\" & p=$!\n\
             trap 'kill $p 2>/dev/null' EXIT HUP INT TERM\n\
             while active && kill -0 $p 2>/dev/null; do sleep {poll}; done\n\
             sleep 1\nkill $p 2>/dev/null\nexit 0\n"
        ),
    };
    text.extend_from_slice(rest.as_bytes());
    text
}

/// Returns the program that prints the cluster's record of a job.
pub fn show(job: &str) -> Vec<u8> {
    format!(
        "scontrol show job {job} 2>/dev/null && exit 0\n\
         sacct -n -P -X -j {job} -o JobID,JobName,State,ExitCode,Start,End,Elapsed,Timelimit\n"
    )
    .into_bytes()
}

/// The exit code of [`fetch`] if the job may still be writing files.
pub const FETCHED_EARLY: u8 = 3;

/// The exit code of [`fetch`] if find could not read everything.
pub const FETCHED_PARTLY: u8 = 4;

/// Returns the program that packs the changes in a stage since it was created: files whose status
/// has changed, even if their modification time is old, and new names. A new name that contains a
/// newline is found only if its file has also changed.
pub fn fetch(place: Place<'_>) -> Vec<u8> {
    let token = place.token;
    let rest = format!(
        "cd \"$t/work\" || exit 1\n\
         [ \"$r\" = 0 ] && case \"$q\" in *{token}*) false ;; esac || r=1\n\
         LC_ALL=C QUOTING_STYLE=literal n='\n'\nexport LC_ALL QUOTING_STYLE\nexec 4>&1\n\
         e=$({{ {{\n\
         find . ! -type d -cnewer ../staged -print0 || echo find >&3\n\
         find . -type d -path \"*$n*\" -cnewer ../staged -print0 2>/dev/null\n\
         [ ! -f ../names ] ||\n\
         find . ! -path \"*$n*\" '(' -type d -o ! -cnewer ../staged ')' -exec ls -1di '{{}}' + 2>/dev/null |\n\
         sed 's/^ *//' | grep -vxFf ../names | sed 's/^[0-9]* //' | tr '\\n' '\\000'\n\
         }} | tar --null --no-recursion -S --format=gnu -cf - -T - >&4 || echo \"tar $?\" >&3; }} 3>&1)\n\
         # tar exits with 1 if a file changed while it was read.\n\
         case \"$e\" in '') ;; 'tar 1') r=1 ;; *tar*) exit 1 ;; *) exit {FETCHED_PARTLY} ;; esac\n\
         [ \"$r\" = 0 ] || exit {FETCHED_EARLY}\n"
    );
    [place.head(), queue().into_bytes(), rest.into_bytes()].concat()
}

/// Returns the program that checks a cluster. Each line is a name and a value. It leaves a file with
/// this name in the staging directory, for [`check_again`].
pub fn check(dir: &str, probe: &str) -> Vec<u8> {
    let head = format!("f=$d/check.{probe}\n");
    let rest = "echo \"host $(uname -n)\"\necho \"time $(date +%s)\"\n\
        for c in sbatch squeue sacct scontrol scancel sinfo tar find; do command -v $c >/dev/null 2>&1 || echo \"missing $c\"; done\n\
        echo \"version $(sbatch --version 2>&1 | head -n 1)\"\n\
        echo \"cluster $(scontrol show config 2>/dev/null | sed -n 's/^ClusterName *= *//p')\"\n\
        e=$(squeue -h -t R -u \"$(id -un)\" 2>&1 >/dev/null); echo \"squeue $? $e\" | head -n 1\n\
        e=$(sacct -n -X -S now-1hours -o JobID 2>&1 >/dev/null); echo \"sacct $? $e\" | head -n 1\n\
        e=$( (umask 077; mkdir -p \"$d\" && { safe \"$d\" || { echo 'other users can change it' >&2; false; }; } && printf '%65536s' ' ' >\"$f\" || { rm -f \"$f\"; false; }) 2>&1); echo \"dir $? $e\" | head -n 1\n\
        # Those of checks whose second connection reached another node, or none.\n\
        find \"$d/.\" -maxdepth 1 -name 'check.*' -type f -user \"$(id -u)\" -mmin +60 -exec rm -f '{}' ';' 2>/dev/null\nexit 0\n";
    [SAFE.as_bytes(), b"d=", &path(dir), b"\n", head.as_bytes(), rest.as_bytes()].concat()
}

/// Returns the program that looks for the file of an earlier [`check`], and deletes it. Its lines
/// are like those of the first.
pub fn check_again(dir: &str, probe: &str) -> Vec<u8> {
    let rest = format!(
        "\nf=$d/check.{probe}\necho \"host $(uname -n)\"\n\
         if [ -f \"$f\" ]; then echo 'probe there'; else echo 'probe missing'; fi\n\
         rm -f \"$f\"\nexit 0\n"
    );
    [b"d=", path(dir).as_slice(), rest.as_bytes()].concat()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::clusters::config::{self, is_variable};
    use proptest::prelude::*;
    use std::ffi::OsStr;
    use std::io::Write;
    use std::process::{Command, Stdio};

    /// A cluster on this host with these lines in its table.
    pub(crate) fn cluster(lines: &str) -> Cluster {
        let file = format!("[[cluster]]\nname = \"lab\"\nlocal = \"/nonexistent/bin\"\n{lines}\n");
        config::parse(&file).unwrap().remove(0)
    }

    /// Runs a program in a login shell, as sshd would, followed by data on standard input.
    fn run(shell: &str, program: &Program, data: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let mut child = Command::new(shell)
            .args(["-c", &program.command])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&[&program.text, data].concat()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        (output.stdout, output.stderr)
    }

    /// Returns the login shells that are installed here.
    fn shells() -> Vec<&'static str> {
        let known = [
            "/bin/sh",
            "/bin/bash",
            "/bin/dash",
            "/bin/csh",
            "/bin/tcsh",
            "/usr/bin/fish",
            "/bin/zsh",
            "/bin/ksh",
        ];
        known.into_iter().filter(|shell| std::path::Path::new(shell).exists()).collect()
    }

    #[test]
    fn any_login_shell_runs_the_program_and_leaves_the_data() {
        let odd = "a'b\"c\\d!e $HOME `x` \n* ~ \u{e9}";
        let body = [
            b"printf '%s|' ".to_vec(),
            line([odd, "", "-n", "$(id)"]),
            b"\ncat\nexit 255".to_vec(),
        ]
        .concat();
        let with_shell =
            if std::path::Path::new("/bin/bash").exists() { "shell = \"bash -l\"" } else { "" };
        for lines in ["", with_shell] {
            let program = program(&cluster(lines), "slotd-77", &[], "cat", &body);
            for shell in shells() {
                let (out, err) = run(shell, &program, b"data\n");
                let expected = format!("slotd-77-begin\n{odd}||-n|$(id)|data\nslotd-77-end 255\n");
                assert!(
                    String::from_utf8_lossy(&out).ends_with(&expected),
                    "{shell}: {out:?} {err:?}"
                );
                assert!(
                    String::from_utf8_lossy(&err).ends_with("slotd-77-begin\nslotd-77-end 255\n"),
                    "{shell}: {err:?}"
                );
            }
        }
    }

    #[test]
    fn variables_are_passed_and_a_missing_command_is_reported() {
        let variables = [("A".to_owned(), b"x 'y'\n".to_vec())];
        let program_of = |needs: &str| {
            program(&cluster(""), "m", &variables, needs, b"printf '%s' \"$A\"; exit 3")
        };
        let (out, _) = run("/bin/sh", &program_of("cat"), b"");
        assert_eq!(out, b"m-begin\nx 'y'\nm-end 3\n");
        let (out, _) = run("/bin/sh", &program_of("no-such-command"), b"");
        assert_eq!(out, b"m-begin\nm-end missing\n");
    }

    #[test]
    fn variables_of_the_programs_cannot_be_passed() {
        let place = Place { dir: "~/d", token: "t" };
        let launch = Launch {
            attempt: 1,
            again: true,
            script: "x",
            options: &[],
            arguments: &[],
            start: Start::Copy("below"),
            overrides_cluster: true,
        };
        let programs = [
            program(&cluster(""), "m", &[], "sh", b"true").text,
            submit(place, &launch),
            ask(place),
            look_up("t", 2),
            release(17),
            states(&["17".to_owned(), "18".to_owned()]),
            clean("~/d", true),
            log(Some(place), "17", false, None, Some(5), "f"),
            show("17"),
            fetch(place),
            check("~/d", "p"),
            check_again("~/d", "p"),
        ];
        let mut found = std::collections::BTreeSet::new();
        for text in programs {
            let text = String::from_utf8(text).unwrap();
            let words: Vec<&str> =
                text.split(|c: char| c.is_whitespace() || ";({|&\"".contains(c)).collect();
            for pair in words.windows(2) {
                found.extend(pair[0].split_once('=').map(|(name, _)| name.to_owned()));
                found.extend(["for", "-r"].contains(&pair[0]).then(|| pair[1].to_owned()));
            }
        }
        // Variables in capitals belong to Slurm's commands, to sort and to other programs.
        found.retain(|name| is_variable(name) && name.contains(|c: char| c.is_ascii_lowercase()));
        assert!(["slotd_m", "slotd_c", "why", "kb", "t", "e"].iter().all(|x| found.contains(*x)));
        for name in found.iter().map(String::as_str).chain(["IFS", "UID", "slotd_new"]) {
            assert!(is_own(name), "{name}");
        }
        for name in ["WANDB_MODE", "PATH", "A", "http_proxy", "LANG"] {
            assert!(!is_own(name), "{name}");
        }
        let file = "[[cluster]]\nname = \"a\"\nssh = \"a\"\nexport = [\"A\", \"slotd_m\"]\n";
        let error = config::parse(file).unwrap_err();
        assert_eq!(
            (error.line, error.text.as_str()),
            (4, "`export` must not contain slotd_m, which slotd or the shell there uses")
        );
    }

    #[test]
    fn an_existing_stage_is_not_created_again() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("stage");
        let place = Place { dir: place.to_str().unwrap(), token: "t" };
        let launch = Launch {
            attempt: 1,
            again: true,
            script: "x",
            options: &[],
            arguments: &[],
            start: Start::Copy(""),
            overrides_cluster: false,
        };
        let program = program(&cluster(""), "m", &[], "sh", &submit(place, &launch));
        let (out, _) = run("/bin/sh", &program, b"");
        assert_eq!(out, b"m-begin\nnone\nm-end 0\n");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn home_is_expanded_there() {
        assert_eq!(path("~/a b"), b"\"$HOME\"/'a b'");
        assert_eq!(path("/a/$b"), b"'/a/$b'");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn a_quoted_word_is_read_back_by_the_shell(word in prop::collection::vec(1u8..=255, 0..40)) {
            let script = [b"printf '%s.' ".to_vec(), quote(&word)].concat();
            let output = Command::new("sh").arg("-c").arg(OsStr::from_bytes(&script)).output().unwrap();
            prop_assert_eq!(output.stdout, [word, b".".to_vec()].concat());
        }
    }
}
