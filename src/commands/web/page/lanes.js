// The lanes of the timeline, and the blocks on them: jobs and reservations.

import { inWords } from "./reserved.js";
import { endOf } from "./sentence.js";
import { hasFailed, isOver, kindOf, labelOf } from "./states.js";
import { at, counted, span } from "./words.js";

// Returns the lanes: GPUs above CPUs, since they are scarce.
export function lanesOf(host) {
  const dense = host.cpu_ids.length;
  const cpu = dense <= 32 ? 20 : dense <= 64 ? 12 : 6;
  const gpus = Object.keys(host.gpu_names).map((id) => ({ key: `gpu ${id}`, text: `GPU ${id}`, height: 40 }));
  const cpus = host.cpu_ids.map((id, i) => ({
    key: `cpu ${id}`,
    text: dense > 32 && i % 8 ? "" : i ? String(id) : `CPU ${id}`,
    height: cpu,
    gap: i === 0 && gpus.length ? 12 : 0,
  }));
  let y = 0;
  for (const lane of [...gpus, ...cpus]) {
    y += lane.gap ?? 0;
    lane.y = y;
    y += lane.height + (lane.height > 8 ? 2 : 1);
  }
  return { lanes: [...gpus, ...cpus], height: y };
}

// Splits places of lanes into runs of adjacent ones, which form one block each.
function runs(places) {
  const found = [];
  for (const place of [...places].sort((a, b) => a - b)) {
    if (found.length && found.at(-1).to_lane === place - 1) found.at(-1).to_lane = place;
    else found.push({ first: place, to_lane: place });
  }
  return found;
}

const placesOf = (job, index) =>
  [...job.gpu_ids.map((id) => index.get(`gpu ${id}`)), ...job.cpu_ids.map((id) => index.get(`cpu ${id}`))].filter(
    (place) => place !== undefined,
  );

// GPU and CPU lanes are not adjacent.
const blocks = (places, of, is_gpu) =>
  [places.filter(is_gpu), places.filter((place) => !is_gpu(place))].flatMap(runs).map((run) => ({ ...of, ...run }));

function ofJob(job, now) {
  const over = isOver(job);
  const until = over ? job.end : Math.max(now, endOf(job) ?? now);
  const second = over
    ? `${labelOf(job)} after ${span(job.end - job.start)}`
    : endOf(job)
      ? `until ${at(endOf(job))}`
      : "no time limit";
  return {
    job,
    from: job.start,
    to: until,
    solid: over ? job.end : now,
    kind: kindOf(job),
    failed: hasFailed(job),
    second,
    words: `job ${job.label} ${job.name}, ${labelOf(job)}, from ${at(job.start)}, ${over ? `to ${at(job.end)}` : second}`,
  };
}

// Times within which a prediction may be off, in milliseconds.
const CLOSE = 1000;

// What occupies each lane, and until when.
class Use {
  constructor(lanes) {
    this.gpus = lanes.flatMap((lane, i) => (lane.key.startsWith("gpu") ? [i] : []));
    this.cpus = lanes.flatMap((lane, i) => (lane.key.startsWith("gpu") ? [] : [i]));
    this.taken = lanes.map(() => []);
  }

  take(places, from, until, owner) {
    for (const i of places) this.taken[i].push({ from, until, owner });
  }

  // Returns `count` of these lanes: those that are free in this time, then those that are free first.
  choose(lanes, count, [from, until], passes) {
    const after = (i) => {
      const others = this.taken[i].filter(
        (use) => !passes(use) && use.until > from + CLOSE && use.from < until - CLOSE,
      );
      return others.reduce((last, use) => Math.max(last, use.until), 0);
    };
    const all = lanes.map((i) => [i, after(i)]);
    return all
      .sort(([, a], [, b]) => a - b)
      .slice(0, count)
      .map(([i]) => i);
  }
}

// Places a reservation on the lanes that it holds, or on the last free ones before its time has come.
function ofReservation(one, use, index, horizon) {
  const until = one.end ?? Infinity;
  const held = one.cpu_ids.map((id) => index.get(`cpu ${id}`)).filter((i) => i !== undefined);
  const last = (lanes, count) => use.choose(lanes.toReversed(), count, [one.start, until], ({ owner }) => !owner);
  const places = one.is_whole
    ? [...use.gpus, ...use.cpus]
    : [...last(use.gpus, one.gpus), ...(held.length ? held : last(use.cpus, one.cpus))];
  use.take(places, one.start, until, one.name);
  const of = {
    reservation: one,
    from: one.start,
    to: Math.min(until, horizon),
    words: `Reservation ${one.name}, ${inWords(one)}`,
  };
  return { of, places };
}

// Places a planned job on lanes that are free then, as a prediction names no CPUs.
function ofPlanned(job, use, horizon) {
  const until = job.limit_secs ? job.expected + job.limit_secs * 1000 : Infinity;
  const names = new Set(job.reservation.split(","));
  const choose = (lanes, count) => use.choose(lanes, count, [job.expected, until], ({ owner }) => names.has(owner));
  const places = [...choose(use.gpus, job.gpus), ...choose(use.cpus, job.cpus)];
  use.take(places, job.expected, until);
  const second = job.limit_secs ? span(job.limit_secs * 1000) : "no time limit";
  const words = `job ${job.label} ${job.name}, planned for ${at(job.expected)}, ${counted(job.cpus, "CPU")}, ${second}`;
  const of = {
    job,
    from: job.expected,
    to: Math.min(until, horizon),
    kind: "pending",
    is_planned: true,
    second,
    words,
  };
  return { of, places };
}

// Returns the blocks of reservations, and of ended, running and planned jobs.
export function blocksOf(lanes, { ended, running, planned, reservations }, now, horizon) {
  const index = new Map(lanes.map((lane, i) => [lane.key, i]));
  const use = new Use(lanes);
  const is_gpu = (i) => i < use.gpus.length;
  const found = [];
  const put = ({ of, places }) => found.push(...blocks(places, of, is_gpu));
  for (const one of reservations) put(ofReservation(one, use, index, horizon));
  for (const job of [...ended, ...running]) {
    const places = placesOf(job, index);
    if (!isOver(job)) use.take(places, job.start, endOf(job) ?? Infinity);
    put({ of: ofJob(job, now), places });
  }
  for (const job of [...planned].sort((a, b) => a.expected - b.expected)) put(ofPlanned(job, use, horizon));
  return found;
}
