//! Decodes `squeue --json` and `sacct --json` with the types of programs written for Slurm 22.05
//! (openapi v0.0.38): SlurmCommander and metrics exporters. A number instead of a string, or vice
//! versa, makes them reject the whole document, and no type accepts `null`.

use super::*;
use serde::Deserialize;
use serde::de::DeserializeOwned;

#[derive(Debug, Deserialize)]
#[serde(bound = "J: DeserializeOwned")]
struct Document<J> {
    meta: Meta,
    errors: Vec<serde_json::Value>,
    jobs: Vec<J>,
}

#[derive(Debug, Deserialize)]
struct Meta {
    plugin: Plugin,
    #[serde(rename = "Slurm")]
    slurm: Release,
}

#[derive(Debug, Deserialize)]
struct Plugin {
    #[serde(rename = "type")]
    kind: String,
    name: String,
}

#[derive(Debug, Deserialize)]
struct Release {
    version: Version,
    release: String,
}

#[derive(Debug, Deserialize)]
struct Version {
    major: i64,
    minor: i64,
    micro: i64,
}

/// A job of the queue. Fields that are always `null` in Slurm 22.05 have a type that accepts
/// nothing else.
#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "only the types of the members are checked")]
struct Queued {
    account: String,
    accrue_time: i64,
    admin_comment: String,
    array_job_id: i64,
    array_task_id: Option<i64>,
    array_max_tasks: i64,
    array_task_string: String,
    association_id: i64,
    batch_features: String,
    batch_flag: bool,
    batch_host: String,
    flags: Vec<String>,
    burst_buffer: String,
    burst_buffer_state: String,
    cluster: String,
    cluster_features: String,
    command: String,
    comment: String,
    container: String,
    contiguous: bool,
    core_spec: Option<i64>,
    thread_spec: Option<i64>,
    cores_per_socket: Option<i64>,
    billable_tres: Option<f64>,
    cpus_per_task: (),
    cpu_frequency_minimum: Option<i64>,
    cpu_frequency_maximum: Option<i64>,
    cpu_frequency_governor: Option<i64>,
    cpus_per_tres: String,
    deadline: i64,
    delay_boot: i64,
    dependency: String,
    derived_exit_code: i64,
    eligible_time: i64,
    end_time: i64,
    excluded_nodes: String,
    exit_code: i64,
    features: String,
    federation_origin: String,
    federation_siblings_active: String,
    federation_siblings_viable: String,
    gres_detail: Vec<String>,
    group_id: i64,
    group_name: String,
    job_id: i64,
    job_resources: serde_json::Map<String, serde_json::Value>,
    job_state: String,
    last_sched_evaluation: i64,
    licenses: String,
    max_cpus: i64,
    max_nodes: i64,
    mcs_label: String,
    memory_per_tres: String,
    name: String,
    nodes: String,
    nice: Option<i64>,
    tasks_per_core: Option<i64>,
    tasks_per_node: i64,
    tasks_per_socket: Option<i64>,
    tasks_per_board: i64,
    cpus: Option<i64>,
    node_count: Option<i64>,
    tasks: Option<i64>,
    het_job_id: i64,
    het_job_id_set: String,
    het_job_offset: i64,
    partition: String,
    prefer: String,
    memory_per_node: Option<i64>,
    memory_per_cpu: Option<i64>,
    minimum_cpus_per_node: i64,
    minimum_tmp_disk_per_node: i64,
    preempt_time: i64,
    pre_sus_time: i64,
    priority: i64,
    profile: Option<Vec<String>>,
    qos: String,
    reboot: bool,
    required_nodes: String,
    requeue: bool,
    resize_time: i64,
    restart_cnt: i64,
    resv_name: String,
    shared: Option<String>,
    show_flags: Vec<String>,
    sockets_per_board: i64,
    sockets_per_node: Option<i64>,
    start_time: i64,
    state_description: String,
    state_reason: String,
    standard_error: String,
    standard_input: String,
    standard_output: String,
    submit_time: i64,
    suspend_time: i64,
    system_comment: String,
    time_limit: Option<i64>,
    time_minimum: i64,
    threads_per_core: Option<i64>,
    tres_bind: String,
    tres_freq: String,
    tres_per_job: String,
    tres_per_node: String,
    tres_per_socket: String,
    tres_per_task: String,
    tres_req_str: String,
    tres_alloc_str: String,
    user_id: i64,
    user_name: String,
    wckey: String,
    current_working_directory: String,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "only the types of the members are checked")]
struct Accounted {
    account: Option<String>,
    allocation_nodes: i64,
    cluster: String,
    constraints: String,
    container: Option<String>,
    derived_exit_code: ExitCode,
    exit_code: ExitCode,
    time: JobTime,
    flags: Vec<String>,
    group: String,
    job_id: i64,
    name: String,
    nodes: String,
    partition: String,
    priority: i64,
    qos: Option<String>,
    required: Required,
    kill_request_user: Option<String>,
    reservation: Reservation,
    state: State,
    steps: Vec<Step>,
    tres: JobTres,
    user: String,
    working_directory: String,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "only the types of the members are checked")]
struct ExitCode {
    status: String,
    return_code: i64,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "only the types of the members are checked")]
struct JobTime {
    elapsed: i64,
    eligible: i64,
    end: i64,
    start: i64,
    submission: i64,
    suspended: i64,
    limit: Option<i64>,
    system: Moment,
    user: Moment,
    total: Moment,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "only the types of the members are checked")]
struct Moment {
    seconds: i64,
    microseconds: i64,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "only the types of the members are checked")]
struct Required {
    #[serde(rename = "CPUs")]
    cpus: i64,
    memory: i64,
}

#[derive(Debug, Deserialize)]
struct Reservation {
    id: i64,
    name: i64,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "only the types of the members are checked")]
struct State {
    current: String,
    reason: String,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "only the types of the members are checked")]
struct Step {
    exit_code: ExitCode,
    state: String,
    pid: Option<String>,
    kill_request_user: Option<String>,
    step: StepName,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "only the types of the members are checked")]
struct StepName {
    job_id: i64,
    id: StepId,
    name: String,
}

/// Slurm's description of the interface says string, but its sacct prints numbers as such.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
#[expect(dead_code, reason = "only the types of the members are checked")]
enum StepId {
    Number(i64),
    Name(String),
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "only the types of the members are checked")]
struct JobTres {
    allocated: Vec<Tres>,
    requested: Vec<Tres>,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "only the types of the members are checked")]
struct Tres {
    #[serde(rename = "type")]
    kind: String,
    name: Option<String>,
    id: i64,
    count: i64,
}

#[track_caller]
fn decoded<J: DeserializeOwned>(slotd: &Slotd, line: &str, jobs: usize) -> Document<J> {
    let text = slotd.line(line).ok().stdout;
    let document: Document<J> =
        serde_json::from_str(&text).unwrap_or_else(|why| panic!("{line}: {why}\n{text}"));
    assert_eq!((document.jobs.len(), document.errors.len()), (jobs, 0), "{line}");
    let Meta { plugin, slurm } = &document.meta;
    assert!(
        !plugin.kind.is_empty() && !plugin.name.is_empty() && slurm.release.starts_with("22.05"),
        "{line}"
    );
    assert_eq!(
        (slurm.version.major, slurm.version.minor, slurm.version.micro),
        (22, 5, 8),
        "{line}"
    );
    document
}

#[test]
fn json_has_the_types_that_slurm_clients_decode() {
    let slotd = Setup::default().set("SLOTD_GPU_COUNT", 2).start();
    let runs = slotd.endless(&[
        "-c",
        "2",
        "--gres=gpu:1",
        "-t",
        "10",
        "--comment",
        "x",
        "--mem-per-cpu",
        "100",
    ]);
    let waits =
        slotd.wrap(&["-H", "-a", "1-3%2", "--nice=5", "--exclusive", "--begin=now+1hour"], "true");
    let ended = slotd.wrap(&["--mem", "64"], "srun true; exit 3");
    slotd.wait_state(runs, "RUNNING");
    slotd.wait_end(ended);
    let queue = decoded::<Queued>(&slotd, "squeue --json -t all", 3);
    assert_eq!(queue.jobs.iter().map(|job| job.job_id).max(), Some(i64::from(ended)));
    let history = decoded::<Accounted>(&slotd, "sacct --json", 3);
    assert!(history.jobs.iter().all(|job| (job.reservation.id, job.reservation.name) == (0, 0)));
    decoded::<Accounted>(&slotd, &format!("sacct --json -j {waits}"), 1);
}
