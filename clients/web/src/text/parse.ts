/**
 * The text of a message as a tree: paragraphs of text, code, bold, italic, links and mentions. Never HTML: what is not one
 * of these stays the letters that were written. One pass; a mark without its end is text.
 */

export { plainName } from "parley-ui/names.js";

export type Inline =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "code"; readonly text: string }
  | { readonly type: "strong" | "em" | "del"; readonly children: readonly Inline[] }
  | { readonly type: "link"; readonly href: string; readonly text: string }
  | { readonly type: "mention"; readonly text: string };

export type Block =
  | { readonly type: "text"; readonly children: readonly Inline[] }
  | { readonly type: "pre"; readonly text: string; readonly language: string };

const FENCE = "```";
/** Marks within marks beyond this are text. */
const DEPTH_MAX = 4;
const LINK = /(?:https?:\/\/|mailto:)[^\s<>"`]+/giy;
const MENTION = /@[a-z0-9][a-z0-9._-]{0,63}/giy;
const TRAILING = /[.,;:!?'"*_~)\]}]+$/;
const WORD = /[\p{L}\p{N}_]/u;
const MARKS = [
  ["**", "strong"],
  ["~~", "del"],
  ["*", "em"],
  ["_", "em"],
] as const;

/** `isMentioned`: whether a name after an @ is that of somebody whom the message mentions. */
export function parse(text: string, isMentioned: (username: string) => boolean = () => false): Block[] {
  const blocks: Block[] = [];
  let at = 0;
  while (at < text.length) {
    const open = fenceAt(text, at);
    const close = open < 0 ? -1 : text.indexOf(`\n${FENCE}`, open + FENCE.length);
    if (open < 0 || close < 0) break;
    addText(blocks, text.slice(at, open), isMentioned);
    const line = text.indexOf("\n", open);
    const language = text.slice(open + FENCE.length, line).trim();
    blocks.push({ type: "pre", text: text.slice(line + 1, Math.max(line + 1, close)), language });
    at = close + 1 + FENCE.length;
    if (text[at] === "\n") at += 1;
  }
  addText(blocks, text.slice(at), isMentioned);
  return blocks;
}

/** The next fence that begins a line. */
function fenceAt(text: string, from: number): number {
  for (let at = text.indexOf(FENCE, from); at >= 0; at = text.indexOf(FENCE, at + 1)) {
    if (at === from || at === 0 || text[at - 1] === "\n") return at;
  }
  return -1;
}

function addText(blocks: Block[], text: string, isMentioned: (username: string) => boolean): void {
  const trimmed = text.replace(/^\n+|\n+$/g, "");
  if (trimmed) blocks.push({ type: "text", children: inline(trimmed, isMentioned, 0) });
}

function inline(text: string, isMentioned: (username: string) => boolean, depth: number): Inline[] {
  const found: Inline[] = [];
  let plain = 0;
  let at = 0;
  const push = (end: number, node: Inline, next: number) => {
    if (end > plain) found.push({ type: "text", text: text.slice(plain, end) });
    found.push(node);
    plain = at = next;
  };
  /** Marks that were found to have no end: they are not looked for again. */
  const unclosed = new Set<string>();
  while (at < text.length) {
    const letter = text[at] as string;
    if (letter === "`" && !unclosed.has("`")) {
      const end = text.indexOf("`", at + 1);
      if (end > at + 1) push(at, { type: "code", text: text.slice(at + 1, end) }, end + 1);
      else if (end < 0) unclosed.add("`");
      else at += 1;
      if (end < 0) at += 1;
      continue;
    }
    if (letter === "h" || letter === "H" || letter === "m" || letter === "M") {
      const link = linkAt(text, at);
      if (link) {
        push(at, link, at + link.text.length);
        continue;
      }
    } else if (letter === "@" && !WORD.test(text[at - 1] ?? "")) {
      MENTION.lastIndex = at;
      const name = MENTION.exec(text)?.[0].replace(/[._-]+$/, "");
      if (name && isMentioned(name.slice(1).toLowerCase())) {
        push(at, { type: "mention", text: name }, at + name.length);
        continue;
      }
    } else if (depth < DEPTH_MAX) {
      const mark = MARKS.find(([sign]) => text.startsWith(sign, at) && !unclosed.has(sign));
      if (mark) {
        const [sign, type] = mark;
        const end = closing(text, at, sign);
        if (end < 0) unclosed.add(sign);
        else if (end > 0) {
          const children = inline(text.slice(at + sign.length, end), isMentioned, depth + 1);
          push(at, { type, children }, end + sign.length);
          continue;
        }
        at += sign.length;
        continue;
      }
    }
    at += 1;
  }
  if (plain < text.length) found.push({ type: "text", text: text.slice(plain) });
  return found;
}

/** Where a mark ends; 0 if it does not begin here, below 0 if nothing ends it. */
function closing(text: string, at: number, sign: string): number {
  const after = text[at + sign.length];
  if (after === undefined || /\s/.test(after) || WORD.test(text[at - 1] ?? "")) return 0;
  for (let end = text.indexOf(sign, at + sign.length + 1); end >= 0; end = text.indexOf(sign, end + 1)) {
    if (!/\s/.test(text[end - 1] ?? " ") && !WORD.test(text[end + sign.length] ?? "")) return end;
  }
  return -1;
}

function linkAt(text: string, at: number): { type: "link"; href: string; text: string } | null {
  if (WORD.test(text[at - 1] ?? "")) return null;
  LINK.lastIndex = at;
  const found = LINK.exec(text)?.[0];
  if (!found) return null;
  const written = found.replace(TRAILING, (end) => (found.includes("(") && end.startsWith(")") ? ")" : ""));
  const href = safeHref(written);
  return href ? { type: "link", href, text: written } : null;
}

const SAFE = new Set(["http:", "https:", "mailto:"]);

/** An address that may be opened; null for any other scheme, however it is disguised. */
export function safeHref(written: string): string | null {
  try {
    const url = new URL(written);
    return SAFE.has(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

/** How a link is shown: a host that only looks like another one is shown as what it is. */
export function shownLink(written: string, href: string): string {
  const host = /^https?:\/\/(?:[^/?#]*@)?([^/?#:]+)/i.exec(written)?.[1] ?? "";
  const isAscii = [...host].every((letter) => letter.charCodeAt(0) < 128);
  if (isAscii && !/^https?:\/\/[^/?#]*@/i.test(written)) return written;
  const isPlain = [...host].every((letter) => !/\p{L}/u.test(letter) || /\p{Script=Latin}/u.test(letter));
  return isPlain && !written.includes("@") ? written : href;
}
