// A row of the queue: a job, or an array with its progress.

import { attribute, el, link, say, vary } from "./dom.js";
import { errorOf, lineOf } from "./lines.js";
import { openMenu } from "./menu.js";
import { endOf, isClose, linked, sentence } from "./sentence.js";
import { codeOf, hasFailed, iconOf, isOver, kindOf, labelOf } from "./states.js";
import { ahead } from "./store.js";
import { at, clock, elapsed, memory, ranges, span } from "./words.js";

const cell = (name, ...content) => el("div", { role: "cell", class: name }, ...content);

// An amount in use, of the requested amount, above a bar.
function amount(name) {
  const [now, of, bar] = [el("b"), el("span"), el("i", { class: "bar" })];
  const whole = cell(`num ${name}`, now, of, bar);
  whole.tell = (text, rest, part, full) => {
    say(now, text);
    say(of, rest);
    bar.hidden = part === undefined;
    if (part !== undefined) vary(bar, { part: `${Math.round(Math.min(1, part) * 100)}%` });
    whole.classList.toggle("full", Boolean(full));
  };
  return whole;
}

export function make(view) {
  const pick = el("input", { type: "checkbox", onchange: (event) => view.pick(tr.item, event.target.checked) });
  const button = el(
    "button",
    {
      type: "button",
      class: "menu",
      "aria-haspopup": "menu",
      "aria-expanded": "false",
      onclick: () => openMenu(button, [tr.face.row], tr.face.row.name || tr.face.row.label),
    },
    "⋯",
  );
  const tr = el("div", {
    role: "row",
    class: "row",
    oncontextmenu: (event) => {
      event.preventDefault();
      openMenu(button, [tr.face.row], tr.face.row.name || tr.face.row.label);
    },
  });
  Object.assign(tr, {
    pick,
    button,
    open: link({ target: "" }, ""),
    state: cell("state"),
    number: cell("id one-line"),
    why: cell("why one-line"),
    cpus: amount("cpus"),
    mem: amount("mem"),
    gpu: amount("gpu"),
    time: amount("time"),
    at: cell("num at"),
  });
  tr.open.classList.add("one-line");
  tr.name = cell("name", tr.open);
  tr.append(
    cell("pick", pick),
    tr.state,
    tr.number,
    tr.name,
    tr.why,
    tr.cpus,
    tr.mem,
    tr.gpu,
    tr.time,
    tr.at,
    cell("act", button),
  );
  return tr;
}

function usage(tr, row) {
  const [used, busy] = [row.used, row.busy_cpus];
  if (row.state === "PENDING") {
    tr.cpus.tell(String(row.cpus), "");
    tr.mem.tell(memory(row.mem_mb), "");
    tr.gpu.tell(row.gpus ? String(row.gpus) : "", "");
    tr.time.tell(row.limit_secs ? span(row.limit_secs * 1000) : "no limit", "");
    return;
  }
  const has = busy !== null && busy !== undefined;
  tr.cpus.tell(has ? busy.toFixed(1) : "", `${has ? " of " : ""}${row.cpus}`, has ? busy / row.cpus : undefined);
  // Much less than the request needs its own unit.
  const gb = (mb) => (row.mem_mb < 1024 ? String(Math.round(mb)) : mb < 100 ? memory(mb) : (mb / 1024).toFixed(1));
  tr.mem.tell(
    used ? gb(used.mem_mb) : "",
    `${used ? " of " : ""}${memory(row.mem_mb)}`,
    used ? used.mem_mb / row.mem_mb : undefined,
    used && used.mem_mb > row.mem_mb * 0.95,
  );
  const gpu = used?.gpu_percent;
  const names = row.gpu_ids.length ? `GPU ${ranges(row.gpu_ids)}` : row.gpus ? `of ${row.gpus}` : "";
  const known = gpu !== null && gpu !== undefined && row.gpus > 0;
  tr.gpu.tell(known ? `${gpu} %` : "", names ? ` ${names}` : "", known ? gpu / 100 / row.gpus : undefined);
  tick(tr, row);
}

// Updates the elapsed time.
export function tick(tr, row = tr.face?.row) {
  if (!row || tr.face.array || row.state === "PENDING") return;
  const [ms, limit] = [elapsed(row, clock()), row.limit_secs * 1000];
  tr.time.tell(
    span(ms),
    limit && !isOver(row) ? ` of ${span(limit)}` : "",
    limit && !isOver(row) ? ms / limit : undefined,
    isClose(row),
  );
  if (!isOver(row)) progress(tr, row);
}

// What a running job does: the last line of its output, unless its time limit is close.
function progress(tr, row) {
  const line = isClose(row) ? undefined : lineOf(row);
  tr.why.classList.toggle("warn", isClose(row));
  tr.why.classList.toggle("code", Boolean(line));
  say(tr.why, line ?? sentence(row));
  attribute(tr.why, "title", tr.why.textContent);
}

function when(row) {
  if (isOver(row)) return at(row.end);
  return row.state === "PENDING" ? at(row.expected) || "–" : at(endOf(row)) || "–";
}

function reason(tr, row, before, error) {
  const text = sentence(row, before);
  if (isOver(row))
    tr.why.replaceChildren(
      hasFailed(row) ? el("b", {}, labelOf(row)) : labelOf(row),
      text && text !== labelOf(row) ? ` ${text}` : "",
      error ? el("span", { class: "code" }, ` ${error}`) : "",
    );
  else if (row.state === "PENDING") tr.why.replaceChildren(...linked(text));
  else return progress(tr, row);
  tr.why.classList.remove("warn", "code");
  attribute(tr.why, "title", [text, error, row.reason === "None" ? "" : row.reason].filter(Boolean).join(" · "));
}

// The progress of an array in words and as a bar.
function parts(tr, item) {
  const { total, waiting, running, failed } = item.progress;
  const done = Math.max(0, total - waiting - running - failed);
  tr.parts ??= el(
    "span",
    { class: "parts", "aria-hidden": "true" },
    ...["completed", "failed", "running"].map((kind) => el("i", { "data-kind": kind })),
  );
  tr.words ??= el("span", { class: "one-line" }, el("span"), el("span", { class: "bad" }), el("span"));
  if (!tr.parts.isConnected) tr.why.replaceChildren(el("span", { class: "stack" }, tr.parts, tr.words));
  [done, failed, running].forEach((count, i) =>
    vary(tr.parts.children[i], { part: `${(count / Math.max(1, total)) * 100}%` }),
  );
  const words = [
    `${done} of ${total} done${failed ? ", " : ""}`,
    failed && `${failed} failed`,
    running && `, ${running} running`,
  ];
  words.forEach((text, i) => say(tr.words.children[i], text || ""));
  attribute(tr.why, "title", `${tr.words.textContent}${waiting ? `, ${waiting} pending` : ""}`);
}

function updateArray(tr, item, view, before) {
  tr.tasks ??= el(
    "button",
    { type: "button", class: "tasks", onclick: () => view.toggle(tr.face.array) },
    el("span"),
    el("span", { class: "word" }, "tasks"),
    el("span"),
  );
  if (!tr.tasks.isConnected) tr.name.append(tr.tasks);
  const expanded = view.isOpen(item.array);
  say(tr.tasks.firstChild, String(item.progress.total));
  say(tr.tasks.lastChild, expanded ? "▴" : "▾");
  attribute(tr.tasks, "aria-expanded", String(expanded));
  attribute(tr.tasks, "aria-label", `${item.progress.total} tasks of array ${item.array}`);
  attribute(tr, "data-array", item.array);
  tr.why.classList.remove("warn", "code");
  const row = item.first;
  const { total, waiting } = item.progress;
  if (row.state === "PENDING") {
    reason(tr, row, before);
    const { failed } = item.progress;
    const words = `${total - waiting} of ${total} ended${failed ? `, ${failed} failed` : ""}`;
    if (waiting < total) tr.why.append(el("span", { class: failed ? "bad" : "dim" }, ` · ${words}`));
  } else parts(tr, item);
  tr.cpus.tell("", String(row.cpus));
  tr.mem.tell("", memory(row.mem_mb));
  tr.gpu.tell("", row.gpus ? String(row.gpus) : "");
  tr.time.tell("", row.limit_secs ? `${span(row.limit_secs * 1000)} each` : "");
  say(tr.at, item.group === "ended" ? at(row.end) : item.group === "pending" ? at(row.expected) || "–" : "");
}

// "38_9" becomes "Task 9", and "38_[12-39%3]" becomes "Tasks 12-39".
function taskOf(row) {
  const [, tasks] = /_\[?([^\]%]+)/.exec(row.label) ?? [];
  return tasks ? `${row.tasks > 1 ? "Tasks" : "Task"} ${tasks}` : row.label;
}

// Updates a row to its item, of which `face` is what it shows. An item whose row has kept its identity has not changed,
// except perhaps the jobs ahead of it.
export function update(tr, item, face, view) {
  const { row, inside } = face;
  const is_picked = view.isPicked(item);
  if (tr.pick.checked !== is_picked) tr.pick.checked = is_picked;
  attribute(tr, "data-selected", is_picked && "");
  const source = face.array ? face.first : row;
  const before = source.reason === "Priority" ? ahead(source) : undefined;
  // Other failures name their reason.
  const error = codeOf(row) === "F" && !face.array ? errorOf(row, view.redraw) : undefined;
  const why = source.state === "PENDING" ? sentence(source, before) : (error ?? lineOf(row));
  const sign = face.array ? `${face.version} ${why}` : why;
  const same = tr.source === source && tr.sign === sign && tr.face.inside === inside && tr.face.known === face.known;
  Object.assign(tr, { item, face, source, sign });
  if (same) return;
  const kind = kindOf(row);
  if (tr.shape !== `${kind} ${codeOf(row)}`) tr.state.replaceChildren(iconOf(row));
  tr.shape = `${kind} ${codeOf(row)}`;
  attribute(tr, "data-kind", kind);
  attribute(tr, "data-state", row.state);
  attribute(tr, "data-job", face.array ? undefined : row.label);
  attribute(tr, "data-label", row.label);
  tr.className = `row${isOver(row) ? " ended" : row.state === "PENDING" ? " pending" : ""}${inside ? " inside" : ""}`;
  say(tr.number, inside ? "" : row.label);
  attribute(tr.number, "title", row.label);
  say(tr.open, inside ? taskOf(row) : row.name || row.label);
  attribute(tr.open, "title", row.name);
  attribute(tr.open, "href", `#/job/${encodeURIComponent(row.target)}`);
  attribute(tr.pick, "aria-label", `select job ${row.label}`);
  attribute(tr.button, "aria-label", `actions of job ${row.label}`);
  if (face.array) return void updateArray(tr, face, view, before);
  reason(tr, row, before, error);
  usage(tr, row);
  say(tr.at, when(row));
}
