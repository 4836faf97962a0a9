// The queue: one list in three groups, with chips, a filter and a selection.

import { attribute, by, el, keyed, say } from "./dom.js";
import { chipOf, Counts, GROUPS, Items, matcher } from "./items.js";
import { isPhone, List } from "./list.js";
import { showSelection } from "./menu.js";
import * as rows from "./rows.js";
import { hasFailed, icon, isOver } from "./states.js";
import * as store from "./store.js";
import { counted, grouped } from "./words.js";

const COLUMNS = ["cpus", "mem", "gpu", "time", "at"];
const HEADS = {
  running: ["Running", "Progress", ["CPUs", "Memory", "GPU", "Time", "Ends by"]],
  pending: ["Pending", "Reason", ["CPUs", "Memory", "GPUs", "Limit", "Starts"]],
  ended: ["Ended in the last day", "Result", ["CPUs", "Memory", "GPU", "Took", "Ended"]],
};
const NONE = { running: "No job is running", pending: "No job is pending", ended: "No job has ended in the last day" };
const CHIPS = {
  all: "All",
  running: "Running",
  pending: "Pending",
  held: "Held",
  failed: "Failed",
  completed: "Completed",
  cancelled: "Cancelled",
};
// Ended rows on a phone, until all are requested.
const FOLD = 10;

const open = new Set();
const picked = new Map();
let chip = "all";
let unfolded = false;
let groups;
let again = () => {};
let picture;
// The jobs that the filter selects, and those of them that the chip selects.
let counts = new Counts();
let items = new Items();
// The row that had the focus last, which may have been scrolled out of sight.
let visited;

// An array of which only one task is known is a job.
const isArray = ({ array, inside, tasks }) => array && !inside && (tasks > 1 || picture.arrays[array]?.total > 1);
const keyOf = (item) => (isArray(item) ? `array ${item.array}` : `job ${item.first.id} ${item.first.tasks > 1}`);

// What the rows need to know of the view.
const view = {
  redraw: () => again(),
  isOpen: (array) => open.has(array),
  isPicked: (item) => picked.has(keyOf(item)),
  toggle(array) {
    if (!open.delete(array)) open.add(array);
    again();
  },
  pick(item, is_on) {
    // A copy, as items change with their rows.
    if (is_on) picked.set(keyOf(item), { ...item });
    else picked.delete(keyOf(item));
    again();
  },
};

// Selects what the filter and the chip select. This passes over all rows; a change of the queue does not.
function select() {
  const words = matcher(by("filter").value);
  counts = new Counts(words);
  items = new Items(chip === "all" ? words : (row) => chipOf(row) === chip && (!words || words(row)));
  store.keep([counts, items]);
}

// What a row shows of an item.
function faceOf(item) {
  const { array, first, inside, group, tasks, failed, version } = item;
  if (!isArray(item)) return { row: first, inside };
  const known = picture.arrays[array];
  const progress = { total: tasks, waiting: 0, running: 0, ...known, failed: Math.max(known?.failed ?? 0, failed) };
  // The row of an ended array is that of a failed task, if there is one.
  const sample = group === "ended" && failed ? (item.rows.ended.find(hasFailed) ?? first) : first;
  const row = { ...sample, label: String(array), target: String(array) };
  return { row, array, first, group, known, progress, version };
}

// The rows of an open array, which follow it.
function members(item) {
  if (item.listed?.version !== item.version) {
    const all = GROUPS.flatMap((group) => item.rows[group]).map((first) => ({
      first,
      array: item.array,
      inside: true,
    }));
    item.listed = { version: item.version, all };
  }
  return item.listed.all;
}

// The items of a group, with the rows of open arrays.
function listed(group) {
  const list = items[group];
  const opened = [...open].map((array) => items.get(`array ${array}`)).filter((item) => item?.group === group);
  if (!opened.some(isArray)) return list;
  return list.flatMap((item) => (open.has(item.array) && isArray(item) ? [item, ...members(item)] : [item]));
}

function makeGroup(name) {
  const [title, note, labels] = HEADS[name];
  const all = el("input", {
    type: "checkbox",
    "aria-label": `select all jobs under ${title}`,
    onchange: () => pickAll(name, all.checked),
  });
  const count = el("span", { class: "count", id: `${name}-count` });
  const head = el(
    "div",
    { role: "row", class: "head" },
    el("div", { role: "cell", class: "pick" }, all),
    el("div", { role: "columnheader", class: "title" }, `${title} `, count),
    el("div", { role: "columnheader", class: "why" }, note),
    ...labels.map((label, at) => el("div", { role: "columnheader", class: `num ${COLUMNS[at]}` }, label)),
  );
  const body = el("div", { role: "presentation", id: name });
  const none = el("p", { class: "none", role: "presentation" });
  const more = el("p", { class: "fold", role: "presentation", hidden: true });
  const list = new List(body, {
    keyOf,
    make: () => rows.make(view),
    update: (tr, item) => rows.update(tr, item, faceOf(item), view),
  });
  return {
    name,
    all,
    count,
    list,
    none,
    more,
    element: el("div", { role: "rowgroup", class: "group" }, head, body, none, more),
  };
}

function pickAll(name, is_on) {
  for (const item of groups[name].list.items) {
    if (is_on && !item.inside) picked.set(keyOf(item), { ...item });
    else picked.delete(keyOf(item));
  }
  again();
}

// `missing` is the number of pending jobs that are not loaded.
function chips(missing) {
  keyed(
    by("chips"),
    Object.keys(CHIPS),
    (name) => name,
    (name) => {
      const button = el(
        "button",
        {
          type: "button",
          class: "chip",
          onclick: () => {
            chip = name;
            select();
            again();
          },
        },
        name === "all" ? undefined : icon(name, "F"),
        `${CHIPS[name]} `,
        el("span"),
      );
      return button;
    },
    (button, name) => {
      // Jobs that are not loaded are pending or held.
      const is_least = missing > 0 && (name === "all" || name === "pending" || name === "held");
      say(button.lastChild, grouped(counts.size(name)) + (is_least ? "+" : ""));
      attribute(button, "aria-pressed", String(chip === name));
    },
  );
  say(by("matching"), counts.fits ? counted(counts.size("all"), "job") : "");
}

function fold(group, list) {
  const is_folded = group.name === "ended" && isPhone() && !unfolded && list.length > FOLD;
  group.more.hidden = !is_folded;
  if (is_folded && !group.more.firstChild)
    group.more.append(
      el("button", {
        type: "button",
        onclick: () => {
          unfolded = true;
          again();
        },
      }),
    );
  if (is_folded) say(group.more.firstChild, `Show all ${list.length} that ended`);
  return is_folded ? list.slice(0, FOLD) : list;
}

// Returns a task of an open array as it is now, if it is still listed.
function renewedTask(item) {
  const row = picture.find(item.first.id);
  return row && open.has(row.array) && (!items.fits || items.fits(row)) ? { ...item, first: row } : undefined;
}

// A job that has ended or left is no longer selected under its old state. A changed job has a new item.
function renewPicked() {
  for (const [key, item] of picked) {
    const current = item.inside ? renewedTask(item) : items.get(item.slot);
    const is_same = current && keyOf(current) === key && isOver(current.first) === isOver(item.first);
    if (is_same) picked.set(key, { ...current });
    else picked.delete(key);
  }
  showSelection(
    [...picked.values()].map((item) => faceOf(item).row),
    clearPicked,
  );
}

export function clearPicked() {
  const was = picked.size;
  picked.clear();
  if (was) again();
  return was > 0;
}

function begin() {
  groups = Object.fromEntries(Object.keys(HEADS).map((name) => [name, makeGroup(name)]));
  by("jobs").replaceChildren(...Object.values(groups).map((group) => group.element));
  by("jobs").addEventListener("focusin", (event) => {
    visited = event.target.closest(".row")?.key;
  });
  addEventListener("scroll", draw, { passive: true });
  addEventListener("resize", () => again());
  by("filter").addEventListener("input", () => {
    select();
    again();
  });
  by("clear").addEventListener("click", () => {
    by("filter").value = "";
    chip = "all";
    select();
    again();
    by("filter").focus();
  });
  select();
}

// Shows the queue. `redo` is called when the user changes what is shown, `ask` to load the pending jobs that are missing.
export function show(current, redo, ask) {
  again = redo;
  picture = current;
  if (!groups) begin();
  const is_empty = GROUPS.every((group) => !picture[group].length);
  by("no-jobs").hidden = !is_empty;
  for (const id of ["above-jobs", "jobs"]) by(id).hidden = is_empty;
  const missing = picture.waiting_count - picture.pending.length;
  chips(missing);
  // The filter and the chips select from all jobs.
  if (missing > 0 && (items.fits || counts.fits)) ask();
  by("no-match").hidden = !items.fits || GROUPS.some((group) => items[group].length);
  for (const group of Object.values(groups)) {
    const list = listed(group.name);
    const count = items[group.name].length;
    const is_whole = group.name !== "pending" || items.fits || picture.waiting_count <= picture.pending.length;
    say(group.count, String(is_whole ? count : picture.waiting_count));
    group.none.hidden = count > 0;
    say(group.none, NONE[group.name]);
    // A filter leaves only the groups in which it finds something.
    group.element.hidden = Boolean(items.fits) && count === 0 && !(group.name === "pending" && missing > 0);
    group.list.set(fold(group, list));
    group.all.checked = count > 0 && picked.size >= count && items[group.name].every((item) => picked.has(keyOf(item)));
  }
  const { more } = groups.pending;
  more.hidden = missing <= 0;
  if (missing > 0 && !more.firstChild) more.append(el("button", { type: "button", id: "more-waiting", onclick: ask }));
  if (missing > 0) say(more.firstChild, `Show ${grouped(missing)} more pending jobs`);
  renewPicked();
}

function draw() {
  if (by("view-queue").hidden) return;
  for (const group of Object.values(groups)) group.list.draw();
}

// Updates the elapsed times of the rows near the window.
export function tick() {
  for (const tr of groups?.running.list.element.children ?? []) rows.tick(tr);
}

// Moves the focus by a number of rows; without a focused row, to the first one.
export function move(by_rows) {
  const all = Object.values(groups ?? {}).flatMap((group) => group.list.items.map((item, at) => ({ group, item, at })));
  if (!all.length) return;
  const key = document.activeElement.closest(".row")?.key ?? visited;
  const from = all.findIndex(({ item }) => keyOf(item) === key);
  const to = from < 0 ? 0 : Math.min(all.length - 1, Math.max(0, from + by_rows));
  all[to].group.list.reach(all[to].at)?.open.focus();
}

export const current = () => document.activeElement.closest("#jobs .row");
export const isQueue = () => !by("view-queue").hidden;
