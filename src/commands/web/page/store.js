// The queue as the server sends it, and its rows in order. A patch touches only the rows that it names.

import { GROUPS, ORDER, Ordered, place } from "./items.js";
import { isOver } from "./states.js";
import { setClock } from "./words.js";

const DAY = 24 * 60 * 60 * 1000;

let sent = { rows: {}, arrays: {} };
// The ended rows of the last day, some of which have left the queue.
const ended = new Map();
const all = new Ordered();
// Lists that are kept like `all`: { clear, add, remove }.
let others = [];

// Applies a JSON merge patch. Unchanged objects keep their identity.
function merged(old, patch) {
  if (patch === null || typeof patch !== "object" || Array.isArray(patch)) return patch;
  const now = { ...old };
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) delete now[name];
    else now[name] = merged(now[name], value);
  }
  return now;
}

function add(row) {
  for (const list of [all, ...others]) list.add(row);
}

function remove(row) {
  for (const list of [all, ...others]) list.remove(row);
}

// Keeps other lists of the same rows from now on. They are filled in the order of their groups.
export function keep(lists) {
  others = lists;
  refill();
}

function refill() {
  for (const group of GROUPS) for (const row of all[group]) for (const list of others) list.add(row);
}

function replace(id, row) {
  const old = sent.rows[id] ?? ended.get(Number(id));
  if (old) remove(old);
  if (row) sent.rows[id] = row;
  else delete sent.rows[id];
  if (row && isOver(row)) ended.set(row.id, row);
  else if (row) ended.delete(row.id);
  const shown = row ?? ended.get(Number(id));
  if (shown) add(shown);
}

function whole(queue) {
  sent = { ...queue, rows: queue.rows ?? {} };
  for (const row of Object.values(sent.rows)) {
    if (isOver(row)) ended.set(row.id, row);
    else ended.delete(row.id);
  }
  all.fill([...Object.values(sent.rows).filter((row) => !isOver(row)), ...ended.values()]);
  for (const list of others) list.clear();
  refill();
}

export function apply(told) {
  setClock(told.now);
  if (told.event === "whole") return whole(told.queue);
  const { rows, ...rest } = told.queue;
  for (const [id, patch] of Object.entries(rows ?? {}))
    replace(id, patch === null ? undefined : merged(sent.rows[id], patch));
  sent = { ...merged(sent, rest), rows: sent.rows };
}

// Adds ended jobs that have left the queue.
export function addEnded(rows) {
  for (const row of rows) {
    if (ended.has(row.id) || sent.rows[row.id]) continue;
    ended.set(row.id, row);
    add(row);
  }
}

function forgetOld(now) {
  while (all.ended.length && all.ended.at(-1).end <= now - DAY) {
    const row = all.ended.at(-1);
    ended.delete(row.id);
    remove(row);
  }
}

const find = (id) => sent.rows[id] ?? ended.get(id);

// The reasons of a job that others are behind: the first of the line waits for these.
const HEADS = new Set(["Resources", "Exclusive", "Licenses", "Reservation"]);
const FAR = 64;

// Returns the job that a pending one is behind, and how many more are before it. Undefined for the next in line.
export function ahead(row) {
  const turn = place(all.pending, row, ORDER.pending);
  const before = all.pending.slice(0, Math.min(turn, FAR));
  const first = before.find((one) => one.partition === row.partition && HEADS.has(one.reason)) ?? before[0];
  return first && { first, more: turn - 1 };
}

// Returns the queue, or undefined before the first event.
export function picture(now) {
  if (!sent.host) return undefined;
  forgetOld(now);
  return {
    running: all.running,
    pending: all.pending,
    ended: all.ended,
    host: sent.host,
    arrays: sent.arrays ?? {},
    waiting_count: sent.waiting_count,
    find,
  };
}
