// The timeline: lanes of GPUs and CPUs with past, running and planned jobs. It pans and zooms.

import { renew } from "./ask.js";
import { attribute, by, el, keyed, say, svg } from "./dom.js";
import { find } from "./history.js";
import { blocksOf, lanesOf } from "./lanes.js";
import { drawBlock, drawReservation, hatch, LEFT, TOP } from "./marks.js";
import { times } from "./ticks.js";
import { at, clock, day } from "./words.js";

const MINUTE = 60_000;
const SPANS = { "1 h": 60, "3 h": 180, "12 h": 720, "1 d": 1440, "7 d": 10_080 };
const [LEAST, MOST] = [5 * MINUTE, 30 * 1440 * MINUTE];
const MOST_PLANNED = 200;

let span = 180 * MINUTE;
// The middle of the window, relative to now while it follows the clock.
let middle;
let past = { from: Infinity, jobs: [] };
let redraw = () => {};
let loading = false;

const range = (now) => [(middle ?? now) - span / 2, (middle ?? now) + span / 2];
export const minutes = () => Math.max(1, Math.min(43_200, Math.round(span / 2 / MINUTE)));

// Loads the ended jobs that ran within the window.
async function load(from, now) {
  if (loading || from >= past.from) return;
  loading = true;
  const answer = await renew(() =>
    find({ starttime: `now-${Math.ceil((now - from) / MINUTE) + 1}minutes`, rows: 2000 }),
  );
  loading = false;
  past = { from, jobs: answer?.jobs ?? past.jobs };
  if (answer) redraw();
}

function grid(now, x, [from, to], width, height) {
  const ticks = times(from, to, Math.max(2, Math.floor(width / 90)));
  // The label of now covers its neighbours.
  const is_free = (time) => Math.abs(x(time) - x(now)) > 48 || now < from || now > to;
  return ticks.flatMap(({ at: time, text }) => [
    svg("line", { class: "grid", x1: x(time), x2: x(time), y1: TOP - 4, y2: height }),
    ...(is_free(time)
      ? [svg("text", { x: Math.min(x(time), width - 20), y: 16, "text-anchor": "middle" }, text)]
      : []),
  ]);
}

function nowMark(now, x, [from, to], height) {
  if (now < from || now > to) return [];
  return [
    svg("line", { class: "now", x1: x(now), x2: x(now), y1: TOP - 4, y2: height }),
    svg("rect", { class: "now-back", x: x(now) - 22, y: 2, width: 44, height: 20, rx: 4 }),
    svg("text", { class: "now-label", x: x(now), y: 16, "text-anchor": "middle" }, at(now).slice(-5)),
  ];
}

function draw(picture) {
  const now = clock();
  const window_ = range(now);
  const [from, to] = window_;
  const width = Math.max(280, by("timeline").clientWidth);
  const x = (time) =>
    Number((LEFT + ((Math.min(Math.max(time, from), to) - from) / (to - from)) * (width - LEFT)).toFixed(1));
  const { lanes, height: below } = lanesOf(picture.host);
  const height = TOP + below + 4;
  const running = picture.running.filter((job) => job.start);
  const live = new Set(running.map((job) => job.id));
  const within = (job) => job.start && job.end > from && job.start < to && !live.has(job.id);
  const ended = [...new Map([...past.jobs, ...picture.ended].filter(within).map((job) => [job.id, job])).values()];
  const planned = picture.pending.filter((job) => job.expected && job.expected < to).slice(0, MOST_PLANNED);
  const blocks = blocksOf(lanes, { ended, running, planned, reservations: picture.host.reservations }, now, to).filter(
    (block) => block.from < to && block.to > from,
  );
  const named = new Set();
  say(
    by("timeline-title"),
    new Date(from).toDateString() === new Date(to).toDateString()
      ? `${new Date(from).toDateString() === new Date(now).toDateString() ? "Today" : day(from)}, ${at(from).slice(-5)} – ${at(to).slice(-5)}`
      : `${at(from)} – ${at(to)}`,
  );
  const words = `Jobs: ${running.length} running, ${ended.length} ended in this period, ${planned.length} planned.`;
  return svg(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": words },
    svg("defs", {}, hatch("hatch", "hatch", 2), hatch("reserved-hatch", "hatch", 1, "held")),
    ...lanes.map((lane) =>
      svg("rect", { class: "lane", x: LEFT, y: TOP + lane.y, width: width - LEFT, height: lane.height }),
    ),
    ...grid(now, x, window_, width, height),
    ...lanes
      .filter((lane) => lane.text)
      .map((lane) =>
        svg(
          "text",
          { class: "label", x: LEFT - 8, y: TOP + lane.y + lane.height / 2 + 4, "text-anchor": "end" },
          lane.text,
        ),
      ),
    ...blocks.map((block) =>
      block.reservation ? drawReservation(block, lanes, x) : drawBlock(block, lanes, x, named),
    ),
    ...nowMark(now, x, window_, height),
  );
}

// Redraws the timeline, unless it has the keyboard focus.
export function show(picture) {
  const now = clock();
  load(range(now)[0], now);
  for (const button of by("span").children)
    attribute(button, "aria-pressed", String(Number(button.value) * MINUTE === span));
  if (!by("timeline").contains(document.activeElement)) by("timeline").replaceChildren(draw(picture));
}

// Changes the window: moves it by a share of its length, or scales it around a time.
function move(share) {
  middle = (middle ?? clock()) + share * span;
  redraw();
}

function zoom(factor, around) {
  const [from] = range(clock());
  const fixed = around ?? from + span / 2;
  const next = Math.min(MOST, Math.max(LEAST, span * factor));
  if (middle !== undefined || around !== undefined) middle = fixed + ((middle ?? clock()) - fixed) * (next / span);
  span = next;
  redraw();
}

function drag(event) {
  if (event.button !== 0) return;
  const [begun, from, scale] = [event.clientX, middle ?? clock(), span / (by("timeline").clientWidth - LEFT)];
  let has_moved = false;
  const onMove = (moved) => {
    if (!has_moved && Math.abs(moved.clientX - begun) < 5) return;
    has_moved = true;
    middle = from - (moved.clientX - begun) * scale;
    redraw();
  };
  addEventListener("pointermove", onMove);
  addEventListener(
    "pointerup",
    () => {
      removeEventListener("pointermove", onMove);
      // The end of a drag opens no job.
      if (has_moved)
        addEventListener(
          "click",
          (click) => {
            click.preventDefault();
            click.stopPropagation();
          },
          { capture: true, once: true },
        );
    },
    { once: true },
  );
}

function legend() {
  const sample = (css, text, kind) => el("span", { "data-kind": kind }, el("i", { class: css }), text);
  by("legend").replaceChildren(
    sample("", "running", "running"),
    sample("rest", "up to its limit", "running"),
    sample("planned", "predicted", "pending"),
    sample("reserved", "reservation", "held"),
    sample("", "completed", "completed"),
    sample("", "failed", "failed"),
    sample("", "cancelled", "cancelled"),
  );
}

// `again` is called to redraw, `further` when another period is selected.
export function start(again, further) {
  redraw = again;
  legend();
  keyed(
    by("span"),
    Object.entries(SPANS),
    ([name]) => name,
    ([name, value]) =>
      el(
        "button",
        {
          type: "button",
          value,
          onclick: () => {
            span = value * MINUTE;
            middle = undefined;
            further();
          },
        },
        name,
      ),
  );
  const actions = {
    back: () => move(-0.5),
    forth: () => move(0.5),
    now: () => {
      middle = undefined;
      redraw();
    },
    in: () => zoom(0.5),
    out: () => zoom(2),
  };
  for (const [id, run] of Object.entries(actions)) by(id).addEventListener("click", run);
  by("timeline").addEventListener("pointerdown", drag);
  by("timeline").addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      const [from] = range(clock());
      const part =
        (event.clientX - by("timeline").getBoundingClientRect().left - LEFT) / (by("timeline").clientWidth - LEFT);
      zoom(event.deltaY > 0 ? 1.25 : 0.8, from + part * span);
    },
    { passive: false },
  );
  addEventListener("resize", again);
}
