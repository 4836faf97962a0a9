// A timeline of past, running and planned jobs, with a line for each CPU and GPU.

import { hasFailed, renew } from "./ask.js";
import { by, moment, svg } from "./dom.js";
import { find } from "./history.js";

const LEFT = 64;
const TOP = 22;
const HEIGHT = 14;
// Maximum number of lines for pending jobs.
const MOST_PLANNED = 40;

let past = { span: 0, jobs: [] };

export const minutes = () => Number(by("span").value);

// Loads the ended jobs that ran within the window.
async function load() {
  const span = minutes();
  const answer = await renew(() => find({ starttime: `now-${span}minutes`, rows: 2000 }));
  if (answer) past = { span, jobs: answer.jobs };
}

// Returns the lines: CPUs, then GPUs, then planned jobs.
function lanes(picture, jobs, planned) {
  const { cpu_ids: cpus, gpu_names: gpus } = picture.host;
  const named = [...cpus.map((id) => ({ key: `cpu ${id}`, text: `CPU ${id}` })), ...Object.keys(gpus).map((id) => ({ key: `gpu ${id}`, text: `GPU ${id}` }))];
  const bars = [];
  for (const job of jobs) {
    const keys = [...job.cpu_ids.map((id) => `cpu ${id}`), ...job.gpu_ids.map((id) => `gpu ${id}`)];
    for (const key of keys) bars.push({ key, job, from: job.start, to: job.end });
  }
  for (const job of planned) {
    const key = `plan ${job.id}`;
    named.push({ key, text: job.label });
    bars.push({ key, job, from: job.expected, to: job.limit_secs ? job.expected + job.limit_secs * 1000 : undefined, planned: true });
  }
  return { named, bars };
}

function title(bar) {
  const { job } = bar;
  const when = bar.planned ? `planned for ${moment(bar.from)}` : `from ${moment(bar.from)}${job.end ? ` to ${moment(job.end)}` : ", running"}`;
  return `job ${job.label} ${job.name}, ${job.state}, ${when}`;
}

function grid(now, from, until, x, height) {
  const marks = [];
  const step = (until - from) / 8;
  for (let at = from + step; at < until; at += step * 2) {
    marks.push(svg("line", { class: "grid", x1: x(at), x2: x(at), y1: TOP - 4, y2: height }), svg("text", { x: x(at), y: 12, "text-anchor": "middle" }, moment(at).slice(0, -3)));
  }
  marks.push(svg("line", { class: "now", x1: x(now), x2: x(now), y1: TOP - 4, y2: height }));
  return marks;
}

function draw(picture) {
  const now = picture.now;
  const span = minutes() * 60000;
  const [from, until] = [now - span, now + span];
  const width = Math.max(240, by("timeline").clientWidth);
  const x = (at) => LEFT + ((Math.min(Math.max(at, from), until) - from) / (until - from)) * (width - LEFT);
  const running = new Set(picture.running.map((job) => job.id));
  const ended = new Map([...past.jobs, ...picture.ended].filter((job) => job.start && job.end > from && !running.has(job.id)).map((job) => [job.id, job]));
  const planned = picture.waiting.filter((job) => job.expected && job.expected < until).slice(0, MOST_PLANNED);
  const { named, bars } = lanes(picture, [...ended.values(), ...picture.running], planned);
  const y = new Map(named.map((lane, at) => [lane.key, TOP + at * HEIGHT]));
  const height = TOP + named.length * HEIGHT + 4;
  const words = `Jobs: ${picture.running.length} running, ${ended.size} ended in this period, ${planned.length} planned.`;
  const labels = named.map((lane) => svg("text", { x: LEFT - 4, y: y.get(lane.key) + HEIGHT - 3, "text-anchor": "end" }, lane.text));
  const named_bars = new Set();
  const shown = bars.filter((bar) => y.has(bar.key) && bar.from < until).map((bar) => {
    const [left, right] = [x(bar.from), x(bar.to ?? (bar.planned ? until : now))];
    // Only the first bar of a job is in the tab order.
    const is_first = !named_bars.has(bar.job.id);
    named_bars.add(bar.job.id);
    const rect = svg("rect", { class: bar.planned ? "bar planned" : "bar", "data-state": bar.job.state, "data-failed": hasFailed(bar.job), x: left, y: y.get(bar.key) + 1, width: Math.max(2, right - left), height: HEIGHT - 2, rx: 2 }, svg("title", {}, title(bar)));
    return svg("a", { href: `#/job/${encodeURIComponent(bar.job.target)}`, tabindex: is_first ? "0" : "-1", "aria-label": title(bar), "data-job": bar.job.label }, rect);
  });
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": words }, ...grid(now, from, until, x, height), ...labels, ...shown);
}

// Redraws the timeline, unless it has the keyboard focus.
export async function show(picture) {
  if (past.span !== minutes()) await load();
  if (!by("timeline").contains(document.activeElement)) by("timeline").replaceChildren(draw(picture));
}

// `again` is called when the window is resized, `further` when another period is selected.
export function start(again, further) {
  by("span").addEventListener("change", further);
  window.addEventListener("resize", again);
}
