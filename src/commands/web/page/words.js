// Times, amounts and counts in words.

const two = (number) => String(number).padStart(2, "0");

// Formats a duration with units: 45s, 12m, 3h 12m, 2d 4h.
export function span(ms) {
  const secs = Math.max(0, Math.floor(ms / 1000));
  const [days, hours, minutes] = [Math.floor(secs / 86400), Math.floor(secs / 3600) % 24, Math.floor(secs / 60) % 60];
  const pair = (big, unit, small, smaller) => `${big}${unit}${small ? ` ${small}${smaller}` : ""}`;
  if (days) return pair(days, "d", hours, "h");
  if (hours) return pair(hours, "h", minutes, "m");
  return minutes ? pair(minutes, "m", minutes < 5 ? secs % 60 : 0, "s") : `${secs}s`;
}

// Formats a time limit as Slurm does: [days-]hh:mm:ss.
export function limitText(secs) {
  const [days, hours, minutes] = [Math.floor(secs / 86400), Math.floor(secs / 3600) % 24, Math.floor(secs / 60) % 60];
  return `${days ? `${days}-` : ""}${two(hours)}:${two(minutes)}:${two(secs % 60)}`;
}

// The difference between the server's clock and ours, as of the last event.
let ahead = 0;
export const clock = () => Date.now() + ahead;
export function setClock(now) {
  ahead = now - Date.now();
}

// Returns the elapsed time of a job, in milliseconds.
export const elapsed = (row, now = clock()) => row.elapsed_ms ?? Math.max(0, now - row.since);

// Formats a time to the minute, with its day unless it is today.
export function at(ms) {
  if (ms === null || ms === undefined) return "";
  const when = new Date(ms);
  const time = `${two(when.getHours())}:${two(when.getMinutes())}`;
  return when.toDateString() === new Date().toDateString() ? time : `${day(ms)} ${time}`;
}

export const day = (ms) => new Date(ms).toLocaleDateString("en-GB", { day: "numeric", month: "short" });

// Formats a time to the second, with its date unless it is today.
export function moment(ms) {
  if (ms === null || ms === undefined) return "";
  const when = new Date(ms);
  const time = `${two(when.getHours())}:${two(when.getMinutes())}:${two(when.getSeconds())}`;
  if (when.toDateString() === new Date().toDateString()) return time;
  return `${when.getFullYear()}-${two(when.getMonth() + 1)}-${two(when.getDate())} ${time}`;
}

// Separates thousands. The formats of Intl take tens of milliseconds to create.
export const grouped = (count) => String(count).replace(/\B(?=(\d{3})+$)/g, ",");
export const counted = (count, word) => `${grouped(count)} ${word}${count === 1 ? "" : "s"}`;

// Formats an amount of memory in MB.
export function memory(mb) {
  const gb = mb / 1024;
  if (mb < 1) return "0 MB";
  if (mb < 1024) return `${Math.round(mb)} MB`;
  return `${Number.isInteger(gb) || gb >= 100 ? Math.round(gb) : gb.toFixed(1)} GB`;
}

export function bytes(amount) {
  for (const unit of ["B", "KB", "MB", "GB"]) {
    if (amount < 1024)
      return `${unit !== "B" && amount < 10 ? amount.toFixed(1).replace(/\.0$/, "") : Math.round(amount)} ${unit}`;
    amount /= 1024;
  }
  return `${amount.toFixed(1)} TB`;
}

// Formats the resources that a job has or requests.
export function size(row) {
  const gpus = row.gpus ? `, ${counted(row.gpus, "GPU")}` : "";
  return `${counted(row.cpus, "CPU")}, ${memory(row.mem_mb)}${gpus}`;
}

// Formats numbers as ranges: 0-3, 5.
export function ranges(numbers) {
  const runs = [];
  for (const number of [...numbers].sort((a, b) => a - b)) {
    if (runs.length && runs.at(-1)[1] === number - 1) runs.at(-1)[1] = number;
    else runs.push([number, number]);
  }
  return runs.map(([from, to]) => (from === to ? from : `${from}-${to}`)).join(", ");
}
