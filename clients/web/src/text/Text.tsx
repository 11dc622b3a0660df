/** The text of a message. */

import type { ComponentChildren } from "preact";
import { memo } from "preact/compat";
import { type Block, type Inline, parse, shownLink } from "./parse.js";
import c from "./text.module.css";

type TextProps = { text: string; mentioned?: readonly string[]; own?: string };

export const Text = memo(function Text({ text, mentioned = [], own = "" }: TextProps) {
  const names = new Set(mentioned);
  const blocks = parse(text, (username) => names.has(username));
  return (
    <div class={`${c.text} ${isOnlyEmoji(text) ? c.large : ""}`} dir="auto">
      {blocks.map((block, at) => (
        <TextBlock key={at} block={block} own={own} />
      ))}
    </div>
  );
});

function TextBlock({ block, own }: { block: Block; own: string }) {
  if (block.type === "pre") {
    return (
      // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keys
      <pre class={c.pre} dir="ltr" tabIndex={0}>
        <code>{block.text}</code>
      </pre>
    );
  }
  return <p class={c.paragraph}>{block.children.map((node, at) => drawn(node, at, own))}</p>;
}

function drawn(node: Inline, key: number, own: string): ComponentChildren {
  switch (node.type) {
    case "text":
      return node.text;
    case "code":
      return (
        <code key={key} class={c.code}>
          {node.text}
        </code>
      );
    case "link":
      return (
        <a key={key} href={node.href} target="_blank" rel="noopener noreferrer ugc" title={node.href}>
          {shownLink(node.text, node.href)}
        </a>
      );
    case "mention":
      return (
        <span
          key={key}
          class={`${c.mention} ${node.text.slice(1).toLowerCase() === own ? c.mentionOwn : ""}`}
        >
          {node.text}
        </span>
      );
    case "strong":
      return <strong key={key}>{node.children.map((child, at) => drawn(child, at, own))}</strong>;
    case "em":
      return <em key={key}>{node.children.map((child, at) => drawn(child, at, own))}</em>;
    case "del":
      return <del key={key}>{node.children.map((child, at) => drawn(child, at, own))}</del>;
  }
}

const EMOJI =
  /^(?:\p{Extended_Pictographic}(?:\ufe0f|\u200d|\p{Emoji_Modifier}|\p{Extended_Pictographic})*\s*){1,3}$/u;
const EMOJI_CHARS_MAX = 32;

export function isOnlyEmoji(text: string): boolean {
  return text.length <= EMOJI_CHARS_MAX && EMOJI.test(text.trim());
}
