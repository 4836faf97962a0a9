// A search in an output. Matches are highlighted without changing its elements.

import { el, say } from "./dom.js";

const MOST = 10_000;

export class Find {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.ranges = [];
    this.input = el("input", {
      type: "search",
      placeholder: "Search",
      "aria-label": "Search in the output",
      autocomplete: "off",
    });
    this.count = el("span", { class: "count", role: "status" });
    const button = (text, label, by) =>
      el("button", { type: "button", class: "plain", "aria-label": label, title: label, onclick: () => this.step(by) }, text);
    this.steps = el(
      "span",
      { hidden: true },
      button("↑", "Previous match (Shift+Enter)", -1),
      button("↓", "Next match (Enter)", 1),
    );
    this.element = el("span", { class: "search" }, this.input, this.count, this.steps);
    this.input.addEventListener("input", () => this.run(true));
    this.input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      this.step(event.shiftKey ? -1 : 1);
    });
  }

  // Searches each line of text again. `jumps` shows the last match, as output is read from its end.
  run(jumps) {
    const word = this.input.value.toLowerCase();
    this.ranges = [];
    if (word) {
      const walker = document.createTreeWalker(this.text, NodeFilter.SHOW_TEXT);
      for (let node = walker.nextNode(); node && this.ranges.length < MOST; node = walker.nextNode()) {
        const text = node.data.toLowerCase();
        for (
          let at = text.indexOf(word);
          at >= 0 && this.ranges.length < MOST;
          at = text.indexOf(word, at + word.length)
        ) {
          const range = new Range();
          range.setStart(node, at);
          range.setEnd(node, Math.min(node.length, at + word.length));
          this.ranges.push(range);
        }
      }
    }
    if (jumps || this.at >= this.ranges.length) this.at = this.ranges.length - 1;
    this.show(jumps);
  }

  step(by) {
    if (!this.ranges.length) return;
    this.at = (this.at + by + this.ranges.length) % this.ranges.length;
    this.show(true);
  }

  show(jumps) {
    if (!this.input.value && !CSS.highlights.has("found")) return;
    CSS.highlights.set("found", new Highlight(...this.ranges));
    const current = this.ranges[this.at];
    CSS.highlights.set("current", new Highlight(...(current ? [current] : [])));
    this.steps.hidden = !current;
    say(
      this.count,
      this.input.value
        ? current
          ? `${this.at + 1} of ${this.ranges.length}${this.ranges.length === MOST ? "+" : ""}`
          : "no match"
        : "",
    );
    if (!jumps || !current) return;
    const [place, box] = [current.getBoundingClientRect(), this.text.getBoundingClientRect()];
    this.text.scrollTop += place.top - box.top - box.height / 2;
  }
}
