// The job history, searched with the options of sacct.

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
  say(by("found"), answer.count > found.length ? `${answer.count} jobs, showing the last ${found.length}` : `${answer.count} ${answer.count === 1 ? "job" : "jobs"}`);
  again();
}

export function start() {
  by("search").addEventListener("submit", (event) => {
    event.preventDefault();
    look();
  });
}

// Runs the search of the form when the view is first opened.
export function enter() {
  if (!by("history").firstChild) look();
}
