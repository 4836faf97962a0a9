// The resources of the host: total, allocated and in use.

import { by, el, keyed, memory, say } from "./dom.js";

const share = (part, whole) => (whole ? Math.min(1, part / whole) : 0);

function rows(host) {
  const cpus = { name: "CPUs", text: `${host.cpus.given} of ${host.cpus.all} allocated, load ${host.load.toFixed(1)}`, given: share(host.cpus.given, host.cpus.all), used: share(host.load, host.cpus.all) };
  if (host.elsewhere) cpus.text += `, ${host.elsewhere.toFixed(1)} used outside jobs`;
  const all = [
    cpus,
    { name: "Memory", text: `${memory(host.mem_mb.given)} of ${memory(host.mem_mb.all)} allocated, ${memory(host.mem_used_mb)} in use`, given: share(host.mem_mb.given, host.mem_mb.all), used: share(host.mem_used_mb, host.mem_mb.all) },
  ];
  if (host.gpus.all) all.push({ name: "GPUs", text: `${host.gpus.given} of ${host.gpus.all} allocated`, given: share(host.gpus.given, host.gpus.all) });
  return all;
}

function make(row) {
  const box = el("div", { class: "meter" }, el("h3", {}, row.name));
  box.text = el("p");
  box.given = el("meter", { min: 0, max: 1, "aria-label": `${row.name} allocated` });
  box.append(box.text, el("label", {}, "allocated ", box.given));
  if (row.used !== undefined) {
    box.used = el("meter", { min: 0, max: 1, "aria-label": `${row.name} in use` });
    box.append(el("label", {}, "in use ", box.used));
  }
  return box;
}

export function show(host) {
  say(by("host-name"), `on ${host.name}`);
  const troubles = host.troubles.map((text) => ({ trouble: text }));
  keyed(
    by("host"),
    [...rows(host), ...troubles],
    (row) => row.trouble ?? row.name,
    (row) => (row.trouble ? el("p", { class: "trouble" }, row.trouble) : make(row)),
    (box, row) => {
      if (row.trouble) return;
      say(box.text, row.text);
      box.given.value = row.given;
      if (box.used) box.used.value = row.used;
    },
  );
}
