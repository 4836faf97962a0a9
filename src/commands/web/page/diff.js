// The git work tree of a job: where it came from, and its uncommitted changes with one part for each file.

import { el } from "./dom.js";
import { counted } from "./words.js";

const KINDS = { "+": "added", "-": "removed", "@": "place" };
// Splits a diff into files: { name, lines }. Text before the first one has no name.
function files(diff) {
  const found = [];
  for (const line of diff.replace(/\n$/, "").split("\n")) {
    const [, name] = /^diff --git (?:"?a\/.*?"?) "?b\/(.*?)"?$/.exec(line) ?? [];
    if (name !== undefined) found.push({ name, lines: [] });
    else if (found.length) found.at(-1).lines.push(line);
    else found.push({ lines: [line] });
  }
  return found;
}

// Lines of a file's head are dim. The others are coloured by their first letter, which is shown too. Adjacent lines of one
// kind are one element.
function body({ name, lines }) {
  const found = [];
  let is_body = false;
  for (const line of lines) {
    is_body ||= line.startsWith("@@");
    const kind = is_body ? (KINDS[line[0]] ?? "") : name ? "head" : "";
    if (found.at(-1)?.kind !== kind) found.push({ kind, text: "" });
    found.at(-1).text += `${line}\n`;
  }
  return found.map(({ kind, text }) => (kind ? el("span", { class: `d-${kind}` }, text) : text));
}

function part(file) {
  const text = el(
    "pre",
    { class: "diff", tabindex: "0", role: "region", "aria-label": file.name ?? "Changes" },
    ...body(file),
  );
  if (!file.name) return text;
  const begin = file.lines.findIndex((line) => line.startsWith("@@"));
  const inside = begin < 0 ? [] : file.lines.slice(begin);
  const count = (sign) => inside.filter((line) => line.startsWith(sign)).length;
  const [added, removed] = [count("+"), count("-")];
  return el(
    "details",
    { open: true },
    el(
      "summary",
      {},
      el("code", {}, file.name),
      " ",
      el("span", { class: "d-added" }, `+${added}`),
      " ",
      el("span", { class: "d-removed" }, `−${removed}`),
    ),
    text,
  );
}

// Returns elements for the tree in words and its diff.
export function show(tree, diff) {
  if (!tree) return [el("p", { class: "none" }, "The job was not submitted from a git work tree.")];
  const found = diff ? files(diff) : [];
  const named = found.filter((file) => file.name);
  return [
    el("pre", { class: "wrap" }, tree),
    ...(named.length ? [el("h3", {}, `${counted(named.length, "file")} changed`)] : []),
    ...found.map(part),
  ];
}
