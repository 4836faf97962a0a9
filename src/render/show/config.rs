//! `scontrol show config` and `scontrol ping`.

use crate::text::pad;
use crate::{Ctx, time};

/// Prints the configuration as a list of names and values, in the given order.
pub fn config(pairs: &[(String, String)], ctx: &Ctx) -> String {
    let mut out = format!("Configuration data as of {}\n", time::instant(ctx.now, ctx));
    for (name, value) in pairs {
        pad(&mut out, name, 23, false);
        out.push_str(" = ");
        out.push_str(value);
        out.push('\n');
    }
    out.push('\n');
    out.push_str(&ping(true, ctx));
    out
}

/// Prints whether the daemon is up, in Slurm's words.
pub fn ping(is_up: bool, ctx: &Ctx) -> String {
    format!("Slurmctld(primary) at {} is {}\n", ctx.node, if is_up { "UP" } else { "DOWN" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::ctx;

    #[test]
    fn config_is_a_list_of_names_and_values() {
        let pairs = [("ClusterName", "slotd"), ("AccountingStorageBackupHost", "(null)")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(
            config(&pairs, &ctx()),
            "Configuration data as of 2026-11-20T23:39:58\n\
             ClusterName             = slotd\n\
             AccountingStorageBackupHost = (null)\n\
             \n\
             Slurmctld(primary) at vm is UP\n"
        );
    }

    #[test]
    fn ping_says_down_without_a_daemon() {
        assert_eq!(ping(false, &ctx()), "Slurmctld(primary) at vm is DOWN\n");
    }
}
