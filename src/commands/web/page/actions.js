// The actions on jobs: which ones a state allows, the question before a dangerous one, and Undo after the others.

import { attempt, confirmed, post, told } from "./ask.js";
import { by, el } from "./dom.js";
import { isHeld, isOver } from "./states.js";
import { counted, elapsed, span } from "./words.js";

// Label, for a question the words of its button, and the action that undoes it. An action without a question has an undo.
const ACTIONS = {
  hold: { label: "Hold", done: "Held", undo: "release" },
  release: { label: "Release", done: "Released", undo: "hold" },
  suspend: { label: "Suspend", done: "Suspended", undo: "resume" },
  resume: { label: "Resume", done: "Resumed", undo: "suspend" },
  top: { label: "Move to the front", asks: "Move to the front", done: "Moved to the front", keep: "Keep the order" },
  requeue: { label: "Stop and requeue", asks: "Stop and requeue", done: "Requeued", keep: "Let it run" },
  retry: { label: "Submit again", asks: "Submit again", done: "Submitted again", keep: "Do not submit" },
  cancel: { label: "Cancel", asks: "Cancel", done: "Cancelled", keep: "Keep", danger: true },
};

// How long a message offers Undo, in milliseconds.
const UNDO = 10_000;

export const isDanger = (name) => Boolean(ACTIONS[name].danger);

export function available(row) {
  if (isOver(row)) return ["retry"];
  if (row.state === "PENDING") return [isHeld(row) ? "release" : "hold", "top", "cancel"];
  if (row.state === "RUNNING") return ["suspend", "requeue", "cancel"];
  return row.state === "SUSPENDED" ? ["resume", "cancel"] : [];
}

// The actions that all of the rows allow.
export function common(rows) {
  const [first = [], ...others] = rows.map(available);
  return first.filter((name) => others.every((names) => names.includes(name)));
}

const jobs = (rows) => (rows.length === 1 ? `job ${rows[0].label}` : counted(rows.length, "job"));

// A label that ends in "…" asks first.
export function labelOf(name, rows) {
  const { label, asks, danger } = ACTIONS[name];
  return `${label}${danger || rows.length > 1 ? ` ${jobs(rows)}` : ""}${asks ? "…" : ""}`;
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

export async function act(name, rows) {
  const { label, asks, done, undo, keep, danger } = ACTIONS[name];
  const what = jobs(rows) + (rows.length === 1 && rows[0].name ? ` (${rows[0].name})` : "");
  if (
    asks &&
    !(await confirmed(`${asks} ${what}?`, {
      detail: consequence(rows),
      yes: `${label} ${rows.length === 1 ? "" : jobs(rows)}`.trim(),
      no: keep,
      danger,
    }))
  )
    return false;
  const targets = rows.map((row) => row.target);
  const answer = await attempt(() => post("/api/act", { action: name, jobs: targets }));
  if (!answer) return false;
  told(`${done} ${jobs(rows)}`);
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
