//! The resource limits of this process, as `setrlimit` numbers them.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// A limit: the number that `setrlimit` takes, the soft and the hard value. `u64::MAX` is unlimited.
pub type Limit = (u32, u64, u64);

/// Those that Slurm propagates from the client to its tasks (srun man page, `--propagate`).
const PROPAGATED: [Resource; 9] = [
    Resource::RLIMIT_CPU,
    Resource::RLIMIT_FSIZE,
    Resource::RLIMIT_DATA,
    Resource::RLIMIT_STACK,
    Resource::RLIMIT_CORE,
    Resource::RLIMIT_NOFILE,
    Resource::RLIMIT_MEMLOCK,
    Resource::RLIMIT_AS,
    Resource::RLIMIT_NPROC,
];

/// The limits of this process that its tasks get.
pub fn propagated() -> Vec<Limit> {
    let one = |kind: Resource| getrlimit(kind).ok().map(|(soft, hard)| (kind as u32, soft, hard));
    PROPAGATED.into_iter().filter_map(one).collect()
}

/// Raises the limit on open descriptors to what it may be. What it was, where that was less.
pub fn raise_descriptors() -> Option<Limit> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok().filter(|(soft, hard)| soft != hard)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).ok()?;
    Some((Resource::RLIMIT_NOFILE as u32, soft, hard))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_told_once_with_its_number() {
        let limits = propagated();
        assert_eq!(limits.len(), PROPAGATED.len());
        let files = limits.iter().find(|(kind, ..)| *kind == Resource::RLIMIT_NOFILE as u32).unwrap();
        assert!(files.1 > 0 && files.1 <= files.2);
    }
}
