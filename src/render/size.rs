//! Amounts of memory as Slurm's commands print them.

/// The unit of a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Units {
    /// The next larger unit as long as the result is exact: `512M`, `1G`, `1.50G`, `24105M`.
    #[default]
    Exact,
    /// `--noconvert`: the unit in which the amount is stored.
    Keep,
    /// `--units=[KMGTP]`: always this unit, with two decimals unless the result is whole.
    Fixed(char),
}

const LETTERS: [char; 6] = ['K', 'M', 'G', 'T', 'P', 'E'];

impl Units {
    /// Parses `--units`: one of `K`, `M`, `G`, `T`, `P`, in either case; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let mut chars = text.chars();
        let letter = chars.next()?.to_ascii_uppercase();
        (chars.next().is_none() && LETTERS[..5].contains(&letter)).then_some(Units::Fixed(letter))
    }
}

/// Formats an amount in KiB, as in `MaxRSS`: `1624K`.
pub fn kib(amount: u64, units: Units) -> String {
    convert(amount, 0, units)
}

/// Formats an amount in MiB, as in `ReqMem`: `512M`.
pub(crate) fn mib(amount: u64, units: Units) -> String {
    convert(amount, 1, units)
}

/// Formats bytes read or written, as in `MaxDiskRead`: `0.01M`, `22.28M`, `1.50G`.
pub fn transferred(bytes: u64, units: Units) -> String {
    const MEGA: usize = 1;
    let mb = bytes as f64 / f64::from(1 << 20);
    // Slurm converts amounts above one megabyte.
    if bytes == 0 {
        return "0".to_owned();
    }
    if mb <= 1.0 {
        return format!("{mb:.2}M");
    }
    let (mut value, mut unit) = (mb, MEGA);
    match units {
        Units::Keep => {}
        Units::Exact => {
            while value >= 1024.0 && (value as u64).is_multiple_of(512) && unit + 1 < LETTERS.len()
            {
                (value, unit) = (value / 1024.0, unit + 1);
            }
        }
        Units::Fixed(letter) => {
            let to = LETTERS.iter().position(|l| *l == letter).unwrap_or(MEGA);
            (value, unit) = (mb * 1024f64.powi(MEGA as i32 - to as i32), to);
        }
    }
    with_decimals(value, LETTERS[unit])
}

/// Formats bytes for quick reading: `1.5G`.
pub fn glance(bytes: f64) -> String {
    let mut amount = bytes.max(0.0);
    for unit in ["B", "K", "M", "G"] {
        let places = usize::from(amount < 10.0 && unit != "B" && amount.fract() != 0.0);
        if amount < 1024.0 {
            return format!("{amount:.places$}{unit}");
        }
        amount /= 1024.0;
    }
    format!("{amount:.1}T")
}

/// Adds two decimals unless the value is whole.
fn with_decimals(value: f64, letter: char) -> String {
    if value.fract() == 0.0 { format!("{value:.0}{letter}") } else { format!("{value:.2}{letter}") }
}

fn convert(amount: u64, unit: usize, units: Units) -> String {
    match units {
        _ if amount == 0 => "0".to_owned(),
        Units::Keep => format!("{amount}{}", LETTERS[unit]),
        Units::Exact => exact(amount, unit),
        Units::Fixed(letter) => {
            let Some(to) = LETTERS.iter().position(|l| *l == letter) else {
                return exact(amount, unit);
            };
            let value = amount as f64 * 1024f64.powi(unit as i32 - to as i32);
            with_decimals(value, letter)
        }
    }
}

/// Formats an amount in the largest exact unit. As in Slurm, it is divided while it is a multiple
/// of half the next unit, so one decimal place is enough.
fn exact(amount: u64, unit: usize) -> String {
    let (mut amount, mut unit) = (amount, unit);
    while amount >= 1024 && amount % 512 == 0 && unit + 1 < LETTERS.len() {
        unit += 1;
        if amount % 1024 != 0 {
            return format!("{}.50{}", amount / 1024, LETTERS[unit]);
        }
        amount /= 1024;
    }
    format!("{amount}{}", LETTERS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_are_in_megabytes_with_two_decimals() {
        const MB: u64 = 1 << 20;
        for (bytes, units, text) in [
            (0, Units::Exact, "0"),
            (1, Units::Exact, "0.00M"),
            (11_087, Units::Exact, "0.01M"),
            (MB, Units::Exact, "1.00M"),
            (3 * MB, Units::Exact, "3M"),
            (22 * MB + MB / 4, Units::Exact, "22.25M"),
            (1536 * MB, Units::Exact, "1.50G"),
            (1500 * MB, Units::Exact, "1500M"),
            (1536 * MB, Units::Keep, "1536M"),
            (2 * MB, Units::Fixed('K'), "2048K"),
            (1536 * MB, Units::Fixed('G'), "1.50G"),
        ] {
            assert_eq!(transferred(bytes, units), text, "{bytes} {units:?}");
        }
    }

    #[test]
    fn sizes_are_short() {
        let (mb, tb) = (f64::from(1 << 20), 1024f64.powi(4));
        let cases = [
            (0.0, "0B"),
            (1536.0, "1.5K"),
            (200.0 * mb, "200M"),
            (2048.0 * mb, "2G"),
            (3.0 * tb, "3.0T"),
        ];
        for (bytes, text) in cases {
            assert_eq!(glance(bytes), text);
        }
    }

    #[test]
    fn sizes_change_unit_only_if_exact() {
        for (mb, text) in [
            (0, "0"),
            (100, "100M"),
            (512, "512M"),
            (1024, "1G"),
            (1536, "1.50G"),
            (24_105, "24105M"),
            (192_000, "187.50G"),
            (1 << 20, "1T"),
        ] {
            assert_eq!(mib(mb, Units::Exact), text);
        }
        assert_eq!(kib(1624, Units::Exact), "1624K");
    }

    #[test]
    fn noconvert_keeps_the_unit() {
        assert_eq!(mib(2048, Units::Keep), "2048M");
    }

    #[test]
    fn units_are_as_requested() {
        assert_eq!(Units::parse("g"), Some(Units::Fixed('G')));
        assert_eq!(Units::parse("X"), None);
        assert_eq!(Units::parse(""), None);
        assert_eq!(kib(2920, Units::Fixed('M')), "2.85M");
        assert_eq!(mib(1, Units::Fixed('K')), "1024K");
        assert_eq!(mib(2048, Units::Fixed('G')), "2G");
    }
}
