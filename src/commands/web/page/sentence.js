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
  const terms = [...why.matchAll(/(after\w*):([\d_]+)(?:\+\d+)?/g)];
  if (!terms.length) return why.includes("singleton") ? "After the other jobs with its name" : sentenceCase(why);
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

const REASONS = {
  Priority: (_, before) =>
    before
      ? `Behind job ${before.first.label}${before.more ? ` and ${grouped(before.more)} more` : ""}`
      : "Next in line",
  Dependency: (row) => dependency(row.why),
  DependencyNeverSatisfied: () => "Never starts: its dependency failed",
  BeginTime: (row) => (row.expected ? `Not before ${at(row.expected)}` : "Its begin time has not come"),
  JobHeldUser: () => "Held by its user",
  JobHeldAdmin: () => "Held by an administrator",
  JobArrayTaskLimit: () => "As many of its tasks run as it allows",
  None: () => "Starts shortly",
};

function ended(row) {
  const [code, signal] = row.exit.split(":");
  if (!hasFailed(row)) return row.why && row.why !== row.reason ? row.why : "";
  if (row.why && row.why !== row.reason && !row.why.startsWith("NonZero")) return sentenceCase(row.why);
  if (signal !== "0") return `Ended by signal ${signal}`;
  if (code !== "0") return `Exit code ${code}`;
  return row.limit_secs && elapsed(row) >= row.limit_secs * 1000
    ? `Reached its limit of ${span(row.limit_secs * 1000)}`
    : "";
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
  return `Started at ${at(row.start)} in ${row.partition}`;
}

// Turns the jobs that a text names into links.
export function linked(text) {
  return text.split(/(\b[Jj]obs? \d+(?:_\d+)?)/).map((part) => {
    const [, id] = /^[Jj]obs? (\d+(?:_\d+)?)$/.exec(part) ?? [];
    return id ? el("a", { href: `#/job/${id}` }, part) : part;
  });
}
