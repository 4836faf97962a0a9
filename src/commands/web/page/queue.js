// Tables of jobs: what runs, what waits, what ended. Tasks of an array are under one row, which opens.

import { ACTIONS, act, hasFailed } from "./ask.js";
import { attribute, by, duration, el, keyed, link, moment, say, size } from "./dom.js";

const elapsed = (row, now) => row.elapsed_ms + (row.state === "RUNNING" ? Math.max(0, now - row.taken) : 0);
const used = (row) => (row.used ? `${row.used.cpu_secs.toFixed(0)} s CPU, ${row.used.mem_mb} MB` : "");
const result = (row) => (row.state === "COMPLETED" ? "" : row.exit === "0:0" ? row.why : [`exit ${row.exit}`, row.why].filter(Boolean).join(", "));

// What a row says beside number and name: headings, and what stands below them. Elapsed time goes on by itself.
const COLUMNS = {
  running: [["Size", size], ["Used", used], ["Elapsed", null]],
  waiting: [["Turn", (row) => String(row.turn)], ["Size", size], ["Why it waits", (row) => row.why], ["Expected start", (row) => moment(row.expected)]],
  ended: [["State", (row) => row.state], ["Elapsed", (row) => duration(row.elapsed_ms)], ["Ended", (row) => moment(row.end)], ["How", result]],
};
COLUMNS.history = [["User", (row) => row.user], ...COLUMNS.ended, ["Used", used]];

// What is found in the history is left alone.
const can = (kind) => kind !== "history";

const open = new Set();

function table(kind, title) {
  const heads = ["Job", "Name", ...COLUMNS[kind].map(([head]) => head), ...(can(kind) ? ["Do"] : [])];
  const head = el("tr", { role: "row" }, ...heads.map((text) => el("th", { role: "columnheader", scope: "col" }, text)));
  const body = el("tbody", { role: "rowgroup" });
  const whole = el("table", { role: "table", "aria-label": title }, el("thead", { role: "rowgroup" }, head), body);
  whole.body = body;
  return whole;
}

const cell = (head, ...content) => el("td", { role: "cell", "data-head": head }, ...content);

function elapsedBar(row) {
  const bar = row.limit_secs ? el("progress", { max: row.limit_secs * 1000, "aria-label": `time of job ${row.label}` }) : undefined;
  const text = el("span");
  const whole = cell("Elapsed", text, bar);
  whole.tell = (shown, now) => {
    const ms = elapsed(shown, now);
    say(text, duration(ms) + (shown.limit_secs ? ` of ${duration(shown.limit_secs * 1000)} ` : ""));
    if (bar) bar.value = Math.min(ms, shown.limit_secs * 1000);
  };
  return whole;
}

function make(kind, row) {
  const tr = el("tr", { role: "row", "data-job": row.label });
  tr.append(cell("Job", link(row)), cell("Name", row.name));
  tr.cells_ = COLUMNS[kind].map(([head, tell]) => (tell ? cell(head) : elapsedBar(row)));
  tr.buttons = cell("Do");
  tr.append(...tr.cells_, ...(can(kind) ? [tr.buttons] : []));
  return tr;
}

function update(kind, tr, row, now) {
  attribute(tr, "data-state", row.state);
  attribute(tr, "data-failed", hasFailed(row) && "");
  attribute(tr, "class", row.inside ? "inside" : undefined);
  say(tr.children[0].firstChild, row.label);
  attribute(tr.children[0].firstChild, "href", `#/job/${encodeURIComponent(row.target)}`);
  tr.cells_.forEach((td, at) => {
    const tell = COLUMNS[kind][at][1];
    if (tell) say(td, tell(row));
    else td.tell(row, now);
  });
  buttons(tr.buttons, row);
  tr.row = row;
}

// The buttons of a row, for what it is now.
export function buttons(parent, row) {
  const actions = ACTIONS[row.state]?.(row) ?? [];
  parent.row = row;
  keyed(parent, actions, (action) => action, (action) =>
    el("button", { type: "button", "aria-label": `${action} job ${row.label}`, onclick: () => act(action, parent.row) }, action));
}

// Rows with those of one array together, under a row that tells how far it is.
function grouped(rows, arrays) {
  const counts = new Map();
  for (const row of rows) if (row.array) counts.set(row.array, (counts.get(row.array) ?? 0) + row.tasks);
  const items = [];
  const seen = new Set();
  for (const row of rows) {
    const progress = row.array && arrays[row.array];
    if (!row.array || (counts.get(row.array) < 2 && !progress)) {
      items.push(row);
    } else if (!seen.has(row.array)) {
      seen.add(row.array);
      items.push({ group: row.array, first: row, progress, count: counts.get(row.array), failed: rows.find((other) => other.array === row.array && other.end && other.state !== "COMPLETED") });
      if (open.has(row.array)) items.push(...rows.filter((other) => other.array === row.array).map((other) => ({ ...other, inside: true })));
    }
  }
  return items;
}

function makeGroup(kind, item, again) {
  const toggle = () => {
    if (!open.delete(item.group)) open.add(item.group);
    again();
  };
  const tr = el("tr", { role: "row", class: "group", "data-array": item.group });
  tr.button = el("button", { type: "button", "aria-expanded": "false", onclick: toggle }, `${item.group}_[…]`);
  tr.bar = el("progress", { "aria-label": `progress of array ${item.group}`, max: 1 });
  tr.text = el("span");
  const span = COLUMNS[kind].length;
  tr.buttons = cell("Do");
  tr.append(cell("Job", tr.button), cell("Name", item.first.name), el("td", { role: "cell", colspan: span, "data-head": "Array" }, tr.bar, " ", tr.text), ...(can(kind) ? [tr.buttons] : []));
  return tr;
}

function updateGroup(tr, item) {
  attribute(tr.button, "aria-expanded", open.has(item.group));
  const progress = item.progress;
  const done = progress ? progress.total - progress.waiting - progress.running : item.count;
  tr.bar.max = progress ? progress.total : item.count;
  tr.bar.value = done;
  say(tr.text, progress
    ? `${done} of ${progress.total} done, ${progress.running} running, ${progress.waiting} waiting`
    : `${item.count} tasks ended`);
  const last = { ...item.first, label: String(item.group), target: String(item.group) };
  if (!progress && item.failed) buttons(tr.buttons, { ...last, state: item.failed.state });
  else if (progress) buttons(tr.buttons, { ...item.first, label: String(item.group), target: String(item.group), state: "PENDING", reason: item.first.reason });
  else tr.buttons.replaceChildren();
}

// Shows rows in the element with this id. `again` is called when a row was opened.
export function show(id, kind, title, rows, arrays, again) {
  const parent = by(id);
  parent.table ??= table(kind, title);
  if (!rows.length) {
    if (parent.table.isConnected || !parent.firstChild) parent.replaceChildren(el("p", { class: "none" }, "none"));
    return;
  }
  if (!parent.table.isConnected) parent.replaceChildren(parent.table);
  const now = Date.now();
  keyed(
    parent.table.body,
    grouped(rows, arrays),
    (item) => (item.group ? `array ${item.group}` : `job ${item.id} ${item.tasks > 1}`),
    (item) => (item.group ? makeGroup(kind, item, again) : make(kind, item)),
    (tr, item) => (item.group ? updateGroup(tr, item) : update(kind, tr, item, now)),
  );
}

// The clock goes on for what runs.
export function tick() {
  for (const tr of by("running").table?.body.children ?? []) {
    if (tr.row) tr.cells_.forEach((td) => td.tell?.(tr.row, Date.now()));
  }
}

const says = (row) => `${row.label} ${row.name} ${row.user} ${row.state} ${row.partition}`.toLowerCase();
export const matching = (rows, words) => rows.filter((row) => words.every((word) => says(row).includes(word)));
