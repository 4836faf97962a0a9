// One output of a job: first its end, then new output as it is written. Earlier output is loaded on demand.

import { attempt, bytes, renew } from "./ask.js";
import { el, say } from "./dom.js";

const FIRST = 64 * 1024;
const STEP = 256 * 1024;
// Maximum number of characters to keep, even if a page follows the file for days.
const KEPT = 4 * 1024 * 1024;

// Removes terminal colors and cursor movements.
const plain = (text) => text.replace(/\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)/g, "").replace(/\r\n/g, "\n");

export class Log {
  constructor(job, stream, title) {
    this.path = `/api/job/${encodeURIComponent(job)}/log/${stream}`;
    this.follows = el("input", { type: "checkbox", checked: true });
    this.earlier = el("button", { type: "button", hidden: true, onclick: () => this.before() }, "Show earlier output");
    this.place = el("span", { class: "count" });
    this.text = el("pre", { class: "log", tabindex: "0", role: "region", "aria-label": title });
    this.element = el("div", { class: "output" },
      el("h3", {}, title, " ", this.place),
      el("p", {}, el("label", {}, this.follows, " follow"), " ", this.earlier),
      this.text);
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
      if (wanted === null) this.clear("no output yet");
      else await renew(() => this.catchUp(wanted));
      this.size = wanted;
    }
    this.busy = false;
  }

  clear(words) {
    this.text.replaceChildren();
    this.decoder = new TextDecoder();
    this.from = this.end = 0;
    say(this.place, words);
    this.earlier.hidden = true;
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
    this.text.append(plain(this.decoder.decode(part.bytes, { stream: true })));
    while (this.text.textContent.length > KEPT && this.text.childNodes.length > 1) {
      this.from += new TextEncoder().encode(this.text.firstChild.data).length;
      this.text.firstChild.remove();
    }
    this.tell(part.size);
    if (this.follows.checked) this.text.scrollTop = this.text.scrollHeight;
  }

  tell(size) {
    say(this.place, this.from > 0 ? `bytes ${this.from} to ${this.end} of ${size}` : `${this.end} bytes`);
    this.earlier.hidden = this.from === 0;
  }

  async before() {
    const from = Math.max(0, this.from - STEP);
    const part = await attempt(() => bytes(this.path, `${from}-${this.from - 1}`));
    if (!part?.bytes.length) return;
    const height = this.text.scrollHeight;
    this.follows.checked = false;
    this.from = part.from;
    this.text.prepend(plain(new TextDecoder().decode(part.bytes)));
    this.text.scrollTop = this.text.scrollHeight - height;
    this.tell(part.size);
  }
}
