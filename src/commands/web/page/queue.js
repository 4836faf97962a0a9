// Tables of running, pending and ended jobs. The tasks of an array are grouped under one row that expands.

import { ACTIONS, act, hasFailed } from "./ask.js";
import { attribute, by, clock, duration, el, elapsed, keyed, link, moment, say, size } from "./dom.js";

const used = (row) => (row.used ? `${row.used.cpu_secs.toFixed(0)} s CPU, ${row.used.mem_mb} MB` : "");
const result = (row) => (row.state === "COMPLETED" ? "" : row.exit === "0:0" ? row.why : [`exit ${row.exit}`, row.why].filter(Boolean).join(", "));

// The columns after the ID and the name: their headings and contents. The elapsed time is updated by `tick`.
const COLUMNS = {
  running: [["Size", size], ["Used", used], ["Elapsed", null]],
  waiting: [["Turn", (row) => String(row.turn)], ["Size", size], ["Reason", (row) => row.why], ["Expected start", (row) => moment(row.expected)]],
  ended: [["State", (row) => row.state], ["Elapsed", (row) => duration(elapsed(row, clock()))], ["Ended", (row) => moment(row.end)], ["Result", result]],
};
COLUMNS.history = [["User", (row) => row.user], ...COLUMNS.ended, ["Used", used]];

// Jobs in the history have no action buttons.
const can = (kind) => kind !== "history";

const open = new Set();

function table(kind, title) {
  const heads = ["Job", "Name", ...COLUMNS[kind].map(([head]) => head), ...(can(kind) ? ["Actions"] : [])];
  const head = el("tr", { role: "row" }, ...heads.map((text) => el("th", { role: "columnheader", scope: "col" }, text)));
  const body = el("tbody", { role: "rowgroup" });
  const whole = el("table", { role: "table", "aria-label": title }, el("thead", { role: "rowgroup" }, head), body);
  whole.body = body;
  return whole;
}

const cell = (head, ...content) => el("td", { role: "cell", "data-head": head }, ...content);

function elapsedBar(row) {
  const bar = row.limit_secs ? el("progress", { max: row.limit_secs * 1000, "aria-label": `elapsed time of job ${row.label}` }) : undefined;
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
  tr.buttons = cell("Actions");
  tr.append(...tr.cells_, ...(can(kind) ? [tr.buttons] : []));
  return tr;
}

// A row with the same identity has not changed, except perhaps its turn.
function update(kind, tr, { row, inside }) {
  if (tr.row === row && tr.turn === row.turn && tr.inside === inside) return;
  Object.assign(tr, { row, turn: row.turn, inside });
  attribute(tr, "data-state", row.state);
  attribute(tr, "data-failed", hasFailed(row) && "");
  attribute(tr, "class", inside ? "inside" : undefined);
  say(tr.children[0].firstChild, row.label);
  say(tr.children[1], row.name);
  attribute(tr.children[0].firstChild, "href", `#/job/${encodeURIComponent(row.target)}`);
  tr.cells_.forEach((td, at) => {
    const tell = COLUMNS[kind][at][1];
    if (tell) say(td, tell(row));
    else td.tell(row, clock());
  });
  buttons(tr.buttons, row);
}

// Updates the buttons of a row to its current state.
export function buttons(parent, row) {
  const actions = ACTIONS[row.state]?.(row) ?? [];
  parent.row = row;
  keyed(parent, actions, (action) => action, (action) =>
    el("button", { type: "button", "aria-label": `${action} job ${row.label}`, onclick: () => act(action, parent.row) }, action));
}

// Groups the rows of each array under a row that shows its progress.
function grouped(rows, arrays) {
  const counts = new Map();
  for (const row of rows) if (row.array) counts.set(row.array, (counts.get(row.array) ?? 0) + row.tasks);
  const items = [];
  const seen = new Set();
  for (const row of rows) {
    const progress = row.array && arrays[row.array];
    if (!row.array || (counts.get(row.array) < 2 && !progress)) {
      items.push({ row });
    } else if (!seen.has(row.array)) {
      seen.add(row.array);
      items.push({ group: row.array, first: row, progress, count: counts.get(row.array), failed: rows.find((other) => other.array === row.array && other.end && other.state !== "COMPLETED") });
      if (open.has(row.array)) items.push(...rows.filter((other) => other.array === row.array).map((other) => ({ row: other, inside: true })));
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
  tr.buttons = cell("Actions");
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
    ? `${done} of ${progress.total} done, ${progress.running} running, ${progress.waiting} pending`
    : `${item.count} tasks ended`);
  const last = { ...item.first, label: String(item.group), target: String(item.group) };
  if (!progress && item.failed) buttons(tr.buttons, { ...last, state: item.failed.state });
  else if (progress) buttons(tr.buttons, { ...item.first, label: String(item.group), target: String(item.group), state: "PENDING", reason: item.first.reason });
  else tr.buttons.replaceChildren();
}

// Shows rows in the element with this ID. `again` is called when a row is expanded or collapsed.
export function show(id, kind, title, rows, arrays, again) {
  const parent = by(id);
  parent.table ??= table(kind, title);
  if (!rows.length) {
    if (parent.table.isConnected || !parent.firstChild) parent.replaceChildren(el("p", { class: "none" }, "none"));
    return;
  }
  if (!parent.table.isConnected) parent.replaceChildren(parent.table);
  keyed(
    parent.table.body,
    grouped(rows, arrays),
    (item) => (item.group ? `array ${item.group}` : `job ${item.row.id} ${item.row.tasks > 1}`),
    (item) => (item.group ? makeGroup(kind, item, again) : make(kind, item.row)),
    (tr, item) => (item.group ? updateGroup(tr, item) : update(kind, tr, item)),
  );
}

// Updates the elapsed times of running jobs.
export function tick() {
  for (const tr of by("running").table?.body.children ?? []) {
    if (tr.row) tr.cells_.forEach((td) => td.tell?.(tr.row, clock()));
  }
}

const says = (row) => `${row.label} ${row.name} ${row.user} ${row.state} ${row.partition}`.toLowerCase();
export const matching = (rows, words) => rows.filter((row) => words.every((word) => says(row).includes(word)));
