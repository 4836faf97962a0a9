// Why a job is in its state, in one short sentence. Slurm's reason stays in the tooltip.

import { at, clock, counted, elapsed, grouped, memory, span } from "./words.js";
import { hasFailed, isOver } from "./states.js";
import { el } from "./dom.js";

const RELATIONS = {
  after: "starts",
  afterany: "ends",
  afterok: "completes",
  afternotok: "fails",
  aftercorr: "completes, task by task",
  afterburstbuffer: "ends",
};

// "waiting for afterok:34(unfulfilled)" becomes "After job 34 completes".
function dependency(why) {
  const terms = [...why.matchAll(/(after\w*):(\d+(?:_\d+)?)(_\*)?/g)];
  if (!terms.length) return why.includes("singleton") ? "After the other jobs with its name" : sentenceCase(why);
  // A dependency on an array waits for all of its tasks.
  const [, kind, job] = terms[0];
  const more = terms.length > 1 ? ` and ${counted(terms.length - 1, "other condition")}` : "";
  return `After job ${job} ${RELATIONS[kind] ?? "ends"}${more}`;
}

const sentenceCase = (text) => text.charAt(0).toUpperCase() + text.slice(1);
// Shortens what the scheduler says about resources.
const brief = (text) =>
  sentenceCase(text)
    .replace(/(\d+) MB of memory/g, (_, mb) => memory(Number(mb)))
    .replace(/ by its time limit/g, "")
    .replaceAll(" and ", ", ");
// JobArrayTaskLimit becomes "Job array task limit".
const spaced = (name) =>
  sentenceCase(
    name
      .replace(/([a-z])([A-Z])/g, "$1 $2")
      .replace(/([A-Z]+)([A-Z][a-z])/g, "$1 $2")
      .toLowerCase()
      .replace(/^qos/, "QOS")
      .replace(/\b(gpu|cpu)/g, (word) => word.toUpperCase()),
  );

const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const isOne = (field) => /^\d+$/.test(field);
const soon = (ms) => (ms ? `at ${at(ms)}` : "not planned");

// The five fields of a crontab in words, if they are simple: "0 5 * * 1" becomes "every Monday at 05:00".
export function recurrence(fields) {
  const [minute, hour, day, month, weekday] = fields.split(" ");
  const pad = (number) => number.padStart(2, "0");
  const other = `schedule ${fields}`;
  if (!isOne(minute) || day !== "*" || month !== "*") return fields === "* * * * *" ? "every minute" : other;
  if (hour === "*") return weekday === "*" ? `every hour at :${pad(minute)}` : other;
  const time = `at ${pad(hour)}:${pad(minute)}`;
  if (!isOne(hour)) return other;
  if (weekday === "*") return `every day ${time}`;
  return isOne(weekday) ? `every ${DAYS[weekday]} ${time}` : other;
}

// The host, of which some reasons speak.
let host;
export const setHost = (told) => {
  host = told;
};

const listed = (words) => words.join(", ").replace(/, ([^,]*)$/, " and $1");

// The amounts that a job requests and that are not free, in words. The scheduler knows more: a job may wait for others too.
function missing(row) {
  const free = ({ all, given }) => all - given;
  const short = [
    row.gpus > free(host.gpus) && (row.gpus > 1 ? `${row.gpus} GPUs` : "a GPU"),
    row.cpus > free(host.cpus) && counted(row.cpus, "CPU"),
    row.mem_mb > free(host.mem_mb) && memory(row.mem_mb),
  ].filter(Boolean);
  return short.length ? `Next in line, waits for ${listed(short)}` : "Next in line";
}

// The first maintenance that a job would run into.
function obstacle(row) {
  const until = row.limit_secs ? clock() + row.limit_secs * 1000 : Infinity;
  const found = host.reservations.filter(({ start, flags }) => start < until && flags.includes("MAINT"));
  const [one] = found.toSorted((a, b) => a.start - b.start);
  if (!one) return "Waits for the end of a maintenance";
  return one.is_active
    ? `Reserved for ${one.name}${one.end ? ` until ${at(one.end)}` : ""}`
    : `Too long to end before ${one.name} at ${at(one.start)}`;
}

function closed(row) {
  const partition = host.partitions.find(({ name }) => name === row.partition);
  return partition?.hours && partition.state === "UP"
    ? `${row.partition} starts jobs at ${partition.hours} only`
    : `Partition ${row.partition} starts no jobs`;
}

// The pending tasks of an array are one record, which is named by its array.
const aloneOr = ({ array, tasks, label }) => (tasks > 1 ? array : label);

const REASONS = {
  Priority: (row, before) =>
    before ? `Behind job ${aloneOr(before.first)}${before.more ? ` and ${grouped(before.more)} more` : ""}` : missing(row),
  Dependency: (row) => dependency(row.why),
  DependencyNeverSatisfied: () => "Never starts: its dependency failed",
  PartitionDown: closed,
  Licenses: () => "Waits for licenses",
  Resources: (row) => (row.why && row.why !== row.reason ? brief(row.why) : missing(row)),
  Reservation: (row) => `Waits for reservation ${row.reservation}`,
  "ReqNodeNotAvail, Reserved for maintenance": obstacle,
  BeginTime: (row) => (row.expected ? `Not before ${at(row.expected)}` : "Its begin time has not come"),
  JobHeldUser: () => "Held by its user",
  JobHeldAdmin: () => "Held by an administrator",
  JobArrayTaskLimit: () => "After other tasks of its array",
  None: () => "Starts shortly",
};

// The scheduler's own words come last: they may be of side effects, such as processes left behind.
function ended(row) {
  const [code, signal] = row.exit.split(":");
  const told = row.why && row.why !== row.reason && !row.why.startsWith("NonZero") ? sentenceCase(row.why) : "";
  if (!hasFailed(row)) return told;
  if (row.limit_secs && elapsed(row) >= row.limit_secs * 1000)
    return `Reached its limit of ${span(row.limit_secs * 1000)}`;
  if (told) return told;
  if (signal !== "0") return `Ended by signal ${signal}`;
  return code === "0" ? "" : `Exit code ${code}`;
}

// Returns when a running job ends at the latest; undefined without a limit.
export const endOf = (row) => (row.limit_secs && row.since ? row.since + row.limit_secs * 1000 : undefined);

// A time limit is close in its last fifth.
export const isClose = (row) => Boolean(row.since && row.limit_secs && elapsed(row) > row.limit_secs * 800);

// `before` is what a job with the reason Priority is behind.
export function sentence(row, before) {
  if (isOver(row)) return ended(row);
  if (row.recurs && row.reason === "BeginTime") return `Next run ${soon(row.expected)}, ${recurrence(row.recurs)}`;
  if (row.state === "PENDING")
    return (REASONS[row.reason] ?? (() => (row.why && row.why !== row.reason ? brief(row.why) : spaced(row.reason))))(
      row,
      before,
    );
  if (row.state !== "RUNNING") return row.state === "COMPLETING" ? "Ending" : `Suspended after ${span(elapsed(row))}`;
  if (isClose(row)) return `${span(Math.max(0, endOf(row) - clock()))} to its time limit`;
  if (row.recurs) return `Started at ${at(row.start)}, next run ${soon(row.next_run)}, ${recurrence(row.recurs)}`;
  return `Started at ${at(row.start)} in ${row.partition}`;
}

// Turns the jobs that a text names into links.
export function linked(text) {
  return text.split(/(\b[Jj]obs? \d+(?:_\d+)?)/).map((part) => {
    const [, id] = /^[Jj]obs? (\d+(?:_\d+)?)$/.exec(part) ?? [];
    return id ? el("a", { href: `#/job/${id}` }, part) : part;
  });
}
