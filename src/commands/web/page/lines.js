// The last line of output of each running job.

import { Ansi } from "./ansi.js";

let known = new Map();

// Keeps the text of the lines without control sequences.
export function setLines(told) {
  const plain = (line) =>
    [...new Ansi().pieces(line)]
      .map(({ text = "" }) => text)
      .join("")
      .replace(/\s+/g, " ")
      .trim();
  known = new Map(Object.entries(told).map(([id, line]) => [Number(id), plain(line)]));
}

export const lineOf = (row) => (row.state === "RUNNING" ? known.get(row.id) : undefined);
