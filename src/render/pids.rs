//! `sstat -i`: the processes of steps.

use crate::Ctx;
use crate::field::{Cut, Field, Table};
use crate::layout;
use slotd_model::StepKey;

/// The field table of `sstat -i`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pids;

pub type Layout = layout::Layout<Pids>;

impl Table for Pids {
    type Row<'a> = &'a (StepKey, Vec<i32>);

    fn fields() -> &'static [Field<Self>] {
        FIELDS
    }
}

type F = Field<Pids>;

static FIELDS: &[F] = &[
    F::new(&["JobID"], "JobID", |(step, _), _| step.to_string().into()).width(-12).cut(Cut::Never),
    F::new(&["Nodelist"], "Nodelist", |_, c| c.node.clone().into()).cut(Cut::Never),
    F::new(&["Pids"], "Pids", |(_, pids), _| {
        pids.iter().map(i32::to_string).collect::<Vec<_>>().join(",").into()
    })
    .cut(Cut::Never),
];

/// Parses a list of fields. Returns `None` if it does not name `Pids`, which only this table has, or
/// names fields that this table lacks.
pub fn parse(fields: &str) -> Option<Layout> {
    let is_pids =
        |name: &str| name.split('%').next().is_some_and(|n| n.eq_ignore_ascii_case("pids"));
    fields.split(',').any(is_pids).then(|| Layout::ruled(fields).ok()).flatten()
}

/// Returns the usual fields.
pub fn usual() -> Layout {
    // A test checks that this constant parses.
    Layout::ruled("all").unwrap_or_default()
}

/// Prints the processes of these steps. `parsable` is the delimiter and whether it also follows the
/// last value.
pub fn print(
    processes: &[(StepKey, Vec<i32>)],
    layout: Layout,
    header: bool,
    parsable: Option<(&str, bool)>,
    ctx: &Ctx,
) -> String {
    let layout = match parsable {
        Some((delimiter, trailing)) => layout.parsable(delimiter, trailing),
        None => layout,
    };
    layout.print(&processes.iter().collect::<Vec<_>>(), header, ctx)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::ctx;
    use slotd_model::{JobId, StepId};

    #[test]
    fn processes_are_listed_with_their_step() {
        let processes = [(StepKey { job: JobId(12), step: StepId::Num(0) }, vec![7, 8])];
        assert_eq!(
            print(&processes, usual(), true, None, &ctx()),
            "JobID        Nodelist             Pids                 \n\
             ------------ -------------------- -------------------- \n\
             12.0         vm                   7,8                  \n"
        );
        assert_eq!(
            print(&processes, usual(), true, Some(("|", true)), &ctx()),
            "JobID|Nodelist|Pids|\n12.0|vm|7,8|\n"
        );
        let layout = parse("pids,JobID").unwrap();
        assert_eq!(print(&processes, layout, false, Some(("|", false)), &ctx()), "7,8|12.0\n");
        assert!(parse("jobid,nodelist").is_none() && parse("pids,maxrss").is_none());
    }
}
