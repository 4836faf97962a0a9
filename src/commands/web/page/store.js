// The queue as the server sends it, and its rows in order. A patch touches only the rows that it names.

import { setClock } from "./words.js";
import { isOver } from "./states.js";

const DAY = 24 * 60 * 60 * 1000;

let sent = { rows: {}, arrays: {} };
// The ended rows of the last day, some of which have left the queue.
const ended = new Map();
const byGroup = { running: [], pending: [], ended: [] };
const group = (row) => (isOver(row) ? "ended" : row.state === "PENDING" ? "pending" : "running");
const ORDER = {
  running: (a, b) => a.start - b.start || a.id - b.id,
  pending: (a, b) => a.later - b.later || b.priority - a.priority || a.id - b.id,
  ended: (a, b) => b.end - a.end || b.id - a.id,
};

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

// Returns the place of a row in an ordered list, or the place to insert it.
function place(list, row, order) {
  let [from, to] = [0, list.length];
  while (from < to) {
    const middle = (from + to) >> 1;
    if (order(list[middle], row) < 0) from = middle + 1;
    else to = middle;
  }
  return from;
}

function remove(row) {
  const list = byGroup[group(row)];
  const found = place(list, row, ORDER[group(row)]);
  if (list[found]?.id === row.id) list.splice(found, 1);
}

function add(row) {
  const name = group(row);
  byGroup[name].splice(place(byGroup[name], row, ORDER[name]), 0, row);
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
  const all = [...Object.values(sent.rows).filter((row) => !isOver(row)), ...ended.values()];
  for (const name of Object.keys(byGroup)) byGroup[name] = all.filter((row) => group(row) === name).sort(ORDER[name]);
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
  const list = byGroup.ended;
  while (list.length && list.at(-1).end <= now - DAY) ended.delete(list.pop().id);
}

// Returns the queue, or undefined before the first event.
export function picture(now) {
  if (!sent.host) return undefined;
  forgetOld(now);
  return {
    ...byGroup,
    host: sent.host,
    arrays: sent.arrays ?? {},
    waiting_count: sent.waiting_count,
    find: (id) => sent.rows[id] ?? ended.get(id),
  };
}
