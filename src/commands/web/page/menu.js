// The menu of a row, and the buttons of the selected rows.

import { act, common, isDanger, labelOf } from "./actions.js";
import { attribute, by, el, keyed, say } from "./dom.js";
import { counted, memory } from "./words.js";
import { isOver } from "./states.js";
import { isPhone } from "./list.js";
import { copied } from "./ask.js";

let owner;

export function close() {
  by("menu").hidePopover();
}

const item = (text, run, more = {}) =>
  el(
    "button",
    {
      type: "button",
      role: "menuitem",
      onclick: () => {
        close();
        run();
      },
      ...more,
    },
    text,
  );

function general(row) {
  const open = () => {
    location.hash = `#/job/${encodeURIComponent(row.target)}`;
  };
  return [
    item(isOver(row) || row.state === "PENDING" ? "Open" : "Open and follow the output", open),
    item("Copy the job number", () => copied(row.target)),
  ];
}

// Opens the menu at a button for these rows; `title` names them on a phone.
export function openMenu(button, rows, title) {
  const menu = by("menu");
  const names = common(rows);
  const entry = (name) =>
    item(labelOf(name, rows), () => act(name, rows), { class: isDanger(name) ? "danger" : "", "data-action": name });
  const [mild, harsh] = [names.filter((name) => !isDanger(name)).map(entry), names.filter(isDanger).map(entry)];
  const rule = () => el("hr");
  menu.replaceChildren(
    el("p", { class: "one-line", role: "presentation" }, title),
    ...(rows.length === 1 ? general(rows[0]) : []),
    ...(mild.length ? [rule(), ...mild] : []),
    ...(harsh.length ? [rule(), ...harsh] : []),
    item("Close", () => {}, { class: "close" }),
  );
  owner = button;
  attribute(button, "aria-expanded", "true");
  menu.showPopover();
  if (!isPhone()) {
    const [place, size] = [button.getBoundingClientRect(), menu.getBoundingClientRect()];
    const top = place.bottom + size.height > innerHeight ? place.top - size.height : place.bottom;
    menu.style.setProperty("--y", `${Math.max(8, top)}px`);
    menu.style.setProperty("--x", `${Math.max(8, Math.min(place.right, innerWidth - 8) - size.width)}px`);
  }
  menu.querySelector("button").focus();
}

function onKey(event) {
  const items = [...by("menu").querySelectorAll("button")].filter((button) => button.offsetParent);
  const at = items.indexOf(document.activeElement);
  const to = { ArrowDown: at + 1, j: at + 1, ArrowUp: at - 1, k: at - 1, Home: 0, End: items.length - 1 }[event.key];
  if (event.key === "Tab") close();
  if (to === undefined) return;
  event.preventDefault();
  event.stopPropagation();
  items[(to + items.length) % items.length].focus();
}

export function start() {
  by("menu").addEventListener("keydown", onKey);
  by("menu").addEventListener("toggle", (event) => {
    if (event.newState !== "closed" || !owner) return;
    attribute(owner, "aria-expanded", "false");
    if (document.activeElement === document.body || by("menu").contains(document.activeElement)) owner.focus();
    owner = undefined;
  });
}

// Shows the total of the selected rows and the actions that all of them allow.
export function showSelection(rows, clear) {
  const bar = by("selection");
  bar.hidden = !rows.length;
  if (!rows.length) return;
  const sum = (of) => rows.reduce((all, row) => all + of(row), 0);
  bar.rows = rows;
  bar.total ??= el("span");
  bar.actions ??= el("span", { class: "buttons" });
  bar.clear ??= el(
    "button",
    { type: "button", class: "plain", "aria-label": "Clear the selection", onclick: () => bar.clear.run() },
    "✕",
  );
  bar.clear.run = clear;
  if (!bar.total.isConnected) bar.replaceChildren(bar.total, bar.actions, bar.clear);
  const gpus = sum((row) => row.gpus);
  say(
    bar.total,
    `${rows.length} selected: ${counted(
      sum((row) => row.cpus),
      "CPU",
    )}, ${memory(sum((row) => row.mem_mb))}${gpus ? `, ${counted(gpus, "GPU")}` : ""}`,
  );
  keyed(
    bar.actions,
    common(rows),
    (name) => name,
    (name) =>
      el("button", {
        type: "button",
        class: isDanger(name) ? "danger" : "",
        onclick: async () => {
          if (await act(name, bar.rows)) bar.clear.run();
        },
      }),
    (button, name) => say(button, labelOf(name, rows)),
  );
}
