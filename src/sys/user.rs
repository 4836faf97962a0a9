//! Looks up users and groups by number and by name, in `/etc/passwd` and `/etc/group` first, then
//! with getent(1).
//!
//! The C library's own lookup loads modules of the name service, which a static executable cannot
//! do, and first queries a cache that most hosts do not run. getent queries all of the host's
//! sources (LDAP, sssd), at the cost of a process.

use crate::guard;
use std::process::{Command, Stdio};

/// A database of the name service.
#[derive(Debug, Clone, Copy)]
struct Database {
    name: &'static str,
    path: &'static str,
}

const USERS: Database = Database { name: "passwd", path: "/etc/passwd" };
const GROUPS: Database = Database { name: "group", path: "/etc/group" };

/// The fields that identify a line (passwd(5), group(5)).
const NAME: usize = 0;
const NUMBER: usize = 2;

/// The field of a user's line with the group number.
const GROUP: usize = 3;

impl Database {
    /// Returns the line that has `key` in this field.
    fn line(self, field: usize, key: &str) -> Option<String> {
        let find =
            |bytes: &[u8]| parse(&String::from_utf8_lossy(bytes), field, key).map(str::to_owned);
        let ask = || {
            let mut getent = Command::new("getent");
            getent.args(["--", self.name, key]).stdin(Stdio::null()).stderr(Stdio::null());
            guard::end_with_thread(&mut getent);
            getent.output()
        };
        let local = std::fs::read(self.path).ok().and_then(|bytes| find(&bytes));
        local.or_else(|| find(&ask().ok()?.stdout))
    }

    /// Returns the name for a number, or its digits if it has no name.
    fn name_of(self, number: u32) -> String {
        let number = number.to_string();
        self.line(NUMBER, &number).map_or(number, |line| part(&line, NAME).to_owned())
    }
}

fn parse<'a>(text: &'a str, field: usize, key: &str) -> Option<&'a str> {
    text.lines().find(|line| part(line, field) == key)
}

fn part(line: &str, field: usize) -> &str {
    line.split(':').nth(field).unwrap_or_default()
}

/// Returns the name of a user, or the digits of the number if it has none.
pub fn user_name(uid: u32) -> String {
    USERS.name_of(uid)
}

/// Returns the name of a group, or the digits of the number if it has none.
pub fn group_name(gid: u32) -> String {
    GROUPS.name_of(gid)
}

/// Returns the number of a user, given by name or in digits, or `None` if the name is unknown.
pub fn uid_of(name: &str) -> Option<u32> {
    let named = || part(&USERS.line(NAME, name)?, NUMBER).parse().ok();
    name.parse().ok().or_else(named)
}

/// Returns the number and the primary group of a user, given by name or in digits. Returns `None`
/// if the user is unknown.
pub fn uid_and_gid(user: &str) -> Option<(u32, u32)> {
    let line = USERS
        .line(NAME, user)
        .or_else(|| USERS.line(NUMBER, &user.parse::<u32>().ok()?.to_string()))?;
    Some((part(&line, NUMBER).parse().ok()?, part(&line, GROUP).parse().ok()?))
}

/// Returns the home directory and the login shell of a user, or `/` and `/bin/sh` if they are
/// unknown.
pub fn home_and_shell(uid: u32) -> (String, String) {
    let line = USERS.line(NUMBER, &uid.to_string()).unwrap_or_default();
    let path = |field, usual: &str| {
        Some(part(&line, field)).filter(|path| !path.is_empty()).unwrap_or(usual).to_owned()
    };
    (path(5, "/"), path(6, "/bin/sh"))
}

/// Returns this process's user and group.
pub fn current() -> (u32, u32) {
    (nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_name_and_by_number() {
        let (uid, _) = current();
        assert_eq!(uid_of(&user_name(uid)), Some(uid));
        assert_eq!(uid_of("4000000000"), Some(4_000_000_000));
        assert_eq!(uid_of("no such user"), None);
        assert_eq!(user_name(4_000_000_001), "4000000001");
    }

    #[test]
    fn a_line_is_found_by_an_exact_field() {
        let text = "# a comment\n10:x:7:7::/ten:\nann:x:10:10:Ann:/home/ann:/bin/zsh\n";
        assert_eq!(parse(text, NUMBER, "10").map(|line| part(line, NAME)), Some("ann"));
        assert_eq!(parse(text, NAME, "10").map(|line| part(line, NUMBER)), Some("7"));
        assert_eq!((parse(text, NAME, "an"), parse(text, NUMBER, "1")), (None, None));
    }

    /// getent reads the same file here, so both must return the same line.
    #[test]
    fn getent_finds_entries_that_the_file_lacks() {
        let elsewhere = Database { path: "/nonexistent/passwd", ..USERS };
        assert_eq!(elsewhere.line(NUMBER, "0"), USERS.line(NUMBER, "0"));
        assert_eq!(
            elsewhere.line(NAME, "root").map(|line| part(&line, NUMBER).to_owned()).as_deref(),
            Some("0")
        );
    }
}
