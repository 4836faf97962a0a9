// A long list: only the rows near the window exist as elements. All rows of a list have the same height.

import { keyed } from "./dom.js";

// Rows kept above and below the window.
const BEYOND = 12;
// How far from them a row with the focus is kept.
const NEAR = 40;

export const isPhone = () => matchMedia("(max-width: 704px)").matches;
// As in the style sheet.
const height = () => (matchMedia("(max-width: 960px)").matches ? 56 : 38);

export class List {
  // `element` holds the rows, `options` has the functions keyOf, make and update.
  constructor(element, options) {
    Object.assign(this, options);
    this.element = element;
    this.items = [];
  }

  set(items) {
    this.items = items;
    this.draw();
  }

  // The rows from the first to the last one near the window; the others are only space.
  draw() {
    const [each, top] = [height(), this.element.getBoundingClientRect().top];
    const clamp = (number) => Math.min(this.items.length, Math.max(0, number));
    let from = clamp(Math.floor(-top / each) - BEYOND);
    let to = clamp(Math.ceil((innerHeight - top) / each) + BEYOND);
    // The row with the focus stays, so that the focus does.
    const focused = this.element.querySelector(":focus")?.closest(".row")?.key;
    for (let at = clamp(from - NEAR), end = clamp(to + NEAR); focused !== undefined && at < end; at += 1) {
      if (this.keyOf(this.items[at]) !== focused) continue;
      [from, to] = [Math.min(from, at), Math.max(to, at + 1)];
      break;
    }
    this.element.style.paddingTop = `${from * each}px`;
    this.element.style.paddingBottom = `${(this.items.length - to) * each}px`;
    keyed(
      this.element,
      this.items.slice(from, to),
      this.keyOf,
      (item) => {
        const row = this.make(item);
        row.key = this.keyOf(item);
        return row;
      },
      this.update,
    );
  }

  // Scrolls to an item and returns its element.
  reach(at) {
    const each = height();
    const top = this.element.getBoundingClientRect().top + at * each;
    if (top < 48 || top + each > innerHeight - 64) scrollBy(0, top - innerHeight / 2);
    this.draw();
    return this.element.known.get(this.keyOf(this.items[at]));
  }
}
