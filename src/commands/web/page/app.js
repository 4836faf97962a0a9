// The page: which view is shown, and when it is looked at anew.

import { ENDS, enter, get, listen, renew } from "./ask.js";
import { by, say } from "./dom.js";
import * as history from "./history.js";
import * as host from "./host.js";
import * as job from "./job.js";
import * as plot from "./plot.js";
import * as queue from "./queue.js";
import * as submit from "./submit.js";
import * as timeline from "./timeline.js";

// However fast the queue changes, it is not asked for more often.
const BETWEEN_LOOKS = 300;
const MORE = 200;
const DAY = 24 * 60 * 60 * 1000;

let picture;
let rows = MORE;
const ended = new Map();
const view = () => /^#\/(queue|timeline|history|submit|job)(?:\/(.+))?$/.exec(location.hash)?.slice(1) ?? ["queue"];

function showQueue() {
  const words = by("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const fitting = (jobs) => queue.matching(jobs, words);
  const over = [...ended.values()].filter((row) => row.end > picture.now - DAY).sort((a, b) => b.end - a.end || b.id - a.id);
  host.show(picture.host);
  queue.show("running", "running", "Running", fitting(picture.running), picture.arrays, showQueue);
  queue.show("waiting", "waiting", "Waiting", fitting(picture.waiting), picture.arrays, showQueue);
  queue.show("ended", "ended", "Ended", fitting(over).slice(0, MORE), {}, showQueue);
  say(by("running-count"), String(picture.running.length));
  say(by("waiting-count"), String(picture.waiting_count));
  say(by("ended-count"), String(over.length));
  by("more-waiting").hidden = picture.waiting_count <= picture.waiting.length;
}

function show() {
  if (!picture) return;
  const [name] = view();
  if (name === "queue") showQueue();
  if (name === "timeline") timeline.show(picture);
}

async function look() {
  const taken = await renew(() => get(`/api/queue?rows=${rows}`));
  if (!taken) return;
  picture = taken;
  const now = Date.now();
  for (const row of picture.running) row.taken = now;
  picture.waiting.forEach((row, at) => {
    row.turn = at + 1;
  });
  for (const row of picture.ended) ended.set(row.id, row);
  for (const row of [...picture.running, ...picture.waiting]) ended.delete(row.id);
  submit.partitions(picture.host.partitions.map((partition) => partition.name));
  show();
}

// One look at a time, and a last one after the last change.
let looking = false;
let wanted = false;

async function refresh() {
  wanted = true;
  if (looking || document.hidden) return;
  looking = true;
  while (wanted && !document.hidden) {
    wanted = false;
    const begun = Date.now();
    await look();
    if (view()[0] === "job") await job.show(decodeURIComponent(view()[1]));
    await new Promise((done) => setTimeout(done, Math.max(0, begun + BETWEEN_LOOKS - Date.now())));
  }
  looking = false;
}

function hear(told) {
  if (told.event === "changed") refresh();
  if (told.event === "sizes") job.grown(told);
  if (told.event === "daemon") {
    say(by("connection"), told.up ? "connected" : told.lost ? "the server does not answer" : "the daemon does not answer");
    document.body.classList.toggle("lost", !told.up);
    if (told.up) refresh();
  }
}

function route(event) {
  const [name, what] = view();
  for (const section of document.querySelectorAll("main > section")) section.hidden = section.id !== `view-${name}`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const target = name === "job" ? decodeURIComponent(what ?? "") : undefined;
  listen(target, hear);
  if (target) job.show(target);
  if (name === "history") history.enter();
  if (name === "queue" || name === "timeline") plots();
  show();
  document.title = name === "job" ? `job ${target} · slotd` : `${name} · slotd`;
  // Who goes to another view by the keyboard goes on there.
  if (event) by("main").focus();
}

// What the host uses is asked for so often while jobs run.
const BETWEEN_PLOTS = 10000;
let plotted = 0;

// In the last hour, and below the timeline as far back as that goes.
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
  if ((name === "queue" || name === "timeline") && Date.now() - plotted >= BETWEEN_PLOTS) plots();
}

async function start() {
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
    refresh();
  });
  window.addEventListener("hashchange", route);
  document.addEventListener("visibilitychange", () => wanted && refresh());
  setInterval(() => document.hidden || !picture?.running.length || tick(), 1000);
  route();
  const day = await renew(() => history.find({ starttime: "now-1day", state: ENDS.join(",") }));
  for (const row of day?.jobs ?? []) if (!ended.has(row.id)) ended.set(row.id, row);
  show();
}

start();
