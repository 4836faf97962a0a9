// The keys of the page. They do nothing while the user types or answers a question.

import { by } from "./dom.js";
import * as queue from "./queue.js";

const VIEWS = { q: "queue", t: "timeline", h: "history", s: "submit" };
let goes = false;

function escape() {
  const filter = by("filter");
  if (filter.value) {
    filter.value = "";
    filter.dispatchEvent(new Event("input"));
  } else if (!queue.clearPicked()) document.activeElement.blur();
}

function inQueue(key) {
  if (key === "j" || key === "ArrowDown") queue.move(1);
  else if (key === "k" || key === "ArrowUp") queue.move(-1);
  else if (key === "x") queue.current()?.pick.click();
  else if (key === ".") queue.current()?.button.click();
  else return false;
  return true;
}

function onKey(event) {
  const { key, target } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open], :popover-open")) return;
  if (key === "Escape" && (target === by("filter") || !target.matches("input, textarea, select"))) return escape();
  if (target.matches("input:not([type=checkbox]), textarea, select")) return;
  const had = goes;
  goes = key === "g";
  if (had && VIEWS[key]) location.hash = `#/${VIEWS[key]}`;
  else if (key === "?") by("keys").showModal();
  else if (key === "/" && queue.isQueue()) by("filter").focus();
  else if (!(queue.isQueue() && inQueue(key))) return;
  event.preventDefault();
}

export function start() {
  document.addEventListener("keydown", onKey);
  by("help").addEventListener("click", () => by("keys").showModal());
}
