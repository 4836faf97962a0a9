// The options and the script of a job that waits, as one text that is changed at once or not at all.

import { attempt, confirmed, get, post, told } from "./ask.js";
import { el } from "./dom.js";

export class Edit {
  constructor(name) {
    this.path = `/api/job/${encodeURIComponent(name)}/edit`;
    this.name = name;
    this.text = el("textarea", { rows: "20", spellcheck: "false", "aria-label": "Options and script" });
    this.form = el("form", { onsubmit: (event) => { event.preventDefault(); this.save(); }, hidden: true },
      this.text,
      el("p", { class: "buttons" }, el("button", {}, "Change the job"), el("button", { type: "button", onclick: () => this.close() }, "Leave it as it is")));
    this.open = el("button", { type: "button", onclick: () => this.begin() }, "Edit options and script");
    this.element = el("div", { hidden: true }, el("p", {}, this.open), this.form);
  }

  // Only a job that waits is edited; what somebody is writing stays to be copied.
  show(waits) {
    this.element.hidden = !waits && this.form.hidden;
    this.open.hidden = !waits || !this.form.hidden;
  }

  async begin() {
    const shown = await attempt(() => get(this.path));
    if (!shown) return;
    this.before = shown.text;
    this.text.value = shown.text;
    this.form.hidden = false;
    this.open.hidden = true;
    this.text.focus();
  }

  async save() {
    if (!(await confirmed(`Change job ${this.name}?`))) return;
    // A browser has its own ends of lines.
    const text = this.text.value.replaceAll("\r\n", "\n");
    const done = await attempt(() => post(this.path, { before: this.before, text }));
    if (!done) return;
    told(done.told);
    this.close();
  }

  close() {
    this.form.hidden = true;
    this.open.hidden = false;
    this.open.focus();
  }
}
