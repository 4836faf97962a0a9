// Jobs of the past, by sacct's query.

import { attempt, get } from "./ask.js";
import { by, say } from "./dom.js";
import { show } from "./queue.js";

let found = [];
let arrays = {};

const again = () => show("history", "history", "Jobs found", found, arrays, again);

export const find = (search) => get(`/api/history?${new URLSearchParams(search)}`);

async function look() {
  const fields = new FormData(by("search"));
  const answer = await attempt(() => find(fields));
  if (!answer) return;
  found = answer.jobs;
  arrays = answer.arrays;
  say(by("found"), answer.count > found.length ? `${answer.count} jobs, of which the last ${found.length} are shown` : `${answer.count} jobs`);
  again();
}

export function start() {
  by("search").addEventListener("submit", (event) => {
    event.preventDefault();
    look();
  });
}

// The first look at it searches for what the form says.
export function enter() {
  if (!by("history").firstChild) look();
}
