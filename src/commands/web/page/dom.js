// Helpers that create elements. Data from the queue always becomes text, never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== undefined && child !== null));
  return element;
}

export const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);
export const by = (id) => document.getElementById(id);

// Sets the text only if it differs, so that screen readers do not repeat it and selections are kept.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function attribute(element, name, value) {
  if (value === undefined || value === null || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

// Updates the children of `parent` to match `items`, in order. The element of an item is reused while the item exists, so it
// keeps the focus.
export function keyed(parent, items, keyOf, make, update) {
  const known = parent.known ?? (parent.known = new Map());
  const wanted = new Set(items.map(keyOf));
  for (const [key, element] of known) {
    if (!wanted.has(key)) {
      element.remove();
      known.delete(key);
    }
  }
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let element = known.get(key);
    if (!element) {
      element = make(item);
      known.set(key, element);
    }
    update?.(element, item);
    if (element === place) place = place.nextElementSibling;
    else parent.insertBefore(element, place);
  }
}

export const link = (row, text = row.label) => el("a", { href: `#/job/${encodeURIComponent(row.target)}` }, text);

// Sets custom properties that the style sheet uses for sizes. Inline styles are forbidden by the content security policy.
export function vary(element, values) {
  for (const [name, value] of Object.entries(values)) {
    if (element.style.getPropertyValue(`--${name}`) !== value) element.style.setProperty(`--${name}`, value);
  }
  return element;
}
