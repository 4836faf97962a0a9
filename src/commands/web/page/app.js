// The page: selects the view and refreshes it.

import { enter, get, listen, renew } from "./ask.js";
import { attribute, by, say } from "./dom.js";
import * as history from "./history.js";
import * as host from "./host.js";
import * as job from "./job.js";
import * as keys from "./keys.js";
import { setLines } from "./lines.js";
import * as menu from "./menu.js";
import * as plot from "./plot.js";
import * as queue from "./queue.js";
import { setHost } from "./sentence.js";
import { ENDS, FAILED, pictogram } from "./states.js";
import * as store from "./store.js";
import * as submit from "./submit.js";
import * as timeline from "./timeline.js";
import { clock, moment } from "./words.js";

// The pending jobs that the page loads, first and on request.
const [FIRST, MOST] = [200, 20_000];

let rows = FIRST;
const view = () => /^#\/(queue|timeline|history|submit|job)(?:\/(.+))?$/.exec(location.hash)?.slice(1) ?? ["queue"];

function more() {
  if (rows === MOST) return;
  rows = MOST;
  events();
}

function show() {
  const picture = store.picture(clock());
  if (!picture || document.hidden) return;
  const [name] = view();
  setHost(picture.host);
  host.show(picture.host, picture.running);
  if (name === "queue") queue.show(picture, show, more);
  if (name === "timeline") timeline.show(picture);
  if (name === "submit") submit.show(picture);
}

// Adds the jobs that ended in the last day and have left the queue, including those that ended while disconnected.
async function lastDay() {
  // A large array must not hide the failures of others.
  const since = (states, most) => history.find({ starttime: "now-1day", state: states.join(","), rows: most });
  const found = await renew(() => Promise.all([since(ENDS, 2000), since(FAILED, 500)]));
  store.addEnded(found?.flatMap(({ jobs }) => jobs) ?? []);
  show();
}

// The name of a job in the address. Somebody may have typed it.
function named(text = "") {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
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
    await job.show(named(view()[1]));
  }
  looking = false;
}

// When the shown queue was sent, by the daemon's clock.
let heard;

function hear(told) {
  if (told.event === "whole" || told.event === "patch") {
    store.apply(told);
    heard = told.now;
    show();
  }
  if (told.event === "whole") lastDay();
  if (told.event === "changed") refresh();
  if (told.event === "sizes") job.grown(told);
  if (told.event === "daemon") {
    say(
      by("connection"),
      told.up ? "connected" : told.lost ? "the server does not answer" : "the daemon does not answer",
    );
    document.body.classList.toggle("lost", !told.up);
    const shows = view()[0] === "queue" || view()[0] === "timeline";
    const stale = heard
      ? `The queue as of ${moment(heard)}. It will be updated when the connection is back.`
      : "There is no queue to show yet. It will appear when the daemon answers.";
    say(by("stale"), !told.up && shows ? stale : "");
  }
}

const events = (target) =>
  listen(target ? `/api/events?job=${encodeURIComponent(target)}` : `/api/events?rows=${rows}`, hear);

function route(event) {
  const [name, what] = view();
  for (const section of document.querySelectorAll("main > section")) section.hidden = section.id !== `view-${name}`;
  for (const link of document.querySelectorAll("nav a")) {
    // A job is part of the queue.
    attribute(link, "aria-current", link.hash === `#/${name}` ? "page" : name === "job" && link.hash === "#/queue");
  }
  menu.close();
  const target = name === "job" ? named(what) : undefined;
  events(target);
  if (target) job.show(target);
  if (name === "history") history.enter();
  if (name === "queue" || name === "timeline") plots();
  show();
  scrollTo(0, 0);
  document.title = name === "job" ? `job ${target} · slotd` : `${name} · slotd`;
  // Keyboard users continue in the new view.
  if (event) by("main").focus({ preventScroll: true });
}

// The interval between requests for the host usage while jobs are running, in milliseconds.
const BETWEEN_PLOTS = 10000;
let plotted = 0;

// Plots the host usage of the last hour with the last lines of the running jobs or, below the timeline, of the timeline's window.
async function plots() {
  plotted = Date.now();
  const [where, minutes] = view()[0] === "timeline" ? ["timeline-use", timeline.minutes()] : ["host-use", 60];
  const in_queue = where === "host-use";
  const answers = await renew(() =>
    Promise.all([get(`/api/series?minutes=${minutes}`), in_queue ? get("/api/lines") : undefined]),
  );
  if (!answers) return;
  const [used, lines] = answers;
  if (lines) setLines(lines);
  if (in_queue) host.setCharts(used);
  else plot.charts(by(where), used, store.picture(clock())?.host);
  show();
}

function tick() {
  queue.tick();
  const [name] = view();
  if (name === "job") job.tick();
  if (
    (name === "queue" || name === "timeline") &&
    store.picture(clock())?.running.length &&
    Date.now() - plotted >= BETWEEN_PLOTS
  )
    plots();
}

function start() {
  enter();
  history.start();
  submit.start();
  timeline.start(show, () => {
    show();
    plots();
  });
  menu.start();
  keys.start();
  for (const link of document.querySelectorAll("nav a")) link.prepend(pictogram(link.dataset.icon));
  window.addEventListener("hashchange", route);
  document.addEventListener("visibilitychange", () => {
    show();
    if (wanted) refresh();
  });
  setInterval(() => document.hidden || tick(), 1000);
  route();
}

start();
