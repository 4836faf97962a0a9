// One job: its state and the reason for it, time and use against its request, and its output, steps, script and source.

import { act, available, isDanger, labelOf } from "./actions.js";
import { attempt, get, renew, text } from "./ask.js";
import { attribute, by, el, keyed, say, vary } from "./dom.js";
import * as diff from "./diff.js";
import { Edit } from "./edit.js";
import { Environment } from "./env.js";
import { facts, fillStep, fillTask, reasons, STEP_HEADS, TASK_HEADS } from "./facts.js";
import { Log } from "./log.js";
import { openMenu } from "./menu.js";
import * as plot from "./plot.js";
import { isClose, linked } from "./sentence.js";
import { badge, isOver } from "./states.js";
import { Tabs } from "./tabs.js";
import { Waiting } from "./waiting.js";
import { elapsed, span } from "./words.js";

let shown;
let logs;
let told;
let parts;
let current;
let asked = 0;
let runs = false;

// The interval between requests for the usage of a running job, in milliseconds.
const BETWEEN_PLOTS = 5000;

const api = (what) => `/api/job/${encodeURIComponent(shown)}${what}`;

function table(title, heads) {
  const body = el("tbody");
  const whole = el(
    "table",
    { "aria-label": title },
    el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))),
    body,
  );
  return { body, element: el("div", { class: "scroll", tabindex: "0" }, whole) };
}

// A text that is fetched when its tab is first opened.
function fetched(label, load) {
  const element = el("pre", { class: "wrap", tabindex: "0", "aria-label": label });
  const open = async () => {
    if (!element.textContent) say(element, (await attempt(load)) ?? "");
  };
  return { element: el("div", {}, element), open };
}

function outputs(details) {
  logs = { out: new Log(shown, "out", "Output") };
  if (details.std_err !== details.std_out) logs.err = new Log(shown, "err", "Errors");
  const all = Object.entries(logs);
  const choose = (name) => {
    for (const [key, log] of all) {
      log.element.hidden = key !== name;
      attribute(log.button, "aria-pressed", String(key === name));
      log.toEnd();
    }
  };
  const titles = { out: "stdout", err: "stderr" };
  for (const [key, log] of all) log.button = el("button", { type: "button", onclick: () => choose(key) }, titles[key]);
  choose("out");
  const choice = el(
    "div",
    { class: "segments", role: "group", "aria-label": "Stream", hidden: all.length < 2 },
    ...all.map(([, log]) => log.button),
  );
  logs.out.element.firstChild.prepend(choice);
  if (logs.err)
    logs.err.element.firstChild.prepend(
      el(
        "div",
        { class: "segments" },
        ...all.map(([key]) =>
          el(
            "button",
            { type: "button", "aria-pressed": String(key === "err"), onclick: () => choose(key) },
            titles[key],
          ),
        ),
      ),
    );
  return el("div", {}, ...all.map(([, log]) => log.element));
}

// The source is fetched when its tab is first opened.
function source() {
  const element = el("div", {});
  const open = async () => {
    if (element.firstChild) return;
    const told_ = await attempt(() => get(api("/source")));
    if (told_ && !element.firstChild) element.append(...diff.show(told_.text, told_.diff));
  };
  return { element, open };
}

// Creates the elements that stay while the job changes, such as its output and script.
function frame(details) {
  const steps = table("Steps", STEP_HEADS);
  const tasks = table("Tasks", TASK_HEADS);
  const all = el("pre", { class: "wrap", tabindex: "0", "aria-label": "All fields" });
  const variables = new Environment(api("/env"));
  const output = details.std_out ? [{ name: "output", title: "Output", element: outputs(details) }] : [];
  const of_array = { name: "tasks", title: "Tasks", element: tasks.element };
  const panels = [
    ...(details.tasks.length ? [of_array, ...output] : [...output, of_array]),
    { name: "steps", title: "Steps", element: steps.element },
    ...(details.is_batch
      ? [
          { name: "script", title: "Script", ...fetched("Script", () => text(api("/script"))) },
          { name: "env", title: "Environment", element: variables.element, open: () => variables.open() },
        ]
      : []),
    { name: "source", title: "Source", ...source() },
    { name: "all", title: "All fields", element: el("div", {}, all) },
  ];
  parts = {
    why: el("ul", { class: "why-list", "aria-label": "Why" }),
    steps,
    tasks,
    all,
    ran: el("b"),
    limit: el("span"),
    bar: el("i", { class: "bar" }),
    left: el("span"),
    plots: el("div", { class: "plots", role: "group", "aria-label": "Usage over time" }),
    facts: el("dl", { class: "facts" }),
    waiting: new Waiting(api("/dependents"), details.tasks.length ? "Waiting for this array" : "Waiting for this job"),
    edit: new Edit(shown),
    tabs: new Tabs("Job", panels),
  };
  parts.against = el("div", { class: "against" }, el("span", {}, parts.ran, parts.limit), parts.bar, parts.left);
  by("job").replaceChildren(
    parts.why,
    parts.against,
    parts.edit.element,
    parts.plots,
    el("div", { class: "with-facts" }, parts.tabs.element, el("div", {}, parts.facts, parts.waiting.element)),
  );
  logs ??= {};
  if (told) grown(told);
}

function fillTime(row, now) {
  parts.against.hidden = !row.start || (isOver(row) && !row.limit_secs);
  const [ms, limit] = [elapsed(row, now), row.limit_secs * 1000];
  say(parts.ran, span(ms));
  say(parts.limit, limit ? ` of ${span(limit)}` : ", no time limit");
  say(parts.left, limit && !isOver(row) ? `${span(limit - ms)} left` : "");
  vary(parts.bar, { part: `${limit ? Math.min(100, (ms / limit) * 100).toFixed(1) : 0}%` });
  parts.bar.classList.toggle("full", isClose(row));
}

// A phone has room for the menu and the dangerous action only.
function actions(row) {
  const names = available(row);
  const mild = names.filter((name) => !isDanger(name));
  const harsh = names.filter(isDanger);
  const items = [
    ...(mild.length > 1 ? ["menu"] : []),
    ...mild,
    ...(mild.length && harsh.length ? ["apart"] : []),
    ...harsh,
  ];
  by("job-actions").classList.toggle("has-menu", mild.length > 1);
  const button = (name) =>
    el("button", {
      type: "button",
      class: isDanger(name) ? "danger" : "",
      "data-action": name,
      onclick: () => act(name, [current]),
    });
  const menu = () => {
    const one = el(
      "button",
      { type: "button", class: "more", "aria-haspopup": "menu", onclick: () => openMenu(one, [current], current.name) },
      "Actions",
    );
    return one;
  };
  keyed(
    by("job-actions"),
    items,
    (name) => name,
    (name) => (name === "apart" ? el("span", { class: "apart" }) : name === "menu" ? menu() : button(name)),
    (one, name) => names.includes(name) && say(one, isDanger(name) ? "Cancel…" : labelOf(name, [row])),
  );
}

// Where the job stands: in the queue, or as a task of its array.
function crumbs({ job: row, tasks }) {
  const [, task] = /_(.+)$/.exec(row.label) ?? [];
  const words = row.array && !tasks.length ? `Array ${row.array} / Task ${task}` : `Job ${row.label}`;
  const text = tasks.length ? `Array ${row.array}` : words;
  if (by("job-number").textContent === text) return;
  const array = el("a", { href: `#/job/${row.array}` }, `Array ${row.array}`);
  by("job-number").replaceChildren(...(text.includes(" / ") ? [array, ` / Task ${task}`] : [text]));
}

function fill(details) {
  const { job: row, now, tasks } = details;
  // The page of an array acts on all of its tasks, as its row in the queue does.
  current = tasks.length ? { ...row, label: String(row.array), target: String(row.array) } : row;
  crumbs(details);
  say(by("host-name"), `on ${details.host}`);
  if (by("job-badge").state !== row.state + row.reason) by("job-badge").replaceChildren(badge(row));
  by("job-badge").state = row.state + row.reason;
  keyed(
    parts.facts,
    facts(details),
    ([name]) => name,
    ([name]) => el("div", {}, el("dt", {}, name), el("dd")),
    (pair, [, value]) => say(pair.lastChild, value),
  );
  keyed(
    parts.why,
    reasons(details),
    (line) => line.key,
    (line) => el("li", { class: line.is_key ? "key" : line.is_code ? "code" : "" }),
    (li, line) => {
      if (li.textContent !== line.text) li.replaceChildren(...(line.is_code ? [line.text] : linked(line.text)));
    },
  );
  actions(row);
  fillTime(row, now);
  parts.edit.show(row.state === "PENDING");
  for (const [name, list, update] of [
    ["steps", details.steps, fillStep],
    ["tasks", details.tasks, fillTask],
  ]) {
    parts.tabs.tell(name, list.length);
    keyed(
      parts[name].body,
      list,
      (one) => one.id,
      () => el("tr"),
      (tr, one) => update(tr, one, now),
    );
  }
  say(parts.all, details.text);
}

// Shows a job, or updates it after a change.
export async function show(name) {
  if (shown !== name) {
    shown = name;
    told = logs = parts = undefined;
    for (const id of ["job", "job-actions", "job-badge"]) by(id).replaceChildren();
    by("job-actions").known = by("job-badge").state = undefined;
    say(by("job-title"), `Job ${name}`);
    say(by("job-number"), `Job ${name}`);
  }
  const details = await renew(() => get(`/api/job/${encodeURIComponent(name)}`));
  if (!details || shown !== name) return;
  say(by("job-title"), details.job.name || `Job ${details.job.label}`);
  if (!parts) frame(details);
  fill(details);
  runs = details.job.state === "RUNNING";
  await Promise.all([plots(name), parts.waiting.show(details.job.state)]);
}

async function plots(name) {
  asked = Date.now();
  const used = await renew(() => get(`/api/job/${encodeURIComponent(name)}/series`));
  if (used && shown === name && parts) plot.show(parts.plots, used);
}

// Refreshes the plots and the elapsed time of a running job.
export function tick() {
  if (!runs || !parts) return;
  fillTime(current);
  if (Date.now() - asked >= BETWEEN_PLOTS) plots(shown);
}

// Updates the sizes of the outputs.
export function grown(sizes) {
  told = sizes;
  logs?.out?.grown(sizes.out);
  logs?.err?.grown(sizes.err);
}
