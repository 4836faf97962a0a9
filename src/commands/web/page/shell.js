// Command lines as a shell reads and writes them.

// Splits a line into words.
export function words(line) {
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

export const quoted = (word) => (/^[\w@%+=:,.\/-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

// The longest command on one line.
const LONGEST = 56;

// Returns a here-document delimiter that is not a line of the script.
function ending(script) {
  let word = "EOF";
  while (script.split("\n").includes(word)) word += "_";
  return word;
}

// Returns the sbatch command with these options and this script.
export function sbatch(options, script) {
  const word = ending(script);
  const words = ["sbatch", ...options.map(quoted), `<<'${word}'`];
  // A long command has a line for each option.
  const line = words.join(" ").length > LONGEST ? words.join(" \\\n  ") : words.join(" ");
  return `${line}\n${script.replace(/\n?$/, "\n")}${word}\n`;
}
