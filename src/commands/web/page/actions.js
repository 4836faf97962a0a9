// The actions on jobs: which ones a state allows, the question before a dangerous one, and Undo after the others.

import { attempt, confirmed, entered, post, told } from "./ask.js";
import { by, el } from "./dom.js";
import { isHeld, isOver } from "./states.js";
import { counted, elapsed, limitText, span } from "./words.js";

// Label, whether it asks, and the action that undoes it. An action without a question has an undo. The jobs stand at the end of
// a label, or in place of its percent sign.
const ACTIONS = {
  hold: { label: "Hold", done: "Held", undo: "release" },
  release: { label: "Release", done: "Released", undo: "hold" },
  suspend: { label: "Suspend", done: "Suspended", undo: "resume" },
  resume: { label: "Resume", done: "Resumed", undo: "suspend" },
  top: { label: "Move% to the front", asks: true, done: "Moved% to the front", keep: "Keep the order" },
  limit: { label: "Change the time limit", input: askLimit },
  requeue: { label: "Stop and requeue", asks: true, done: "Requeued", keep: "Let it run" },
  retry: { label: "Submit% again", asks: true, done: "Submitted% again", keep: "Do not submit" },
  cancel: { label: "Cancel", asks: true, done: "Cancelled", keep: "Keep", danger: true },
};

// How long a message offers Undo, in milliseconds.
const UNDO = 10_000;

export const isDanger = (name) => Boolean(ACTIONS[name].danger);

export function available(row) {
  if (isOver(row)) return ["retry"];
  if (row.state === "PENDING") return [isHeld(row) ? "release" : "hold", "top", "limit", "cancel"];
  if (row.state === "RUNNING") return ["limit", "suspend", "requeue", "cancel"];
  return row.state === "SUSPENDED" ? ["resume", "limit", "cancel"] : [];
}

// The actions that all of the rows allow.
export function common(rows) {
  const [first = [], ...others] = rows.map(available);
  const shared = first.filter((name) => others.every((names) => names.includes(name)));
  return shared.filter((name) => rows.length === 1 || !ACTIONS[name].input);
}

const named = (label, what) => {
  const spaced = what && ` ${what}`;
  return label.includes("%") ? label.replace("%", () => spaced) : label + spaced;
};

const jobs = (rows) => (rows.length === 1 ? `job ${rows[0].label}` : counted(rows.length, "job"));

// A label that ends in "…" asks first.
export function labelOf(name, rows) {
  const { label, asks, input, danger } = ACTIONS[name];
  return `${named(label, danger || rows.length > 1 ? jobs(rows) : "")}${asks || input ? "…" : ""}`;
}

// What an action would affect: "1 is running for 3h 12m".
function consequence(rows) {
  const running = rows.filter((row) => row.state === "RUNNING" && row.since);
  if (!running.length) return "";
  const longest = span(Math.max(...running.map((row) => elapsed(row))));
  if (rows.length === 1) return `It has been running for ${longest}.`;
  return running.length === 1
    ? `1 has been running for ${longest}.`
    : `${running.length} are running, one for ${longest}.`;
}

// Asks for a time limit until the daemon accepts it.
async function askLimit(row) {
  const set = await entered(`Time limit of job ${row.label}`, {
    label: "Time limit",
    value: row.limit_secs ? limitText(row.limit_secs) : "UNLIMITED",
    hint: `[days-]hours:minutes:seconds, minutes, +30 for half an hour more, or UNLIMITED${row.since ? `. It has been running for ${span(elapsed(row))}.` : ""}`,
    yes: "Change the limit",
    send: (limit) => post(`/api/job/${encodeURIComponent(row.target)}/limit`, { limit }),
  });
  if (set !== undefined) told(`Changed the time limit of job ${row.label}`);
  return set !== undefined;
}

export async function act(name, rows) {
  const { label, asks, input, done, undo, keep, danger } = ACTIONS[name];
  if (input) return input(rows[0]);
  const what = jobs(rows) + (rows.length === 1 && rows[0].name ? ` (${rows[0].name})` : "");
  if (
    asks &&
    !(await confirmed(`${named(label, what)}?`, {
      detail: consequence(rows),
      yes: named(label, danger || rows.length > 1 ? jobs(rows) : ""),
      no: keep,
      danger,
    }))
  )
    return false;
  const targets = rows.map((row) => row.target);
  const answer = await attempt(() => post("/api/act", { action: name, jobs: targets }));
  if (!answer) return false;
  told(named(done, jobs(rows)));
  const [, fresh] = /^Submitted batch job (\d+)$/m.exec(answer.told ?? "") ?? [];
  if (fresh) by("said").append(" as ", el("a", { href: `#/job/${fresh}` }, `job ${fresh}`));
  if (undo) offer(undo, targets);
  return true;
}

function offer(undo, targets) {
  const button = el(
    "button",
    {
      type: "button",
      onclick: async () => {
        if (await attempt(() => post("/api/act", { action: undo, jobs: targets }))) told("Undone");
      },
    },
    "Undo",
  );
  by("said").append(button);
  setTimeout(() => {
    if (button.isConnected) told("");
  }, UNDO);
}
