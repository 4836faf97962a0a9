//! Output file names: `slurm-%A_%a.out` (sbatch man page, "filename pattern").

/// The maximum padding, the same as Slurm's.
const MAX_WIDTH: usize = 10;

/// The length at which expansion stops. Linux cannot open longer names anyway (at most 4096 bytes).
const MAX_LEN: usize = 1 << 16;

/// Slurm's "no value", which `%a` prints outside an array.
pub const NO_VAL: u32 = u32::MAX - 1;

/// The values of the tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilenameVars {
    /// `%j`.
    pub job_id: u32,
    /// `%A`: the ID of the array, or of the job outside an array.
    pub array_job: u32,
    /// `%a`: [`NO_VAL`] outside an array. `None` for pending tasks that share a record; their
    /// tokens are not expanded.
    pub array_task: Option<u32>,
    /// `%x`.
    pub name: String,
    /// `%u`.
    pub user: String,
    /// `%N`.
    pub host: String,
    /// `%n`: the index of the node within the job; always 0 on one host.
    pub node_id: u32,
    /// `%s`: `batch`, `0`, ….
    pub step: String,
    /// `%s` of a step of sjobmgr, which is identified by its name.
    pub step_name: Option<String>,
    /// `%t`: the rank.
    pub task: u32,
}

impl Default for FilenameVars {
    fn default() -> Self {
        FilenameVars {
            job_id: 0,
            array_job: 0,
            array_task: Some(NO_VAL),
            name: String::new(),
            user: String::new(),
            host: String::new(),
            node_id: 0,
            step: String::new(),
            step_name: None,
            task: 0,
        }
    }
}

/// A piece of a pattern.
enum Piece<'a> {
    Text(&'a str),
    Token { letter: char, width: usize, written: &'a str },
}

/// Expands a pattern into a file name.
///
/// Tokens: `%j` job, `%J` job and step (`12.0`; only the job for a batch script), `%A` array, `%a`
/// array task, `%b` array task modulo 10, `%x` name, `%u` user, `%N` host, `%n` node index, `%s`
/// step, `%t` rank, `%%`. A width pads numbers with zeros (`%4a`, `%03j`; at most 10). Anything
/// else is kept as written. As in Slurm, a backslash anywhere disables expansion: the backslashes
/// are dropped, and the rest is the name.
pub fn expand(pattern: &str, vars: &FilenameVars) -> String {
    let mut out = String::with_capacity(pattern.len());
    if pattern.contains('\\') {
        let mut chars = pattern.chars();
        while let Some(c) = chars.next() {
            // The second of two backslashes is kept.
            out.extend(if c == '\\' { chars.next() } else { Some(c) });
        }
        return out;
    }
    for piece in pieces(pattern) {
        if out.len() > MAX_LEN {
            break;
        }
        let (letter, width, written) = match piece {
            Piece::Text(text) => {
                out.push_str(text);
                continue;
            }
            Piece::Token { letter, width, written } => (letter, width, written),
        };
        match letter {
            'j' => out.push_str(&format!("{:0width$}", vars.job_id)),
            'J' => {
                out.push_str(&format!("{:0width$}", vars.job_id));
                if !vars.step.is_empty() && vars.step != "batch" {
                    out.push('.');
                    out.push_str(&vars.step);
                }
            }
            'A' => out.push_str(&format!("{:0width$}", vars.array_job)),
            'a' | 'b' => match vars.array_task {
                Some(task) => out
                    .push_str(&format!("{:0width$}", if letter == 'a' { task } else { task % 10 })),
                None => out.push_str(written),
            },
            'n' => out.push_str(&format!("{:0width$}", vars.node_id)),
            't' => out.push_str(&format!("{:0width$}", vars.task)),
            's' => match (&vars.step_name, vars.step.parse::<u32>()) {
                (Some(name), _) => out.push_str(&file_name(name)),
                (None, Ok(number)) => out.push_str(&format!("{number:0width$}")),
                (None, Err(_)) => out.push_str(&vars.step),
            },
            'x' => out.push_str(&file_name(&vars.name)),
            'u' => out.push_str(&vars.user),
            'N' => out.push_str(&vars.host),
            '%' => out.push('%'),
            _ => out.push_str(written),
        }
    }
    out
}

/// Returns a job's name as a single path component, so that it cannot escape the directory of the
/// pattern.
fn file_name(name: &str) -> String {
    match name {
        "." | ".." => name.replace('.', "_"),
        _ => name.replace('/', "_"),
    }
}

fn pieces(pattern: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = pattern;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let at = rest.find('%').unwrap_or(rest.len());
        if at > 0 {
            let (text, after) = rest.split_at(at);
            rest = after;
            return Some(Piece::Text(text));
        }
        let digits = rest[1..].bytes().take_while(u8::is_ascii_digit).count();
        let Some(letter) = rest[1 + digits..].chars().next() else {
            return Some(Piece::Text(std::mem::take(&mut rest)));
        };
        // A width too large to parse is capped as well.
        let width =
            rest[1..=digits].parse::<usize>().unwrap_or(if digits == 0 { 0 } else { MAX_WIDTH });
        let (written, after) = rest.split_at(1 + digits + letter.len_utf8());
        rest = after;
        Some(Piece::Token { letter, width: width.min(MAX_WIDTH), written })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn batch() -> FilenameVars {
        FilenameVars {
            job_id: 52,
            array_job: 52,
            name: "nm".to_string(),
            user: "lab".to_string(),
            host: "vm".to_string(),
            step: "batch".to_string(),
            ..FilenameVars::default()
        }
    }

    #[test]
    fn every_token_expands_as_in_slurm_outside_an_array() {
        assert_eq!(
            expand("o_%x_%j_%u_%N_%n_%t_%s_%%_%4j_%A_%a.out", &batch()),
            "o_nm_52_lab_vm_0_0_batch_%_0052_52_4294967294.out"
        );
        assert_eq!(expand("%J", &batch()), "52");
        assert_eq!(expand("%J_%s", &FilenameVars { step: "3".to_string(), ..batch() }), "52.3_3");
    }

    #[test]
    fn array_tasks_and_widths_expand() {
        let vars = FilenameVars { job_id: 81, array_job: 80, array_task: Some(12), ..batch() };
        assert_eq!(expand("arr_%A_%a_%j_%x_%3a.txt", &vars), "arr_80_12_81_nm_012.txt");
        assert_eq!(expand("%4a %03j %b %5N %2x", &vars), "0012 081 2 vm nm");
        // The width is capped at 10 digits.
        assert_eq!(expand("%99j", &vars), "0000000081");
        assert_eq!(expand("%99999999999999999999999j", &vars), "0000000081");
        assert_eq!(expand("%t-%2t", &FilenameVars { task: 7, ..vars }), "7-07");
    }

    #[test]
    fn a_job_name_cannot_escape_the_directory() {
        for (name, path) in [
            ("../../etc/x", "logs/.._.._etc_x.out"),
            ("a/b", "logs/a_b.out"),
            ("..", "logs/__.out"),
        ] {
            assert_eq!(
                expand("logs/%x.out", &FilenameVars { name: name.to_string(), ..batch() }),
                path
            );
        }
    }

    #[test]
    fn tokens_of_an_unknown_array_task_are_kept() {
        let vars = FilenameVars { job_id: 80, array_job: 80, array_task: None, ..batch() };
        assert_eq!(expand("%A_%a_%4a_%b_%03b_%j", &vars), "80_%a_%4a_%b_%03b_80");
    }

    #[test]
    fn unknown_tokens_are_kept() {
        assert_eq!(expand("100%", &batch()), "100%");
        assert_eq!(expand("%q%5q%é%7", &batch()), "%q%5q%é%7");
        assert_eq!(expand("%%j", &batch()), "%j");
    }

    #[test]
    fn a_backslash_disables_expansion() {
        assert_eq!(expand("out\\%j", &batch()), "out%j");
        assert_eq!(expand("\\%j-%x\\\\", &batch()), "%j-%x\\");
    }

    #[test]
    fn the_length_of_an_expansion_is_limited() {
        let vars = FilenameVars { name: "n".repeat(10_000), ..batch() };
        assert!(expand(&"%x".repeat(100_000), &vars).len() < MAX_LEN + 20_000);
    }

    proptest! {
        #[test]
        fn a_name_without_tokens_is_kept(name in "[^%\\\\]{0,40}") {
            prop_assert_eq!(expand(&name, &batch()), name);
        }

        #[test]
        fn an_escaped_name_expands_to_itself(name in ".{0,40}") {
            let escaped: String = name.chars().flat_map(|c| ['\\', c]).collect();
            prop_assert_eq!(expand(&escaped, &batch()), name.clone());
            if !name.contains('\\') {
                prop_assert_eq!(expand(&name.replace('%', "%%"), &batch()), name);
            }
        }

        #[test]
        fn no_pattern_panics(pattern in "[%0-9a-zA-Z\\\\é]{0,40}|.*") {
            let _ = expand(&pattern, &batch());
        }
    }
}
