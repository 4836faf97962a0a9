//! Reservations in words, for quick reading.

use crate::Ctx;
use crate::moment;
use slotd_model::counted;
use slotd_model::reservation::{Flag, Reservation, Share};

/// Returns the users and accounts who may use it: `ann, account lab`.
pub fn who(r: &Reservation) -> String {
    let accounts = r.accounts.iter().map(|name| format!("account {name}"));
    r.users.iter().cloned().chain(accounts).collect::<Vec<_>>().join(", ")
}

/// Returns its resources: `the whole node`, `4 CPUs, 8G, 1 GPU, matlab:2`.
pub fn what(r: &Reservation) -> String {
    let amounts = match r.share {
        Share::Node => vec!["the whole node".to_owned()],
        Share::Licenses => Vec::new(),
        Share::Parts(parts) => {
            let memory = |mb: u64| {
                if mb.is_multiple_of(1024) { format!("{}G", mb / 1024) } else { format!("{mb}M") }
            };
            let all = [
                parts.cpus.map(|n| counted(n, "CPU")),
                parts.mem_mb.map(memory),
                parts.gpus.map(|n| counted(n, "GPU")),
            ];
            all.into_iter().flatten().collect()
        }
    };
    amounts.into_iter().chain(r.licenses.clone()).collect::<Vec<_>>().join(", ")
}

/// Returns its period, or the next one, and how it repeats: `until 21:00`, `20:00 to 21:00, daily`.
pub fn when(r: &Reservation, ctx: &Ctx) -> String {
    let is_active = r.is_active(ctx.now);
    let start = moment::with_day(r.start, ctx);
    let period = match r.end.map(|end| moment::with_day(end, ctx)) {
        Some(end) if is_active => format!("until {end}"),
        Some(end) => format!("{start} to {end}"),
        None if is_active => "now, without an end".to_owned(),
        None => format!("from {start}"),
    };
    match r.repeat() {
        Some(Flag::Weekday) => period + ", on weekdays",
        Some(Flag::Weekend) => period + ", on weekends",
        Some(flag) => format!("{period}, {}", flag.name().to_lowercase()),
        None => period,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{at, ctx};
    use slotd_model::qos::TresLimit;

    #[test]
    fn a_reservation_in_words() {
        let parts = TresLimit { cpus: Some(4), mem_mb: Some(8192), gpus: Some(1) };
        let mut r = Reservation {
            start: at(60),
            end: Some(at(-1200)),
            users: vec!["ann".to_owned()],
            accounts: vec!["lab".to_owned()],
            share: Share::Parts(parts),
            licenses: Some("matlab:2".to_owned()),
            ..Reservation::default()
        };
        assert_eq!(who(&r), "ann, account lab");
        assert_eq!(what(&r), "4 CPUs, 8G, 1 GPU, matlab:2");
        assert_eq!(when(&r, &ctx()), "until 23:59");
        (r.start, r.share) = (at(-600), Share::Node);
        r.flags.insert(Flag::Daily);
        assert_eq!(
            (what(&r).as_str(), when(&r, &ctx())),
            ("the whole node, matlab:2", "23:49 to 23:59, daily".to_owned())
        );
        (r.end, r.flags, r.share) = (None, [Flag::Weekend].into(), Share::Licenses);
        assert_eq!(
            (what(&r).as_str(), when(&r, &ctx())),
            ("matlab:2", "from 23:49, on weekends".to_owned())
        );
    }
}
