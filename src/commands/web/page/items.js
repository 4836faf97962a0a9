// The items of the queue: jobs, and arrays with their rows. A row is added or removed at the cost of finding its place.

import { hasFailed, isOver, kindOf } from "./states.js";

export const GROUPS = ["running", "pending", "ended"];
export const groupOf = (row) => (isOver(row) ? "ended" : row.state === "PENDING" ? "pending" : "running");
export const ORDER = {
  running: (a, b) => a.start - b.start || a.id - b.id,
  pending: (a, b) => a.later - b.later || b.priority - a.priority || a.id - b.id,
  ended: (a, b) => b.end - a.end || b.id - a.id,
};
// The chip that a row belongs to.
const CHIPS = { dependency: "pending", never: "pending" };
export const chipOf = (row) => (row.state === "SUSPENDED" ? "running" : (CHIPS[kindOf(row)] ?? kindOf(row)));

const lists = () => ({ running: [], pending: [], ended: [] });
const itself = (row) => row;
const firstOf = (item) => item.first;

// Returns the place of a row in an ordered list, or the place to insert it.
export function place(list, row, order, rowOf = itself) {
  let [from, to] = [0, list.length];
  while (from < to) {
    const middle = (from + to) >> 1;
    if (order(rowOf(list[middle]), row) < 0) from = middle + 1;
    else to = middle;
  }
  return from;
}

// Rows in one ordered list for each group.
export class Ordered {
  constructor() {
    Object.assign(this, lists());
  }

  add(row) {
    const group = groupOf(row);
    this[group].splice(place(this[group], row, ORDER[group]), 0, row);
  }

  remove(row) {
    const group = groupOf(row);
    const found = place(this[group], row, ORDER[group]);
    if (this[group][found]?.id === row.id) this[group].splice(found, 1);
  }

  fill(rows) {
    for (const group of GROUPS) this[group] = [];
    for (const row of rows) this[groupOf(row)].push(row);
    for (const group of GROUPS) this[group].sort(ORDER[group]);
  }
}

// The number of jobs and arrays under each chip. The tasks of an array count once in each state.
export class Counts {
  constructor(fits) {
    this.fits = fits;
    this.clear();
  }

  clear() {
    this.chips = new Map();
  }

  size(chip) {
    return this.chips.get(chip)?.size ?? 0;
  }

  add(row) {
    this.change(row, 1);
  }

  remove(row) {
    this.change(row, -1);
  }

  change(row, by) {
    if (this.fits && !this.fits(row)) return;
    const key = row.array ?? row.id;
    for (const chip of ["all", chipOf(row)]) {
      if (!this.chips.has(chip)) this.chips.set(chip, new Map());
      const counts = this.chips.get(chip);
      const count = (counts.get(key) ?? 0) + by;
      if (count > 0) counts.set(key, count);
      else counts.delete(key);
    }
  }
}

// Jobs and arrays in one ordered list for each group. An array is in the group of its most active row.
export class Items extends Counts {
  clear() {
    Object.assign(this, lists());
    this.known = new Map();
  }

  get(key) {
    return this.known.get(key);
  }

  change(row, by) {
    if (this.fits && !this.fits(row)) return;
    const slot = row.array ? `array ${row.array}` : `job ${row.id}`;
    const item = this.known.get(slot) ?? { slot, rows: new Ordered(), tasks: 0, failed: 0, version: 0 };
    item.array = row.array;
    if (by > 0) item.rows.add(row);
    else item.rows.remove(row);
    item.tasks += by * row.tasks;
    item.failed += hasFailed(row) ? by : 0;
    item.version += 1;
    const group = GROUPS.find((name) => item.rows[name].length);
    const first = group && item.rows[group][0];
    if (item.first === first) return;
    if (item.first) this.take(item);
    Object.assign(item, { group, first });
    if (first) this.put(item);
    else this.known.delete(slot);
  }

  // Finds an item in its list by its first row.
  find(item) {
    return place(this[item.group], item.first, ORDER[item.group], firstOf);
  }

  take(item) {
    const [list, at] = [this[item.group], this.find(item)];
    if (list[at] === item) list.splice(at, 1);
  }

  put(item) {
    this[item.group].splice(this.find(item), 0, item);
    this.known.set(item.slot, item);
  }
}

// Words match anywhere; partition:gpu, user:, state: and name: match one field.
export function matcher(text) {
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
