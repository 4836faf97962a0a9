//! The listings of sinfo: the default views, formats and lists of names.

use crate::field::{FormatError, Need};
use crate::sinfo::fields::{Row, Sinfo, reason, reasons_of};
use crate::{Columns, Ctx, layout, sort};
use slotd_model::view::NodeView;

pub type Layout = layout::Layout<Sinfo>;
pub type Sort = sort::Sort<Sinfo>;

/// The default listings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct View {
    /// `-N/--Node`
    pub node: bool,
    /// `-l/--long`
    pub long: bool,
    /// `-s/--summarize`: always Slurm's columns.
    pub summarize: bool,
}

const OWN_DEFAULT: &str = "Partition,Hostnames,State,Features,GRES_USED";
const OWN_NODE: &str = "Partition,Hostnames,State";
const OWN_LONG: &str = "Partition,Hostnames,State,Features,CPUS,CPU_ALLOC,Memory,MEM_ALLOC,GPUS,GPU_ALLOC,Running,Pending,GRES_USED";

const SLURM_DEFAULT: &str = "%9P %.5a %.10l %.6D %.6t %N";
const SLURM_LONG: &str = "%9P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %N";
const SLURM_SUMMARY: &str = "%9P %.5a %.10l %.16F %N";

/// `-R/--list-reasons`: the reasons for drains.
const REASONS: &str = "%20E %9u %19H %N";

/// `-R/--list-reasons` with `-l/--long`.
const LONG_REASONS: &str = "%20E %12U %19H %6t %N";

/// Prints `-R/--list-reasons`: a line for the node if it is drained, and one for each reason why a
/// part of it is.
pub fn reasons(node: &NodeView, header: bool, long: bool, ctx: &Ctx) -> String {
    let format = if long { LONG_REASONS } else { REASONS };
    let options =
        Options { header, ..Options::new(once_for_equals(parse(format).unwrap_or_default())) };
    let row = |why| Row {
        node,
        partitions: node.partitions.iter().collect(),
        why: Some(why),
        has_node: true,
    };
    let rows: Vec<Row<'_>> = reasons_of(node).into_iter().map(row).collect();
    options.layout.print(&rows, options.header, ctx)
}

impl View {
    /// Returns the default columns. The width of Slurm's node view depends on `node_name`.
    pub fn layout(self, columns: Columns, node_name: &str) -> Layout {
        let wide = node_name.len().max(9);
        let text = match (columns, self.summarize, self.node, self.long) {
            (_, true, ..) => SLURM_SUMMARY,
            (Columns::Own, false, false, false) => OWN_DEFAULT,
            (Columns::Own, false, true, false) => OWN_NODE,
            (Columns::Own, false, _, true) => OWN_LONG,
            (Columns::Slurm, false, false, false) => SLURM_DEFAULT,
            (Columns::Slurm, false, false, true) => SLURM_LONG,
            (Columns::Slurm, false, true, false) => &format!("%{wide}N %.6D %.9P %6t"),
            (Columns::Slurm, false, true, true) => {
                &format!("%{wide}N %.6D %.9P %.11T %4c %.8z %.6m %.8d %.6w %.8f %20E")
            }
        };
        // A test checks that every format parses.
        parse(text).unwrap_or_default().dated(self.long && !self.summarize)
    }

    /// Returns whether all partitions share the node's line, as in slotd's own node view. Slurm
    /// prints a line for each partition.
    pub fn is_one_line(self, columns: Columns) -> bool {
        self.node && !self.summarize && columns == Columns::Own
    }
}

/// Parses a format of a default view.
fn parse(text: &str) -> Result<Layout, FormatError> {
    Layout::parse(text)
}

/// Parses `-o/--format` and `SINFO_FORMAT`: a list of field names, or a `%` format that keeps
/// unknown codes as text and returns an error for each.
///
/// # Errors
/// Fails on an unknown name.
pub fn as_known(text: &str) -> Result<(Layout, Vec<FormatError>), FormatError> {
    Layout::parse_as_known(text)
}

/// Parses `-O/--Format`. Skips unknown names and returns an error for each.
pub fn long(text: &str) -> (Layout, Vec<FormatError>) {
    let all = text.trim().eq_ignore_ascii_case("all");
    if all { Layout::codes_as_known("%all") } else { Layout::long_as_known(text) }
}

/// Merges equal lines if no column distinguishes the partitions, as Slurm does.
fn once_for_equals(layout: Layout) -> Layout {
    if layout.needs(Need::Partition) { layout } else { layout.merging_equal() }
}

/// The options for printing the host.
#[derive(Debug, Clone)]
pub struct Options {
    pub layout: Layout,
    /// False with `-h/--noheader`.
    pub header: bool,
    /// All partitions share one line: slotd's own `-N` view.
    pub one_line: bool,
    /// Each partition has its own line, even if lines are equal: `-N` with a format.
    pub each_partition: bool,
    /// `-p/--partition`: only these partitions.
    pub partitions: Option<Vec<String>>,
    /// `-S/--sort`. Partitions that it does not order keep the configured order.
    pub sort: Sort,
    /// False if `-t`, `-n` or `-d` exclude the host. The partitions are then shown without it.
    pub shows_node: bool,
}

impl Options {
    pub fn new(layout: Layout) -> Self {
        Options {
            layout,
            header: true,
            one_line: false,
            each_partition: false,
            partitions: None,
            sort: Sort::default(),
            shows_node: true,
        }
    }
}

/// Prints the host as sinfo does.
pub fn print(node: &NodeView, options: &Options, ctx: &Ctx) -> String {
    let wanted =
        |name: &str| options.partitions.as_ref().is_none_or(|list| list.iter().any(|p| p == name));
    let partitions: Vec<_> = node.partitions.iter().filter(|p| wanted(&p.partition.name)).collect();
    let why = reason(node);
    let row = |partitions| Row { node, partitions, why: why.clone(), has_node: options.shows_node };
    let mut rows: Vec<Row<'_>> = if options.one_line && !partitions.is_empty() {
        vec![row(partitions)]
    } else {
        partitions.into_iter().map(|partition| row(vec![partition])).collect()
    };
    options.sort.apply(&mut rows, ctx);
    let layout = options.layout.clone();
    let layout = if options.each_partition { layout } else { once_for_equals(layout) };
    layout.print(&rows, options.header, ctx)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Table;
    use crate::fixture::{ctx, node};
    use proptest::prelude::*;
    use slotd_model::Tres;

    fn idle() -> NodeView {
        node(2)
    }

    fn taken(cpus: u32) -> NodeView {
        NodeView { allocated: Tres { cpus, mem_mb: 100, gpus: 1, ..Tres::ZERO }, ..idle() }
    }

    fn view(view: View, columns: Columns) -> Options {
        Options { one_line: view.is_one_line(columns), ..Options::new(view.layout(columns, "vm")) }
    }

    fn percent(text: &str) -> Options {
        Options::new(parse(text).unwrap())
    }

    #[test]
    fn own_default_view() {
        assert_eq!(
            print(&idle(), &view(View::default(), Columns::Own), &ctx()),
            "PARTITION | HOSTNAMES | STATE | FEATURES        | GRES_USED\n\
             cpu*      | vm        | idle  | cpu             | N/A\n\
             gpu       | vm        | idle  | cpu,generic_gpu | gpu:0\n"
        );
    }

    #[test]
    fn features_name_gpu_models_and_not_the_generic_gpu_label() {
        let mut n = idle();
        n.host.features = vec!["cpu".to_owned(), "gpu".to_owned()];
        for gpu in &mut n.host.gpus {
            gpu.model = Some("nvidia_h200".to_owned());
        }
        let options = Options { header: false, ..percent("Partition,Features") };
        assert_eq!(print(&n, &options, &ctx()), "cpu* | cpu\ngpu  | cpu,nvidia_h200\n");
        let options = Options { header: false, ..percent("%R %f %G") };
        assert_eq!(
            print(&n, &options, &ctx()),
            "cpu cpu (null)\ngpu cpu,nvidia_h200 gpu:nvidia_h200:2\n"
        );
    }

    #[test]
    fn own_node_view_joins_the_partitions() {
        let options = view(View { node: true, ..View::default() }, Columns::Own);
        assert_eq!(
            print(&idle(), &options, &ctx()),
            "PARTITION | HOSTNAMES | STATE\ncpu*,gpu  | vm        | idle\n"
        );
    }

    #[test]
    fn own_long_view() {
        let mut n = taken(1);
        n.partitions[0].running = 1;
        n.partitions[1].pending = 2;
        let mut options = view(View { long: true, ..View::default() }, Columns::Own);
        assert_eq!(
            print(&n, &options, &ctx()),
            "PARTITION | HOSTNAMES | STATE | FEATURES        | CPUS | CPU_ALLOC | MEMORY | MEM_ALLOC | GPUS | GPU_ALLOC | \
             RUNNING | PENDING | GRES_USED\n\
             cpu*      | vm        | mix   | cpu             | 2    | 1         | 24105M | 100M      | 0    | 0         | \
             1       | 0       | N/A\n\
             gpu       | vm        | mix   | cpu,generic_gpu | 2    | 1         | 24105M | 100M      | 2    | 1         | \
             0       | 2       | gpu:1\n"
        );
        options = view(View { long: true, node: true, ..View::default() }, Columns::Own);
        let text = print(&n, &options, &ctx());
        assert!(text.ends_with("cpu*,gpu  | vm        | mix   | cpu,generic_gpu | 2    | 1         | 24105M | 100M      | 2    | 1         | 1       | 2       | gpu:1\n"), "{text}");
    }

    #[test]
    fn partition_filter_and_noheader() {
        let options = Options {
            header: false,
            partitions: Some(vec!["gpu".to_owned()]),
            ..view(View::default(), Columns::Own)
        };
        assert_eq!(print(&idle(), &options, &ctx()), "gpu | vm | idle | cpu,generic_gpu | gpu:0\n");
        let options =
            Options { header: true, partitions: Some(vec!["nopart".to_owned()]), ..options };
        assert_eq!(
            print(&idle(), &options, &ctx()),
            "PARTITION | HOSTNAMES | STATE | FEATURES | GRES_USED\n"
        );
    }

    #[test]
    fn slurm_default_view() {
        assert_eq!(
            print(&idle(), &view(View::default(), Columns::Slurm), &ctx()),
            "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n\
             cpu*         up   infinite      1   idle vm\n\
             gpu          up   infinite      1   idle vm\n"
        );
    }

    #[test]
    fn slurm_node_view() {
        assert_eq!(
            print(&idle(), &view(View { node: true, ..View::default() }, Columns::Slurm), &ctx()),
            "NODELIST   NODES PARTITION STATE \n\
             vm             1      cpu* idle  \n\
             vm             1       gpu idle  \n"
        );
    }

    #[test]
    fn slurm_long_views_have_a_date_line() {
        assert_eq!(
            print(&taken(2), &view(View { long: true, ..View::default() }, Columns::Slurm), &ctx()),
            "Fri Nov 20 23:39:58 2026\n\
             PARTITION AVAIL  TIMELIMIT   JOB_SIZE ROOT OVERSUBS     GROUPS  NODES       STATE NODELIST\n\
             cpu*         up   infinite 1-infinite   no       NO        all      1   allocated vm\n\
             gpu          up   infinite 1-infinite   no       NO        all      1   allocated vm\n"
        );
        let text = print(
            &node(0),
            &view(View { long: true, node: true, ..View::default() }, Columns::Slurm),
            &ctx(),
        );
        assert!(text.contains(
            "NODELIST   NODES PARTITION       STATE CPUS    S:C:T MEMORY TMP_DISK WEIGHT AVAIL_FE REASON              \n"
        ));
        assert!(text.contains(
            "vm             1      cpu*        idle 2       1:2:1  24105        0      1      cpu none                \n"
        ));
    }

    #[test]
    fn summarize_follows_slurm() {
        for columns in [Columns::Own, Columns::Slurm] {
            assert_eq!(
                print(&idle(), &view(View { summarize: true, ..View::default() }, columns), &ctx()),
                "PARTITION AVAIL  TIMELIMIT   NODES(A/I/O/T) NODELIST\n\
                 cpu*         up   infinite          0/1/0/1 vm\n\
                 gpu          up   infinite          0/1/0/1 vm\n"
            );
        }
    }

    #[test]
    fn percent_formats_follow_slurm() {
        assert_eq!(
            print(&idle(), &percent("%P %a %l %D %t %N %G %c %m"), &ctx()),
            "PARTITION AVAIL TIMELIMIT NODES STATE NODELIST GRES CPUS MEMORY\n\
             cpu* up infinite 1 idle vm (null) 2 24105\n\
             gpu up infinite 1 idle vm gpu:2 2 24105\n"
        );
        let options = Options { header: false, ..percent("%.10P<%6t>%.5D") };
        assert_eq!(
            print(&idle(), &options, &ctx()),
            "      cpu*<idle  >    1\n       gpu<idle  >    1\n"
        );
        assert_eq!(
            print(&idle(), &percent("%P,%m"), &ctx()),
            "PARTITION,MEMORY\ncpu*,24105\ngpu,24105\n"
        );
    }

    #[test]
    fn lines_without_a_partition_column_are_printed_once() {
        let options = Options { header: false, ..percent("%C") };
        assert_eq!(print(&idle(), &options, &ctx()), "0/2/0/2\n");
        let options = Options { header: false, ..percent("%F/%C") };
        assert_eq!(print(&taken(1), &options, &ctx()), "1/0/0/1/1/1/0/2\n");
    }

    #[test]
    fn every_letter_of_an_idle_host() {
        let expected = [
            ('A', "NODES(A/I)", "0/1"),
            ('B', "MAX_CPUS_PER_NODE", "UNLIMITED"),
            ('C', "CPUS(A/I/O/T)", "0/2/0/2"),
            ('D', "NODES", "1"),
            ('E', "REASON", "none"),
            ('F', "NODES(A/I/O/T)", "0/1/0/1"),
            ('G', "GRES", "(null)"),
            ('H', "TIMESTAMP", "Unknown"),
            ('I', "PRIO_JOB_FACTOR", "1"),
            ('L', "DEFAULTTIME", "n/a"),
            ('M', "PREEMPT_MODE", "OFF"),
            ('N', "NODELIST", "vm"),
            ('O', "CPU_LOAD", "2.53"),
            ('P', "PARTITION", "cpu*"),
            ('R', "PARTITION", "cpu"),
            ('S', "ALLOCNODES", "all"),
            ('T', "STATE", "idle"),
            ('U', "USER", "Unknown"),
            ('V', "CLUSTER", "N/A"),
            ('X', "SOCKETS", "1"),
            ('Y', "CORES", "2"),
            ('Z', "THREADS", "1"),
            ('a', "AVAIL", "up"),
            ('b', "ACTIVE_FEATURES", "cpu"),
            ('c', "CPUS", "2"),
            ('d', "TMP_DISK", "0"),
            ('e', "FREE_MEM", "22167"),
            ('f', "AVAIL_FEATURES", "cpu"),
            ('g', "GROUPS", "all"),
            ('h', "OVERSUBSCRIBE", "NO"),
            ('l', "TIMELIMIT", "infinite"),
            ('m', "MEMORY", "24105"),
            ('n', "HOSTNAMES", "vm"),
            ('o', "NODE_ADDR", "vm"),
            ('p', "PRIO_TIER", "1"),
            ('r', "ROOT", "no"),
            ('s', "JOB_SIZE", "1-infinite"),
            ('t', "STATE", "idle"),
            ('u', "USER", "Unknown"),
            ('v', "VERSION", crate::ctx::VERSION),
            ('w', "WEIGHT", "1"),
            ('z', "S:C:T", "1:2:1"),
        ];
        for (code, header, value) in expected {
            let options = Options {
                partitions: Some(vec!["cpu".to_owned()]),
                ..percent(&format!("%{code}"))
            };
            assert_eq!(
                print(&node(0), &options, &ctx()),
                format!("{header}\n{value}\n"),
                "%{code}"
            );
        }
        assert_eq!(expected.len(), Sinfo::fields().iter().filter(|f| !f.codes.is_empty()).count());
    }

    #[test]
    fn long_format_columns_are_20_wide() {
        let options =
            Options::new(long("PartitionName,Available,Time,Nodes,StateCompact,NodeList").0);
        assert_eq!(
            print(&idle(), &options, &ctx()),
            "PARTITION           AVAIL               TIMELIMIT           NODES               STATE               NODELIST            \n\
             cpu                 up                  infinite            1                   idle                vm                  \n\
             gpu                 up                  infinite            1                   idle                vm                  \n"
        );
        let options = Options {
            header: false,
            ..Options::new(long("nodehost:4,gres:8,gresused:6,statelong").0)
        };
        assert_eq!(
            print(&taken(1), &options, &ctx()),
            "vm  (null)  N/A   mixed               \nvm  gpu:2   gpu:1 mixed               \n"
        );
    }

    #[test]
    fn every_long_name_prints_something() {
        for field in Sinfo::fields() {
            for name in field.names {
                let options = Options { header: false, ..Options::new(long(name).0) };
                assert!(!print(&idle(), &options, &ctx()).trim().is_empty(), "{name}");
            }
        }
        assert!(print(&idle(), &Options::new(long("ALL").0), &ctx()).contains('|'));
    }

    #[test]
    fn every_own_field_name_is_known() {
        let mut n = taken(1);
        n.partitions[1].running = 1;
        n.partitions[1].pending = 2;
        for (name, value) in [
            ("Partition", "gpu"),
            ("Hostnames", "vm"),
            ("Hostname", "vm"),
            ("NodeList", "vm"),
            ("State", "mix"),
            ("Features", "cpu,generic_gpu"),
            ("CPUS", "2"),
            ("CPU_ALLOC", "1"),
            ("CPUSLOAD", "1"),
            ("CPUALLOC", "1"),
            ("Memory", "24105M"),
            ("Mem", "24105M"),
            ("MEM_ALLOC", "100M"),
            ("MemoryAllocated", "100M"),
            ("MemAlloc", "100M"),
            ("GPUS", "2"),
            ("GPU_ALLOC", "1"),
            ("GpusAllocated", "1"),
            ("GpuAlloc", "1"),
            ("Running", "1"),
            ("RunningJobs", "1"),
            ("Pending", "2"),
            ("PendingJobs", "2"),
            ("GRES_USED", "gpu:1"),
            ("GresUsed", "gpu:1"),
        ] {
            let options = Options {
                header: false,
                partitions: Some(vec!["gpu".to_owned()]),
                ..percent(name)
            };
            assert_eq!(print(&n, &options, &ctx()), format!("{value}\n"), "{name}");
        }
    }

    #[test]
    fn every_letter_of_the_users_guide_is_known() {
        for code in ["%P", "%N", "%t", "%T", "%f", "%G"] {
            assert!(parse(code).is_ok(), "{code}");
        }
    }

    #[test]
    fn all_prints_a_space_after_capital_letters() {
        let options = Options { partitions: Some(vec!["cpu".to_owned()]), ..percent("%all") };
        let text = print(&node(0), &options, &ctx());
        let (header, row) = text.trim_end_matches('\n').split_once('\n').unwrap();
        assert!(
            header.starts_with("AVAIL|ACTIVE_FEATURES|CPUS|")
                && header.ends_with("|SOCKETS |CORES |THREADS ")
        );
        assert!(
            row.starts_with("up|") && row.contains("|1:2:1|0/1 |UNLIMITED |0/2/0/2 |1 |none |"),
            "{row:?}"
        );
    }

    #[test]
    fn an_unknown_field_is_an_error_that_lists_what_exists() {
        let error = parse("%i").unwrap_err();
        assert_eq!(error.message, "Invalid node format specification: i");
        assert!(error.hint.contains("letters: ") && error.hint.contains('P'), "{}", error.hint);
        let (layout, unknown) = as_known("%N|%.5J|%P").unwrap();
        assert_eq!(unknown.len(), 1);
        let text = print(&idle(), &Options::new(layout), &ctx());
        assert_eq!(
            text, "NODELIST|%.5J|PARTITION\nvm|%.5J|cpu*\nvm|%.5J|gpu\n",
            "unknown codes are text"
        );
        assert_eq!(long("nosuch").1[0].message, "Invalid job format specification: nosuch");
        assert_eq!(
            parse("nosuch").unwrap_err().message,
            "Invalid node format specification: nosuch"
        );
    }

    #[test]
    fn states_are_idle_mixed_allocated() {
        let text = |n: &NodeView| {
            let options = Options { header: false, ..percent("%t %T %C") };
            print(n, &options, &ctx())
        };
        assert_eq!(text(&idle()), "idle idle 0/2/0/2\n");
        assert_eq!(text(&taken(1)), "mix mixed 1/1/0/2\n");
        assert_eq!(text(&taken(2)), "alloc allocated 2/0/0/2\n");
        assert_eq!(text(&NodeView { exclusive: true, ..taken(1) }), "alloc allocated 2/0/0/2\n");
    }

    #[test]
    fn partitions_are_shown_without_an_excluded_host() {
        let options = Options { shows_node: false, ..view(View::default(), Columns::Slurm) };
        assert_eq!(
            print(&idle(), &options, &ctx()),
            "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n\
             cpu*         up   infinite      0    n/a \n\
             gpu          up   infinite      0    n/a \n"
        );
    }

    #[test]
    fn sort_by_partition() {
        let options = Options { header: false, sort: Sort::parse("-P").unwrap(), ..percent("%P") };
        assert_eq!(print(&idle(), &options, &ctx()), "gpu\ncpu*\n");
    }

    #[test]
    fn a_node_view_format_has_a_line_for_each_partition() {
        let nodes = |text| Options { each_partition: true, ..percent(text) };
        let text = print(&idle(), &nodes("%N %P %t"), &ctx());
        assert_eq!(text, "NODELIST PARTITION STATE\nvm cpu* idle\nvm gpu idle\n");
        assert_eq!(print(&idle(), &nodes("%N"), &ctx()), "NODELIST\nvm\nvm\n");
        assert_eq!(print(&idle(), &percent("%N"), &ctx()), "NODELIST\nvm\n");
    }

    #[test]
    fn a_cut_partition_name_keeps_its_star() {
        let options = Options { header: false, ..percent("%.2P|%3P|%4P") };
        assert_eq!(print(&idle(), &options, &ctx()), "c*|cp*|cpu*\ngp|gpu|gpu \n");
    }

    proptest! {
        #[test]
        fn no_format_panics(text in "\\PC{0,40}|[%.,:&0-9A-Za-z_-]{0,40}") {
            for layout in [as_known(&text).ok(), Some(long(&text))].into_iter().flatten().map(|(layout, _)| layout) {
                print(&idle(), &Options::new(layout), &ctx());
            }
        }
    }
}
