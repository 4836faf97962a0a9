// The marks of the timeline: a job or a reservation on its lanes.

import { svg } from "./dom.js";

// The space for the names of the lanes, and for the times.
export const [LEFT, TOP] = [56, 28];

// Shortens a text to a width, at about 7 pixels for a letter.
function fitting(text, width) {
  const most = Math.floor((width - 12) / 7);
  if (most >= [...text].length) return text;
  return most < 3 ? "" : `${[...text].slice(0, most - 1).join("")}…`;
}

export function drawBlock(block, lanes, x, named) {
  const { job, kind } = block;
  const [first, last] = [lanes[block.first], lanes[block.to_lane]];
  const [left, right] = [x(block.from), Math.max(x(block.from) + 3, x(block.to))];
  const [top, height] = [TOP + first.y, last.y + last.height - first.y];
  const solid = block.is_planned ? right : Math.min(right, Math.max(left, x(block.solid)));
  const box = (more) => svg("rect", { y: top, height, rx: 3, ...more });
  const text = (words, y, css) => words && svg("text", { class: css, x: left + 6, y }, words);
  const is_first = !named.has(job.id);
  named.add(job.id);
  return svg(
    "a",
    {
      href: `#/job/${encodeURIComponent(job.target)}`,
      tabindex: is_first ? "0" : "-1",
      "aria-label": block.words,
      "data-job": job.label,
      "data-kind": kind,
      "data-lanes": `${first.key}${last === first ? "" : ` to ${last.key}`}`,
    },
    svg("title", {}, block.words),
    box({
      class: `block${block.is_planned ? " planned" : ""}`,
      "data-state": job.state,
      x: left,
      width: Math.max(3, solid - left),
    }),
    right - solid > 1 && !block.is_planned
      ? box({ class: "rest", x: solid, width: right - solid, fill: "url(#hatch)" })
      : undefined,
    svg("rect", { x: left, y: top, width: 3, height, fill: "var(--state)" }),
    height >= 14
      ? text(fitting(job.name || job.label, right - left), top + (height >= 36 ? 16 : height / 2 + 4), "in-bar")
      : undefined,
    height >= 36 ? text(fitting(block.second, right - left), top + 32, "") : undefined,
  );
}

// A reservation lies below the jobs that use it. Its name is written upwards if that fits better.
export function drawReservation(block, lanes, x) {
  const [first, last] = [lanes[block.first], lanes[block.to_lane]];
  const [left, right] = [x(block.from), Math.max(x(block.from) + 3, x(block.to))];
  const [top, height] = [TOP + first.y, last.y + last.height - first.y];
  const is_upright = right - left < 64 && height > right - left;
  const text = fitting(block.reservation.name, is_upright ? height : right - left);
  const [middle, bottom] = [(left + right) / 2 + 4, top + height - 8];
  return svg(
    "g",
    { role: "img", "aria-label": block.words, "data-kind": "held", "data-reservation": block.reservation.name },
    svg("title", {}, block.words),
    svg("rect", { class: "reserved", x: left, y: top, width: right - left, height, rx: 3 }),
    svg("rect", { x: left, y: top, width: right - left, height, rx: 3, fill: "url(#reserved-hatch)" }),
    height < 14 || !text
      ? undefined
      : svg(
          "text",
          is_upright
            ? { class: "in-bar", transform: `translate(${middle} ${bottom}) rotate(-90)` }
            : { class: "in-bar", x: left + 6, y: top + Math.min(16, height / 2 + 4) },
          text,
        ),
  );
}

export function hatch(id, css, width, kind) {
  return svg(
    "pattern",
    { id, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)", "data-kind": kind },
    svg("line", { class: css, x1: 0, x2: 0, y1: 0, y2: 6, "stroke-width": width }),
  );
}
