//! The default views of squeue and the options of its listings.

use crate::squeue::fields::Squeue;
use crate::{Columns, layout, sort};
use slotd_model::JobRef;

pub type Layout = layout::Layout<Squeue>;
pub type Sort = sort::Sort<Squeue>;

/// The default listings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum View {
    #[default]
    Default,
    /// `-l/--long`
    Long,
    /// `--start`
    Start,
}

const OWN_DEFAULT: &str = "JobID,Partition,Name,User,ST,Time,NodeList(Reason)";
const OWN_LONG: &str =
    "JobID,Partition,Name,User,ST,Time,TimeLimit,NTasks,CPUS,ReqMem,ReqGPU,NodeList(Reason)";
const OWN_START: &str = "JobID,Partition,Name,User,ST,StartTime,NodeList(Reason)";

const SLURM_DEFAULT: &str = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R";
const SLURM_LONG: &str = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R";
const SLURM_START: &str = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R";

impl View {
    /// Returns the default columns.
    pub fn layout(self, columns: Columns) -> Layout {
        let text = match (columns, self) {
            (Columns::Own, View::Default) => OWN_DEFAULT,
            (Columns::Own, View::Long) => OWN_LONG,
            (Columns::Own, View::Start) => OWN_START,
            (Columns::Slurm, View::Default) => SLURM_DEFAULT,
            (Columns::Slurm, View::Long) => SLURM_LONG,
            (Columns::Slurm, View::Start) => SLURM_START,
        };
        // A test checks that every constant parses.
        Layout::parse(text).unwrap_or_default().dated(self == View::Long)
    }

    /// Returns the default order: by partition, state and descending priority, or by expected
    /// start.
    pub fn sort(self) -> Sort {
        let text = match self {
            View::Default | View::Long => "P,t,-p",
            View::Start => "S",
        };
        Sort::parse(text).unwrap_or_default()
    }
}

/// The options for printing a list of jobs.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    pub layout: Layout,
    /// False with `-h/--noheader`.
    pub header: bool,
    /// `-r/--array`: a line for each array task.
    pub each_task: bool,
    /// `-P/--priority`: a line for each partition that a pending job may start in. If the list has
    /// names, only for these partitions.
    pub each_partition: Option<&'a [String]>,
    pub sort: Sort,
    /// The requested IDs, if any.
    pub refs: &'a [JobRef],
}

impl Default for Options<'_> {
    fn default() -> Self {
        let view = View::Default;
        Options {
            layout: view.layout(Columns::Own),
            header: true,
            each_task: false,
            each_partition: None,
            sort: view.sort(),
            refs: &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ctx;
    use crate::field::Table;
    use crate::fixture::{at, ctx, job};
    use crate::squeue::Listing;
    use proptest::prelude::*;
    use slotd_model::brief::BriefJob;
    use slotd_model::view::JobView;
    use slotd_model::{End, ExitCode, JobId, JobState, Reason, TaskSet};

    fn print(jobs: &[JobView], options: &Options<'_>, ctx: &Ctx) -> String {
        let mut listing = Listing::new(options.clone());
        jobs.iter().for_each(|job| listing.add(vec![job.clone()], ctx));
        listing.end(ctx)
    }

    /// The queue of the recorded `squeue`: a pending job, a running job and a pending array.
    fn queue() -> Vec<JobView> {
        vec![
            job(172, "runner").running(4).limit(1800).build(),
            job(173, "a-very-long-job-name")
                .limit(93_840)
                .with(|j| {
                    j.tres.cpus = 2;
                    j.expected_start = Some(at(-1796));
                })
                .build(),
            job(174, "cpusec")
                .partition("gpu")
                .limit(3600)
                .rest(&(1..=20).collect::<Vec<_>>(), Some(3))
                .reason(Reason::Priority)
                .build(),
        ]
    }

    fn with(layout: Layout) -> Options<'static> {
        Options { layout, ..Options::default() }
    }

    fn percent(text: &str) -> Options<'static> {
        with(Layout::parse(text).unwrap())
    }

    #[test]
    fn brief_jobs_are_listed_like_others() {
        // More than are shown at once, with records of an array in between.
        let plain = (1..100).map(|id| job(id, &format!("j{}", id % 7)).limit(id.into()).build());
        let mut jobs: Vec<JobView> = plain.chain(array()).collect();
        jobs.extend((200..240).map(|id| job(id, "later").running(4).build()));
        let options = percent("%i|%P|%j|%u|%t|%M|%l|%R");
        for each_task in [false, true] {
            let options = Options { each_task, ..options.clone() };
            let mut listing = Listing::new(options.clone());
            for some in jobs.chunks(45) {
                listing.add_brief(some.iter().map(|job| BriefJob::of(job)).collect(), &ctx());
            }
            assert_eq!(listing.end(&ctx()), print(&jobs, &options, &ctx()));
        }
    }

    #[test]
    fn a_job_that_changed_between_parts_is_listed_once() {
        let queue: Vec<JobView> =
            (1..=4).map(|id| job(id, "first").build()).chain(array()).collect();
        let gone = JobId(2);
        // Jobs 1 and the array changed, job 5 is new, and job 2 no longer matches.
        let again = [job(1, "second").running(4).build(), job(5, "new").build()];
        let again: Vec<JobView> = again.into_iter().chain(array()).collect();
        let mut changed: Vec<JobId> = again.iter().map(|job| job.id).collect();
        changed.push(gone);
        let is_same = |job: &&JobView| !changed.contains(&job.id);
        let expected: Vec<JobView> = queue.iter().filter(is_same).chain(&again).cloned().collect();
        let options = Options { sort: Sort::parse("-i").unwrap(), ..percent("%i|%j|%t") };
        let brief = |jobs: &[JobView]| jobs.iter().map(|job| BriefJob::of(job)).collect();
        let mut listing = Listing::new(options.clone());
        listing.add_brief(brief(&queue), &ctx());
        listing.forget(&changed);
        listing.add_brief(brief(&again), &ctx());
        let listed = listing.end(&ctx());
        assert_eq!(listed, print(&expected, &options, &ctx()));
        assert!(!listed.contains("2|first") && listed.contains("1|second|R"), "{listed}");
    }

    #[test]
    fn own_default_view() {
        assert_eq!(
            print(&queue(), &Options::default(), &ctx()),
            "JOBID        | PARTITION | NAME                 | USER | ST | TIME | NODELIST(REASON)\n\
             173          | cpu       | a-very-long-job-name | lab  | PD | 0:00 | (Resources)\n\
             172          | cpu       | runner               | lab  | R  | 0:04 | vm\n\
             174_[1-20%3] | gpu       | cpusec               | lab  | PD | 0:00 | (Priority)\n"
        );
    }

    #[test]
    fn own_long_view() {
        let options = with(View::Long.layout(Columns::Own));
        assert_eq!(
            print(&queue()[..1], &options, &ctx()),
            "JOBID | PARTITION | NAME   | USER | ST | TIME | TIME_LIMIT | NTASKS | CPUS | REQ_MEM | REQ_GPU | \
             NODELIST(REASON)\n\
             172   | cpu       | runner | lab  | R  | 0:04 | 30:00      | 1      | 1    | 100M    | 0       | vm\n"
        );
    }

    #[test]
    fn own_start_view() {
        let options =
            Options { sort: View::Start.sort(), ..with(View::Start.layout(Columns::Own)) };
        assert_eq!(
            print(&queue()[1..], &options, &ctx()),
            "JOBID        | PARTITION | NAME                 | USER | ST | START_TIME          | NODELIST(REASON)\n\
             173          | cpu       | a-very-long-job-name | lab  | PD | 2026-11-21T00:09:54 | (Resources)\n\
             174_[1-20%3] | gpu       | cpusec               | lab  | PD | N/A                 | (Priority)\n"
        );
    }

    #[test]
    fn an_empty_queue_prints_only_the_header() {
        assert_eq!(
            print(&[], &Options::default(), &ctx()),
            "JOBID | PARTITION | NAME | USER | ST | TIME | NODELIST(REASON)\n"
        );
        assert_eq!(print(&[], &Options { header: false, ..Options::default() }, &ctx()), "");
    }

    #[test]
    fn slurm_default_view() {
        assert_eq!(
            print(&queue(), &with(View::Default.layout(Columns::Slurm)), &ctx()),
            "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n\
             \x20              173       cpu a-very-l      lab PD       0:00      1 (Resources)\n\
             \x20              172       cpu   runner      lab  R       0:04      1 vm\n\
             \x20     174_[1-20%3]       gpu   cpusec      lab PD       0:00      1 (Priority)\n"
        );
    }

    #[test]
    fn slurm_long_view_has_a_date_line_but_not_without_header() {
        let mut options = with(View::Long.layout(Columns::Slurm));
        assert_eq!(
            print(&queue(), &options, &ctx()),
            "Fri Nov 20 23:39:58 2026\n\
             \x20            JOBID PARTITION     NAME     USER    STATE       TIME TIME_LIMI  NODES NODELIST(REASON)\n\
             \x20              173       cpu a-very-l      lab  PENDING       0:00 1-02:04:00      1 (Resources)\n\
             \x20              172       cpu   runner      lab  RUNNING       0:04     30:00      1 vm\n\
             \x20     174_[1-20%3]       gpu   cpusec      lab  PENDING       0:00   1:00:00      1 (Priority)\n"
        );
        options.header = false;
        assert_eq!(print(&queue(), &options, &ctx()).lines().count(), 3);
    }

    #[test]
    fn slurm_start_view() {
        let options = Options {
            header: false,
            sort: View::Start.sort(),
            ..with(View::Start.layout(Columns::Slurm))
        };
        assert_eq!(
            print(&queue()[1..], &options, &ctx()),
            "               173       cpu a-very-l      lab PD 2026-11-21T00:09:54      1 vm                   (Resources)\n\
             \x20     174_[1-20%3]       gpu   cpusec      lab PD                 N/A      1 (null)               (Priority)\n"
        );
    }

    #[test]
    fn an_explicit_default_format_is_always_slurms() {
        assert_eq!(
            print(&queue(), &percent("%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"), &ctx()),
            print(&queue(), &with(View::Default.layout(Columns::Slurm)), &ctx())
        );
    }

    #[test]
    fn percent_text_between_codes_is_kept() {
        assert_eq!(
            print(&queue(), &percent("%i|%j|%u|%t"), &ctx()),
            "JOBID|NAME|USER|ST\n173|a-very-long-job-name|lab|PD\n172|runner|lab|R\n174_[1-20%3]|cpusec|lab|PD\n"
        );
    }

    #[test]
    fn percent_left_right_and_cut() {
        assert_eq!(
            print(&queue(), &percent("%10i<%.10j>%3t%5D"), &ctx()),
            "JOBID     <      NAME>ST NODES\n\
             173       <a-very-lon>PD 1    \n\
             172       <    runner>R  1    \n\
             174_[1-20%<    cpusec>PD 1    \n"
        );
    }

    #[test]
    fn percent_columns_without_separator() {
        let mut options = percent("%2t%12j");
        options.header = false;
        assert_eq!(print(&queue()[..1], &options, &ctx()), "R runner      \n");
    }

    #[test]
    fn plain_text_is_printed_for_each_row() {
        assert_eq!(print(&queue(), &percent("plain text"), &ctx()), "plain text\n".repeat(4));
        assert_eq!(print(&queue(), &percent("%"), &ctx()), "\n".repeat(4));
    }

    #[test]
    fn every_letter_of_a_running_job() {
        let expected = "A=[172] B=[vm] C=[1] D=[1] E=[(null)] F=[172] G=[1001] H=[*] I=[*] J=[*] K=[N/A] L=[29:56] \
            M=[0:04] N=[vm] O=[0] P=[cpu] Q=[4294901642] R=[vm] S=[2026-11-20T23:39:54] T=[RUNNING] U=[1001] \
            V=[2026-11-20T23:39:54] W=[(null)] X=[N/A] Y=[(null)] Z=[/home/lab/g] a=[(null)] b=[N/A] c=[1] d=[0] \
            e=[2026-11-21T00:09:54] f=[(null)] g=[lab] h=[OK] i=[172] j=[runner] k=[(null)] l=[30:00] m=[100M] n=[] \
            o=[/home/lab/g/sleep.sh 300] p=[0.99998471396975] q=[normal] r=[None] s=[] t=[R] u=[lab] v=[(null)] \
            w=[(null)] x=[] y=[0] z=[*:*:*]";
        let letters = ('A'..='Z').chain('a'..='z');
        let format = letters.map(|c| format!("{c}=[%{c}]")).collect::<Vec<_>>().join(" ");
        let options = Options { header: false, ..percent(&format) };
        assert_eq!(print(&queue()[..1], &options, &ctx()).trim_end(), expected);
    }

    #[test]
    fn the_headers_of_every_letter() {
        let expected = "JOBID EXEC_HOST CPUS NODES DEPENDENCY ARRAY_JOB_ID GROUP SOCKETS_PER_NODE CORES_PER_SOCKET \
            THREADS_PER_CORE ARRAY_TASK_ID TIME_LEFT TIME NODELIST CONTIGUOUS PARTITION PRIORITY NODELIST(REASON) \
            START_TIME STATE UID SUBMIT_TIME LICENSES CORE_SPEC SCHEDNODES WORK_DIR ACCOUNT TRES_PER_NODE MIN_CPUS \
            MIN_TMP_DISK END_TIME FEATURES GROUP OVER_SUBSCRIBE JOBID NAME COMMENT TIME_LIMIT MIN_MEMORY REQ_NODES \
            COMMAND PRIORITY QOS REASON  ST USER RESERVATION WCKEY EXC_NODES NICE S:C:T";
        let format =
            ('A'..='Z').chain('a'..='z').map(|c| format!("%{c}")).collect::<Vec<_>>().join(" ");
        assert_eq!(print(&[], &percent(&format), &ctx()).trim_end_matches('\n'), expected);
    }

    #[test]
    fn long_format_columns_are_20_wide() {
        let layout = Layout::long("JobID,Name,UserName,State,TimeUsed,ReasonList").unwrap();
        assert_eq!(
            print(&queue()[..2], &with(layout), &ctx()),
            "JOBID               NAME                USER                STATE               TIME                NODELIST(REASON)    \n\
             173                 a-very-long-job-namelab                 PENDING             0:00                (Resources)         \n\
             172                 runner              lab                 RUNNING             0:04                vm                  \n"
        );
    }

    #[test]
    fn long_format_width_justification_and_names_in_any_case() {
        let layout = Layout::long("JobID:10,Name:.12,State:8").unwrap();
        assert_eq!(
            print(&queue()[..2], &with(layout), &ctx()),
            "JOBID             NAMESTATE   \n173       a-very-long-PENDING \n172             runnerRUNNING \n"
        );
        let layout = Layout::long("jobid:5,name:4,statecompact:3").unwrap();
        let options = Options { header: false, ..with(layout) };
        assert_eq!(print(&queue()[1..2], &options, &ctx()), "173  a-vePD \n");
    }

    #[test]
    fn long_format_with_a_text_after_each_field() {
        let layout = Layout::long(
            "jobid:#,name:#,state:#,username:#,timeused:#,timelimit:#,StartTime:#,tres-alloc:#,partition:#,nodelist:#,\
             stdout:#,stderr:#,command:#,statecompact:#,reason:#,ArrayJobID:#,ArrayTaskID:#,NodeList:#,WorkDir:#",
        )
        .unwrap();
        let options = Options { header: false, ..with(layout) };
        assert_eq!(
            print(&queue()[..1], &options, &ctx()),
            "172#runner#RUNNING#lab#0:04#30:00#2026-11-20T23:39:54#cpu=1,mem=100M,node=1,billing=1#cpu#vm#\
             /home/lab/g/slurm-172.out#/home/lab/g/slurm-172.out#/home/lab/g/sleep.sh 300#R#None#172#N/A#vm#/home/lab/g#\n"
        );
    }

    #[test]
    fn a_list_of_names_is_a_table_with_bars() {
        assert_eq!(
            print(&queue()[..2], &percent("JobID,State"), &ctx()),
            "JOBID | STATE\n173   | PENDING\n172   | RUNNING\n"
        );
    }

    #[test]
    fn every_own_field_name_is_known() {
        for (name, value) in [
            ("JobID", "172"),
            ("Partition", "cpu"),
            ("Name", "runner"),
            ("JobName", "runner"),
            ("User", "lab"),
            ("ST", "R"),
            ("State", "RUNNING"),
            ("Time", "0:04"),
            ("Elapsed", "0:04"),
            ("TimeLimit", "30:00"),
            ("Time_Limit", "30:00"),
            ("NTasks", "1"),
            ("CPUS", "1"),
            ("ReqCPUS", "1"),
            ("ReqMem", "100M"),
            ("ReqGPU", "0"),
            ("ReqGPUS", "0"),
            ("Start", "2026-11-20T23:39:54"),
            ("StartTime", "2026-11-20T23:39:54"),
            ("NodeList(Reason)", "vm"),
            ("NodeListReason", "vm"),
            ("Reason", "vm"),
            ("NodeList", "vm"),
        ] {
            let options = Options { header: false, ..percent(name) };
            assert_eq!(print(&queue()[..1], &options, &ctx()), format!("{value}\n"), "{name}");
        }
    }

    #[test]
    fn every_letter_of_the_users_guide_is_known() {
        for code in ["%i", "%P", "%j", "%u", "%t", "%T", "%M", "%S", "%R", "%N"] {
            assert!(Layout::parse(code).is_ok(), "{code}");
        }
    }

    #[test]
    fn every_known_name_prints_something_for_every_kind_of_job() {
        let jobs = [
            queue(),
            vec![
                job(1, "e")
                    .ended(End::Failed, Reason::NonZeroExitCode, ExitCode::status(3), 9, 5)
                    .build(),
                job(2, "t").task(1, 7).with(|j| j.run.cancelled_by = Some(0)).build(),
            ],
        ]
        .concat();
        for field in Squeue::fields() {
            for name in field.names {
                let text = print(&jobs, &with(Layout::long(&format!("{name}:#")).unwrap()), &ctx());
                assert_eq!(text.lines().count(), 6, "{name}");
            }
        }
    }

    #[test]
    fn an_unknown_field_is_an_error_that_lists_what_exists() {
        let error = Layout::long("jobid,nosuch").unwrap_err();
        assert_eq!(error.message, "Invalid job format specification: nosuch");
        assert!(error.hint.ends_with("--helpformat lists the names"));
        assert_eq!(Layout::parse("JobID,nosuch").unwrap_err().message, error.message);
        assert_eq!(
            Layout::parse("%i %?").unwrap_err().message,
            "Invalid job format specification: ?"
        );
    }

    #[test]
    fn aiida_gets_all_its_fields() {
        let options = Options {
            header: false,
            ..percent("%i^^^%t^^^%r^^^%B^^^%u^^^%D^^^%C^^^%R^^^%P^^^%l^^^%M^^^%S^^^%j^^^%V")
        };
        assert_eq!(
            print(&queue()[..2], &options, &ctx()),
            "173^^^PD^^^Resources^^^n/a^^^lab^^^1^^^2^^^(Resources)^^^cpu^^^1-02:04:00^^^0:00^^^2026-11-21T00:09:54^^^\
             a-very-long-job-name^^^2026-11-20T23:39:54\n\
             172^^^R^^^None^^^vm^^^lab^^^1^^^1^^^vm^^^cpu^^^30:00^^^0:04^^^2026-11-20T23:39:54^^^runner^^^\
             2026-11-20T23:39:54\n"
        );
    }

    fn array() -> Vec<JobView> {
        vec![
            job(96, "wrap")
                .rest(&[3, 4, 5, 6, 7, 8, 9], Some(2))
                .reason(Reason::JobArrayTaskLimit)
                .build(),
            job(97, "wrap").task(96, 1).running(1).build(),
            job(98, "wrap").task(96, 2).running(1).build(),
        ]
    }

    #[test]
    fn a_pending_array_is_one_line() {
        let options = Options { header: false, ..percent("%i|%A|%F|%K|%t|%r") };
        assert_eq!(
            print(&array(), &options, &ctx()),
            "96_[3-9%2]|96|96|3-9%2|PD|JobArrayTaskLimit\n96_1|97|96|1|R|None\n96_2|98|96|2|R|None\n"
        );
    }

    #[test]
    fn array_option_prints_one_line_per_task() {
        let options = Options { header: false, each_task: true, ..percent("%i|%A|%F|%K|%t|%r") };
        let text = print(&array(), &options, &ctx());
        assert!(
            text.starts_with(
                "96_3|96|96|3|PD|JobArrayTaskLimit\n96_4|96|96|4|PD|JobArrayTaskLimit\n"
            )
        );
        assert!(text.ends_with(
            "96_9|96|96|9|PD|JobArrayTaskLimit\n96_1|97|96|1|R|None\n96_2|98|96|2|R|None\n"
        ));
        assert_eq!(text.lines().count(), 9);
    }

    #[test]
    fn a_pending_task_requested_by_id_has_its_own_line() {
        let refs = [JobRef { job: JobId(96), tasks: Some(TaskSet::one(5)), step: None }];
        let options = Options { header: false, refs: &refs, ..percent("%i %t") };
        assert_eq!(print(&array()[..1], &options, &ctx()), "96_5 PD\n");
    }

    #[test]
    fn pending_records_of_one_array_share_a_line_and_join_their_reasons() {
        let jobs = [
            job(96, "wrap").rest(&[3, 4, 9], Some(2)).reason(Reason::JobArrayTaskLimit).build(),
            job(99, "wrap").task(96, 6).reason(Reason::JobHeldUser).build(),
        ];
        let options = Options { header: false, ..percent("%i %t %r") };
        assert_eq!(
            print(&jobs, &options, &ctx()),
            "96_[3-4,6,9] PD JobArrayTaskLimit,JobHeldUser\n"
        );
        let options = Options { header: false, each_task: true, ..percent("%i %r") };
        assert!(print(&jobs, &options, &ctx()).contains("96_6 JobHeldUser\n"));
    }

    #[test]
    fn tasks_that_differ_by_more_than_the_reason_have_their_own_lines() {
        let jobs = [
            job(72, "wrap").rest(&[1, 6], None).reason(Reason::JobHeldUser).build(),
            job(73, "n23").part(72, &[2, 3]).reason(Reason::JobHeldUser).build(),
            job(74, "wrap").part(72, &[4]).reason(Reason::BeginTime).build(),
            job(75, "wrap").part(72, &[5]).partition("gpu").build(),
            job(76, "wrap")
                .part(72, &[7, 8])
                .ended(End::Cancelled, Reason::None, ExitCode::OK, 9, 5)
                .build(),
        ];
        let shown = |refs: &[JobRef], each_task| {
            let sort = Sort::parse("j").unwrap();
            print(
                &jobs,
                &Options { header: false, each_task, refs, sort, ..percent("%i %A %K %j") },
                &ctx(),
            )
        };
        assert_eq!(
            shown(&[], false),
            "72_2 72 2 n23\n72_3 72 3 n23\n72_[1,4,6] 72 1,4,6 wrap\n72_5 75 5 wrap\n72_[7-8] 72 7-8 wrap\n"
        );
        assert_eq!(
            shown(&[], true),
            "72_2 72 2 n23\n72_3 72 3 n23\n72_1 72 1 wrap\n72_6 72 6 wrap\n72_4 74 4 wrap\n72_5 75 5 wrap\n\
             72_7 72 7 wrap\n72_8 72 8 wrap\n"
        );
        let refs =
            [JobRef { job: JobId(72), tasks: Some(TaskSet::from_sorted(&[3, 6, 8])), step: None }];
        assert!(shown(&refs, false).starts_with("72_3 72 3 n23\n72_6 72 6 wrap\n"));
        assert!(shown(&refs, false).ends_with("\n72_8 72 8 wrap\n"));
    }

    #[test]
    fn tasks_with_a_changed_limit_or_size_have_their_own_lines() {
        let jobs = [
            job(72, "wrap").rest(&[1, 4], None).build(),
            job(73, "wrap").part(72, &[2]).limit(7).build(),
            job(74, "wrap").part(72, &[3]).with(|job| job.tres.mem_mb += 1).build(),
            job(75, "wrap").part(72, &[5]).reason(Reason::JobHeldUser).build(),
        ];
        let options = Options { header: false, ..percent("%i") };
        assert_eq!(print(&jobs, &options, &ctx()), "72_[1,4-5]\n72_2\n72_3\n");
    }

    #[test]
    fn a_dependency_is_printed_as_the_scheduler_wrote_it() {
        let dep = |text: &str| job(119, "dep").with(|j| j.dependency = text.to_owned()).build();
        let options = Options { header: false, ..percent("%E") };
        for text in ["afterany:114(unfulfilled),afterok:115(failed)", "singleton(unfulfilled)"] {
            assert_eq!(print(&[dep(text)], &options, &ctx()), format!("{text}\n"));
        }
        assert_eq!(print(&[dep("")], &options, &ctx()), "(null)\n");
    }

    #[test]
    fn held_jobs_have_priority_0() {
        let held = job(142, "held").reason(Reason::JobHeldUser).build();
        let options = Options { header: false, ..percent("%i %Q %p %y") };
        assert_eq!(print(&[held], &options, &ctx()), "142 0 0.00000000000000 0\n");
    }

    #[test]
    fn gpus_are_shown_per_node_only_if_requested_so() {
        let gres = job(12, "g").asks(|r| {
            r.gpu.per_node = Some(1);
        });
        let total = job(11, "g").asks(|r| r.gpu.total = Some(1));
        let options =
            Options { header: false, sort: Sort::parse("-i").unwrap(), ..percent("%i %b") };
        assert_eq!(
            print(&[total.build(), gres.build()], &options, &ctx()),
            "12 gres:gpu:1\n11 N/A\n"
        );
    }

    #[test]
    fn failed_jobs_show_the_reason_and_others_the_node() {
        let failed = |id, end, reason| job(id, "x").ended(end, reason, ExitCode::OK, 9, 5).build();
        let jobs = [
            failed(1, End::Failed, Reason::NonZeroExitCode),
            failed(2, End::Timeout, Reason::TimeLimit),
            failed(3, End::OutOfMemory, Reason::OutOfMemory),
            failed(4, End::Completed, Reason::None),
            failed(5, End::Cancelled, Reason::CancelledByUser),
        ];
        let options =
            Options { header: false, sort: Sort::parse("i").unwrap(), ..percent("%i %R") };
        assert_eq!(
            print(&jobs, &options, &ctx()),
            "1 (NonZeroExitCode)\n2 (TimeLimit)\n3 (OutOfMemory)\n4 vm\n5 vm\n"
        );
    }

    #[test]
    fn a_suspended_job_does_not_age() {
        let suspended = job(190, "s").running(10).limit(60).with(|j| {
            j.run.state = JobState::Suspended;
            j.run.suspended_at = Some(at(7));
        });
        let options = Options { header: false, ..percent("%t %M %L %e") };
        assert_eq!(
            print(&[suspended.build()], &options, &ctx()),
            "S 0:03 0:57 2026-11-20T23:40:55\n"
        );
    }

    #[test]
    fn sort_takes_letters_and_names_in_both_directions() {
        let order = |sort: &str| {
            let options =
                Options { header: false, sort: Sort::parse(sort).unwrap(), ..percent("%i") };
            print(&queue(), &options, &ctx()).replace('\n', " ")
        };
        assert_eq!(order("-i"), "174_[1-20%3] 173 172 ");
        assert_eq!(order("i"), "172 173 174_[1-20%3] ");
        assert_eq!(order("-P,i"), "174_[1-20%3] 172 173 ");
        assert_eq!(order("-Pi"), "174_[1-20%3] 172 173 ");
        assert_eq!(order("TimeLimit"), "172 174_[1-20%3] 173 ");
        assert_eq!(order("-JobName"), "172 174_[1-20%3] 173 ");
        assert_eq!(order("S"), "172 173 174_[1-20%3] ");
    }

    #[test]
    fn states_sort_by_their_names() {
        let ended = |id, end| job(id, "x").ended(end, Reason::None, ExitCode::OK, 9, 5).build();
        let jobs = [
            job(1, "x").running(5).build(),
            job(2, "x").build(),
            ended(3, End::Timeout),
            ended(4, End::Completed),
            ended(5, End::Cancelled),
        ];
        for (sort, order) in [
            ("t", "5 4 2 1 3 "),
            ("T", "5 4 2 1 3 "),
            ("-t", "3 1 2 4 5 "),
            ("P,t,-p", "5 4 2 1 3 "),
        ] {
            let options =
                Options { header: false, sort: Sort::parse(sort).unwrap(), ..percent("%i") };
            assert_eq!(print(&jobs, &options, &ctx()).replace('\n', " "), order, "{sort}");
        }
    }

    #[test]
    fn sort_ids_by_number() {
        let jobs = [job(10, "a").build(), job(9, "a").build()];
        let options = Options { header: false, sort: Sort::parse("i").unwrap(), ..percent("%i") };
        assert_eq!(print(&jobs, &options, &ctx()), "9\n10\n");
    }

    #[test]
    fn an_unknown_sort_names_the_word() {
        let error = Sort::parse("bogus").unwrap_err();
        assert_eq!(
            (error.message.as_str(), error.word.as_str()),
            ("Invalid sort specification: bogus", "bogus")
        );
    }

    #[test]
    fn a_repeated_sort_letter_is_a_misspelled_name() {
        for word in ["Prtition", "-Prtition"] {
            let error = Sort::parse(&format!("t,{word}")).unwrap_err();
            assert_eq!(error.message, "Invalid sort specification: Prtition");
            assert_eq!(error.word, "Prtition");
        }
        assert!(Sort::parse("Pt-i,P").is_ok());
    }

    #[test]
    fn each_task_of_a_pending_array_has_its_own_files() {
        let rest = job(96, "wrap").rest(&[3, 12], None).with(|j| {
            j.std_out = "/w/%a-%4a-%b-%x-5%".to_owned();
        });
        let jobs = [rest.build()];
        let shown = |each_task| {
            let layout = Layout::long("stdout:#").unwrap();
            print(&jobs, &Options { header: false, each_task, ..with(layout) }, &ctx())
        };
        assert_eq!(shown(true), "/w/3-0003-3-%x-5%#\n/w/12-0012-2-%x-5%#\n");
        assert_eq!(shown(false), "/w/%a-%4a-%b-%x-5%#\n");
    }

    #[test]
    fn the_system_comment_is_shown() {
        let commented = job(5, "x")
            .with(|j| j.run.system_comment = Some("no such directory".to_owned()))
            .build();
        let options = Options { header: false, ..with(Layout::long("system_comment:#").unwrap()) };
        assert_eq!(
            print(&[job(4, "x").build(), commented], &options, &ctx()),
            "(null)#\nno such directory#\n"
        );
    }

    #[test]
    fn names_are_sorted_as_text_and_numbers_as_numbers() {
        let jobs = [job(10, "9").build(), job(9, "10").build()];
        for (sort, order) in [("j", "10 9 "), ("name", "10 9 "), ("A", "9 10 ")] {
            let options = Options {
                header: false,
                sort: Sort::parse(sort).unwrap(),
                ..percent(if sort == "A" { "%A" } else { "%j" })
            };
            assert_eq!(print(&jobs, &options, &ctx()).replace('\n', " "), order, "{sort}");
        }
    }

    proptest! {
        #[test]
        fn no_format_and_no_sort_panics(text in "\\PC{0,40}|[%.,:0-9A-Za-z_+-]{0,40}") {
            for layout in [Layout::parse(&text), Layout::long(&text)].into_iter().flatten() {
                print(&array(), &with(layout), &ctx());
            }
            if let Ok(sort) = Sort::parse(&text) {
                print(&queue(), &Options { sort, ..Options::default() }, &ctx());
            }
        }
    }
}
