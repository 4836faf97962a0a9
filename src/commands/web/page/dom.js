// Helpers that create elements. Data from the queue always becomes text, never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== undefined && child !== null));
  return element;
}

export const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
export const by = (id) => document.getElementById(id);

// Sets the text only if it differs, so that screen readers do not repeat it and selections are kept.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function attribute(element, name, value) {
  if (value === undefined || value === null || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

// Updates the children of `parent` to match `items`, in order. The element of an item is reused while the item exists, so it
// keeps the focus.
export function keyed(parent, items, keyOf, make, update) {
  const known = parent.known ?? (parent.known = new Map());
  const wanted = new Set(items.map(keyOf));
  for (const [key, element] of known) {
    if (!wanted.has(key)) {
      element.remove();
      known.delete(key);
    }
  }
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let element = known.get(key);
    if (!element) {
      element = make(item);
      known.set(key, element);
    }
    update?.(element, item);
    if (element === place) place = place.nextElementSibling;
    else parent.insertBefore(element, place);
  }
}

const two = (number) => String(number).padStart(2, "0");

// 1-02:03:04, 2:03:04, 3:04
export function duration(ms) {
  const secs = Math.max(0, Math.floor(ms / 1000));
  const [days, hours, minutes] = [Math.floor(secs / 86400), Math.floor(secs / 3600) % 24, Math.floor(secs / 60) % 60];
  const tail = `${two(minutes)}:${two(secs % 60)}`;
  if (days) return `${days}-${two(hours)}:${tail}`;
  return hours ? `${hours}:${tail}` : `${minutes}:${two(secs % 60)}`;
}

// The difference between the server's clock and ours, as of the last event.
let ahead = 0;
export const clock = () => Date.now() + ahead;
export function setClock(now) {
  ahead = now - Date.now();
}

// Returns the elapsed time of a job, in milliseconds.
export const elapsed = (row, now) => row.elapsed_ms ?? Math.max(0, now - row.since);

// Formats a time, with its date unless it is today.
export function moment(ms) {
  if (ms === null || ms === undefined) return "";
  const at = new Date(ms);
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  if (at.toDateString() === new Date().toDateString()) return clock;
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock}`;
}

export function memory(mb) {
  if (mb >= 10240) return `${Math.round(mb / 1024)} GB`;
  return mb >= 1024 ? `${(mb / 1024).toFixed(1)} GB` : `${mb} MB`;
}

// Formats the resources that a job has or requests.
export function size(row) {
  const gpus = row.gpus ? `, ${row.gpus} GPU${row.gpus > 1 ? "s" : ""}` : "";
  return `${row.cpus} CPU${row.cpus > 1 ? "s" : ""}, ${memory(row.mem_mb)}${gpus}`;
}

export const link = (row) => el("a", { href: `#/job/${encodeURIComponent(row.target)}` }, row.label);
