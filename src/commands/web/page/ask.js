// Requests to the server, and its events.

import { attribute, by, say } from "./dom.js";

const KEY = "slotd-key";

// Stores the key and removes the used token from the URL, so that it stays out of the history and a reload works.
export function enter() {
  const fresh = document.querySelector("meta[name=key]").content;
  if (fresh) localStorage.setItem(KEY, fresh);
  if (location.search) history.replaceState(null, "", location.pathname + location.hash);
}

const headers = (more = {}) => ({ "X-Slotd-Key": localStorage.getItem(KEY) ?? "", ...more });

async function answer(response) {
  if (response.ok) return response;
  let why = `${response.status} ${response.statusText}`;
  try {
    why = (await response.json()).error;
  } catch {
    // The response has no JSON message.
  }
  throw new Error(why);
}

export const get = async (path) => (await answer(await fetch(path, { headers: headers() }))).json();
export const text = async (path) => (await answer(await fetch(path, { headers: headers() }))).text();

export async function post(path, body) {
  const options = {
    method: "POST",
    headers: headers({ "Content-Type": "application/json" }),
    body: JSON.stringify(body),
  };
  return (await answer(await fetch(path, options))).json();
}

// Fetches a part of a file as { from, size, bytes }. Past the end of the file, `bytes` is empty.
export async function bytes(path, range) {
  const response = await fetch(path, { headers: headers({ Range: `bytes=${range}` }) });
  if (response.status !== 416) await answer(response);
  const [, from, size] = /bytes (?:(\d+)-\d+|\*)\/(\d+)/.exec(response.headers.get("Content-Range"));
  const some = response.status === 416 ? new Uint8Array() : new Uint8Array(await response.arrayBuffer());
  return { from: Number(from ?? size), size: Number(size), bytes: some };
}

// The delay before reconnecting to the event stream, in milliseconds.
const BETWEEN_TRIES = 3000;

// Yields the lines of a response until the connection ends.
async function* lines(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch(() => ({ done: true }));
    if (done) return;
    const all = (rest + value).split("\n");
    rest = all.pop();
    yield* all;
  }
}

// Calls `hear` for each event of `path` and reconnects when the connection is lost. EventSource cannot send the key.
async function follow(path, hear, signal) {
  for (;;) {
    const response = await fetch(path, { headers: headers(), signal }).catch(() => undefined);
    if (response?.ok) {
      say(by("behind"), "");
      for await (const line of lines(response)) {
        if (!line.startsWith("data: ") || signal.aborted) continue;
        try {
          hear(JSON.parse(line.slice(6)));
        } catch (error) {
          // A fault in one event must not end the stream, which would leave the page outdated without notice.
          reportError(error);
        }
      }
    }
    if (signal.aborted) return;
    hear({ event: "daemon", up: false, lost: true });
    if (response && !response.ok) {
      // A retry would be refused too.
      stream = undefined;
      return void renew(() => answer(response));
    }
    await new Promise((done) => setTimeout(done, BETWEEN_TRIES));
    if (signal.aborted) return;
  }
}

// Only one stream is open at a time. `stream` is undefined if the server refused it.
let stream;
let followed;

export function listen(path, hear) {
  if (stream && followed === path) return;
  stream?.abort();
  stream = new AbortController();
  followed = path;
  follow(path, hear, stream.signal);
}

export const told = (words) => say(by("said"), words);

// Copies a text, and shows it if the browser does not allow that. `what` names it in the message.
export const copied = (text, what = text) =>
  navigator.clipboard.writeText(text).then(
    () => told(`Copied ${what}`),
    () => told(text),
  );

// Performs a request of the user. An error stays on the page until the next request of the user.
export const attempt = (work) => attemptAt("failed", work);

// Performs an automatic refresh. Its success does not clear an error of a user's request.
export const renew = (work) => attemptAt("behind", work);

async function attemptAt(place, work) {
  try {
    const result = await work();
    say(by(place), "");
    return result;
  } catch (error) {
    say(
      by(place),
      error.message === "Failed to fetch" ? "The server does not answer. Is slotd web still running?" : error.message,
    );
    return undefined;
  }
}

// Asks the user for confirmation. The answer that changes nothing has the focus.
export function confirmed(question, { detail = "", yes = "Yes", no = "No", danger = false } = {}) {
  const dialog = by("confirm");
  say(by("confirm-question"), question);
  say(by("confirm-detail"), detail);
  say(by("confirm-yes"), yes);
  say(by("confirm-no"), no);
  by("confirm-yes").className = danger ? "danger" : "primary";
  dialog.returnValue = "no";
  dialog.showModal();
  // The browser sends the close event in a separate task, perhaps after the next dialog has opened. It must not answer
  // the next question. The promise of a replaced question never resolves.
  return new Promise((resolve) => {
    dialog.onclose = () => dialog.open || resolve(dialog.returnValue === "yes");
  });
}

// Asks the user for a text and sends it. An error keeps the dialog open. Returns the text, or undefined if nothing was sent.
export function entered(question, { label, value, hint, yes, send }) {
  const [dialog, input, error] = [by("enter"), by("enter-text"), by("enter-error")];
  say(by("enter-question"), question);
  say(by("enter-label"), label);
  say(by("enter-hint"), hint);
  say(by("enter-yes"), yes);
  const wrong = (words) => {
    say(error, words);
    attribute(input, "aria-invalid", words && "true");
  };
  wrong("");
  input.value = value;
  by("enter-no").onclick = () => dialog.close();
  dialog.showModal();
  input.select();
  return new Promise((resolve) => {
    dialog.onsubmit = async (event) => {
      event.preventDefault();
      if (by("enter-yes").disabled) return;
      by("enter-yes").disabled = true;
      const failed = await send(input.value).then(
        () => undefined,
        (problem) => problem.message,
      );
      by("enter-yes").disabled = false;
      // The dialog has its own hint.
      if (failed !== undefined) return wrong(failed.split("\n").filter((text) => !/^\s*(hint:|Request aborted)/.test(text)).join("\n"));
      dialog.onclose = undefined;
      dialog.close();
      resolve(input.value);
    };
    dialog.onclose = () => resolve(undefined);
  });
}
