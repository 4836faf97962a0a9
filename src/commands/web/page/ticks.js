// Round values for axes.

const MINUTE = 60_000;
const STEPS = [1 / 12, 1 / 6, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10080].map(
  (minutes) => minutes * MINUTE,
);
const two = (number) => String(number).padStart(2, "0");

// Returns about `count` round times in the browser's time zone, with their labels.
export function times(from, to, count) {
  const step = STEPS.find((one) => (to - from) / one <= count) ?? STEPS.at(-1);
  const zone = new Date(from).getTimezoneOffset() * MINUTE;
  const found = [];
  for (let at = Math.ceil((from - zone) / step) * step + zone; at <= to; at += step) {
    const when = new Date(at);
    const midnight = when.getHours() === 0 && when.getMinutes() === 0 && when.getSeconds() === 0;
    const clock = `${two(when.getHours())}:${two(when.getMinutes())}${step < MINUTE ? `:${two(when.getSeconds())}` : ""}`;
    found.push({
      at,
      text:
        midnight || step >= 1440 * MINUTE
          ? when.toLocaleDateString("en-GB", { day: "numeric", month: "short" })
          : clock,
    });
  }
  return found;
}

// Returns the least round number that is not below the value.
export function above(value) {
  if (!(value > 0)) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * unit).find((round) => round >= value * 0.9999);
}
