// The page: selects the view and refreshes it.

import { ENDS, enter, get, isOver, listen, renew } from "./ask.js";
import { by, clock, say, setClock } from "./dom.js";
import * as history from "./history.js";
import * as host from "./host.js";
import * as job from "./job.js";
import * as plot from "./plot.js";
import * as queue from "./queue.js";
import * as submit from "./submit.js";
import * as timeline from "./timeline.js";

const MORE = 200;
const DAY = 24 * 60 * 60 * 1000;

// The queue as sent by the server, and the same queue as lists.
let sent;
let picture;
let rows = MORE;
const ended = new Map();
const view = () => /^#\/(queue|timeline|history|submit|job)(?:\/(.+))?$/.exec(location.hash)?.slice(1) ?? ["queue"];

function showQueue() {
  const words = by("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const fitting = (jobs) => queue.matching(jobs, words);
  const over = [...ended.values()].filter((row) => row.end > clock() - DAY).sort((a, b) => b.end - a.end || b.id - a.id);
  host.show(picture.host);
  queue.show("running", "running", "Running", fitting(picture.running), picture.arrays, showQueue);
  queue.show("waiting", "waiting", "Pending", fitting(picture.waiting), picture.arrays, showQueue);
  queue.show("ended", "ended", "Ended", fitting(over).slice(0, MORE), {}, showQueue);
  say(by("running-count"), String(picture.running.length));
  say(by("waiting-count"), String(picture.waiting_count));
  say(by("ended-count"), String(over.length));
  by("more-waiting").hidden = picture.waiting_count <= picture.waiting.length;
}

function show() {
  if (!picture || document.hidden) return;
  const [name] = view();
  if (name === "queue") showQueue();
  if (name === "timeline") timeline.show(picture);
}

// Applies a JSON merge patch. Unchanged objects keep their identity.
function merged(old, patch) {
  if (patch === null || typeof patch !== "object" || Array.isArray(patch)) return patch;
  const now = { ...old };
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) delete now[name];
    else now[name] = merged(now[name], value);
  }
  return now;
}

function take(told) {
  sent = merged(told.event === "whole" ? {} : sent, told.queue);
  setClock(told.now);
  for (const id of Object.keys(told.queue.rows ?? {})) {
    const row = sent.rows[id];
    if (!row) continue;
    if (isOver(row)) ended.set(row.id, row);
    else ended.delete(row.id);
  }
  const all = Object.values(sent.rows);
  picture = {
    ...sent,
    now: told.now,
    running: all.filter((row) => row.state !== "PENDING" && !isOver(row)).sort((a, b) => a.start - b.start || a.id - b.id),
    waiting: all.filter((row) => row.state === "PENDING").sort((a, b) => a.later - b.later || b.priority - a.priority || a.id - b.id).slice(0, rows),
    ended: all.filter(isOver),
  };
  picture.waiting.forEach((row, at) => {
    row.turn = at + 1;
  });
  submit.partitions(picture.host.partitions.map((partition) => partition.name));
  show();
}

// Adds the jobs that ended in the last day and have left the queue, including those that ended while disconnected.
async function lastDay() {
  const day = await renew(() => history.find({ starttime: "now-1day", state: ENDS.join(",") }));
  for (const row of day?.jobs ?? []) if (!ended.has(row.id) && !sent.rows[row.id]) ended.set(row.id, row);
  show();
}

// Only one request for the job runs at a time. The last one starts after the last change.
let looking = false;
let wanted = false;

async function refresh() {
  wanted = true;
  if (looking || document.hidden) return;
  looking = true;
  while (wanted && !document.hidden && view()[0] === "job") {
    wanted = false;
    await job.show(decodeURIComponent(view()[1]));
  }
  looking = false;
}

function hear(told) {
  if (told.event === "whole" || told.event === "patch") take(told);
  if (told.event === "whole") lastDay();
  if (told.event === "changed") refresh();
  if (told.event === "sizes") job.grown(told);
  if (told.event === "daemon") {
    say(by("connection"), told.up ? "connected" : told.lost ? "the server does not answer" : "the daemon does not answer");
    document.body.classList.toggle("lost", !told.up);
  }
}

const events = (target) => listen(target ? `/api/events?job=${encodeURIComponent(target)}` : `/api/events?rows=${rows}`, hear);

function route(event) {
  const [name, what] = view();
  for (const section of document.querySelectorAll("main > section")) section.hidden = section.id !== `view-${name}`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const target = name === "job" ? decodeURIComponent(what ?? "") : undefined;
  events(target);
  if (target) job.show(target);
  if (name === "history") history.enter();
  if (name === "queue" || name === "timeline") plots();
  show();
  document.title = name === "job" ? `job ${target} · slotd` : `${name} · slotd`;
  // Keyboard users continue in the new view.
  if (event) by("main").focus();
}

// The interval between requests for the host usage while jobs are running, in milliseconds.
const BETWEEN_PLOTS = 10000;
let plotted = 0;

// Plots the host usage of the last hour or, below the timeline, of the timeline's window.
async function plots() {
  plotted = Date.now();
  const [where, minutes] = view()[0] === "timeline" ? ["timeline-use", timeline.minutes()] : ["host-use", 60];
  const used = await renew(() => get(`/api/series?minutes=${minutes}`));
  if (used) plot.charts(by(where), used);
}

function tick() {
  queue.tick();
  const [name] = view();
  if (name === "job") job.tick();
  if ((name === "queue" || name === "timeline") && picture?.running.length && Date.now() - plotted >= BETWEEN_PLOTS) plots();
}

function start() {
  enter();
  history.start();
  submit.start();
  timeline.start(show, () => {
    show();
    plots();
  });
  by("filter").addEventListener("input", show);
  by("more-waiting").addEventListener("click", () => {
    rows += MORE;
    events();
  });
  window.addEventListener("hashchange", route);
  document.addEventListener("visibilitychange", () => {
    show();
    if (wanted) refresh();
  });
  setInterval(() => document.hidden || tick(), 1000);
  route();
}

start();
