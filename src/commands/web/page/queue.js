// The queue: one list in three groups, with chips, a filter and a selection.

import { attribute, by, el, keyed, say } from "./dom.js";
import { isPhone, List } from "./list.js";
import { showSelection } from "./menu.js";
import * as rows from "./rows.js";
import { icon, isOver, kindOf } from "./states.js";
import { counted, grouped } from "./words.js";

const COLUMNS = ["cpus", "mem", "gpu", "time", "at"];
const HEADS = {
  running: ["Running", "Progress", ["CPUs", "Memory", "GPU", "Time", "Ends by"]],
  pending: ["Pending", "Reason", ["CPUs", "Memory", "GPUs", "Limit", "Starts"]],
  ended: ["Ended in the last day", "Result", ["CPUs", "Memory", "GPU", "Took", "Ended"]],
};
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
let shown = [];
// The row that had the focus last, which may have been scrolled out of sight.
let visited;

const chipOf = (row) => ({ dependency: "pending", never: "pending" })[kindOf(row)] ?? kindOf(row);
const keyOf = (item) => (item.array ? `array ${item.array}` : `job ${item.row.id} ${item.row.tasks > 1}`);

// What the rows need to know of the view.
const view = {
  isOpen: (array) => open.has(array),
  isPicked: (item) => picked.has(keyOf(item)),
  toggle(array) {
    if (!open.delete(array)) open.add(array);
    again();
  },
  pick(item, is_on) {
    if (is_on) picked.set(keyOf(item), item);
    else picked.delete(keyOf(item));
    again();
  },
};

// Words match anywhere; partition:gpu, user:, state: and name: match one field.
function matcher(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return undefined;
  const field = (row, name) => String(row[name] ?? "").toLowerCase();
  const all = (row) => `${row.label} ${row.name} ${row.user} ${row.state} ${row.partition} ${row.reason}`.toLowerCase();
  return (row) =>
    words.every((word) => {
      const [, name, rest] = /^(partition|user|state|name):(.*)$/.exec(word) ?? [];
      return name ? field(row, name).includes(rest) : all(row).includes(word);
    });
}

// Groups the tasks of each array under one item, in the group of its most active task.
function itemsOf(picture, fits) {
  const arrays = new Map();
  const items = { running: [], pending: [], ended: [] };
  for (const group of Object.keys(items)) {
    for (const row of picture[group]) {
      if (fits && !fits(row)) continue;
      const known = row.array && arrays.get(row.array);
      if (known) {
        known.members.push(row);
        continue;
      }
      const item = row.array ? { array: row.array, group, first: row, row, members: [row] } : { row };
      if (row.array) arrays.set(row.array, item);
      items[group].push(item);
    }
  }
  for (const [group, list] of Object.entries(items))
    items[group] = list.flatMap((item) => (item.array ? opened(item, picture) : item));
  return items;
}

function opened(item, picture) {
  const { array, first, members } = item;
  const known = picture.arrays[array];
  if (members.length === 1 && first.tasks === 1 && !(known?.total > 1)) return { row: first };
  const failed = members.filter((row) => kindOf(row) === "failed");
  item.progress = known ?? {
    total: members.reduce((all, row) => all + row.tasks, 0),
    waiting: 0,
    running: 0,
    failed: failed.length,
  };
  // The row of an ended array is that of a failed task, if there is one.
  const sample = item.group === "ended" && failed.length ? failed[0] : first;
  item.row = { ...sample, label: String(array), target: String(array) };
  if (!open.has(array)) return item;
  return [item, ...members.map((row) => ({ row, inside: true }))];
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
  const none = el("p", { class: "none", role: "presentation" }, "none");
  const more = el("p", { class: "fold", role: "presentation", hidden: true });
  const list = new List(body, {
    keyOf,
    make: () => rows.make(view),
    update: (tr, item) => rows.update(tr, item, view),
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
    if (is_on && !item.inside) picked.set(keyOf(item), item);
    else picked.delete(keyOf(item));
  }
  again();
}

function chips(picture, fits) {
  // The tasks of an array count once in each state.
  const keys = Object.fromEntries(Object.keys(CHIPS).map((name) => [name, new Set()]));
  for (const group of ["running", "pending", "ended"]) {
    for (const row of picture[group]) {
      if (fits && !fits(row)) continue;
      const key = row.array ?? row.id;
      keys[chipOf(row)].add(key);
      keys.all.add(key);
    }
  }
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
      say(button.lastChild, grouped(keys[name].size));
      attribute(button, "aria-pressed", String(chip === name));
    },
  );
  say(by("matching"), fits ? counted(keys.all.size, "job") : "");
}

function fold(group, items) {
  const is_folded = group.name === "ended" && isPhone() && !unfolded && items.length > FOLD;
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
  if (is_folded) say(group.more.firstChild, `Show all ${items.length} that ended`);
  return is_folded ? items.slice(0, FOLD) : items;
}

// A job that has ended or left is no longer selected under its old state.
function renewPicked() {
  const current = new Map(picked.size ? shown.map((item) => [keyOf(item), item]) : []);
  for (const key of picked.keys()) {
    if (current.has(key)) picked.set(key, current.get(key));
    else picked.delete(key);
  }
  showSelection(
    [...picked.values()].map((item) => item.row),
    clearPicked,
  );
}

export function clearPicked() {
  const was = picked.size;
  picked.clear();
  if (was) again();
  return was > 0;
}

// Shows the queue. `redo` is called when the user changes what is shown, `ask` to load the pending jobs that are missing.
export function show(picture, redo, ask) {
  again = redo;
  if (!groups) {
    groups = Object.fromEntries(Object.keys(HEADS).map((name) => [name, makeGroup(name)]));
    by("jobs").replaceChildren(...Object.values(groups).map((group) => group.element));
    by("jobs").addEventListener("focusin", (event) => {
      visited = event.target.closest(".row")?.key;
    });
    addEventListener("scroll", draw, { passive: true });
    addEventListener("resize", () => again());
  }
  picture.pending.forEach((row, at) => {
    row.turn = at + 1;
  });
  const words = matcher(by("filter").value);
  const fits = chip === "all" ? words : (row) => chipOf(row) === chip && (!words || words(row));
  chips(picture, words);
  const items = itemsOf(picture, fits);
  shown = Object.values(items).flat();
  for (const group of Object.values(groups)) {
    const list = items[group.name];
    const is_whole = group.name !== "pending" || fits || picture.waiting_count <= picture.pending.length;
    say(group.count, String(is_whole ? list.filter((item) => !item.inside).length : picture.waiting_count));
    group.none.hidden = list.length > 0;
    group.list.set(fold(group, list));
    group.all.checked = list.length > 0 && list.every((item) => item.inside || picked.has(keyOf(item)));
  }
  const missing = picture.waiting_count - picture.pending.length;
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
