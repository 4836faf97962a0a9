//! Generates `runner.sh`: a launch as a shell script, so that it can be repeated by hand.
//!
//! Does no I/O. slotd never runs this file: the watcher starts the tasks itself, and tests check
//! that both do the same.

use crate::launch_spec::{LaunchSpec, TaskSpec};
use crate::task;
use slotd_protocol::request::Stream;
use std::path::Path;

/// Returns the script. Descriptors passed by a client become the script's own.
pub(super) fn runner_script(spec: &LaunchSpec) -> Vec<u8> {
    let mut out = Vec::with_capacity(2048 + spec.env.len() * 5 / 4);
    let mut line = |text: &[u8]| {
        out.extend_from_slice(text);
        out.push(b'\n');
    };
    line(b"#!/bin/sh");
    line(
        format!(
            "# Repeats the launch of step {} by hand: sh {}/runner.sh",
            spec.step,
            // Control characters in the path must not end the comment.
            spec.job_dir.display().to_string().replace(char::is_control, "?")
        )
        .as_bytes(),
    );
    line(b"# slotd itself does not run this file. Cgroup limits are not included.");
    line(format!("umask {:04o}", spec.umask.unwrap_or(0o022) & 0o777).as_bytes());
    let dir = quote(spec.work_dir.as_os_str().as_encoded_bytes());
    line(&[b"cd ", dir.as_slice(), b" || exit 1"].concat());
    for parent in parents(spec) {
        line(&[b"mkdir -p ", quote(parent.as_os_str().as_encoded_bytes()).as_slice()].concat());
    }
    for path in truncated(spec) {
        line(&[b": >", quote(path.as_os_str().as_encoded_bytes()).as_slice()].concat());
    }
    match spec.tasks.as_slice() {
        [only] => line(&[b"exec ".as_slice(), &invocation(spec, only)].concat()),
        tasks => {
            line(b"pids=");
            for task in tasks {
                line(&[invocation(spec, task).as_slice(), b" &"].concat());
                line(b"pids=\"$pids $!\"");
            }
            line(b"worst=0");
            line(b"for pid in $pids; do");
            line(b"  wait \"$pid\"; code=$?");
            line(b"  [ \"$code\" -gt \"$worst\" ] && worst=$code");
            line(b"done");
            line(b"exit \"$worst\"");
        }
    }
    out
}

/// Quotes a shell word. Null bytes, which it cannot contain, are removed.
fn quote(bytes: &[u8]) -> Vec<u8> {
    let clean: Vec<u8> = bytes.iter().copied().filter(|b| *b != 0).collect();
    shlex::bytes::try_quote(&clean).map(|word| word.into_owned()).unwrap_or_default()
}

/// Returns `env -i NAME=value … sh -c '…' command arguments <in >>out 2>>err`, over several lines.
fn invocation(spec: &LaunchSpec, task: &TaskSpec) -> Vec<u8> {
    let mut out = Vec::new();
    if !task.cpus.is_empty() {
        let cpus: Vec<String> = task.cpus.iter().map(u32::to_string).collect();
        out.extend_from_slice(format!("taskset -c {} ", cpus.join(",")).as_bytes());
    }
    out.extend_from_slice(b"env -i");
    for entry in task::environment(spec, task) {
        // `env` would parse it as an option.
        if !entry.to_bytes().starts_with(b"-") {
            out.extend_from_slice(b" \\\n  ");
            out.extend(quote(entry.to_bytes()));
        }
    }
    out.extend_from_slice(
        b" \\\n  /bin/sh -c 'SLURM_TASK_PID=$$; export SLURM_TASK_PID; exec \"$0\" \"$@\"'",
    );
    for word in task::command(spec, task) {
        out.push(b' ');
        out.extend(quote(&word));
    }
    match &task.stdin {
        Stream::Null | Stream::SameAsStdout => out.extend_from_slice(b" </dev/null"),
        Stream::File { path, .. } => redirect(&mut out, b" <", path),
        // A background command would get /dev/null instead of the script's input.
        Stream::Fd(_) => out.extend_from_slice(b" <&0"),
    }
    match &task.stdout {
        Stream::Null => out.extend_from_slice(b" >/dev/null"),
        Stream::File { path, .. } => redirect(&mut out, b" >>", path),
        Stream::Fd(_) | Stream::SameAsStdout => {}
    }
    match &task.stderr {
        Stream::Null => out.extend_from_slice(b" 2>/dev/null"),
        Stream::SameAsStdout => out.extend_from_slice(b" 2>&1"),
        same @ Stream::File { .. } if *same == task.stdout => out.extend_from_slice(b" 2>&1"),
        Stream::File { path, .. } => redirect(&mut out, b" 2>>", path),
        Stream::Fd(_) => {}
    }
    out
}

fn redirect(out: &mut Vec<u8>, operator: &[u8], path: &Path) {
    out.extend_from_slice(operator);
    out.extend(quote(path.as_os_str().as_encoded_bytes()));
}

/// Returns the output files, each once, and whether they are appended to.
fn outputs(spec: &LaunchSpec) -> Vec<(&Path, bool)> {
    let mut found: Vec<(&Path, bool)> = Vec::new();
    for sink in spec.tasks.iter().flat_map(|task| [&task.stdout, &task.stderr]) {
        match sink {
            Stream::File { path, append } if !found.iter().any(|(known, _)| known == path) => {
                found.push((path, *append))
            }
            Stream::File { .. } | Stream::Null | Stream::Fd(_) | Stream::SameAsStdout => {}
        }
    }
    found
}

fn parents(spec: &LaunchSpec) -> Vec<&Path> {
    let mut found: Vec<&Path> =
        outputs(spec).into_iter().filter_map(|(path, _)| path.parent()).collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn truncated(spec: &LaunchSpec) -> Vec<&Path> {
    outputs(spec).into_iter().filter(|(_, append)| !append).map(|(path, _)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotd_model::{JobId, StepId, StepKey};

    fn file(path: &str, append: bool) -> Stream {
        Stream::File { path: path.into(), append }
    }

    fn text(spec: &LaunchSpec) -> String {
        String::from_utf8(runner_script(spec)).unwrap()
    }

    #[test]
    fn a_single_task_replaces_the_script() {
        let spec = LaunchSpec {
            step: StepKey { job: JobId(7), step: StepId::Batch },
            job_dir: "/j".into(),
            script: Some(Vec::new()),
            env: b"A=x y\0".to_vec(),
            argv: vec!["it's".into()],
            work_dir: "/w d".into(),
            tasks: vec![TaskSpec {
                stdout: file("/o/out", false),
                stderr: Stream::SameAsStdout,
                ..TaskSpec::default()
            }],
            ..LaunchSpec::default()
        };
        let text = text(&spec);
        let body: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
        assert_eq!(
            body,
            [
                "umask 0022",
                "cd '/w d' || exit 1",
                "mkdir -p /o",
                ": >/o/out",
                "exec env -i \\",
                "  'A=x y' \\",
                "  /bin/sh -c 'SLURM_TASK_PID=$$; export SLURM_TASK_PID; exec \"$0\" \"$@\"' /j/script.sh \"it's\" \
                 </dev/null >>/o/out 2>&1",
            ]
        );
        assert!(text.starts_with("#!/bin/sh\n# Repeats the launch of step 7.batch"));
    }

    #[test]
    fn files_opened_for_appending_are_not_truncated() {
        let task = TaskSpec {
            stdout: file("/o/a", true),
            stderr: file("/o/b", false),
            ..TaskSpec::default()
        };
        let spec = LaunchSpec {
            tasks: vec![task.clone(), task],
            argv: vec!["x".into()],
            ..LaunchSpec::default()
        };
        let text = text(&spec);
        assert!(!text.contains(": >/o/a") && text.contains(": >/o/b"), "{text}");
        assert_eq!(text.matches(">>/o/a 2>>/o/b &").count(), 2, "{text}");
    }

    #[test]
    fn the_cpu_affinity_is_kept() {
        let task = TaskSpec { cpus: vec![0, 2], ..TaskSpec::default() };
        let spec =
            LaunchSpec { tasks: vec![task], argv: vec!["x".into()], ..LaunchSpec::default() };
        assert!(text(&spec).contains("exec taskset -c 0,2 env -i"));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_quoted_as_a_single_word(bytes in proptest::collection::vec(1u8.., 0..40)) {
            let quoted = quote(&bytes);
            let words: Vec<Vec<u8>> = shlex::bytes::Shlex::new(&quoted).collect();
            proptest::prop_assert_eq!(words, vec![bytes]);
        }
    }
}
