//! `scontrol show licenses`.

use slotd_model::license::LicenseUse;

/// Prints the licenses, or the one with this name. As in Slurm, an unknown name prints nothing.
/// `reserved`: how many of one are reserved.
pub fn licenses(
    all: &[LicenseUse],
    reserved: impl Fn(&str) -> u32,
    name: Option<&str>,
    one_line: bool,
) -> String {
    if all.is_empty() {
        return "No licenses configured in Slurm.\n".to_owned();
    }
    let between = if one_line { " " } else { "\n    " };
    let shown = all.iter().filter(|license| name.is_none_or(|name| license.name == name));
    let line = |license: &LicenseUse| {
        let LicenseUse { name, total, used } = license;
        let free = license.free();
        let reserved = reserved(name);
        format!(
            "LicenseName={name}{between}Total={total} Used={used} Free={free} Reserved={reserved} \
             Remote=no\n"
        )
    };
    shown.map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licenses_are_shown_as_in_slurm() {
        let license = |name: &str, total, used| LicenseUse { name: name.to_owned(), total, used };
        let all = [license("foo", 1, 0), license("matlab", 3, 4)];
        assert_eq!(
            licenses(&all, |name| if name == "foo" { 1 } else { 0 }, None, false),
            "LicenseName=foo\n    Total=1 Used=0 Free=1 Reserved=1 Remote=no\n\
             LicenseName=matlab\n    Total=3 Used=4 Free=0 Reserved=0 Remote=no\n"
        );
        assert_eq!(
            licenses(&all, |_| 0, Some("foo"), true),
            "LicenseName=foo Total=1 Used=0 Free=1 Reserved=0 Remote=no\n"
        );
        assert_eq!(licenses(&all, |_| 0, Some("nosuch"), false), "");
        assert_eq!(licenses(&[], |_| 0, None, false), "No licenses configured in Slurm.\n");
    }
}
