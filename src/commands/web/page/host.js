// The resources of the host: CPUs, memory and each GPU, in use, allocated, and over the last hour.

import { attribute, by, el, keyed, link, say, svg, vary } from "./dom.js";
import { inWords } from "./reserved.js";
import { memory } from "./words.js";

const percent = (part, whole) => `${whole ? Math.round(Math.min(1, part / whole) * 100) : 0}%`;
const MB = 1 << 20;

// The charts of the last hour, by name.
let charts = new Map();
export function setCharts(told) {
  charts = new Map(told.charts.map((chart) => [chart.name, chart]));
}

const last = (name) => charts.get(name)?.values.findLast((value) => value !== null);

// The maker is the same for all models of a host, and takes the space of their names.
const modelOf = (name) =>
  name
    .replaceAll("_", " ")
    .replace(/^(nvidia|amd|intel) /i, "")
    .replace(/ generation$/i, "");

function gpu(host, id, running) {
  const [busy, used, all] = [last(`GPU ${id}`), last(`Memory of GPU ${id}`), host.gpu_mem_mb[id]];
  const owners = running.filter((row) => row.gpu_ids.includes(Number(id)));
  const mem = used === undefined ? (all ? memory(all) : "") : `${memory(used / MB)}${all ? ` of ${memory(all)}` : ""}`;
  return {
    name: `GPU ${id}`,
    note: modelOf(host.gpu_names[id]),
    brief: owners.length ? owners.map((row) => row.name || row.label).join(", ") : "free",
    now: busy === undefined ? "–" : `${Math.round(busy)} %`,
    unit: busy === undefined ? "not measured" : "busy",
    part: percent(busy ?? 0, 100),
    more: percent(owners.length ? 1 : 0, 1),
    owners,
    free: owners.length ? "" : "free",
    side: mem,
  };
}

function cards(host, running) {
  const left = host.cpus.all - host.cpus.given;
  const busy = last("CPUs");
  const cpus = {
    name: "CPUs",
    note: String(host.cpus.all),
    brief: `${left} of ${host.cpus.all} free`,
    now: (busy ?? host.load).toFixed(1),
    unit: busy === undefined ? "load" : "busy",
    part: percent(busy ?? host.load, host.cpus.all),
    more: percent(host.cpus.given, host.cpus.all),
    free: `${host.cpus.given} allocated, ${left || "none"} free${host.elsewhere ? `, ${host.elsewhere.toFixed(1)} used outside jobs` : ""}`,
    side: `load ${host.load.toFixed(1)}`,
  };
  const unallocated = host.mem_mb.all - host.mem_mb.given;
  // Jobs may be allowed to use less than the machine has, or more.
  const whole = Math.max(host.mem_mb.all, host.machine_mem_mb);
  const mem = {
    name: "Memory",
    note: memory(whole),
    brief: `${memory(Math.max(0, unallocated))} free`,
    now: memory(host.mem_used_mb),
    unit: "used",
    hint: "used by all processes of the host",
    part: percent(host.mem_used_mb, whole),
    more: percent(host.mem_mb.given, whole),
    free: `${memory(host.mem_mb.given)} allocated, ${unallocated > 0 ? memory(unallocated) : "none"} free${whole > host.mem_mb.all ? " for jobs" : ""}`,
    side: "",
  };
  return [cpus, mem, ...Object.keys(host.gpu_names).map((id) => gpu(host, id, running))];
}

// The chart of the last hour as an area; unknown values are gaps.
function trend(picture, chart) {
  const { values, top } = chart;
  const y = (value) => (36 - Math.min(1, value / (top || 1)) * 34).toFixed(1);
  let [area, edge, begun] = ["", "", undefined];
  const end = (i) => {
    if (begun !== undefined) area += `L${i} 36L${begun} 36Z`;
    begun = undefined;
  };
  values.forEach((value, i) => {
    if (value === null) return end(i - 1);
    const step = `${begun === undefined ? "M" : "L"}${i} ${y(value)}`;
    begun ??= i;
    [area, edge] = [area + step, edge + step];
  });
  end(values.length - 1);
  attribute(picture, "viewBox", `0 0 ${values.length - 1} 36`);
  attribute(picture.children[0], "d", area);
  attribute(picture.children[1], "d", edge);
  attribute(picture, "aria-label", `${chart.title}, in the last hour`);
}

function make(card) {
  const box = el("div", { class: "card meter", "data-card": card.name });
  [box.note, box.brief] = [el("span", { class: "note" }), el("span", { class: "brief one-line" })];
  box.hour = el("span", { class: "hour" }, "last hour");
  [box.now, box.unit] = [el("b"), el("span")];
  box.bar = el("i", { class: "bar" });
  [box.free, box.side] = [el("span", { class: "free one-line" }), el("span", { class: "free" })];
  box.picture = svg(
    "svg",
    { preserveAspectRatio: "none", role: "img" },
    svg("path", { class: "trend" }),
    svg("path", { class: "trend edge" }),
  );
  box.append(
    el("h3", {}, card.name, box.note, box.brief),
    box.hour,
    box.picture,
    el("p", { class: "now" }, box.now, " ", box.unit),
    box.bar,
    el("p", { class: "foot" }, box.free, box.side),
  );
  return box;
}

function update(box, card) {
  say(box.note, card.note);
  say(box.brief, card.brief);
  say(box.now, card.now);
  say(box.unit, card.unit);
  attribute(box.unit.parentElement, "title", card.hint);
  vary(box.bar, { part: card.part, more: card.more });
  if (card.owners?.length) {
    const key = card.owners.map((row) => row.label).join();
    if (box.owners !== key)
      box.free.replaceChildren(...card.owners.flatMap((row, at) => [at ? ", " : "", link(row, row.name || row.label)]));
    box.owners = key;
  } else {
    box.owners = undefined;
    say(box.free, card.free);
  }
  say(box.side, card.side);
  const chart = charts.get(card.name);
  for (const part of [box.hour, box.picture]) attribute(part, "hidden", !chart && "");
  if (chart && box.chart !== chart) trend(box.picture, chart);
  box.chart = chart;
}

// The reservations that are described; the others are only named.
const SHOWN = 3;

// The licenses in use, and the active and coming reservations.
function reserved(host) {
  const soonest = host.reservations.toSorted((a, b) => a.start - b.start);
  const more = soonest.slice(SHOWN);
  const licenses = host.licenses.map(({ name, total, used }) => `${name} ${used} of ${total} in use`);
  keyed(
    by("reserved"),
    [
      ...(licenses.length ? [{ key: "licenses", name: "Licenses", text: licenses.join(", ") }] : []),
      ...soonest
        .slice(0, SHOWN)
        .map((one) => ({ key: `reservation ${one.name}`, name: one.name, text: inWords(one), reserves: true })),
      ...(more.length
        ? [{ key: "more", name: `${more.length} more`, text: more.map(({ name }) => name).join(", "), reserves: true }]
        : []),
    ],
    ({ key }) => key,
    ({ reserves }) => el("p", { class: reserves ? "reservation" : "" }, el("b"), " ", el("span", { class: "dim" })),
    (line, { name, text }) => {
      say(line.firstChild, name);
      say(line.lastChild, text);
    },
  );
}

export function show(host, running) {
  say(by("host-name"), `on ${host.name}`);
  reserved(host);
  const troubles = host.troubles.map((text) => ({ name: text, trouble: text }));
  keyed(
    by("host"),
    [...cards(host, running), ...troubles],
    (card) => card.name,
    (card) => (card.trouble ? el("p", { class: "trouble" }, card.trouble) : make(card)),
    (box, card) => card.trouble || update(box, card),
  );
}
