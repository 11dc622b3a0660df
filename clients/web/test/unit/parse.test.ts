import { describe, expect, test } from "vitest";
import { type Inline, parse, plainName, safeHref, shownLink } from "../../src/text/parse.js";

/** A text as its parts: `b(bold)`, `i(italic)`, `<link>`, … */
function shown(text: string, mentioned: readonly string[] = []): string {
  const one = (node: Inline): string => {
    switch (node.type) {
      case "text":
        return node.text;
      case "code":
        return `code(${node.text})`;
      case "link":
        return `<${node.href}>`;
      case "mention":
        return `[${node.text}]`;
      default:
        return `${node.type}(${node.children.map(one).join("")})`;
    }
  };
  return parse(text, (name) => mentioned.includes(name))
    .map((block) => (block.type === "pre" ? `pre(${block.text})` : block.children.map(one).join("")))
    .join("|");
}

describe("the text of a message", () => {
  test.each([
    ["plain", "plain"],
    ["**bold** and *it*", "strong(bold) and em(it)"],
    ["_so_ snake_case_name", "em(so) snake_case_name"],
    ["2 * 3 * 4", "2 * 3 * 4"],
    ["**never closed", "**never closed"],
    ["~~gone~~", "del(gone)"],
    ["`a *b*`", "code(a *b*)"],
    ["``", "``"],
    ["before\n```\n<b>x</b>\n```\nafter", "before|pre(<b>x</b>)|after"],
    ["```never closed", "```never closed"],
    ["see https://a.example/x?y=1.", "see <https://a.example/x?y=1>."],
    ["(https://a.example/b)", "(<https://a.example/b>)"],
    ["https://en.example/wiki/Tea_(drink)", "<https://en.example/wiki/Tea_(drink)>"],
    ["mailto:ada@a.example", "<mailto:ada@a.example>"],
    ["hi @ben and @nobody", "hi [@ben] and @nobody"],
    ["mail me@ben.example", "mail me@ben.example"],
    ["**@ben**", "strong([@ben])"],
  ])("%s", (text, wanted) => {
    expect(shown(text, ["ben"])).toBe(wanted);
  });

  test.each([
    "javascript:alert(1)",
    "java\nscript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "vbscript:x",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
  ])("%s stays text", (text) => {
    expect(
      parse(text).every(
        (block) => block.type === "text" && block.children.every(({ type }) => type === "text"),
      ),
    ).toBe(true);
  });

  test.each(["*", "**", "_", "`", "~~", "@", "```\n", "https://", "*_", "(*"])(
    "ten thousand times %s takes no longer than it should",
    (mark) => {
      const before = performance.now();
      parse(mark.repeat(10_000), () => true);
      expect(performance.now() - before).toBeLessThan(2_000);
    },
  );
});

test("only addresses of the web and of mail are opened", () => {
  expect(safeHref("https://a.example/")).toBe("https://a.example/");
  expect(safeHref("ftp://a.example/")).toBeNull();
  expect(safeHref("java\tscript:alert(1)")).toBeNull();
});

test("a host that only looks like another one is shown as what it is", () => {
  const shownAs = (written: string) => shownLink(written, safeHref(written) ?? "");
  expect(shownAs("https://аpple.com/")).toBe("https://xn--pple-43d.com/");
  expect(shownAs("https://münchen.example/")).toBe("https://münchen.example/");
  expect(shownAs("https://plain.example/a")).toBe("https://plain.example/a");
});

test("a name turns, hides and towers over nothing", () => {
  expect(plainName("ada\u202e nimda\u200b")).toBe("ada nimda");
  expect(plainName(`z${"\u0300".repeat(40)}algo`).length).toBeLessThan(10);
});
