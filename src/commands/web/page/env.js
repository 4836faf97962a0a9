// The environment that a job was submitted with. Values whose names suggest a secret are hidden until they are requested.

import { attempt, get } from "./ask.js";
import { el, say } from "./dom.js";

const SECRET = /token|secret|passw|credential|private|(?:^|_)(?:api_?)?key(?:$|_)|auth|cookie/i;

export class Environment {
  constructor(path) {
    this.path = path;
    this.find = el("input", {
      type: "search",
      placeholder: "Filter",
      "aria-label": "Filter the environment",
      autocomplete: "off",
      oninput: () => this.filter(),
    });
    this.count = el("span", { class: "count", role: "status" });
    this.list = el("dl", { class: "variables" });
    this.element = el("div", {}, el("p", { class: "tools" }, this.find, this.count), this.list);
  }

  async open() {
    if (this.pairs) return;
    const pairs = await attempt(() => get(this.path));
    if (!pairs || this.pairs) return;
    this.pairs = pairs.map(([name, value]) => {
      const shown = el("dd", {}, value);
      if (value && SECRET.test(name))
        shown.replaceChildren(
          el("button", { type: "button", "aria-label": `Show ${name}`, onclick: () => say(shown, value) }, "Show"),
        );
      return {
        text: `${name}=${SECRET.test(name) ? "" : value}`.toLowerCase(),
        pair: el("div", {}, el("dt", {}, name), shown),
      };
    });
    this.list.replaceChildren(...this.pairs.map(({ pair }) => pair));
    this.filter();
  }

  filter() {
    const word = this.find.value.toLowerCase();
    let count = 0;
    for (const { text, pair } of this.pairs ?? []) {
      pair.hidden = !text.includes(word);
      count += pair.hidden ? 0 : 1;
    }
    say(
      this.count,
      this.pairs?.length ? `${count} of ${this.pairs.length}` : "The job was submitted without an environment.",
    );
  }
}
