// One job: its state and the reason for it, its resources, its script and its outputs.

import { attempt, get, renew, text } from "./ask.js";
import { by, duration, el, elapsed, keyed, link, memory, moment, say, size } from "./dom.js";
import { Edit } from "./edit.js";
import { Log } from "./log.js";
import * as plot from "./plot.js";
import { buttons } from "./queue.js";

let shown;
let logs;
let told;
let asked = 0;
let runs = false;

// The interval between requests for the usage of a running job, in milliseconds.
const BETWEEN_PLOTS = 5000;

function facts(details) {
  const row = details.job;
  const used = row.used;
  const ran = elapsed(row, details.now);
  const share = used && ran > 0 ? ` (${Math.round((used.cpu_secs * 100000) / (ran * row.cpus))} % of its CPUs)` : "";
  return [
    ["State", row.state + (row.reason === "None" ? "" : `, ${row.reason}`)],
    ["Name", row.name],
    ["User", row.user],
    ["Partition", row.partition],
    ["Size", size(row)],
    ["CPUs", row.cpu_ids.join(", ")],
    ["GPUs", row.gpu_ids.join(", ")],
    ["Submitted", moment(row.submit)],
    ["Expected start", moment(row.expected)],
    ["Started", moment(row.start)],
    ["Ended", moment(row.end)],
    ["Elapsed", row.start ? duration(ran) : ""],
    ["Time limit", row.limit_secs ? duration(row.limit_secs * 1000) : "none"],
    ["CPU time", used ? `${used.cpu_secs.toFixed(1)} s${share}` : ""],
    ["Memory", used ? `${memory(used.mem_mb)} of ${memory(row.mem_mb)}` : ""],
    ["GPU usage", used?.gpu_percent !== undefined && used?.gpu_percent !== null ? `${used.gpu_percent} %` : ""],
    ["Exit code", row.end ? row.exit : ""],
    ["Restarts", row.restarts ? String(row.restarts) : ""],
    ["Output", details.std_out],
    ["Errors", details.std_err === details.std_out ? "" : details.std_err],
  ].filter(([, value]) => value !== "");
}

// Formats the output of `slotd why`: for a pending job, also its blockers and their remedies.
function reasons(why) {
  const lines = why.sentences.map((text, at) => ({ key: `says ${at}`, text }));
  why.blockers.forEach((one, at) => {
    lines.push({ key: `keeps ${at}`, text: `${one.reason}: ${one.text}` });
    if (one.remedy) lines.push({ key: `change ${at}`, text: `To change this: ${one.remedy}` });
  });
  for (const [at, text] of (why.stderr?.last_lines ?? []).entries()) lines.push({ key: `error ${at}`, text: `standard error: ${text}` });
  return lines;
}

// Creates the elements that stay while the job changes, such as its outputs and script.
function frame(details) {
  const parts = { why: el("ul", { class: "why", "aria-label": "Why" }), facts: el("dl"), actions: el("p", { class: "buttons", "aria-label": "Actions", role: "group" }), steps: el("div"), tasks: el("div"), plots: el("div", { class: "plots", role: "group", "aria-label": "Usage over time" }) };
  parts.all = el("pre", { tabindex: "0", role: "region", "aria-label": "All fields" });
  const script = el("pre", { class: "log", tabindex: "0", role: "region", "aria-label": "Script" });
  const name = shown;
  const fetched = async (event) => {
    if (event.target.open && !script.textContent) say(script, (await attempt(() => text(`/api/job/${encodeURIComponent(name)}/script`))) ?? "");
  };
  logs = { out: new Log(name, "out", "Output") };
  if (details.std_err !== details.std_out) logs.err = new Log(name, "err", "Errors");
  parts.edit = new Edit(name);
  by("job").replaceChildren(
    parts.why,
    parts.facts,
    parts.actions,
    parts.edit.element,
    parts.plots,
    el("div", { class: "outputs" }, ...(details.std_out ? Object.values(logs).map((log) => log.element) : [])),
    parts.tasks,
    parts.steps,
    ...(details.is_batch ? [el("details", { ontoggle: fetched }, el("summary", {}, "Script"), script)] : []),
    el("details", {}, el("summary", {}, "All fields"), parts.all),
  );
  by("job").parts = parts;
  if (told) grown(told);
}

function list(parent, title, rows, describe) {
  if (!rows.length) return parent.replaceChildren();
  parent.list ??= el("ul");
  if (!parent.list.isConnected) parent.replaceChildren(el("h3", {}, title), parent.list);
  return keyed(parent.list, rows, (row) => row.id, () => el("li"), (li, row) => describe(li, row));
}

function fill(details) {
  const parts = by("job").parts;
  keyed(parts.facts, facts(details), ([name]) => name,
    ([name]) => el("div", {}, el("dt", {}, name), el("dd")),
    (pair, [, value]) => say(pair.lastChild, value));
  keyed(parts.why, reasons(details.why), (line) => line.key, () => el("li"), (li, line) => say(li, line.text));
  buttons(parts.actions, details.job);
  parts.edit.show(details.job.state === "PENDING");
  list(parts.steps, "Steps", details.steps, (li, step) =>
    say(li, `${step.id} ${step.name}: ${step.state}${step.end ? `, exit ${step.exit}, ${duration(step.end - step.start)}` : ""}`));
  list(parts.tasks, "Tasks", details.tasks, (li, row) => {
    if (!li.firstChild) li.append(link(row), el("span"));
    say(li.lastChild, ` ${row.state}${row.end ? `, exit ${row.exit}` : ""}`);
  });
  say(parts.all, details.text);
}

// Shows a job, or updates it after a change.
export async function show(name) {
  const is_new = shown !== name;
  if (is_new) {
    shown = name;
    told = undefined;
    logs = undefined;
    by("job").replaceChildren();
    say(by("job-title"), `Job ${name}`);
  }
  const details = await renew(() => get(`/api/job/${encodeURIComponent(name)}`));
  if (!details || shown !== name) return;
  say(by("job-title"), `Job ${details.job.label} ${details.job.name}`);
  if (!logs) frame(details);
  fill(details);
  runs = details.job.state === "RUNNING";
  await plots(name);
}

async function plots(name) {
  asked = Date.now();
  const used = await renew(() => get(`/api/job/${encodeURIComponent(name)}/series`));
  if (used && shown === name && by("job").parts) plot.show(by("job").parts.plots, used);
}

// Refreshes the plots of a running job.
export function tick() {
  if (runs && Date.now() - asked >= BETWEEN_PLOTS) plots(shown);
}

// Updates the sizes of the outputs.
export function grown(sizes) {
  told = sizes;
  logs?.out.grown(sizes.out);
  logs?.err?.grown(sizes.err);
}
