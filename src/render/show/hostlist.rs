//! Host names, one per line or in compressed form.

use slotd_model::HostList;

/// `scontrol show hostnames`: prints one name per line.
pub fn hostnames(names: &[String]) -> String {
    names.iter().map(|n| format!("{n}\n")).collect()
}

/// `scontrol show hostlist`: prints `n[1-3],x7` in the given order (`hostlistsorted` sorts first).
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
    fn hostnames_are_one_per_line() {
        assert_eq!(hostnames(&names("n1,n2")), "n1\nn2\n");
        assert_eq!(hostnames(&[]), "");
    }

    #[test]
    fn hostlists_are_compressed() {
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
