/** A table as a file that a spreadsheet opens, and runs nothing of. */

const FORMULA = /^[=+\-@\t\r]/;
const QUOTED = /[",\r\n]/;

/** RFC 4180, with a mark in front so that spreadsheets read UTF-8. */
export function csvOf(names: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [names, ...rows].map((cells) => cells.map(cellOf).join(","));
  return `\ufeff${lines.join("\r\n")}\r\n`;
}

/** What a spreadsheet would take for a formula stays text. */
function cellOf(text: string): string {
  const safe = FORMULA.test(text) ? `'${text}` : text;
  return QUOTED.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export function download(name: string, text: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
