// States of jobs: their kinds, words and shapes. Each kind has its own shape, so that colour is never the only difference.

import { el, svg } from "./dom.js";

// The end states, those that are failures, and their short names, as listed by the server.
const named = (name) => document.querySelector(`meta[name=${name}]`).content.split(",");
export const ENDS = named("ends");
const CODES = new Map(named("codes").map((code, at) => [ENDS[at], code]));
export const FAILED = named("failures");
const FAILURES = new Set(FAILED);
const OVER = new Set(ENDS);

export const isOver = (row) => OVER.has(row.state);
export const hasFailed = (row) => FAILURES.has(row.state);
export const codeOf = (row) => CODES.get(row.state) ?? "";
export const isHeld = (row) => row.state === "PENDING" && row.reason.startsWith("JobHeld");

// The kind decides colour and shape.
export function kindOf(row) {
  if (isOver(row)) return hasFailed(row) ? "failed" : row.state === "COMPLETED" ? "completed" : "cancelled";
  if (row.state === "SUSPENDED" || isHeld(row)) return "held";
  if (row.state !== "PENDING") return "running";
  if (row.reason === "DependencyNeverSatisfied") return "never";
  return row.reason === "Dependency" ? "dependency" : "pending";
}

const words = (name) => name.charAt(0) + name.slice(1).toLowerCase().replaceAll("_", " ");
const LABELS = { dependency: "Waits for another job", never: "Never starts" };
export const labelOf = (row) => LABELS[kindOf(row)] ?? (isHeld(row) ? "Held" : words(row.state));

const ring = (more = {}) =>
  svg("circle", { cx: 8, cy: 8, r: 6.25, fill: "none", stroke: "currentColor", "stroke-width": 1.5, ...more });
const line = (d, more = {}) =>
  svg("path", {
    d,
    fill: "none",
    stroke: "currentColor",
    "stroke-width": 1.5,
    "stroke-linecap": "round",
    "stroke-linejoin": "round",
    ...more,
  });
const filled = () => svg("rect", { x: 1, y: 1, width: 14, height: 14, rx: 3, fill: "currentColor" });
const inside = { stroke: "var(--page)", "stroke-width": 1.75 };
// The marks of failures, by their short names. Any other failure shows its short name.
const MARKS = {
  F: () => [line("M5.5 5.5l5 5M10.5 5.5l-5 5", inside)],
  TO: () => [line("M8 4.5v3.8l2.5 1.5", inside)],
  OOM: () => [line("M4.7 11V5l3.3 3.6L11.3 5v6", inside)],
};
const SHAPES = {
  running: () => [
    svg("circle", { cx: 8, cy: 8, r: 7, fill: "currentColor" }),
    svg("path", { d: "M6.3 5v6l5-3z", fill: "var(--page)" }),
  ],
  pending: () => [ring(), line("M8 4.5V8l2.3 1.4")],
  dependency: () => [ring({ "stroke-dasharray": "2.6 1.6" })],
  never: () => [
    svg("rect", {
      x: 1.75,
      y: 1.75,
      width: 12.5,
      height: 12.5,
      rx: 3,
      fill: "none",
      stroke: "currentColor",
      "stroke-width": 1.5,
    }),
    line("M8 4.5v4M8 11.2v.1"),
  ],
  held: () => [ring(), line("M6.3 5.7v4.6M9.7 5.7v4.6")],
  completed: () => [line("M3 8.5l3.2 3.2L13 4.8", { "stroke-width": 2 })],
  cancelled: () => [ring(), line("M4 12l8-8")],
  failed: (code) => [
    filled(),
    ...(MARKS[code]?.() ?? [svg("text", { x: 8, y: 11, "text-anchor": "middle", fill: "var(--page)" }, code)]),
  ],
};

// Returns the shape of a kind; `code` selects the mark of a failure.
export function icon(kind, code, label) {
  const name = label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" };
  return svg("svg", { class: "icon", viewBox: "0 0 16 16", "data-kind": kind, ...name }, ...SHAPES[kind](code));
}

export const iconOf = (row) => icon(kindOf(row), codeOf(row), labelOf(row));
export const badge = (row) =>
  el("span", { class: "badge", "data-kind": kindOf(row) }, icon(kindOf(row), codeOf(row)), labelOf(row));

// The pictograms of the navigation.
const PICTURES = {
  list: ["M2 4h12M2 8h12M2 12h12"],
  lanes: ["M1 4h6M9 4h5M4 8h8M2 12h3M8 12h6"],
  bars: ["M2 13V8M6 13V4M10 13V7M14 13V2"],
  plus: ["M8 2.5v11M2.5 8h11"],
};
export const pictogram = (name) =>
  svg("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, ...PICTURES[name].map((d) => line(d)));
