// Edits the options and the script of a pending job as one text. All changes are applied, or none.

import { attempt, confirmed, get, post, told } from "./ask.js";
import { el } from "./dom.js";

export class Edit {
  constructor(name) {
    this.path = `/api/job/${encodeURIComponent(name)}/edit`;
    this.name = name;
    this.text = el("textarea", { rows: "20", spellcheck: "false", "aria-label": "Options and script" });
    this.form = el(
      "form",
      {
        onsubmit: (event) => {
          event.preventDefault();
          this.save();
        },
        hidden: true,
      },
      this.text,
      el(
        "p",
        { class: "buttons" },
        el("button", { class: "primary" }, "Save changes"),
        el("button", { type: "button", onclick: () => this.close() }, "Discard changes"),
      ),
    );
    this.open = el("button", { type: "button", onclick: () => this.begin() }, "Edit options and script");
    this.element = el("div", { hidden: true }, el("p", {}, this.open), this.form);
  }

  // Only pending jobs can be edited. An open form stays visible, so that its text can be copied.
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
    if (!(await confirmed(`Change job ${this.name}?`, { yes: "Change", no: "Go back" }))) return;
    // Browsers may use CRLF line endings.
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
