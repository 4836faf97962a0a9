//! Names of hosts, one a line or as short as they can be written.

use crate::model::HostList;

/// `scontrol show hostnames`: one a line.
pub fn hostnames(names: &[String]) -> String {
    names.iter().map(|n| format!("{n}\n")).collect()
}

/// `scontrol show hostlist`: `n[1-3],x7`, in their order (`hostlistsorted` sorts before).
pub fn hostlist(names: &[String]) -> String {
    format!("{}\n", HostList::new(names.to_vec()))
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
}
