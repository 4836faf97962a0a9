//! MPI programs under srun and mpirun.

use slotd_kit::Slotd;
use std::process::Command;

#[test]
fn ranks_exchange_data_with_each_version_of_pmi() {
    let slotd = Slotd::start();
    for version in [1, 2] {
        let out = slotd.line(&format!("srun --mpi=pmi2 -n3 helper rank {version}")).ok();
        let mut lines: Vec<&str> = out.stdout.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["0 of 3: 0 1 2", "1 of 3: 0 1 2", "2 of 3: 0 1 2"], "PMI-{version}");
    }
}

#[test]
fn a_step_inside_a_rank_does_not_inherit_its_rank() {
    let slotd = Slotd::start();
    let out = slotd.ran(
        &["-n1"],
        "PMI_FD=9 PMI_SIZE=7 srun --mpi=pmi2 sh -c 'echo $PMI_RANK/$PMI_SIZE; srun --overlap env'",
    );
    assert!(out.starts_with("0/1\n") && !out.contains("PMI_"), "{out}");
}

#[test]
fn an_abort_of_a_rank_ends_the_step() {
    let slotd = Slotd::start();
    let step = "[ $PMI_RANK = 0 ] && { echo cmd=abort exitcode=5 >&$PMI_FD; }; exec sleep 1000";
    let out = slotd.cmd("srun", &["--mpi=pmi2", "-n2", "bash", "-c", step]);
    assert!(out.stderr.contains("CANCELLED AT"), "{}", out.stderr);
    assert_ne!(out.code, 0);
}

#[test]
fn mpi_list_and_unknown_mpi_types() {
    let slotd = Slotd::start();
    slotd.expect("srun --mpi=list", 0, "MPI plugin types are...\n\tnone\n\tpmi2\n", "");
    let hint = "  hint: inside sbatch or salloc, mpirun starts the ranks of any MPI: mpirun PROGRAM instead of srun PROGRAM\n";
    for kind in ["pmix", "pmix_v3", "nosuch"] {
        let text = format!(
            "srun: error: invalid MPI type '{kind}', --mpi=list for acceptable types\n{hint}"
        );
        slotd.expect(&format!("srun --mpi={kind} true"), 1, "", &text);
    }
    slotd.expect("srun --mpi=none echo one", 0, "one\n", "");
}

/// Returns whether this MPI is installed (Debian's packages `mpich`, or `openmpi-bin` with
/// `libopenmpi-dev`), for the tests of complete programs.
fn installed(compiler: &str) -> bool {
    let found = Command::new(compiler).arg("-show").output().is_ok_and(|out| out.status.success());
    if !found {
        println!("skipped: {compiler} is not installed");
    }
    found
}

const PROGRAM: &str = r#"
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
    int rank, size, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("%d of %d, %d\n", rank, size, sum);
    return MPI_Finalize();
}
"#;

fn compiled(slotd: &Slotd, compiler: &str) -> String {
    let source = slotd.write("ranks.c", PROGRAM);
    let program = slotd.path("ranks");
    let done =
        Command::new(compiler).arg(source).arg("-o").arg(&program).status().expect("a compiler");
    assert!(done.success());
    program.display().to_string()
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().filter(|line| line.contains(" of ")).collect();
    lines.sort_unstable();
    lines
}

const TWO: [&str; 2] = ["0 of 2, 1", "1 of 2, 1"];

#[test]
fn mpich_runs_with_srun_and_mpirun() {
    if !installed("mpicc.mpich") {
        return;
    }
    let slotd = Slotd::start();
    let program = compiled(&slotd, "mpicc.mpich");
    let srun = slotd.cmd("srun", &["--mpi=pmi2", "-n2", &program]).ok();
    assert_eq!(sorted(&srun.stdout), TWO, "{}", srun.stderr);
    let by_script = slotd.ran(&["-n2"], &format!("mpirun.mpich {program}"));
    assert_eq!(sorted(&by_script), TWO, "{by_script}");
    let salloc = slotd.cmd("salloc", &["-n2", "mpirun.mpich", &program]).ok();
    assert_eq!(sorted(&salloc.stdout), TWO, "{}", salloc.stderr);
}

#[test]
fn open_mpi_runs_with_mpirun() {
    if !installed("mpicc.openmpi") {
        return;
    }
    let slotd = Slotd::start();
    let program = compiled(&slotd, "mpicc.openmpi");
    let mpirun = format!("mpirun.openmpi --allow-run-as-root {program}");
    let by_script = slotd.ran(&["-n2"], &mpirun);
    assert_eq!(sorted(&by_script), TWO, "{by_script}");
    let salloc =
        slotd.cmd("salloc", &["-n2", "mpirun.openmpi", "--allow-run-as-root", &program]).ok();
    assert_eq!(sorted(&salloc.stdout), TWO, "{}", salloc.stderr);
}
