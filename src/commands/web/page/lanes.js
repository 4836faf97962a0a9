// The lanes of the timeline, and the blocks on them. A block is anything that occupies lanes for a time: a job, or later
// a reservation.

import { hasFailed, isOver, kindOf, labelOf } from "./states.js";
import { at, counted, span } from "./words.js";
import { endOf } from "./sentence.js";

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

// Places a planned job on the first lanes that are free then, as a prediction names no CPUs.
function place(job, free, lanes, is_gpu) {
  const until = job.limit_secs ? job.expected + job.limit_secs * 1000 : Infinity;
  const take = (fits, count) => {
    const all = lanes.map((_, i) => i).filter(fits);
    const chosen = all.filter((i) => free[i] <= job.expected + 1000).slice(0, count);
    const rest = all
      .filter((i) => !chosen.includes(i))
      .sort((a, b) => free[a] - free[b])
      .slice(0, count - chosen.length);
    return [...chosen, ...rest];
  };
  const places = [...take(is_gpu, job.gpus), ...take((i) => !is_gpu(i), job.cpus)];
  for (const i of places) free[i] = until;
  return { places, until };
}

// Returns the blocks of ended, running and planned jobs.
export function blocksOf(lanes, { ended, running, planned }, now, horizon) {
  const index = new Map(lanes.map((lane, i) => [lane.key, i]));
  const is_gpu = (i) => lanes[i].key.startsWith("gpu");
  const free = lanes.map(() => 0);
  const found = [];
  for (const job of [...ended, ...running]) {
    const of = ofJob(job, now);
    const places = placesOf(job, index);
    if (!isOver(job))
      places.forEach((i) => {
        free[i] = endOf(job) ?? Infinity;
      });
    found.push(...blocks(places, of, is_gpu));
  }
  for (const job of [...planned].sort((a, b) => a.expected - b.expected)) {
    const { places, until } = place(job, free, lanes, is_gpu);
    const second = job.limit_secs ? span(job.limit_secs * 1000) : "no time limit";
    const of = {
      job,
      from: job.expected,
      to: Math.min(until, horizon),
      kind: "pending",
      is_planned: true,
      second,
      words: `job ${job.label} ${job.name}, planned for ${at(job.expected)}, ${counted(job.cpus, "CPU")}, ${second}`,
    };
    found.push(...blocks(places, of, is_gpu));
  }
  return found;
}
