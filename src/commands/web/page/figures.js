// The figures of a period, and its jobs by day.

import { el } from "./dom.js";
import { hasFailed } from "./states.js";
import { counted, grouped, span } from "./words.js";

const HOUR = 3_600_000;

const cpuHours = (row) => ((row.elapsed_ms ?? 0) * row.cpus) / HOUR;
const usedHours = (row) => Math.min(cpuHours(row), (row.used?.cpu_secs ?? 0) / 3600);
const gpuHours = (row) => ((row.elapsed_ms ?? 0) * row.gpus) / HOUR;
const busyHours = (row) => (((row.elapsed_ms ?? 0) / HOUR) * (row.used?.gpu_percent ?? 0)) / 100;
const sum = (rows, of) => rows.reduce((all, row) => all + of(row), 0);
const quantile = (sorted, part) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))];
// Returns an amount of hours and its unit: 1,176 CPU-hours, 3.5 CPU-hours, 12 CPU-minutes.
function hours(value, what) {
  if (value > 0 && value < 1) return [String(Math.round(value * 60)), `${what}-minutes`];
  return [value >= 10 ? grouped(Math.round(value)) : value.toFixed(1), `${what}-hours`];
}
const percent = (part, whole) => (whole > 0 ? `${Math.round((part / whole) * 100)} %` : "–");

const kind = (row) => (row.state === "COMPLETED" ? 0 : hasFailed(row) ? 1 : 2);

// Returns each figure as a title, a value with its unit, and a remark.
export function figures(rows) {
  const counts = [0, 0, 0];
  for (const row of rows) counts[kind(row)] += 1;
  const waits = rows
    .filter((row) => row.start)
    .map((row) => row.start - row.submit)
    .sort((a, b) => a - b);
  const [had, used] = [sum(rows, cpuHours), sum(rows, usedHours)];
  const [gpus, busy] = [sum(rows, gpuHours), sum(rows, busyHours)];
  const measured = rows.filter((row) => row.used && row.mem_mb);
  const memory = sum(measured, (row) => row.used.mem_mb / row.mem_mb) / Math.max(1, measured.length);
  return [
    ["Jobs", grouped(rows.length), "ended", `${counts[0]} completed, ${counts[1]} failed, ${counts[2]} cancelled`],
    [
      "Median wait",
      waits.length ? span(quantile(waits, 0.5)) : "–",
      "",
      waits.length ? `95 % within ${span(quantile(waits, 0.95))}` : "",
    ],
    ["CPU time allocated", ...hours(had, "CPU"), `${percent(used, had)} of it used`],
    ...(gpus > 0 ? [["GPU time allocated", ...hours(gpus, "GPU"), `${percent(busy, gpus)} of it busy`]] : []),
    ["Memory at the peak", percent(memory, 1), "of the request", `mean over ${counted(measured.length, "job")}`],
    ["Allocated but idle", ...hours(had - used, "CPU"), gpus > 0 ? `and ${hours(gpus - busy, "GPU").join(" ")}` : ""],
  ];
}

export const element = ([title, value, unit, remark]) =>
  el("div", {}, el("dt", {}, title), el("dd", {}, el("b", {}, value, " ", el("span", { class: "dim" }, unit)), remark));

// Returns the charts by day of the rows that ended in a period.
export function byDay(rows, days, now) {
  const start = (ms) => new Date(ms).setHours(0, 0, 0, 0);
  const all = new Map();
  for (let back = days - 1; back >= 0; back -= 1) {
    const at = new Date(start(now));
    at.setDate(at.getDate() - back);
    all.set(at.getTime(), []);
  }
  for (const row of rows) all.get(start(row.end))?.push(row);
  const of = (parts) => [...all].map(([at, list]) => ({ at, parts: parts(list) }));
  const count = (list, wanted) => list.filter((row) => kind(row) === wanted).length;
  const chart = (name, names, colours, parts) => {
    const list = of(parts);
    const totals = names.map((one, i) => `${Number(list.reduce((a, b) => a + b.parts[i], 0).toPrecision(3))} ${one}`);
    // A few minutes are no full bar.
    return { name, names, colours, days: list, least: 1, words: `${name}: ${totals.join(", ")}` };
  };
  const pair = (used, had) => (list) => [sum(list, used), Math.max(0, sum(list, had) - sum(list, used))];
  return [
    chart("Jobs by day", ["completed", "failed", "cancelled"], ["completed", "failed", "off"], (list) =>
      [0, 1, 2].map((wanted) => count(list, wanted)),
    ),
    chart("CPU-hours by day", ["used", "idle"], ["running", "allocated"], pair(usedHours, cpuHours)),
    ...(sum(rows, gpuHours) > 0
      ? [chart("GPU-hours by day", ["busy", "idle"], ["running", "allocated"], pair(busyHours, gpuHours))]
      : []),
  ];
}
