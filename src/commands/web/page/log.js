// One output of a job: first its end, then new output as it is written. Earlier output is loaded on demand.

import { Ansi } from "./ansi.js";
import { attempt, bytes, renew, told } from "./ask.js";
import { el, say } from "./dom.js";
import { Find } from "./find.js";
import { bytes as amount } from "./words.js";

const FIRST = 64 * 1024;
const STEP = 256 * 1024;
// Maximum number of bytes to keep, even if a page follows the file for days.
const KEPT = 4 * 1024 * 1024;
// Maximum size of a download, which is collected in memory.
const MOST_DOWNLOAD = 256 * 1024 * 1024;

export class Log {
  constructor(job, stream, title) {
    this.name = `job-${job}.${stream}`;
    this.path = `/api/job/${encodeURIComponent(job)}/log/${stream}`;
    this.follows = el("input", { type: "checkbox", checked: true, onchange: () => this.toEnd() });
    this.wraps = el("input", {
      type: "checkbox",
      checked: true,
      onchange: () => this.text.classList.toggle("wrap", this.wraps.checked),
    });
    this.earlier = el(
      "button",
      { type: "button", class: "plain", hidden: true, onclick: () => this.before() },
      "Show earlier output",
    );
    this.save = el("button", { type: "button", onclick: () => this.download() }, "Download");
    this.place = el("span", { class: "count" });
    this.none = el("p", { class: "none", hidden: true });
    this.text = el("pre", { class: "log wrap", tabindex: "0", role: "region", "aria-label": title });
    this.find = new Find(this.text);
    this.element = el(
      "div",
      { class: "output" },
      el(
        "div",
        { class: "tools" },
        this.find.element,
        this.place,
        this.earlier,
        el("label", {}, this.follows, "Follow"),
        el("label", {}, this.wraps, "Wrap"),
        this.save,
      ),
      this.none,
      this.text,
    );
    this.from = 0;
    this.end = 0;
    this.size = undefined;
    this.busy = false;
  }

  // Handles a new file size; null if the file does not exist.
  async grown(size) {
    this.wanted = size;
    if (this.busy) return;
    this.busy = true;
    while (this.wanted !== this.size) {
      const wanted = this.wanted;
      if (wanted === null) {
        this.clear("");
        this.empty("No output yet.");
      } else await renew(() => this.catchUp(wanted));
      this.size = wanted;
    }
    this.busy = false;
  }

  clear(words) {
    this.text.replaceChildren();
    this.decoder = new TextDecoder();
    this.ansi = new Ansi();
    this.line = [];
    this.from = this.end = 0;
    say(this.place, words);
    this.earlier.hidden = true;
    this.save.disabled = true;
  }

  // Without output, there is nothing to search or to follow.
  empty(words) {
    say(this.none, words);
    this.none.hidden = !words;
    this.text.hidden = Boolean(words);
    this.element.classList.toggle("empty", Boolean(words));
  }

  async catchUp(size) {
    // The file was replaced or truncated, or has grown too far.
    if (this.size === undefined || this.size === null || size < this.end || size - this.end > KEPT) {
      this.clear("");
      const part = await bytes(this.path, `-${FIRST}`);
      this.from = part.from;
      this.add(part);
    }
    while (this.end < size) {
      const part = await bytes(this.path, `${this.end}-`);
      if (!part.bytes.length) break;
      this.add(part);
    }
  }

  add(part) {
    this.end = part.from + part.bytes.length;
    const whole = el("span");
    whole.size = part.bytes.length;
    this.text.append(whole);
    this.put(whole, this.decoder.decode(part.bytes, { stream: true }), this.ansi, this.line);
    while (this.end - this.from > KEPT && this.text.childNodes.length > 1) {
      this.from += this.text.firstChild.size;
      this.text.firstChild.remove();
    }
    this.tell(part.size);
    this.toEnd();
    if (this.find.input.value) this.find.run(false);
  }

  // Appends text. `line` holds the nodes after the last line break, which a carriage return erases.
  put(parent, text, ansi, line) {
    for (const { text: piece, names, erase } of ansi.pieces(text)) {
      if (erase) line.splice(0).forEach((node) => node.remove());
      else {
        const cut = piece.lastIndexOf("\n") + 1;
        for (const part of [piece.slice(0, cut), piece.slice(cut)]) {
          if (!part) continue;
          const node = names ? el("span", { class: names }, part) : new Text(part);
          parent.append(node);
          if (part === piece.slice(cut) && cut < piece.length) line.push(node);
          else line.length = 0;
        }
      }
    }
  }

  toEnd() {
    if (this.follows.checked) this.text.scrollTop = this.text.scrollHeight;
  }

  tell(size) {
    say(this.place, this.from > 0 ? `the last ${amount(this.end - this.from)} of ${amount(size)}` : amount(this.end));
    this.earlier.hidden = this.from === 0;
    this.save.disabled = false;
    this.empty(this.end ? "" : "The output is empty.");
  }

  async before() {
    const from = Math.max(0, this.from - STEP);
    const part = await attempt(() => bytes(this.path, `${from}-${this.from - 1}`));
    if (!part?.bytes.length) return;
    const height = this.text.scrollHeight;
    this.follows.checked = false;
    this.from = part.from;
    const whole = el("span");
    whole.size = part.bytes.length;
    this.put(whole, new TextDecoder().decode(part.bytes), new Ansi(), []);
    this.text.prepend(whole);
    this.text.scrollTop = this.text.scrollHeight - height;
    this.tell(part.size);
  }

  // Collects the file, as far as it is written now, and saves it.
  async download() {
    const parts = [];
    let [at, size] = [0, Infinity];
    this.save.disabled = true;
    while (at < size) {
      const part = await attempt(() => bytes(this.path, `${at}-`));
      if (!part?.bytes.length) break;
      if (part.size > MOST_DOWNLOAD) {
        this.save.disabled = false;
        return told(`The output has ${amount(part.size)}. Copy the file instead.`);
      }
      size = Math.min(size, part.size);
      parts.push(part.bytes);
      at += part.bytes.length;
    }
    this.save.disabled = false;
    const url = URL.createObjectURL(new Blob(parts, { type: "application/octet-stream" }));
    el("a", { href: url, download: this.name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  }
}
