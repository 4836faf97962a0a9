//! The process as the kernel starts it: its arguments and its environment.

use crate::text::{after, file_name, is_same};
use core::slice::from_raw_parts;
use slotd_protocol::request::{MOST_PLAIN_ARGS, MOST_PLAIN_BYTES, Program};

/// A process of a program that has plain command lines.
pub(crate) struct Process {
    pub(crate) program: Program,
    /// The arguments and then the environment, each with its final zero byte.
    pub(crate) words: &'static [u8],
    /// The number of arguments, including the name of the program.
    pub(crate) args: usize,
    variables: *const *const u8,
}

impl Process {
    /// Returns the process if it was invoked as one of these programs and is not unusually large.
    ///
    /// # Safety
    /// `stack` must be the stack pointer at the start of the process.
    pub(crate) unsafe fn of(stack: *const usize) -> Option<Process> {
        // SAFETY: at the start of a process, its stack consists of the number of arguments, the
        // pointers to them, a null pointer, the pointers to the variables, and a null pointer
        // (System V ABI). They point to strings, which are never freed.
        unsafe {
            let args = *stack;
            let first = stack.add(1).cast::<*const u8>();
            if args == 0 {
                return None;
            }
            let name = file_name(string(*first));
            let is_meant = |program: &Program| is_same(program.name().as_bytes(), name);
            let program = Program::ALL.into_iter().find(is_meant)?;
            let variables = first.add(args + 1);
            let mut end = *first;
            for start in strings(first).chain(strings(variables)) {
                // Linux puts all of them one after another.
                if start != end || (start as usize).wrapping_sub(*first as usize) > MOST_PLAIN_BYTES
                {
                    return None;
                }
                end = start.add(string(start).len() + 1);
            }
            let len = (end as usize).wrapping_sub(*first as usize);
            let is_usual = args <= MOST_PLAIN_ARGS && len <= MOST_PLAIN_BYTES;
            let words = from_raw_parts(*first, len);
            is_usual.then_some(Process { program, words, args, variables })
        }
    }

    /// Returns whether the program may need the daemon of this host and nothing else. It must not
    /// wait for a daemon that hangs if it only prints its version or asks another cluster.
    pub(crate) fn asks_daemon(&self) -> bool {
        const OTHERS: [&[u8]; 6] = [b"--help", b"--vers", b"--usage", b"-V", b"-M", b"--clu"];
        let is_other = |word: &[u8]| {
            OTHERS.into_iter().any(|start| after(word, start).is_some())
                || self.program == Program::Sbatch && is_same(word, b"-h")
        };
        let clusters = [&b"SLURM_CLUSTERS="[..], b"SBATCH_CLUSTERS="];
        let names_others = self.arguments().any(is_other)
            || clusters.into_iter().any(|name| self.variable(name).is_some());
        !names_others && (self.program != Program::Scontrol || self.shows_jobs())
    }

    /// Returns whether the words are `show job` or alike, after any options.
    fn shows_jobs(&self) -> bool {
        let mut words = self.arguments().filter(|word| word.first() != Some(&b'-'));
        let is_show = words.next().is_some_and(|word| is_same(word, b"show"));
        is_show && words.next().is_some_and(|word| after(word, b"job").is_some())
    }

    /// Returns the arguments after the name of the program.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = &'static [u8]> {
        self.words.split(|byte| *byte == 0).take(self.args).skip(1)
    }

    /// Returns the words that may name a script and are no value of a short option, each with its
    /// number and its final zero byte. There are none with `--wrap`.
    pub(crate) fn names(&self) -> impl Iterator<Item = (usize, &'static [u8])> {
        let has_script = !self.arguments().any(|word| after(word, b"--wrap").is_some());
        let mut is_value = false;
        let words = self.words.split_inclusive(|byte| *byte == 0).take(self.args);
        words.enumerate().skip(1).filter(move |(_, word)| {
            let is_option = word.first() == Some(&b'-');
            let is_short = matches!(word, [b'-', letter, 0] if *letter != b'-');
            let was_value = core::mem::replace(&mut is_value, is_short);
            has_script && !is_option && !was_value
        })
    }

    /// Returns a variable, or `None` if it is unset or empty. The name includes the `=`.
    pub(crate) fn variable(&self, name: &[u8]) -> Option<&'static [u8]> {
        // SAFETY: these are the strings of `of`.
        let mut all = unsafe { strings(self.variables).map(|start| string(start)) };
        all.find_map(|variable| after(variable, name)).filter(|value| !value.is_empty())
    }
}

/// Returns the strings that a list points to, up to its null pointer.
///
/// # Safety
/// `list` must point to such a list, which is never freed.
unsafe fn strings(list: *const *const u8) -> impl Iterator<Item = *const u8> {
    let mut next = list;
    core::iter::from_fn(move || {
        // SAFETY: `next` is not beyond the null pointer.
        unsafe {
            let start = *next;
            if start.is_null() {
                return None;
            }
            next = next.add(1);
            Some(start)
        }
    })
}

/// Returns a string without its final zero byte.
///
/// # Safety
/// `start` must point to a string with a final zero byte, which is never freed.
unsafe fn string(start: *const u8) -> &'static [u8] {
    let mut len = 0;
    // SAFETY: as required of the caller.
    unsafe {
        while *start.add(len) != 0 {
            len += 1;
        }
        from_raw_parts(start, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the stack of a process with these arguments and variables.
    fn stack(args: &[&str], variables: &[&str]) -> Vec<usize> {
        let all: Vec<u8> =
            args.iter().chain(variables).flat_map(|word| word.bytes().chain([0])).collect();
        let mut at = Vec::leak(all).as_ptr() as usize;
        let mut place = |word: &&str| {
            let start = at;
            at += word.len() + 1;
            start
        };
        let mut stack = vec![args.len()];
        stack.extend(args.iter().map(&mut place));
        stack.push(0);
        stack.extend(variables.iter().map(&mut place));
        stack.push(0);
        stack
    }

    fn read(args: &[&str], variables: &[&str]) -> Option<Process> {
        // SAFETY: it has the form of a stack, and its strings are never freed.
        unsafe { Process::of(stack(args, variables).as_ptr()) }
    }

    #[test]
    fn only_known_programs_of_a_usual_size_are_accepted() {
        let args = ["/usr/bin/sbatch", "--wrap", "true"];
        let process = read(&args, &["HOME=/root", "EMPTY=", "HOME=/other"]).unwrap();
        assert_eq!(
            (process.words, process.args),
            (&b"/usr/bin/sbatch\0--wrap\0true\0HOME=/root\0EMPTY=\0HOME=/other\0"[..], 3)
        );
        let names: [&[u8]; 3] = [b"HOME=", b"EMPTY=", b"TERM="];
        assert_eq!(names.map(|name| process.variable(name)), [Some(&b"/root"[..]), None, None]);
        for (name, program) in [
            ("sbatch", Some(Program::Sbatch)),
            ("./squeue", Some(Program::Squeue)),
            ("slotd", None),
            ("sinfo2", None),
            ("sinfo/", None),
            ("", None),
        ] {
            assert_eq!(read(&[name, "sbatch"], &[]).map(|process| process.program), program);
        }
        assert!(read(&[], &["HOME=/root"]).is_none());
        let large = format!("A={}", "x".repeat(MOST_PLAIN_BYTES));
        assert!(read(&args, &[&large]).is_none() && read(&args, &[&large, "B=1"]).is_none());
        assert!(read(&["sbatch"].repeat(MOST_PLAIN_ARGS + 1), &[]).is_none());
    }

    #[test]
    fn words_that_may_name_a_script_are_found() {
        let names = |words: &[&str]| -> Vec<_> {
            let process = read(words, &["A=job.sh"]).unwrap();
            let text = |word: &[u8]| String::from_utf8(word.to_vec()).unwrap();
            process.names().map(|(at, word)| (at, text(word))).collect()
        };
        let job = |at: usize| (at, "job.sh\0".to_owned());
        assert_eq!(names(&["sbatch", "job.sh"]), [job(1)]);
        assert_eq!(names(&["sbatch", "-J", "a", "-o", "b", "--hold", "job.sh"]), [job(6)]);
        assert_eq!(names(&["sbatch", "-n2", "job.sh", "a"]), [job(2), (3, "a\0".to_owned())]);
        assert_eq!(names(&["sbatch", "-", "--", "job.sh"]), [job(3)]);
        assert_eq!(names(&["sbatch", "-H", "job.sh"]), []);
        assert_eq!(names(&["sbatch", "--wrap", "job.sh"]), []);
        assert_eq!(names(&["sbatch"]), []);
    }

    #[test]
    fn processes_that_need_no_daemon_are_recognized() {
        let asks = |words: &str, variables: &[&str]| {
            read(&words.split(' ').collect::<Vec<_>>(), variables).unwrap().asks_daemon()
        };
        for words in ["squeue", "sinfo -h", "sbatch job.sh", "scontrol -o show job 1"] {
            assert!(asks(words, &["A=-V"]), "{words}");
        }
        for words in [
            "squeue --help",
            "sinfo -V",
            "sacct --version",
            "sbatch -Mall job.sh",
            "sbatch -h",
            "squeue --clusters=a",
            "scontrol",
            "scontrol show",
            "scontrol ping",
            "scontrol show hostnames a",
            "scontrol show -a",
        ] {
            assert!(!asks(words, &["A=show", "job"]), "{words}");
        }
        assert!(!asks("squeue", &["SLURM_CLUSTERS=a"]) && asks("squeue", &["SLURM_CLUSTERS="]));
    }

    /// A program may have moved its variables, as `setenv` does.
    #[test]
    fn scattered_strings_are_refused() {
        let mut stack = stack(&["sbatch"], &["A=1"]);
        stack[3] = c"B=2".as_ptr() as usize;
        // SAFETY: as in `read`.
        assert!(unsafe { Process::of(stack.as_ptr()) }.is_none());
    }
}
