//! Counts in messages.

use std::fmt::Display;

/// Returns a count and its noun, in the plural unless the count is one: `1 CPU`, `2 CPUs`.
pub fn counted<N: Copy + Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let end = match noun {
        _ if count == N::from(1) => "",
        noun if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{count} {noun}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_is_singular() {
        let jobs = [0_u64, 1, 2].map(|count| counted(count, "job"));
        assert_eq!(jobs, ["0 jobs", "1 job", "2 jobs"]);
        assert_eq!([1_u32, 3].map(|count| counted(count, "process")), ["1 process", "3 processes"]);
    }
}
