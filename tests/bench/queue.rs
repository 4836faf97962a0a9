//! The whole way of a job, side by side with the plain way: what sbatch costs beside `/bin/true`, how soon a job runs
//! after its submission, and how many jobs a second go through, looped and as one array, beside `xargs -P 2` running the
//! same scripts. One run prints them all: `cargo bench --bench queue`.

use slotd_kit::lab::{Lab, summary, timed};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const ROUNDS: usize = 200;
const JOBS: usize = 500;

fn script(path: &Path, text: &str) {
    fs::write(path, text).expect("a script");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a script that can be run");
}

fn submission(lab: &Lab) {
    let (mut bare, mut submit) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare.push(timed(|| {
            Command::new("/bin/true").output().expect("/bin/true");
        }));
        // Held, so that what is measured is the submission and not the job beside it.
        submit.push(timed(|| {
            lab.run("sbatch", &["-H", "-o", "/dev/null", "--wrap", "true"]);
        }));
    }
    let ((bare_min, bare_mid), (min, mid)) = (summary(bare), summary(submit));
    println!("/bin/true                  min {bare_min:7.2} ms   median {bare_mid:7.2} ms");
    println!("sbatch (durable)           min {min:7.2} ms   median {mid:7.2} ms   {:.1} x /bin/true", mid / bare_mid);
}

fn start_latency(lab: &Lab) {
    let stamp = lab.path("stamp");
    script(&lab.path("first.sh"), "#!/bin/bash\nprintf %s \"$EPOCHREALTIME\" > stamp\n");
    let mut latencies = Vec::new();
    for _ in 0..ROUNDS / 4 {
        let _ = fs::remove_file(&stamp);
        let before = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
        lab.run("sbatch", &["-W", "-o", "/dev/null", "first.sh"]);
        let text = fs::read_to_string(&stamp).expect("the job's stamp");
        let at = Duration::from_secs_f64(text.trim().parse().expect("a time"));
        latencies.push(at.saturating_sub(before));
    }
    let (min, mid) = summary(latencies);
    println!(
        "submission to first line   min {min:7.2} ms   median {mid:7.2} ms   (start of sbatch to bash's first line)"
    );
}

fn throughput(lab: &Lab) {
    script(&lab.path("true.sh"), "#!/bin/sh\ntrue\n");
    let per_second = |took: Duration| JOBS as f64 / took.as_secs_f64();
    let xargs = timed(|| {
        let mut child = Command::new("xargs")
            .args(["-P", "2", "-n", "1", "sh", "-c", "./true.sh"])
            .current_dir(lab.dir.path())
            .stdin(Stdio::piped())
            .spawn()
            .expect("xargs");
        let mut stdin = child.stdin.take().expect("a pipe");
        for i in 0..JOBS {
            writeln!(stdin, "{i}").expect("xargs reads");
        }
        drop(stdin);
        assert!(child.wait().expect("xargs").success());
    });
    let xargs_direct = timed(|| {
        let list = vec!["./true.sh"; JOBS].join("\n");
        let mut child = Command::new("xargs")
            .args(["-P", "2", "-n", "1", "env"])
            .current_dir(lab.dir.path())
            .stdin(Stdio::piped())
            .spawn()
            .expect("xargs");
        child.stdin.take().expect("a pipe").write_all(list.as_bytes()).expect("xargs reads");
        assert!(child.wait().expect("xargs").success());
    });
    let looped = timed(|| {
        for _ in 0..JOBS {
            lab.run("sbatch", &["-J", "loop", "-o", "/dev/null", "true.sh"]);
        }
        // Runs when all of that name are over.
        lab.run("sbatch", &["-W", "-J", "loop", "-d", "singleton", "-o", "/dev/null", "true.sh"]);
    });
    let array = timed(|| {
        lab.run("sbatch", &["-W", "-a", &format!("0-{}", JOBS - 1), "-o", "/dev/null", "true.sh"]);
    });
    let base = per_second(xargs_direct);
    println!("xargs -P 2, script         {base:7.0} jobs/s");
    println!("xargs -P 2, sh -c script   {:7.0} jobs/s   {:.2} x xargs", per_second(xargs), per_second(xargs) / base);
    println!("sbatch in a loop           {:7.0} jobs/s   {:.2} x xargs", per_second(looped), per_second(looped) / base);
    println!("one array                  {:7.0} jobs/s   {:.2} x xargs", per_second(array), per_second(array) / base);
}

fn main() {
    let lab = Lab::start(2);
    submission(&lab);
    drop(lab);
    let lab = Lab::start(2);
    start_latency(&lab);
    throughput(&lab);
}
