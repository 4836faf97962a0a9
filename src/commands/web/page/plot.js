// Plots over time with axes, a grid, a line for the limit, and the values under the pointer.

import { attribute, el, keyed, say, svg } from "./dom.js";
import { above, times } from "./ticks.js";
import { bytes, moment } from "./words.js";

const [LEFT, RIGHT, TOP, BOTTOM, HEIGHT] = [52, 8, 14, 20, 136];

const MB = 1 << 20;
const most = (values) => values.reduce((a, b) => Math.max(a, b ?? 0), 0);
const known = (values) => values.filter((value) => value !== null);
const mean = (values) => values.reduce((a, b) => a + b, 0) / Math.max(1, values.length);

const number = (value) =>
  value >= 10 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(value < 1 ? 2 : 1);

// A path for the edge and one for the area. Unknown values are gaps.
function paths(row, x, y) {
  let [edge, area, begun] = ["", "", undefined];
  const close = (i) => {
    if (begun !== undefined) area += `L${x(i)} ${y(0)}L${x(begun)} ${y(0)}Z`;
    begun = undefined;
  };
  row.values.forEach((value, i) => {
    if (value === null) return close(i - 1);
    const step = `${begun === undefined ? "M" : "L"}${x(i)} ${y(value)}`;
    begun ??= i;
    [edge, area] = [edge + step, area + step];
  });
  close(row.values.length - 1);
  return [edge, area];
}

function draw(figure) {
  const { row, picture } = figure;
  const [width, height] = [Math.max(160, picture.clientWidth), picture.clientHeight || HEIGHT];
  const top = row.limit && row.limit >= row.top ? row.limit : row.round(row.top);
  const last = Math.max(1, row.values.length - 1);
  const x = (i) => Number((LEFT + (i / last) * (width - LEFT - RIGHT)).toFixed(1));
  const y = (value) => Number((height - BOTTOM - Math.min(1, value / top) * (height - TOP - BOTTOM)).toFixed(1));
  const [edge, area] = paths(row, x, y);
  const at = (time) => x(((time - row.from) / Math.max(1, row.to - row.from)) * last);
  const marks = times(row.from, row.to, Math.max(1, Math.floor(width / 100))).filter(
    ({ at: time }) => at(time) > LEFT + 12 && at(time) < width - 20,
  );
  Object.assign(figure, { x, y, last, width });
  figure.cross = svg("line", { class: "cross", y1: TOP, y2: height - BOTTOM, visibility: "hidden" });
  figure.dot = svg("circle", { class: "dot", r: 3.5, visibility: "hidden" });
  attribute(picture, "viewBox", `0 0 ${width} ${height}`);
  picture.replaceChildren(
    ...[0, top / 2, top].flatMap((value) => [
      svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
      svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, row.tick(value)),
    ]),
    ...marks.flatMap(({ at: time, text }) => [
      svg("line", { class: "grid", x1: at(time), x2: at(time), y1: TOP, y2: height - BOTTOM }),
      svg("text", { x: at(time), y: height - 4, "text-anchor": "middle" }, text),
    ]),
    svg("path", { class: "trend", d: area }),
    svg("path", { class: "trend edge", d: edge }),
    ...(row.limit
      ? [
          svg("line", { class: "limit", x1: LEFT, x2: width - RIGHT, y1: y(row.limit), y2: y(row.limit) }),
          svg("text", { x: width - RIGHT, y: y(row.limit) - 4, "text-anchor": "end" }, row.limit_text),
        ]
      : []),
    figure.cross,
    figure.dot,
  );
}

// Shows the values of all plots of a group at the same time.
function point(parent, part) {
  parent.pointed = part;
  for (const figure of parent.querySelectorAll(".plot")) {
    if (!figure.cross) continue;
    const i = part === undefined ? undefined : Math.round(part * figure.last);
    const value = figure.row.values[i];
    const is_known = value !== undefined && value !== null;
    attribute(figure.cross, "visibility", part === undefined ? "hidden" : undefined);
    attribute(figure.dot, "visibility", is_known ? undefined : "hidden");
    if (part !== undefined) for (const end of ["x1", "x2"]) attribute(figure.cross, end, figure.x(i));
    if (is_known)
      [
        ["cx", figure.x(i)],
        ["cy", figure.y(value)],
      ].forEach(([name, place]) => attribute(figure.dot, name, place));
    const time = moment(figure.row.from + ((figure.row.to - figure.row.from) * (i ?? 0)) / figure.last);
    say(figure.now, part === undefined ? figure.row.now : is_known ? figure.row.format(value) : "–");
    say(figure.of, part === undefined ? figure.row.of : ` at ${time}`);
    say(figure.peak, part === undefined ? figure.row.peak : "");
  }
}

function make(parent, row) {
  const figure = el("figure", { class: "plot card", "data-plot": row.name });
  [figure.now, figure.of] = [el("b"), el("span", { class: "dim" })];
  figure.peak = el("span", { class: "dim peak" });
  figure.picture = svg("svg", { role: "img" });
  figure.append(
    el("figcaption", {}, el("strong", {}, row.name), el("span", { class: "values" }, figure.now, figure.of, figure.peak)),
    figure.picture,
  );
  figure.picture.addEventListener("pointermove", (event) => {
    const left = event.clientX - figure.picture.getBoundingClientRect().left;
    point(parent, Math.min(1, Math.max(0, (left - LEFT) / (figure.width - LEFT - RIGHT))));
  });
  figure.picture.addEventListener("pointerleave", () => point(parent));
  new ResizeObserver(() => figure.row && draw(figure)).observe(figure);
  return figure;
}

function plots(parent, rows) {
  keyed(
    parent,
    rows,
    (row) => row.name,
    (row) => make(parent, row),
    (figure, row) => {
      figure.row = row;
      say(figure.now, row.now);
      say(figure.of, row.of);
      say(figure.peak, row.peak);
      attribute(figure.picture, "aria-label", row.text);
      if (figure.isConnected) draw(figure);
    },
  );
  if (parent.pointed !== undefined) point(parent, parent.pointed);
}

const roundBytes = (value) => {
  const unit = 1024 ** Math.max(2, Math.floor(Math.log(Math.max(1, value)) / Math.log(1024)));
  return above(value / unit) * unit;
};

const FORMATS = {
  cpus: { format: (value) => value.toFixed(2), tick: number, round: above },
  bytes: { format: bytes, tick: bytes, round: roundBytes },
  percent: { format: (value) => `${Math.round(value)} %`, tick: (value) => `${number(value)} %`, round: () => 100 },
  rate: { format: (value) => `${bytes(value)}/s`, tick: bytes, round: roundBytes },
};
const formatOf = (name) =>
  name.includes("emory") || name === "Swap" ? FORMATS.bytes : name.startsWith("GPU") ? FORMATS.percent : FORMATS.cpus;

// All that the host has of the amount in a chart, in its unit.
function wholeOf(name, host) {
  const [, gpu] = /^Memory of GPU (\d+)$/.exec(name) ?? [];
  const mb = gpu ? host.gpu_mem_mb[gpu] : name === "Memory" ? host.machine_mem_mb : 0;
  return name === "CPUs" ? host.cpus.all : mb * MB || undefined;
}

// Plots the host usage over time, with the titles from the server.
export function charts(parent, told, host) {
  plots(
    parent,
    told.charts.map((chart) => {
      const format = formatOf(chart.name);
      const limit = host && wholeOf(chart.name, host);
      const last = chart.values.findLast((value) => value !== null);
      return {
        name: chart.name,
        values: chart.values,
        top: chart.top,
        ...format,
        text: chart.title,
        now: last === undefined ? "–" : format.format(last),
        of: limit ? ` of ${format.tick(limit)}` : "",
        limit,
        limit_text: "",
        peak: "",
        from: told.from,
        to: told.to,
      };
    }),
  );
  parent.none ??= el("p", { class: "none" }, "No jobs ran in this period.");
  if (told.charts.length) parent.none.remove();
  else parent.append(parent.none);
}

// Plots the usage of a job over time, against its request.
export function show(parent, used) {
  const rows = [];
  const row = (name, values, kind, request, of, limit_text) => {
    const { format } = FORMATS[kind];
    const last = known(values).at(-1) ?? 0;
    const text = `${name}: ${format(last)}${of}, mean ${format(mean(known(values)))}, peak ${format(most(values))}`;
    rows.push({
      name,
      values,
      top: Math.max(most(values), request ?? 0),
      limit: request || undefined,
      limit_text,
      ...FORMATS[kind],
      text,
      now: format(last),
      of,
      peak: `, peak ${format(most(values))}`,
      from: used.from,
      to: used.to,
    });
  };
  if (used.cpus.length) {
    row("CPUs", used.cpus, "cpus", used.all_cpus, ` of ${used.all_cpus}`, `requested ${used.all_cpus}`);
    row(
      "Memory",
      used.memory,
      "bytes",
      used.all_memory,
      used.all_memory ? ` of ${bytes(used.all_memory)}` : "",
      `limit ${bytes(used.all_memory)}`,
    );
  }
  if (used.gpus.length) {
    row("GPUs", used.gpus, "cpus", used.all_gpus, ` busy of ${used.all_gpus}`, `requested ${used.all_gpus}`);
    row("GPU memory", used.gpu_memory, "bytes", undefined, "", "");
  }
  for (const [name, values] of [
    ["Read", used.read],
    ["Written", used.written],
  ]) {
    if (most(values) >= 1 << 20) row(name, values, "rate", undefined, "", "");
  }
  plots(parent, rows);
}
