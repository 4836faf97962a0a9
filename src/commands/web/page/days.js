// Charts by day: stacked bars with their axis and a legend.

import { attribute, el, keyed, svg } from "./dom.js";
import { above } from "./ticks.js";
import { day } from "./words.js";

const [LEFT, TOP, BOTTOM] = [40, 8, 20];

function draw(figure) {
  const { chart, picture } = figure;
  const [width, height] = [Math.max(160, picture.clientWidth), picture.clientHeight || 136];
  const sums = chart.days.map((one) => one.parts.reduce((a, b) => a + b, 0));
  const top = above(Math.max(...sums, chart.least));
  const y = (value) => height - BOTTOM - (value / top) * (height - TOP - BOTTOM);
  const step = (width - LEFT - 4) / Math.max(1, chart.days.length);
  const every = Math.ceil(52 / step);
  attribute(picture, "viewBox", `0 0 ${width} ${height}`);
  picture.replaceChildren(
    ...[0, top / 2, top].flatMap((value) => [
      svg("line", { class: "grid", x1: LEFT, x2: width, y1: y(value), y2: y(value) }),
      svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, Number(value.toPrecision(3)).toString()),
    ]),
    ...chart.days.flatMap((one, i) => {
      const left = LEFT + i * step + step * 0.2;
      let sum = 0;
      const bars = one.parts.map((part, at) => {
        sum += part;
        return svg("rect", {
          x: left,
          width: step * 0.6,
          y: y(sum),
          height: Math.max(0, y(sum - part) - y(sum)),
          fill: `var(--${chart.colours[at]})`,
        });
      });
      const words = `${day(one.at)}: ${chart.names.map((name, at) => `${Number(one.parts[at].toPrecision(3))} ${name}`).join(", ")}`;
      const label =
        i % every === 0
          ? svg("text", { x: Math.min(left + step * 0.3, width - 20), y: height - 4, "text-anchor": "middle" }, day(one.at))
          : undefined;
      return [svg("g", {}, svg("title", {}, words), ...bars), ...(label ? [label] : [])];
    }),
  );
}

// Each chart: { name, names, colours, days: [{ at, parts }], least, words }; `least` is the least value at the top.
export function show(parent, charts) {
  keyed(
    parent,
    charts,
    (chart) => chart.name,
    (chart) => {
      const figure = el("figure", { class: "plot card" });
      const legend = el(
        "span",
        { class: "legend" },
        ...chart.names.map((name, i) =>
          el(
            "span",
            {},
            svg(
              "svg",
              { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" },
              svg("rect", { x: 3, y: 3, width: 10, height: 10, rx: 2, fill: `var(--${chart.colours[i]})` }),
            ),
            name,
          ),
        ),
      );
      figure.picture = svg("svg", { role: "img" });
      figure.append(el("figcaption", {}, el("strong", {}, chart.name), legend), figure.picture);
      new ResizeObserver(() => figure.chart && draw(figure)).observe(figure);
      return figure;
    },
    (figure, chart) => {
      figure.chart = chart;
      attribute(figure.picture, "aria-label", chart.words);
      if (figure.isConnected) draw(figure);
    },
  );
}
