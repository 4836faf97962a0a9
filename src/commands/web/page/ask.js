// Asking the server, and being told by it.

import { by, el, say } from "./dom.js";

const KEY = "slotd-key";

// The address with its token is used up: it is not to be kept, and a reload is to find the page.
export function enter() {
  const fresh = document.querySelector("meta[name=key]").content;
  if (fresh) localStorage.setItem(KEY, fresh);
  if (location.search) history.replaceState(null, "", location.pathname + location.hash);
}

const headers = (more = {}) => ({ "X-Slotd-Key": localStorage.getItem(KEY) ?? "", ...more });

async function answer(response) {
  if (response.ok) return response;
  let why = `${response.status} ${response.statusText}`;
  try {
    why = (await response.json()).error;
  } catch {
    // It has no words for it.
  }
  throw new Error(why);
}

export const get = async (path) => (await answer(await fetch(path, { headers: headers() }))).json();
export const text = async (path) => (await answer(await fetch(path, { headers: headers() }))).text();

export async function post(path, body) {
  const options = { method: "POST", headers: headers({ "Content-Type": "application/json" }), body: JSON.stringify(body) };
  return (await answer(await fetch(path, options))).json();
}

// Some bytes of a file: { from, size, bytes }. An empty part tells the size alone.
export async function bytes(path, range) {
  const response = await fetch(path, { headers: headers({ Range: `bytes=${range}` }) });
  if (response.status !== 416) await answer(response);
  const [, from, size] = /bytes (?:(\d+)-\d+|\*)\/(\d+)/.exec(response.headers.get("Content-Range"));
  const some = response.status === 416 ? new Uint8Array() : new Uint8Array(await response.arrayBuffer());
  return { from: Number(from ?? size), size: Number(size), bytes: some };
}

// What is told goes to `hear`. There is one stream: a job whose outputs are followed is part of it.
let stream;
let followed;

export function listen(job, hear) {
  if (stream && stream.readyState !== EventSource.CLOSED && followed === job) return;
  stream?.close();
  followed = job;
  stream = new EventSource(job ? `/api/events?job=${encodeURIComponent(job)}` : "/api/events");
  stream.onmessage = (message) => hear(JSON.parse(message.data));
  stream.onerror = () => hear({ event: "daemon", up: false, lost: true });
}

export const told = (words) => say(by("said"), words);

// Does what the user asked for, and says what went wrong until the next thing that is asked for.
export const attempt = (work) => attemptAt("failed", work);

// Looks again on its own account: that this went well is no answer to the user.
export const renew = (work) => attemptAt("behind", work);

async function attemptAt(place, work) {
  try {
    const result = await work();
    say(by(place), "");
    return result;
  } catch (error) {
    say(by(place), error.message === "Failed to fetch" ? "The server does not answer: is slotd web still running?" : error.message);
    return undefined;
  }
}

// Asks before anything is done that cannot be taken back.
export function confirmed(question) {
  const dialog = by("confirm");
  say(by("confirm-question"), question);
  dialog.returnValue = "no";
  dialog.showModal();
  // The browser tells that a dialog closed in a task of its own, which may come after the next question is open: that
  // is no answer to it. A question that another one takes the place of is never answered.
  return new Promise((resolve) => {
    dialog.onclose = () => dialog.open || resolve(dialog.returnValue === "yes");
  });
}

const QUESTIONS = {
  cancel: "Cancel",
  hold: "Hold",
  release: "Release",
  top: "Put to the top of your jobs:",
  requeue: "Stop and queue again:",
  suspend: "Suspend",
  resume: "Resume",
  retry: "Submit once more:",
};

// The states in which a job is over, and those that are failures, as the server names them.
const named = (name) => document.querySelector(`meta[name=${name}]`).content.split(",");
export const ENDS = named("ends");
const FAILURES = new Set(named("failures"));
export const hasFailed = (row) => FAILURES.has(row.state);

// A button for each thing that can be done to a job in its state.
export const ACTIONS = {
  PENDING: (row) => [row.reason.startsWith("JobHeld") ? "release" : "hold", "top", "cancel"],
  RUNNING: () => ["suspend", "requeue", "cancel"],
  SUSPENDED: () => ["resume", "cancel"],
  COMPLETING: () => [],
};
for (const state of ENDS) ACTIONS[state] = () => ["retry"];

export async function act(action, row) {
  const what = row.name ? `job ${row.label} (${row.name})` : `job ${row.label}`;
  if (!(await confirmed(`${QUESTIONS[action]} ${what}?`))) return;
  const done = await attempt(() => post("/api/act", { action, jobs: [row.target] }));
  if (!done) return;
  told(`${action}: done for job ${row.label}`);
  const [, fresh] = /^Submitted batch job (\d+)$/m.exec(done.told ?? "") ?? [];
  if (fresh) by("said").append(", ", el("a", { href: `#/job/${fresh}` }, `job ${fresh}`));
}
