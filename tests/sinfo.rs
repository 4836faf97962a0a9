//! sinfo: the host and its partitions.

use slotd_kit::{Setup, Slotd};

fn table(slotd: &Slotd, args: &[&str]) -> Vec<Vec<String>> {
    let out = slotd.cmd("sinfo", args).ok();
    out.lines()
        .iter()
        .map(|line| line.split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect()
}

#[test]
fn each_partition_has_a_row() {
    let slotd = Setup::default().set("SLOTD_GPU_COUNT", 2).start();
    let rows = table(&slotd, &[]);
    assert_eq!(rows[0], ["PARTITION", "HOSTNAMES", "STATE", "FEATURES", "GRES_USED"]);
    let host = slotd_kit::host();
    assert_eq!(rows[1], ["cpu*", &host, "idle", "cpu", "N/A"]);
    assert_eq!(rows[2][..3], ["gpu", &host, "idle"]);
    assert_eq!(rows[2][4], "gpu:0");
    assert_eq!(rows.len(), 3);
}

#[test]
fn without_gpus_there_is_no_gpu_partition() {
    let slotd = Slotd::start();
    assert_eq!(table(&slotd, &[]).len(), 2);
}

#[test]
fn usage_is_shown() {
    let slotd = Setup::default().set("SLOTD_GPU_COUNT", 2).start();
    let job = slotd.endless(&["-p", "gpu", "-G", "1", "-c", "2", "--mem", "1G"]);
    let rows = table(&slotd, &["--noheader"]);
    assert_eq!(rows[0][2], "mix");
    assert_eq!(rows[1][4], "gpu:1");
    let long = table(&slotd, &["-l"]);
    let header = "PARTITION | HOSTNAMES | STATE | FEATURES | CPUS | CPU_ALLOC | MEMORY | MEM_ALLOC | GPUS | GPU_ALLOC | RUNNING | PENDING | GRES_USED";
    assert_eq!(long[0], header.split(" | ").collect::<Vec<_>>());
    let cell = |name: &str| long[2][long[0].iter().position(|h| h == name).unwrap()].clone();
    assert_eq!(
        (cell("CPUS"), cell("CPU_ALLOC"), cell("GPUS"), cell("GPU_ALLOC")),
        ("4".into(), "2".into(), "2".into(), "1".into())
    );
    assert_eq!((cell("RUNNING"), cell("PENDING")), ("1".into(), "0".into()));
    slotd.cancel(job);
    slotd.wait_end(job);
    assert_eq!(table(&slotd, &["--noheader"])[0][2], "idle");
    slotd.endless(&["-c", "4"]);
    assert_eq!(table(&slotd, &["--noheader"])[0][2], "alloc");
}

#[test]
fn node_view_joins_the_partitions() {
    let slotd =
        Setup::default().set("SLOTD_GPU_COUNT", 1).set("SLOTD_CPU_PARTITIONS", "cpu,long").start();
    let rows = table(&slotd, &["-N"]);
    assert_eq!(rows[0], ["PARTITION", "HOSTNAMES", "STATE"]);
    assert_eq!(rows[1], ["cpu*,long,gpu", &slotd_kit::host(), "idle"]);
    assert_eq!(rows.len(), 2);
    assert_eq!(table(&slotd, &["--Node", "--noheader"]).len(), 1);
}

#[test]
fn partitions_can_be_selected() {
    let slotd = Setup::default().set("SLOTD_CPU_PARTITIONS", "cpu,long").start();
    assert_eq!(table(&slotd, &["--noheader", "-p", "long"])[0][0], "long");
    assert_eq!(table(&slotd, &["-h", "-p", "long,cpu"]).len(), 2);
    assert_eq!(table(&slotd, &["-p", "nopart"]).len(), 1);
}

#[test]
fn formats_match_slurm() {
    let slotd = Slotd::start();
    let host = slotd_kit::host();
    let show = |format: &str| slotd.cmd("sinfo", &["-o", format]).ok().stdout;
    assert_eq!(
        show("%P|%a|%l|%D|%N|%c|%m"),
        format!(
            "PARTITION|AVAIL|TIMELIMIT|NODES|NODELIST|CPUS|MEMORY\ncpu*|up|infinite|1|{host}|4|8192\n"
        )
    );
    assert_eq!(show("%.10P<%6t>%.5D"), " PARTITION<STATE >NODES\n      cpu*<idle  >    1\n");
    assert_eq!(slotd.cmd("sinfo", &["-h", "-o", "%C"]).ok().text(), "0/4/0/4");
    assert_eq!(slotd.cmd("sinfo", &["-h", "-o", "%R %T %t"]).ok().text(), "cpu idle idle");
}

#[test]
fn field_names_of_the_default_and_long_views_exist() {
    let slotd = Slotd::start();
    let fields = "Partition,Hostnames,Hostname,NodeList,State,Features,CPUS,CPU_ALLOC,CPUSLOAD,CPUALLOC,Memory,Mem,MEM_ALLOC,\
                  MemoryAllocated,MemAlloc,GPUS,GPU_ALLOC,GpusAllocated,GpuAlloc,Running,RunningJobs,Pending,PendingJobs,GRES_USED,GresUsed";
    let rows = table(&slotd, &["-o", fields]);
    assert_eq!((rows[0].len(), rows[1].len()), (25, 25));
    let out = slotd.cmd("sinfo", &["-o", "nosuch"]);
    assert_ne!(out.code, 0);
    assert!(out.stderr.contains("nosuch"), "{}", out.stderr);
    let out = slotd.cmd("sinfo", &["-o", "%i"]).ok();
    assert!(
        out.stderr.starts_with("Invalid node format specification: i\n  hint: "),
        "{}",
        out.stderr
    );
}

#[test]
fn node_view_without_a_format_has_one_row() {
    let slotd = Setup::default().set("SLOTD_GPU_COUNT", 1).start();
    let show = |args: &[&str]| slotd.cmd("sinfo", args).ok().stdout;
    assert!(show(&["-h", "-N"]).starts_with("cpu*,gpu | "));
}

#[test]
fn star_of_the_default_partition_survives_truncation() {
    let slotd = Slotd::start();
    assert_eq!(slotd.cmd("sinfo", &["-h", "-o", "%.2P<%2P<%5P<%2R"]).ok().text(), "c*<c*<cpu* <cp");
}

#[test]
fn unknown_field_or_sort_key_gets_a_suggestion() {
    let slotd = Slotd::start();
    let refusal = |args: &[&str]| slotd.cmd("sinfo", args).fails(1).stderr;
    let text = slotd.cmd("sinfo", &["-O", "nodehots"]).ok().stderr;
    assert_eq!(
        text,
        "sinfo: error: Invalid job format specification: nodehots\n  hint: did you mean NodeHost?\n"
    );
    let text = refusal(&["-S", "statelng"]);
    assert_eq!(
        text,
        "sinfo: error: Invalid sort specification: statelng\n  hint: did you mean StateLong?\n"
    );
    slotd.cmd("sinfo", &["-S", "#P,-t"]).ok();
}

#[test]
fn slurms_columns_can_be_the_default() {
    let slotd = Slotd::start();
    let mut command = slotd.command("sinfo");
    command.env("SLOTD_OUTPUT", "slurm");
    let out = slotd.run(command).ok();
    assert_eq!(out.lines()[0], "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST");
}

#[test]
fn json_is_valid() {
    let slotd = Slotd::start();
    let json: serde_json::Value =
        serde_json::from_str(&slotd.cmd("sinfo", &["--json"]).ok().stdout).unwrap();
    assert!(json.is_object());
}

#[test]
fn jobs_run_on_the_local_host() {
    let slotd = Slotd::start();
    let host = slotd.sh("hostname -s").ok();
    assert_eq!(slotd.ran(&[], "hostname -s; echo $SLURM_JOB_NUM_NODES $SLURM_JOB_NODELIST"), {
        format!("{0}\n1 {0}\n", host.text())
    });
    assert_eq!(slotd.cmd("sinfo", &["-h", "-N", "-o", "%N"]).ok().lines().len(), 1);
}

#[test]
fn partitions_are_configured_by_environment_variables() {
    let slotd = Slotd::setup()
        .set("SLOTD_CPU_PARTITIONS", "short,long")
        .set("SLOTD_GPU_PARTITIONS", "fast")
        .set("SLOTD_GPU_COUNT", 1)
        .start();
    let out = slotd.cmd("sinfo", &["-h", "-o", "%P"]).ok();
    assert_eq!(out.lines(), ["short*", "long", "fast"]);
}

#[test]
fn cpu_and_gpu_partitions_are_virtual_views_over_one_host() {
    let slotd = Slotd::setup().set("SLOTD_GPU_COUNT", 1).start();
    let nodes = slotd.cmd("sinfo", &["-h", "-o", "%N %c %m"]).ok();
    let lines = nodes.lines();
    assert!(lines.windows(2).all(|pair| pair[0] == pair[1]), "{lines:?}");
}

#[test]
fn filters_hide_the_host() {
    let slotd = Slotd::start();
    let host = slotd_kit::host();
    let row = |words: &str| {
        slotd.line(&format!("sinfo -h -p cpu -o %P|%D|%t|%N {words}")).ok().text().to_owned()
    };
    let there = format!("cpu*|1|idle|{host}");
    for words in ["", "-t idle", &format!("-n {host}"), "-n localhost", "-r", "-a"] {
        assert_eq!(row(words), there, "{words}");
    }
    for words in ["-t alloc", "-n nonode", "-d"] {
        assert_eq!(row(words), "cpu*|0|n/a|", "{words}");
    }
    slotd.expect("sinfo -h -p nopart", 0, "", "");
    let reasons = "REASON               USER      TIMESTAMP           NODELIST\n";
    slotd.expect("sinfo -R", 0, reasons, "");
    let long = "REASON               USER         TIMESTAMP           STATE  NODELIST\n";
    assert_eq!(
        slotd.line("sinfo -Rl").ok().stdout.split_once('\n').map(|(_date, table)| table),
        Some(long)
    );
}

#[test]
fn node_view_with_a_format_has_a_row_for_each_partition() {
    let slotd = Setup::default().set("SLOTD_GPU_COUNT", 2).start();
    let host = slotd_kit::host();
    let rows = format!("NODELIST PARTITION STATE\n{host} cpu* idle\n{host} gpu idle\n");
    assert_eq!(slotd.cmd("sinfo", &["-N", "-o", "%N %P %t"]).ok().stdout, rows);
    assert_eq!(
        slotd.cmd("sinfo", &["-N", "-h", "-O", "nodelist:.1,partitionname:4"]).ok().lines().len(),
        2
    );
    assert_eq!(slotd.cmd("sinfo", &["-N", "-h", "-p", "gpu", "-o", "%P"]).ok().stdout, "gpu\n");
    assert_eq!(slotd.cmd("sinfo", &["-h", "-o", "%N"]).ok().stdout, format!("{host}\n"));
}

#[test]
fn unknown_code_is_reported_and_the_table_is_printed() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-H"], "true");
    for (command, format, stdout, stderr) in [
        (
            "sinfo",
            "%J|%P",
            "%J|cpu*\n".to_owned(),
            "Invalid node format specification: J\n  hint: ",
        ),
        (
            "squeue",
            "%i|%;",
            format!("{job}|%;\n"),
            "squeue: error: Invalid job format specification: ;\n",
        ),
        (
            "squeue",
            "%;%i",
            format!("%;{job}\n"),
            "squeue: error: Invalid job format specification: ;\n",
        ),
    ] {
        let out = slotd.cmd(command, &["-h", "-o", format]).ok();
        assert_eq!(out.stdout, stdout, "{command} {format}");
        assert!(out.stderr.starts_with(stderr), "{command} {format}: {}", out.stderr);
    }
    let out = slotd.cmd("sinfo", &["-h", "-O", "bogus,partitionname:3"]).ok();
    let error = "sinfo: error: Invalid job format specification: bogus\n";
    assert!(out.stdout == "cpu\n" && out.stderr.starts_with(error), "{}{}", out.stdout, out.stderr);
}
