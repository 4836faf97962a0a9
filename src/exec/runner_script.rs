//! The text of `runner.sh`: a launch as a shell script, so that a person can repeat it by hand.
//!
//! Pure. Nothing in slotd runs this file: the watcher starts tasks itself, and the two agree by the tests.

use crate::exec::launch_spec::{LaunchSpec, Sink, Source, TaskSpec};
use crate::exec::task;
use std::path::Path;

/// The script. Descriptors that a client handed over become the script's own.
pub(super) fn runner_script(spec: &LaunchSpec) -> Vec<u8> {
    let mut out = Vec::with_capacity(2048 + spec.env.len() * 5 / 4);
    let mut line = |text: &[u8]| {
        out.extend_from_slice(text);
        out.push(b'\n');
    };
    line(b"#!/bin/sh");
    line(
        format!(
            "# The launch of step {} by slotd, to be repeated by hand: sh {}/runner.sh",
            spec.step,
            spec.job_dir.display()
        )
        .as_bytes(),
    );
    line(b"# slotd itself does not run this file. Limits of cgroups are not part of it.");
    line(format!("umask {:04o}", spec.umask.unwrap_or(0o022) & 0o777).as_bytes());
    let dir = quote(spec.work_dir.as_os_str().as_encoded_bytes());
    line(&[b"cd ", dir.as_slice(), b" || cd /tmp || exit 1"].concat());
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

/// One word of a shell. A zero byte cannot be in one; it is left out.
fn quote(bytes: &[u8]) -> Vec<u8> {
    let clean: Vec<u8> = bytes.iter().copied().filter(|b| *b != 0).collect();
    shlex::bytes::try_quote(&clean).map(|word| word.into_owned()).unwrap_or_default()
}

/// `env -i NAME=value … sh -c '…' command arguments <in >>out 2>>err`, over several lines.
fn invocation(spec: &LaunchSpec, task: &TaskSpec) -> Vec<u8> {
    let mut out = Vec::new();
    if !task.cpus.is_empty() {
        let cpus: Vec<String> = task.cpus.iter().map(u32::to_string).collect();
        out.extend_from_slice(format!("taskset -c {} ", cpus.join(",")).as_bytes());
    }
    out.extend_from_slice(b"env -i");
    for (name, value) in task::environment(spec, task) {
        // `env` would take it for an option.
        if !name.starts_with(b"-") {
            out.extend_from_slice(b" \\\n  ");
            out.extend(quote(&[name.as_slice(), b"=", &value].concat()));
        }
    }
    out.extend_from_slice(b" \\\n  /bin/sh -c 'SLURM_TASK_PID=$$; export SLURM_TASK_PID; exec \"$0\" \"$@\"'");
    for word in task::command(spec, task) {
        out.push(b' ');
        out.extend(quote(&word));
    }
    match &task.stdin {
        Source::Null => out.extend_from_slice(b" </dev/null"),
        Source::File(path) => redirect(&mut out, b" <", path),
        // A command in the background would get /dev/null instead of the script's input.
        Source::Fd(_) => out.extend_from_slice(b" <&0"),
    }
    match &task.stdout {
        Sink::Null => out.extend_from_slice(b" >/dev/null"),
        Sink::File { path, .. } => redirect(&mut out, b" >>", path),
        Sink::Fd(_) | Sink::SameAsStdout => {}
    }
    match &task.stderr {
        Sink::Null => out.extend_from_slice(b" 2>/dev/null"),
        Sink::SameAsStdout => out.extend_from_slice(b" 2>&1"),
        same @ Sink::File { .. } if *same == task.stdout => out.extend_from_slice(b" 2>&1"),
        Sink::File { path, .. } => redirect(&mut out, b" 2>>", path),
        Sink::Fd(_) => {}
    }
    out
}

fn redirect(out: &mut Vec<u8>, operator: &[u8], path: &Path) {
    out.extend_from_slice(operator);
    out.extend(quote(path.as_os_str().as_encoded_bytes()));
}

/// Output files with their modes, each once.
fn outputs(spec: &LaunchSpec) -> Vec<(&Path, bool)> {
    let mut found: Vec<(&Path, bool)> = Vec::new();
    for sink in spec.tasks.iter().flat_map(|task| [&task.stdout, &task.stderr]) {
        if let Sink::File { path, append } = sink {
            if !found.iter().any(|(known, _)| known == path) {
                found.push((path, *append));
            }
        }
    }
    found
}

fn parents(spec: &LaunchSpec) -> Vec<&Path> {
    let mut found: Vec<&Path> = outputs(spec).into_iter().filter_map(|(path, _)| path.parent()).collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn truncated(spec: &LaunchSpec) -> Vec<&Path> {
    outputs(spec).into_iter().filter(|(_, append)| !append).map(|(path, _)| path).collect()
}
