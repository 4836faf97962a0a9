// The submit form, which also shows the equivalent command line.

import { attempt, post, told } from "./ask.js";
import { by, el, keyed, say } from "./dom.js";

// The sbatch options with their own field.
const FIELDS = ["job-name", "partition", "cpus-per-task", "ntasks", "mem", "gpus", "time", "array", "dependency", "chdir", "output"];

// Splits a line into words like a shell.
function words(line) {
  const found = [];
  let word;
  let quote = "";
  for (let at = 0; at < line.length; at += 1) {
    const letter = line[at];
    if (quote) {
      if (letter === quote) quote = "";
      else if (letter === "\\" && quote === '"' && '"\\$`'.includes(line[at + 1])) word += line[(at += 1)];
      else word += letter;
    } else if (letter === "'" || letter === '"') {
      quote = letter;
      word ??= "";
    } else if (letter === "\\" && at + 1 < line.length) word = (word ?? "") + line[(at += 1)];
    else if (/\s/.test(letter)) {
      if (word !== undefined) found.push(word);
      word = undefined;
    } else word = (word ?? "") + letter;
  }
  if (quote) throw new Error(`More options: unclosed quote ${quote}`);
  if (word !== undefined) found.push(word);
  return found;
}

const quoted = (word) => (/^[\w@%+=:,.\/-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

function asked() {
  const form = by("submit");
  const field = (name) => form.elements.namedItem(name).value.trim();
  const options = FIELDS.filter((name) => field(name)).map((name) => `--${name}=${field(name)}`);
  const script = form.elements.namedItem("script").value.replaceAll("\r\n", "\n");
  return { options: [...options, ...words(field("more"))], script };
}

// Returns a here-document delimiter that is not a line of the script.
function ending(script) {
  let word = "EOF";
  while (script.split("\n").includes(word)) word += "_";
  return word;
}

function preview() {
  try {
    const { options, script } = asked();
    const word = ending(script);
    say(by("line"), `sbatch${options.map((option) => ` ${quoted(option)}`).join("")} <<'${word}'\n${script.replace(/\n?$/, "\n")}${word}\n`);
  } catch (error) {
    say(by("line"), error.message);
  }
}

async function submit() {
  const answer = await attempt(() => post("/api/submit", asked()));
  if (!answer) return;
  told(`Submitted job ${answer.job}`);
  by("said").append(" ", el("a", { href: `#/job/${encodeURIComponent(answer.job)}` }, "show job"));
}

export function start() {
  by("submit").addEventListener("input", preview);
  by("submit").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  preview();
}

export function partitions(names) {
  keyed(by("partitions"), names, (name) => name, (name) => el("option", { value: name }));
}
