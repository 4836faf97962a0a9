// What is known about a job: facts, sentences, steps and tasks.

import { el, link, say } from "./dom.js";
import { recurrence } from "./sentence.js";
import { badge, isOver } from "./states.js";
import { at, bytes, counted, elapsed, grouped, memory, ranges, span } from "./words.js";

export function facts(details) {
  const { job: row } = details;
  const ran = elapsed(row, details.now);
  const cpus = row.cpu_ids.length ? ` (${ranges(row.cpu_ids)})` : "";
  const gpus = row.gpus ? `, ${row.gpu_ids.length ? `GPU ${ranges(row.gpu_ids)}` : counted(row.gpus, "GPU")}` : "";
  const share =
    row.used && ran > 0 ? `, ${Math.round((row.used.cpu_secs * 100000) / (ran * row.cpus))} % of its CPUs` : "";
  return [
    [row.start ? "Allocation" : "Request", `${counted(row.cpus, "CPU")}${cpus}, ${memory(row.mem_mb)}${gpus}`],
    ["Partition", row.partition],
    ["User", row.user],
    ["Submitted", at(row.submit)],
    [row.recurs ? "Next run" : "Expected start", at(row.expected)],
    ["Recurs", row.recurs ? `${recurrence(row.recurs)} (${row.recurs})` : ""],
    ["Reservation", row.reservation],
    ["Started", at(row.start)],
    ["Ended", at(row.end)],
    ["Elapsed", row.start ? span(ran) : ""],
    ["Time limit", row.limit_secs ? span(row.limit_secs * 1000) : "none"],
    ["CPU time", row.used ? `${span(row.used.cpu_secs * 1000)}${share}` : ""],
    ["Peak memory", row.used ? `${memory(row.used.mem_mb)} of ${memory(row.mem_mb)}` : ""],
    ["GPU use", row.used?.gpu_percent === null || !row.used ? "" : `${row.used.gpu_percent} %`],
    ["Exit code", isOver(row) ? row.exit : ""],
    ["Restarts", row.restarts ? String(row.restarts) : ""],
    ["Output", details.std_out],
    ["Errors", details.std_err === details.std_out ? "" : details.std_err],
  ].filter(([, value]) => value !== "");
}

// Durations stand after these words, in Slurm's format: "after 1:30:00".
const DURATION = /\b(after|limit of|run for) (?:(\d+)-)?(?:(\d+):)?(\d+):(\d\d)\b/g;
const inUnits = (_, word, days = 0, hours = 0, minutes, secs) =>
  `${word} ${span((((days * 24 + Number(hours)) * 60 + Number(minutes)) * 60 + Number(secs)) * 1000)}`;

const DEPENDENCY = /\b(after\w*):(\d+(?:_\d+)?)(?:_\*)?/g;
const SECONDS = /\b(\d+) seconds\b/g;
const inSpan = (_, secs) => span(secs * 1000);

// The title and the badge already say which job it is and its state, and the bar its limit. Times are in the server's time zone.
const shortened = (text, zone) =>
  text
    .replace(/: its time limit is [\d:-]+/, "")
    .replace(DURATION, inUnits)
    .replace(/^Job \S+ \(.*?\) is [A-Z_]+[.,] (\w)/s, (_, letter) => letter.toUpperCase())
    .replace(/(\d+) MB of memory/g, (_, mb) => memory(Number(mb)))
    .replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d/g, (iso) => at(Date.parse(`${iso}Z`) - zone * 1000) || iso);

const shownOf = (row) => (row.tasks > 1 ? "Below are its pending tasks." : `Below is job ${row.label}.`);

// "8 completed, 1 failed, 3 running, 28 pending".
function standing(tasks) {
  const counts = new Map();
  for (const task of tasks) counts.set(task.state, (counts.get(task.state) ?? 0) + task.tasks);
  const words = [...counts].map(([state, count]) => `${grouped(count)} ${state.toLowerCase().replaceAll("_", " ")}`);
  return `${grouped([...counts.values()].reduce((a, b) => a + b, 0))} tasks: ${words.join(", ")}`;
}

// Formats the output of `slotd why`: for a pending job, also its blockers and their remedies.
export function reasons({ why, zone_secs: zone, job: row, tasks }) {
  const says = why.sentences.map((text) => shortened(text, zone));
  // The time that it has run and its allocation are on the page already.
  if (row.state === "RUNNING")
    says[0] = `Started at ${at(row.start)}, after ${span(row.start - row.submit)} in the queue.`;
  const array = tasks.length
    ? [{ key: "array", text: `An array of ${standing(tasks)}. ${shownOf(row)}`, is_key: true }]
    : [];
  const lines = [...array, { key: "says", text: says.join(" ") }];
  why.blockers.forEach((one, i) => {
    const words = one.text.replace(SECONDS, inSpan).replace(DEPENDENCY, "job $2 ($1)");
    lines.push({
      key: `keeps ${i}`,
      text: `${words.charAt(0).toUpperCase()}${words.slice(1)} (${one.reason})`,
      is_key: true,
    });
    if (one.remedy) lines.push({ key: `change ${i}`, text: `To change this: ${one.remedy}` });
  });
  const errors = why.stderr?.last_lines ?? [];
  if (errors.length) lines.push({ key: "errors", text: "The last lines of its standard error:" });
  for (const [i, text] of errors.entries()) lines.push({ key: `error ${i}`, text, is_code: true });
  return lines;
}

const cells = (tr, values) => {
  tr.append(...values.slice(tr.children.length).map((value, i) => el(tr.children.length + i ? "td" : "th", {})));
  values.forEach((value, i) => {
    if (typeof value === "string") say(tr.children[i], value);
    else if (!tr.children[i].firstChild || tr.state !== value.state) tr.children[i].replaceChildren(...value.nodes);
  });
};

export const STEP_HEADS = ["Step", "Name", "State", "Tasks", "Elapsed", "CPU time", "Peak memory", "Exit"];
export function fillStep(tr, step, now) {
  cells(tr, [
    step.id,
    step.name,
    step.state,
    String(step.tasks),
    span((step.end ?? now) - step.start),
    step.used ? span(step.used.cpu_secs * 1000) : "",
    step.used ? bytes(step.used.mem_mb * (1 << 20)) : "",
    step.end ? step.exit : "",
  ]);
}

export const TASK_HEADS = ["Task", "State", "Started", "Elapsed", "Exit"];
export function fillTask(tr, row, now) {
  cells(tr, [
    { state: row.label, nodes: [link(row)] },
    { state: row.state, nodes: [badge(row)] },
    at(row.start),
    row.start ? span(elapsed(row, now)) : "",
    row.end ? row.exit : "",
  ]);
  tr.state = row.state;
}
