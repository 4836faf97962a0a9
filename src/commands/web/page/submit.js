// The submit form. It shows the equivalent command, predicts the start, and marks the field that is wrong.

import { attempt, copied, post, told } from "./ask.js";
import { attribute, by, el, keyed, say } from "./dom.js";
import { sbatch, words } from "./shell.js";
import { icon } from "./states.js";
import { at, counted, memory, span } from "./words.js";

// The sbatch options with their own field: title, hint, and words of an error that name the field. A field with `names` offers
// these values; it is hidden if the host has none and `is_optional`.
const FIELDS = {
  "job-name": { title: "Name", group: "Job", is_wide: true },
  partition: { title: "Partition", names: (host) => host.partitions.map(({ name }) => name), error: /partition/i },
  chdir: { title: "Working directory", is_wide: true, error: /--chdir|working directory/i },
  "cpus-per-task": { title: "CPUs per task", group: "Resources", mode: "numeric", error: /cpus|processors|CPU count/i },
  ntasks: { title: "Tasks", mode: "numeric", error: /ntasks/i },
  mem: { title: "Memory", placeholder: "4G", error: /memory|--mem\b/i },
  gpus: { title: "GPUs", mode: "numeric", error: /gpu|gres/i },
  time: { title: "Time limit", placeholder: "1:30:00", error: /time/i },
  array: { title: "Array", group: "Options", placeholder: "0-99%4", error: /array/i },
  dependency: { title: "Dependency", placeholder: "afterok:12", error: /dependen/i },
  constraint: { title: "Feature", names: (host) => host.features, is_optional: true, error: /constraint|feature/i },
  licenses: {
    title: "Licenses",
    names: (host) => host.licenses.map(({ name }) => name),
    is_optional: true,
    error: /licen[sc]e/i,
  },
  reservation: {
    title: "Reservation",
    names: (host) => host.reservations.map(({ name }) => name),
    is_optional: true,
    error: /reservation/i,
  },
  qos: { title: "QOS", names: (host) => (host.qos.length > 1 ? host.qos : []), is_optional: true, error: /qos/i },
  output: { title: "Output file", is_wide: true, placeholder: "slurm-%j.out", error: /--output/i },
  more: { title: "More options", is_wide: true, placeholder: "--nice=10 --requeue", error: /unrecognized|More options|unexpected/i },
};
// The time without a key press before the prediction is requested, in milliseconds.
const PAUSE = 300;

let pause;
let latest = 0;
let latest_host;

const input = (name) => by("submit").elements.namedItem(name);
const value = (name) => input(name).value.trim();

function asked() {
  const options = Object.keys(FIELDS)
    .filter((name) => name !== "more" && value(name))
    .map((name) => `--${name}=${value(name)}`);
  return { options: [...options, ...words(value("more"))], script: input("script").value.replaceAll("\r\n", "\n") };
}

function preview() {
  try {
    const { options, script } = asked();
    say(by("line"), sbatch(options, script));
  } catch (error) {
    say(by("line"), error.message);
  }
  hints();
  clearTimeout(pause);
  pause = setTimeout(predict, PAUSE);
}

// Marks the field that an error is about: the one whose option it names, else the first whose words it contains.
function mark(message) {
  const named = /--([\w-]+)/.exec(message)?.[1];
  const filled = Object.keys(FIELDS).filter((name) => value(name));
  const wrong =
    message && (filled.find((name) => name === named) ?? filled.find((name) => FIELDS[name].error?.test(message)));
  for (const name of Object.keys(FIELDS)) {
    const is_wrong = name === wrong;
    attribute(input(name), "aria-invalid", is_wrong && "true");
    const hint = by(`hint-${name}`);
    hint.classList.toggle("bad", is_wrong);
    say(hint, is_wrong ? brief(message) : (hint.usual ?? ""));
  }
  return wrong;
}

// "Memory specification can not be satisfied: 204800 MB requested, 128000 MB on this host" becomes "200 GB requested, 125 GB on
// this host".
const inUnits = (text) => text.replace(/(\d+) MB\b/g, (_, mb) => memory(Number(mb)));
const brief = (message) =>
  inUnits(message.split("\n")[0].replace(/^sbatch: (error: )?/, "").replace(/^.* can not be satisfied: /, ""));

function outcome(kind, title, text) {
  by("prediction").replaceChildren(icon(kind, "F"), el("strong", {}, title), el("p", {}, text));
}

// "Job 7 to start at … using 4 processors on nodes ada in partition gpu" becomes "With 4 CPUs in partition gpu".
function inWords(text) {
  const [, cpus, partition] = /using (\d+) processors .*in partition (\S+)/.exec(text) ?? [];
  return cpus ? `With ${counted(Number(cpus), "CPU")} in partition ${partition}` : text.replace(/^sbatch: /, "");
}

async function predict() {
  const turn = (latest += 1);
  try {
    const { told: words_, start } = await post("/api/predict", asked());
    if (turn !== latest) return;
    mark("");
    outcome(
      "pending",
      start ? `Would start ${start - Date.now() < 60_000 ? "now" : `at ${at(start)}`}` : "Would be accepted",
      inWords(words_),
    );
  } catch (error) {
    if (turn !== latest) return;
    const wrong = mark(error.message);
    const why = wrong
      ? `Correct the field “${FIELDS[wrong].title}” to see when the job would start.`
      : inUnits(error.message.replaceAll(/^sbatch: (error: )?/gm, ""));
    outcome("never", "No prediction", why);
  }
}

async function submit(more = []) {
  const answer = await attempt(() => {
    const { options, script } = asked();
    return post("/api/submit", { options: [...options, ...more], script });
  });
  if (!answer) return void predict();
  told(`Submitted job ${answer.job} `);
  by("said").append(el("a", { href: `#/job/${encodeURIComponent(answer.job)}` }, "show job"));
}

function field([name, { title, group, names, mode, placeholder, hint, is_wide }]) {
  const id = `hint-${name}`;
  const note = el("span", { class: "hint", id });
  note.usual = hint ?? "";
  say(note, note.usual);
  const control = el("input", {
    name,
    list: names && `names-${name}`,
    inputmode: mode,
    placeholder,
    autocomplete: "off",
    "aria-describedby": id,
  });
  const list = names && el("datalist", { id: `names-${name}` });
  const label = el("div", { id: `field-${name}`, class: is_wide && "double" }, el("label", {}, title, control), note, list);
  return [...(group ? [el("div", { class: "wide" }, el("h3", {}, group))] : []), label];
}

export function start() {
  by("fields").prepend(...Object.entries(FIELDS).flatMap(field));
  by("submit").addEventListener("input", preview);
  by("submit").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  by("copy-line").addEventListener("click", () => copied(by("line").textContent, "the command"));
  by("submit-held").addEventListener("click", () => submit(["--hold"]));
  by("submit").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit();
  });
}

const free = (given) => Math.max(0, given.all - given.given);
const onHost = (given, host) => `${given.all} on ${host.name}, ${free(given)} free now`;

// The limits of a partition in words: "up to 1d, 8 CPUs; 18:00-08:00 only".
function limits({ state, max_secs: secs, max_cpus: cpus, max_mem_mb: mem, max_gpus: gpus, hours }) {
  const most = [
    secs && span(secs * 1000),
    cpus && counted(cpus, "CPU"),
    mem && memory(mem),
    gpus !== null && counted(gpus, "GPU"),
  ].filter(Boolean);
  return [state !== "UP" && state.toLowerCase(), most.length && `up to ${most.join(", ")}`, hours && `${hours} only`]
    .filter(Boolean)
    .join("; ");
}

// The hints beside the fields, which depend on the chosen partition.
function hintsOf(host) {
  const chosen = host.partitions.find(({ name }) => name === value("partition"));
  const partition = chosen ?? host.partitions.find(({ is_default }) => is_default);
  const of =
    partition &&
    (chosen ? limits(chosen) : [`default ${partition.name}`, limits(partition)].filter(Boolean).join(", "));
  const usual = partition?.default_secs ? `; ${span(partition.default_secs * 1000)} if empty` : "";
  const longest = partition?.max_secs ? `, up to ${span(partition.max_secs * 1000)}` : "";
  const licenses = host.licenses.map(
    ({ name, total, used }) => `${name}: ${Math.max(0, total - used)} of ${total} free`,
  );
  return {
    partition: of ?? "",
    "cpus-per-task": onHost(host.cpus, host),
    mem: `${memory(host.mem_mb.all)}, ${memory(free(host.mem_mb))} free now`,
    gpus: onHost(host.gpus, host),
    time: `h:mm:ss or minutes${longest}${usual}`,
    constraint: host.features.join(", "),
    licenses: licenses.join(", "),
    reservation: host.reservations.map(({ name }) => name).join(", "),
    qos: host.qos.join(", "),
  };
}

// Shows what the host has and what is free. The first prediction follows.
export function show({ host }) {
  latest_host = host;
  for (const [name, { names, is_optional }] of Object.entries(FIELDS)) {
    if (!names) continue;
    const all = names(host);
    by(`field-${name}`).hidden = is_optional && !all.length && !value(name);
    keyed(
      by(`names-${name}`),
      all,
      (one) => one,
      (one) => el("option", { value: one }),
    );
  }
  hints();
  if (!by("line").textContent) preview();
}

function hints() {
  if (!latest_host) return;
  for (const [name, text] of Object.entries(hintsOf(latest_host))) {
    const hint = by(`hint-${name}`);
    hint.usual = text;
    if (!hint.classList.contains("bad")) say(hint, text);
  }
}
