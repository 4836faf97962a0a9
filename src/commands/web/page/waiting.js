// The pending jobs that wait for a job or an array.

import { renew, get } from "./ask.js";
import { el, keyed, link, say } from "./dom.js";
import { iconOf } from "./states.js";
import { at } from "./words.js";

// The interval between requests while the job does not change, in milliseconds.
const BETWEEN = 10_000;

export class Waiting {
  constructor(path, title) {
    this.path = path;
    this.list = el("ul", { class: "next", "aria-labelledby": "next-title" });
    this.element = el("div", { hidden: true }, el("h3", { id: "next-title" }, title), this.list);
  }

  // Requests the jobs after a change of the queue, unless they were requested just before in the same state of the job.
  async show(state) {
    if (this.state === state && Date.now() - this.asked < BETWEEN) return;
    Object.assign(this, { state, asked: Date.now() });
    const rows = await renew(() => get(this.path));
    if (!rows) return;
    this.element.hidden = !rows.length;
    keyed(
      this.list,
      rows,
      (row) => `${row.id} ${row.state} ${row.reason}`,
      (row) => el("li", {}, iconOf(row), link(row, `${row.label} ${row.name}`), el("span", { class: "dim" })),
      (li, row) => say(li.lastChild, at(row.expected)),
    );
  }
}
