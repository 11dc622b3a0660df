/** The text of a message. */

import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { type Block, type Inline, parse, shownLink } from "./parse.js";
import c from "./text.module.css";

interface TextProps {
  readonly text: string;
  readonly mentioned?: readonly string[];
  readonly own?: string;
  /** What stands at its end: in the last line, if there is room for it. */
  readonly foot?: ComponentChildren;
  /** How wide that is. */
  readonly footWidth?: string;
}

export function Text({ text, mentioned = [], own = "", foot, footWidth = "0" }: TextProps) {
  const blocks = useMemo(() => {
    const names = new Set(mentioned);
    return parse(text, (username) => names.has(username));
  }, [text, mentioned.join()]);
  const isLarge = isOnlyEmoji(text);
  const isWithin = !!foot && !isLarge && blocks.at(-1)?.type !== "pre" && !isOfTwoDirections(text);
  const room = isWithin && <span class={c.room} style={{ inlineSize: footWidth }} />;
  return (
    <div class={`${c.text} ${isWithin ? c.within : ""}`} dir="auto">
      <div class={isLarge ? c.large : ""}>
        {blocks.map((block, at) => (
          <TextBlock key={at} block={block} own={own} end={at === blocks.length - 1 && room} />
        ))}
      </div>
      {foot}
    </div>
  );
}

const RIGHT_TO_LEFT = /[\u0591-\u08ff\ufb1d-\ufdfd\ufe70-\ufefc]/;
const LEFT_TO_RIGHT = /[a-z\u00c0-\u024f\u0370-\u052f]/i;

/** The last line may begin on either side then. */
const isOfTwoDirections = (text: string) => RIGHT_TO_LEFT.test(text) && LEFT_TO_RIGHT.test(text);

function TextBlock({ block, own, end }: { block: Block; own: string; end: ComponentChildren }) {
  if (block.type === "pre") {
    return (
      // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keys
      <pre class={c.pre} dir="ltr" tabIndex={0}>
        <code>{block.text}</code>
      </pre>
    );
  }
  return (
    <p class={c.paragraph}>
      {block.children.map((node, at) => drawn(node, at, own))}
      {end}
    </p>
  );
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
