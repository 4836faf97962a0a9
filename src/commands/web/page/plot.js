// Plots over time: bars in an SVG, with a caption in words.

import { attribute, el, keyed, moment, say, svg } from "./dom.js";

const [WIDTH, HEIGHT] = [480, 80];

export function bytes(amount) {
  for (const unit of ["B", "KB", "MB", "GB"]) {
    if (amount < 1024) return `${amount < 10 && unit !== "B" ? amount.toFixed(1) : Math.round(amount)} ${unit}`;
    amount /= 1024;
  }
  return `${amount.toFixed(1)} TB`;
}

const most = (values) => values.reduce((a, b) => Math.max(a, b), 0);
const mean = (values) => values.reduce((a, b) => a + b, 0) / Math.max(1, values.length);

// Returns one path for all bars, because a hundred elements would be slow to update.
function path(values, top) {
  const step = WIDTH / Math.max(1, values.length);
  const bar = (value, i) => {
    const height = top > 0 ? Math.min(HEIGHT, Math.max(value > 0 ? 1 : 0, (value / top) * HEIGHT)) : 0;
    return `M${(i * step).toFixed(2)} ${HEIGHT}v${(-height).toFixed(2)}h${step.toFixed(2)}v${height.toFixed(2)}z`;
  };
  return values.map(bar).join("");
}

function make(row) {
  const figure = el("figure", { class: "plot" });
  figure.words = el("figcaption");
  figure.bars = svg("path", { class: "use" });
  figure.picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" }, figure.bars);
  figure.times = el("p", { class: "times" }, el("span"), el("span"));
  figure.append(figure.words, figure.picture, figure.times);
  attribute(figure, "data-plot", row.name);
  return figure;
}

function fill(figure, row) {
  say(figure.words, row.text);
  attribute(figure.picture, "aria-label", row.text);
  attribute(figure.bars, "d", row.path);
  say(figure.times.firstChild, moment(row.from));
  say(figure.times.lastChild, moment(row.to));
}

// Returns bars for the known values. Zero gets a bar of one pixel, to differ from an unknown value.
function pathOf(chart) {
  const step = WIDTH / Math.max(1, chart.values.length);
  const bar = (value, i) => {
    if (value === null) return "";
    const height = Math.min(HEIGHT, Math.max(1, chart.top > 0 ? (value / chart.top) * HEIGHT : 0));
    return `M${(i * step).toFixed(2)} ${HEIGHT}v${(-height).toFixed(2)}h${step.toFixed(2)}v${height.toFixed(2)}z`;
  };
  return chart.values.map(bar).join("");
}

// Plots the host usage over time, with the titles from the server.
export function charts(parent, told) {
  const rows = told.charts.map((chart) => ({ name: chart.name, text: chart.title, path: pathOf(chart), from: told.from, to: told.to }));
  keyed(parent, rows, (one) => one.name, make, fill);
  if (!rows.length) say(parent.none ??= el("p", { class: "none" }), "No jobs ran in this period.");
  if (rows.length) parent.none?.remove();
  else parent.append(parent.none);
}

// Plots the usage of a job over time, next to its resources.
export function show(parent, plots) {
  const rows = [];
  const row = (name, values, top, text) => rows.push({ name, path: path(values, top), text, from: plots.from, to: plots.to });
  if (plots.cpus.length) {
    const [cpus, memory] = [most(plots.cpus), most(plots.memory)];
    const of = (text) => (text ? ` of ${text}` : "");
    row("CPUs", plots.cpus, Math.max(cpus, plots.all_cpus), `CPUs in use: ${mean(plots.cpus).toFixed(2)}${of(plots.all_cpus)}, peak ${cpus.toFixed(2)}`);
    row("Memory", plots.memory, Math.max(memory, plots.all_memory), `Memory: peak ${bytes(memory)}${of(plots.all_memory ? bytes(plots.all_memory) : 0)}`);
    if (plots.gpus.length) {
      const [gpus, used] = [most(plots.gpus), most(plots.gpu_memory)];
      row("GPUs", plots.gpus, Math.max(gpus, plots.all_gpus), `GPUs in use: ${mean(plots.gpus).toFixed(2)}${of(plots.all_gpus)}, peak ${gpus.toFixed(2)}`);
      row("GPU memory", plots.gpu_memory, used, `GPU memory: peak ${bytes(used)}`);
    }
    for (const [name, values] of [["Read", plots.read], ["Written", plots.written]]) {
      if (most(values) >= 1 << 20) row(name, values, most(values), `${name}: peak ${bytes(most(values))}/s`);
    }
  }
  keyed(parent, rows, (one) => one.name, make, fill);
}
