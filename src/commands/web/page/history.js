// The job history: the figures of a period, its jobs by name with advice, and a search with the options of sacct.

import { attempt, copied, get, renew } from "./ask.js";
import { attribute, by, el, keyed, link, say, vary } from "./dom.js";
import { show as showDays } from "./days.js";
import { byDay, element, figures } from "./figures.js";
import { isPhone } from "./list.js";
import { sentence } from "./sentence.js";
import { badge, isOver } from "./states.js";
import { Tabs } from "./tabs.js";
import { at, bytes, clock, counted, elapsed, grouped, memory, span } from "./words.js";

const PERIODS = { Today: ["today", 1], "7 days": ["now-7days", 7], "30 days": ["now-30days", 30] };
// The jobs of a period that are loaded for its figures.
const MOST = 20_000;

let period = "7 days";
let tabs;
// The names that are shown until all are requested, those that waste the most first.
const NAMES = 12;
let all_names = false;
let latest = 0;

export const find = (search) => get(`/api/history?${new URLSearchParams(search)}`);

const HEADS = ["Name", "Jobs", "Failed", "CPUs", "Memory", "GPU", "CPU-hours", "Idle", "Request next time"];

function bar(part) {
  return vary(el("i", { class: "bar" }), { part: `${Math.round(Math.min(1, part) * 100)}%` });
}

function advice(one) {
  if (!one.advice.length)
    return [el("span", { class: "dim" }, one.jobs > one.failed ? "Request fits" : "None has completed")];
  const options = one.advice.map((line) => line.option).join(" ");
  return [
    el(
      "button",
      {
        type: "button",
        class: "small",
        title: one.advice.map((line) => line.why).join("; "),
        "aria-label": `Copy ${options}`,
        onclick: () => copied(options),
      },
      el("code", {}, options),
    ),
  ];
}

function nameRow(one) {
  const cell = (head, ...content) => el("td", { class: "num", "data-head": head }, ...content);
  const of = (value, all, part) => [el("b", {}, value), el("span", { class: "dim" }, ` of ${all}`), bar(part)];
  const share = one.cpu_hours > 0 ? one.cpu_hours_used / one.cpu_hours : 0;
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, one.name),
    cell("Jobs", String(one.jobs)),
    cell("Failed", one.failed ? el("b", { class: "bad" }, String(one.failed)) : "0"),
    cell("CPUs", ...of((share * one.cpus).toFixed(1), one.cpus, share)),
    // Jobs that end before the first sample have no known peak.
    cell(
      "Memory",
      ...(one.memory_used
        ? of(bytes(one.memory_used), bytes(one.memory), one.memory_used / Math.max(1, one.memory))
        : [el("span", { class: "dim", title: "not measured" }, `– of ${bytes(one.memory)}`)]),
    ),
    cell("GPU", one.gpu_percent === null ? "" : `${one.gpu_percent} % of ${one.gpus}`),
    cell("CPU-hours", one.cpu_hours.toFixed(2)),
    cell("Idle", Math.max(0, one.cpu_hours - one.cpu_hours_used).toFixed(2)),
    el("td", { "data-head": "Request" }, ...advice(one)),
  );
}

// `by_whom` performs the requests: as a request of the user, or as an automatic one, which clears no error of the user's.
async function load(by_whom = attempt) {
  const [starttime, days] = PERIODS[period];
  for (const button of by("period").children) attribute(button, "aria-pressed", String(button.value === period));
  const answers = await by_whom(() =>
    Promise.all([get(`/api/report?${new URLSearchParams({ starttime })}`), find({ starttime, rows: MOST })]),
  );
  if (!answers) return;
  const [report, found] = answers;
  const since = report.from * 1000;
  const rows = found.jobs.filter((row) => isOver(row) && row.end >= since);
  by("no-history").hidden = rows.length > 0;
  for (const id of ["figures", "days", "names", "advice"]) by(id).hidden = !rows.length;
  by("figures").replaceChildren(...figures(rows).map(element));
  showDays(by("days"), byDay(rows, days, clock()));
  const shown = all_names ? report.names : report.names.slice(0, NAMES);
  by("more-names").hidden = shown.length === report.names.length;
  say(by("more-names"), `Show all ${report.names.length} names`);
  const head = el(
    "thead",
    {},
    el(
      "tr",
      {},
      ...HEADS.map((text, i) => el("th", { scope: "col", class: i && i < HEADS.length - 1 ? "num" : "" }, text)),
    ),
  );
  by("names").replaceChildren(
    el("table", { class: "cards", "aria-label": "By name" }, head, el("tbody", {}, ...shown.map(nameRow))),
  );
  tabs.tell("names", report.names.length || undefined);
}

const FOUND = ["Job", "Name", "State", "User", "CPUs", "Memory", "Took", "Ended", "Result"];

const classOf = (head) => (["CPUs", "Memory", "Took", "Ended"].includes(head) ? "num" : undefined);

function fillFound(tr, row) {
  if (tr.row === row) return;
  tr.row = row;
  const cells = [
    [link(row)],
    [row.name],
    [badge(row)],
    [row.user],
    [String(row.cpus)],
    [row.used ? `${memory(row.used.mem_mb)} of ${memory(row.mem_mb)}` : memory(row.mem_mb)],
    [row.start ? span(elapsed(row)) : ""],
    [at(row.end)],
    [isOver(row) ? sentence(row) : ""],
  ];
  tr.replaceChildren(
    ...cells.map((content, i) =>
      el(
        i === 1 ? "th" : "td",
        { "data-head": FOUND[i], class: classOf(FOUND[i]), scope: i === 1 ? "row" : undefined },
        ...content,
      ),
    ),
  );
}

// The rows that are shown until all are requested.
const [ROWS, ROWS_OF_PHONE] = [50, 25];

function fillAll(jobs, most) {
  const parent = by("history");
  keyed(
    parent.body,
    jobs.slice(0, most),
    (row) => row.id,
    () => el("tr"),
    fillFound,
  );
  by("more-found").hidden = jobs.length <= most;
  say(by("more-found"), `Show all ${grouped(jobs.length)} jobs`);
  by("more-found").onclick = () => fillAll(jobs, Infinity);
}

async function search() {
  const turn = (latest += 1);
  const asked = find(new FormData(by("search")));
  await asked.catch(() => undefined);
  // A later search may have been answered first. Its error stays.
  if (turn !== latest) return;
  const answer = await attempt(() => asked);
  if (!answer) return;
  const { count, jobs } = answer;
  say(
    by("found"),
    count > jobs.length ? `${counted(count, "job")}, showing the last ${jobs.length}` : counted(count, "job"),
  );
  const parent = by("history");
  parent.body ??= el("tbody");
  if (!parent.firstChild)
    parent.append(
      el(
        "div",
        { class: "scroll" },
        el(
          "table",
          { class: "cards found", "aria-label": "Jobs found" },
          el("thead", {}, el("tr", {}, ...FOUND.map((head) => el("th", { scope: "col", class: classOf(head) }, head)))),
          parent.body,
        ),
      ),
    );
  fillAll(jobs, isPhone() ? ROWS_OF_PHONE : ROWS);
}

export function start() {
  keyed(
    by("period"),
    Object.keys(PERIODS),
    (name) => name,
    (name) =>
      el(
        "button",
        {
          type: "button",
          value: name,
          onclick: () => {
            period = name;
            load();
          },
        },
        name,
      ),
  );
  const first = () => {
    if (!by("history").firstChild && !by("view-history").hidden) search();
  };
  tabs = new Tabs("History", [
    { name: "names", title: "By name", element: by("names-panel") },
    { name: "all", title: "All jobs", element: by("all-panel"), open: first },
  ]);
  by("history-tabs").replaceChildren(tabs.element);
  by("more-names").addEventListener("click", () => {
    all_names = true;
    load();
  });
  by("search").addEventListener("submit", (event) => {
    event.preventDefault();
    search();
  });
}

// Loads the period when the view is opened.
export const enter = () => load(renew);
