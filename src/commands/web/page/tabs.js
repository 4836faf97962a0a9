// Tabs with their panels. A panel may be filled when it is first opened.

import { attribute, el, say } from "./dom.js";

let count = 0;

export class Tabs {
  // Each panel: { name, title, element, open }.
  constructor(label, panels) {
    this.panels = panels;
    this.list = el("div", { role: "tablist", "aria-label": label });
    for (const panel of panels) {
      const id = `tab-${(count += 1)}`;
      panel.tab = el(
        "button",
        { type: "button", role: "tab", id, "aria-controls": `${id}-panel`, onclick: () => this.select(panel.name) },
        panel.title,
        " ",
        el("span", { class: "count" }),
      );
      for (const [name, value] of [
        ["role", "tabpanel"],
        ["id", `${id}-panel`],
        ["aria-labelledby", id],
      ])
        attribute(panel.element, name, value);
    }
    this.list.append(...panels.map((panel) => panel.tab));
    this.list.addEventListener("keydown", (event) => this.onKey(event));
    this.element = el("div", {}, this.list, ...panels.map((panel) => panel.element));
    this.select(panels[0].name);
  }

  select(name) {
    for (const panel of this.panels) {
      const is_it = panel.name === name;
      attribute(panel.tab, "aria-selected", String(is_it));
      attribute(panel.tab, "tabindex", is_it ? "0" : "-1");
      panel.element.hidden = !is_it;
      if (is_it) panel.open?.();
    }
  }

  // Shows the number of things in a panel. A panel without any has no tab.
  tell(name, number) {
    const { tab } = this.panels.find((panel) => panel.name === name);
    say(tab.lastChild, number ? String(number) : "");
    tab.hidden = number === 0;
  }

  onKey(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const tabs = this.panels.map((panel) => panel.tab).filter((tab) => !tab.hidden);
    const next = tabs[(tabs.indexOf(document.activeElement) + step + tabs.length) % tabs.length];
    next.click();
    next.focus();
  }
}
