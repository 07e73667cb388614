/** Numbers and names for people: the same texts as xlamem/formatting.py. */

const UNITS = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] as const;
/** Amounts from here on, which would need four digits before the point, are shown in the next unit. */
const MAX_AMOUNT = 999.995;
const NOT_PRINTABLE = /(?! )[\p{C}\p{Z}]/gu;

/** Bytes in binary units with two decimals: 1000.00 MiB is 0.98 GiB; "?" if they are unknown. */
export function size(bytes: number | null): string {
  if (bytes === null) return "?";
  if (Math.abs(bytes) < 1024) return `${bytes} B`;
  let amount = bytes / 1024;
  let unit = 0;
  while (Math.abs(amount) >= MAX_AMOUNT && unit < UNITS.length - 1) {
    amount /= 1024;
    unit += 1;
  }
  return `${fixed(amount, 2)} ${UNITS[unit]}`;
}

/** Bytes without zeros behind the point, for axes: `1.5 GiB`. */
export function shortSize(bytes: number): string {
  return bytes === 0 ? "0" : size(bytes).replace(/\.(\d*?)0+ /, (_, digits: string) => (digits ? `.${digits} ` : " "));
}

/** Bytes with a sign: `+1.00 GiB`, `−1.00 GiB`. */
export function signedSize(bytes: number): string {
  return bytes > 0 ? `+${size(bytes)}` : bytes < 0 ? `\u2212${size(-bytes)}` : size(0);
}

/** A text of xlamem with minus signs instead of hyphens before numbers. */
export function minusSigns(text: string): string {
  return text.replace(/(^|[\s(])-(?=\d)/g, "$1\u2212");
}

/** Bytes in binary units, followed by the exact number. */
export function exactSize(bytes: number): string {
  return Math.abs(bytes) >= 1024 ? `${size(bytes)} (${number(bytes)} bytes)` : `${number(bytes)} bytes`;
}

/** A number with its thousands separated; "?" if it is unknown. */
export function number(n: number | null): string {
  return n === null ? "?" : String(n).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

/** A number with its noun. */
export function count(n: number, noun: string, plural = `${noun}s`): string {
  return `${number(n)} ${n === 1 ? noun : plural}`;
}

/** A share with one decimal. */
export function percent(part: number, whole: number): string {
  if (!whole) return "-";
  const share = (100 * part) / whole;
  return share >= 0.05 || !part ? `${fixed(share, 1)} %` : "<0.1 %";
}

/** With this number of decimals; ties go to the even digit as in Python, other than with toFixed. */
function fixed(x: number, digits: number): string {
  const eighths = Math.abs(x) * 2 ** (digits + 1);
  if (Number.isSafeInteger(eighths) && eighths % 2 === 1) {
    const below = Math.floor(Math.abs(x) * 10 ** digits);
    return ((Math.sign(x) * (below + (below % 2))) / 10 ** digits).toFixed(digits);
  }
  return x.toFixed(digits);
}

/** Escape every character that is not printable, or that changes the direction of text, as Python does; newlines too. */
export function oneLine(text: string): string {
  return text.replace(NOT_PRINTABLE, escaped);
}

function escaped(character: string): string {
  const code = character.codePointAt(0) ?? 0;
  if (character === "\n") return "\\n";
  if (character === "\t") return "\\t";
  if (character === "\r") return "\\r";
  if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
  if (code < 0x10000) return `\\u${code.toString(16).padStart(4, "0")}`;
  return `\\U${code.toString(16).padStart(8, "0")}`;
}

/** Replace the middle of a text that is too long with an ellipsis. */
export function shorten(text: string, limit: number): string {
  if (text.length <= limit) return text;
  const room = Math.max(limit, 9);
  const end = (room - 1) >> 1;
  return `${text.slice(0, room - 1 - end)}…${text.slice(text.length - end)}`;
}

/** Replace the beginning of a path or scope that is too long with an ellipsis, at a "/" if one is near. */
export function shortenPath(text: string, limit: number): string {
  if (text.length <= limit) return text;
  const end = text.slice(text.length - Math.max(limit, 4) + 1);
  const slash = end.indexOf("/");
  return `…${slash >= 0 && slash <= end.length >> 1 ? end.slice(slash) : end}`;
}
