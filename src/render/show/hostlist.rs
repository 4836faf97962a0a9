//! Names of hosts, one a line or as short as they can be written.

use crate::model::HostList;
use std::fmt::Write;

/// `scontrol show hostnames`: one a line.
pub fn hostnames(names: &[String]) -> String {
    names.iter().map(|n| format!("{n}\n")).collect()
}

/// `scontrol show hostlist`: `n[1-3],x7`, in their order (`hostlistsorted` sorts before).
pub fn hostlist(names: &[String]) -> String {
    format!("{}\n", HostList::new(names.to_vec()))
}

/// `0-2,5`: ascending numbers as Slurm prints sets of CPUs and GPUs.
pub fn ranges(ids: &[u32]) -> String {
    let mut out = String::new();
    let mut i = 0;
    while i < ids.len() {
        let mut end = i;
        while end + 1 < ids.len() && ids[end].checked_add(1) == Some(ids[end + 1]) {
            end += 1;
        }
        let comma = if i > 0 { "," } else { "" };
        // Writing to a String cannot fail.
        let _ = if end > i { write!(out, "{comma}{}-{}", ids[i], ids[end]) } else { write!(out, "{comma}{}", ids[i]) };
        i = end + 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        text.split(',').map(str::to_owned).collect()
    }

    #[test]
    fn hostnames_are_one_a_line() {
        assert_eq!(hostnames(&names("n1,n2")), "n1\nn2\n");
        assert_eq!(hostnames(&[]), "");
    }

    #[test]
    fn hostlists_are_as_short_as_they_can_be() {
        for (list, text) in [
            ("n1,n2,n3,x7", "n[1-3],x7"),
            ("n1,n3", "n[1,3]"),
            ("m01,m02,m3", "m[01-02,3]"),
            ("n9,n10", "n[9-10]"),
            ("vm", "vm"),
            ("vm,vm", "vm,vm"),
            ("a99999999999999999999,a1", "a99999999999999999999,a1"),
        ] {
            assert_eq!(hostlist(&names(list)), format!("{text}\n"), "{list}");
        }
    }

    #[test]
    fn ranges_of_cpus() {
        assert_eq!(ranges(&[0, 1, 2, 5, u32::MAX]), "0-2,5,4294967295");
        assert_eq!(ranges(&[]), "");
    }
}
