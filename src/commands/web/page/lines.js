// The last line of output of each running job, and the last line of the errors of failed jobs.

import { Ansi } from "./ansi.js";
import { get } from "./ask.js";

let known = new Map();
// Errors that are known, or requested and empty.
const errors = new Map();
// The failed jobs in one request.
const MOST = 64;
let wanted = [];

// Returns the text of a line without control sequences.
const plain = (line) =>
  [...new Ansi().pieces(line)]
    .map(({ text = "" }) => text)
    .join("")
    .replace(/\s+/g, " ")
    .trim();
const entries = (told) => Object.entries(told).map(([id, line]) => [Number(id), plain(line)]);

export function setLines(told) {
  known = new Map(entries(told));
}

async function load(redraw) {
  while (wanted.length) {
    const jobs = wanted.splice(0, MOST).map((row) => row.target);
    const told = await get(`/api/lines?${new URLSearchParams({ failed: jobs.join(",") })}`).catch(() => ({}));
    for (const [id, line] of entries(told)) errors.set(id, line);
    redraw();
  }
}

// Returns the last line of the errors of a failed job. It is requested once; the requests of one redraw are sent together.
export function errorOf(row, redraw) {
  if (!errors.has(row.id)) {
    errors.set(row.id, "");
    if (wanted.push(row) === 1) queueMicrotask(() => load(redraw));
  }
  return errors.get(row.id);
}

export const lineOf = (row) => (row.state === "RUNNING" ? known.get(row.id) : undefined);
