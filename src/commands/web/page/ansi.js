// Terminal output as pieces of text with classes. Colours become those of the page; other control sequences are removed.

const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
const STYLES = { 1: "bold", 2: "dim", 3: "italic", 4: "underline" };
// A control sequence, an operating system command, another escape, a carriage return, or text up to the next of them.
const PIECES =
  /\x1b\[([0-9;:?<=>]*)[ -/]*([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][0-9A-Z]|\x1b[^[\]()]|\r+\n|\r+|[^\x1b\r]+|\x1b/g;
// The start of a sequence whose end is not there yet.
const UNFINISHED = /(?:\x1b(?:\[[0-9;:?<=>]*[ -/]*|\][^\x07\x1b]{0,512}\x1b?|[()]?)|\r+)$/;

export class Ansi {
  constructor() {
    this.rest = "";
    this.reset();
  }

  reset() {
    this.styles = new Set();
    this.colour = "";
  }

  select(codes) {
    for (let at = 0; at < codes.length; at += 1) {
      const code = Number(codes[at] || 0);
      if (code === 0) this.reset();
      else if (STYLES[code]) this.styles.add(STYLES[code]);
      else if (code === 22) ["bold", "dim"].forEach((style) => this.styles.delete(style));
      else if (code === 23 || code === 24) this.styles.delete(STYLES[code - 20]);
      else if (code >= 30 && code <= 37) this.colour = COLOURS[code - 30];
      else if (code >= 90 && code <= 97) this.colour = COLOURS[code - 90];
      else if (code === 39) this.colour = "";
      else if (code === 38 || code === 48) {
        // Only the first 16 of the 256 colours have a counterpart.
        const is_indexed = codes[at + 1] === "5";
        const index = Number(codes[at + 2]);
        if (code === 38) this.colour = is_indexed && index < 16 ? COLOURS[index % 8] : "";
        at += is_indexed ? 2 : 4;
      }
    }
  }

  // Yields { text, names } for text, and { erase: true } where the line begins again.
  *pieces(more) {
    let text = this.rest + more;
    this.rest = UNFINISHED.exec(text)?.[0] ?? "";
    if (this.rest) text = text.slice(0, -this.rest.length);
    for (const [piece, codes, end] of text.matchAll(PIECES)) {
      if (piece.startsWith("\x1b")) {
        if (end === "m" && !/[?<=>]/.test(codes)) this.select(codes.split(/[;:]/));
      } else if (piece.startsWith("\r") && !piece.endsWith("\n")) yield { erase: true };
      else
        yield {
          text: piece.replace(/^\r+\n/, "\n"),
          names: [...this.styles, this.colour]
            .filter(Boolean)
            .map((name) => `a-${name}`)
            .join(" "),
        };
    }
  }
}
