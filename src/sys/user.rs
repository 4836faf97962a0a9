//! Users and groups by number and by name, as the system's name service tells them.

use nix::unistd::{Gid, Group, Uid, User};

/// The name of a user; the number in digits where it has none.
pub fn user_name(uid: u32) -> String {
    User::from_uid(Uid::from_raw(uid)).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name)
}

/// The name of a group; the number in digits where it has none.
pub fn group_name(gid: u32) -> String {
    Group::from_gid(Gid::from_raw(gid)).ok().flatten().map_or_else(|| gid.to_string(), |group| group.name)
}

/// The number of a user, given by name or in digits. `None` for an unknown name.
pub fn uid_of(name: &str) -> Option<u32> {
    match User::from_name(name) {
        Ok(Some(user)) => Some(user.uid.as_raw()),
        _ => name.parse().ok(),
    }
}

/// The name, the login shell and the home directory of a user, where the system knows them.
pub fn account(uid: u32) -> Option<(String, std::path::PathBuf, std::path::PathBuf)> {
    User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| (user.name, user.shell, user.dir))
}

/// This process's user and group.
pub fn current() -> (u32, u32) {
    (nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_reads_back_by_name_and_by_number() {
        let (uid, _) = current();
        assert_eq!(uid_of(&user_name(uid)), Some(uid));
        assert_eq!(uid_of("4000000000"), Some(4_000_000_000));
        assert_eq!(uid_of("no such user"), None);
        assert_eq!(user_name(4_000_000_001), "4000000001");
    }
}
