# future.batchtools: futures as jobs, with variables of the session, an error that is passed on, and values in order.
suppressMessages(library(future.batchtools))

check <- function(what, found, wanted) {
  if (identical(found, wanted)) cat("ok ", what, "\n", sep = "")
  else cat("not ok ", what, ": ", deparse(found), ", not ", deparse(wanted), "\n", sep = "")
}

writeLines(c(
  "#!/bin/bash",
  "#SBATCH --job-name=<%= job.name %>",
  "#SBATCH --output=<%= log.file %>",
  "#SBATCH --nodes=1",
  "#SBATCH --time=<%= resources$time %>",
  "#SBATCH --cpus-per-task=<%= resources$cpus %>",
  "#SBATCH --mem=<%= resources$mem %>",
  "echo Job: $(scontrol show job $SLURM_JOB_ID | head -1)",
  "Rscript -e 'batchtools::doJobCollection(\"<%= uri %>\")'"
), "batchtools.slurm.tmpl")

plan(batchtools_slurm, template = "batchtools.slurm.tmpl", resources = list(time = "00:05:00", cpus = 2, mem = "300M"), workers = 3)
factor <- 10
futures <- lapply(1:3, function(x) future(c(x * factor, as.numeric(Sys.getenv("SLURM_CPUS_PER_TASK"))), label = paste0("part-", x)))
check("values", value(futures), list(c(10, 2), c(20, 2), c(30, 2)))
bad <- future(stop("expected failure"), label = "bad")
check("an error", tryCatch(value(bad), error = conditionMessage), "expected failure")
asked <- system2("sacct", c("-X", "-n", "-P", "-o", "JobName,AllocCPUS,ReqMem,Timelimit", "-S", "now-1hour"), stdout = TRUE)
check("requested resources", sort(asked), c("bad|2|300M|00:05:00", sprintf("part-%d|2|300M|00:05:00", 1:3)))
