# batchtools: a registry with an array and single jobs, their results, a failing job, lists of pending and running jobs, and killing jobs.
suppressMessages(library(batchtools))

check <- function(what, found, wanted) {
  if (identical(found, wanted)) cat("ok ", what, "\n", sep = "")
  else cat("not ok ", what, ": ", deparse(found), ", not ", deparse(wanted), "\n", sep = "")
}

template <- "slurm.tmpl"
writeLines(c(
  "#!/bin/bash",
  "",
  "<% relative.path = function(file) file -%>",
  "#SBATCH --job-name=<%= job.name %>",
  "#SBATCH --output=<%= log.file %>",
  "#SBATCH --error=<%= log.file %>",
  "#SBATCH --time=<%= ceiling(resources$walltime / 60) %>",
  "#SBATCH --ntasks=1",
  "#SBATCH --cpus-per-task=<%= resources$ncpus %>",
  "#SBATCH --mem-per-cpu=<%= resources$memory %>",
  "#SBATCH --partition='cpu'",
  "<%= if (array.jobs) sprintf('#SBATCH --array=1-%i', nrow(jobs)) else '' %>",
  "Rscript -e 'batchtools::doJobCollection(\"<%= uri %>\")'"
), template)

made <- function(name) {
  registry <- makeRegistry(name, seed = 1)
  registry$cluster.functions <- makeClusterFunctionsSlurm(template, array.jobs = TRUE, scheduler.latency = 0, fs.latency = 60)
}
made("first")
size <- list(walltime = 300, ncpus = 2, memory = 150)

work <- function(x) {
  if (x == 3) stop("expected failure")
  c(x * x, as.integer(Sys.getenv("SLURM_CPUS_PER_TASK")))
}
batchMap(work, x = 1:4)
jobs <- findJobs()
jobs$chunk <- 1
submitJobs(jobs, resources = c(size, chunks.as.arrayjobs = TRUE))
check("the end", waitForJobs(sleep = 0.5, timeout = 300, expire.after = 20), FALSE)
check("results", reduceResultsList(findDone()), list(c(1L, 2L), c(4L, 2L), c(16L, 2L)))
check("a failure", findErrors()$job.id, 3L)
numbers <- getJobTable()$batch.id
asked <- system2("sacct", c("-X", "-n", "-P", "-o", "JobID,AllocCPUS,ReqMem,Timelimit,State", "-j", paste(numbers, collapse = ",")), stdout = TRUE)
check("an array", sort(asked), paste0(numbers, "|2|300M|00:05:00|COMPLETED"))

made("second")
more <- batchMap(function(x) Sys.sleep(1000), x = 1:2)
submitJobs(more, resources = size)
while (nrow(findRunning(more)) < 2) Sys.sleep(0.2)
check("running jobs", nrow(findOnSystem(more)), 2L)
numbers <- getJobTable()$batch.id
invisible(killJobs(more))
while (nrow(findOnSystem(more)) > 0) Sys.sleep(0.2)
ended <- system2("sacct", c("-X", "-n", "-P", "-o", "State", "-j", paste(numbers, collapse = ",")), stdout = TRUE)
check("kill", sub(" by .*", "", ended), c("CANCELLED", "CANCELLED"))
