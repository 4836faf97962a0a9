// Reservations in words.

import { at, counted, memory } from "./words.js";

// The reserved part of the host.
export function share(one) {
  const amounts = [
    one.cpus && counted(one.cpus, "CPU"),
    one.mem_mb && memory(one.mem_mb),
    one.gpus && counted(one.gpus, "GPU"),
    one.licenses,
  ].filter(Boolean);
  return one.is_whole ? ["the whole host", one.licenses].filter(Boolean).join(", ") : amounts.join(", ");
}

const listed = (names) => {
  const others = names.every((name) => name.startsWith("-")) && names.length;
  return others ? `all but ${names.map((name) => name.slice(1)).join(", ")}` : names.join(", ");
};
const REPEATS = {
  HOURLY: "every hour",
  DAILY: "every day",
  WEEKDAY: "on weekdays",
  WEEKEND: "on weekends",
  WEEKLY: "every week",
};

// Who may use a reservation, and how often it comes.
export function details(one) {
  const flags = new Set(one.flags);
  return [
    share(one),
    flags.has("MAINT") && "maintenance",
    one.users.length > 0 && `for ${listed(one.users)}`,
    one.accounts.length > 0 && `for account ${listed(one.accounts)}`,
    one.partition && `in ${one.partition}`,
    ...one.flags.map((flag) => REPEATS[flag]),
  ]
    .filter(Boolean)
    .join(", ");
}

export function inWords(one) {
  const time = one.is_active
    ? `reserved until ${one.end === null ? "it is deleted" : at(one.end)}`
    : `reserved from ${at(one.start)} ${one.end === null ? "on" : `to ${at(one.end)}`}`;
  return `${time}: ${details(one)}`;
}
