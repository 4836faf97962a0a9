//! The resource limits of this process, with the numbers of `setrlimit`.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use slotd_model::rlimits::Rlimit;

/// The limits that Slurm propagates to tasks, by their names in `--propagate` (sbatch man page).
const PROPAGATED: [(&str, Resource); 10] = [
    ("AS", Resource::RLIMIT_AS),
    ("CORE", Resource::RLIMIT_CORE),
    ("CPU", Resource::RLIMIT_CPU),
    ("DATA", Resource::RLIMIT_DATA),
    ("FSIZE", Resource::RLIMIT_FSIZE),
    ("MEMLOCK", Resource::RLIMIT_MEMLOCK),
    ("NOFILE", Resource::RLIMIT_NOFILE),
    ("NPROC", Resource::RLIMIT_NPROC),
    ("RSS", Resource::RLIMIT_RSS),
    ("STACK", Resource::RLIMIT_STACK),
];

/// Returns the limits of this process that its tasks may inherit, with their names.
pub fn propagated() -> Vec<(&'static str, Rlimit)> {
    let one = |(name, kind): (&'static str, Resource)| {
        getrlimit(kind)
            .ok()
            .map(|(soft, hard)| (name, Rlimit { resource: kind as u32, soft, hard }))
    };
    PROPAGATED.into_iter().filter_map(one).collect()
}

/// Returns the limits of another process that its tasks may inherit, with their names. Returns
/// `None` if this user may not read them.
pub fn propagated_by(pid: i32) -> Option<Vec<(&'static str, Rlimit)>> {
    let one = |(name, kind): (&'static str, Resource)| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the kernel writes to a live structure, and changes no limit.
        let read = unsafe { libc::prlimit(pid, kind as _, std::ptr::null(), &raw mut limit) };
        let (soft, hard) = (limit.rlim_cur, limit.rlim_max);
        (read == 0).then_some((name, Rlimit { resource: kind as u32, soft, hard }))
    };
    PROPAGATED.into_iter().map(one).collect()
}

/// Raises the limit on open descriptors to its maximum. Returns the old limit if it was lower.
pub fn raise_descriptors() -> Option<Rlimit> {
    let (soft, hard) =
        getrlimit(Resource::RLIMIT_NOFILE).ok().filter(|(soft, hard)| soft != hard)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).ok()?;
    Some(Rlimit { resource: Resource::RLIMIT_NOFILE as u32, soft, hard })
}

/// Returns the maximum number of open descriptors of this process.
pub fn descriptors() -> Option<u64> {
    getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(soft, _)| soft)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_propagated_limits_are_returned() {
        let limits = propagated();
        assert_eq!(limits.len(), PROPAGATED.len());
        let files = limits.iter().find(|(name, _)| *name == "NOFILE").unwrap().1;
        assert!(files.soft > 0 && files.soft <= files.hard);
        assert_eq!(propagated_by(std::process::id() as i32), Some(limits));
    }
}
