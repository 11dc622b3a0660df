/** Small things that pages are made of. */

import { useSignal } from "@preact/signals";
import { Button, IconButton } from "parley-ui/controls.js";
import { plainName } from "parley-ui/names.js";
import { wholeTime } from "parley-ui/time.js";
import type { ComponentChildren, ComponentProps } from "preact";
import { now } from "../app/feed.js";
import { operator } from "../app/session.js";
import { s } from "../strings.en.js";
import c from "./parts.module.css";

const MS_PER_SECOND = 1_000;
const COPIED_MS = 1_500;

/** A button that changes something: there is nothing to press where the console may only look. */
export function Act(props: ComponentProps<typeof Button>) {
  const mayOnlyLook = operator.value?.isReadOnly === true;
  return (
    <Button
      {...props}
      disabled={mayOnlyLook || props.disabled === true}
      {...(mayOnlyLook && { title: s.readOnlyHint })}
    />
  );
}

/** An action that cannot be undone stands out among the others. */
export function Dangerous({ children }: { children: ComponentChildren }) {
  return <span class={c.dangerous}>{children}</span>;
}

/** A part of a page with a heading of its own. */
export function Section({
  title,
  actions,
  children,
}: {
  title: string;
  actions?: ComponentChildren;
  children: ComponentChildren;
}) {
  return (
    <section class={c.section} aria-label={title}>
      <div class={c.sectionHead}>
        <h2>{title}</h2>
        {actions && <div class={c.row}>{actions}</div>}
      </div>
      {children}
    </section>
  );
}

/** What there is to know, as names and values. */
export function Facts({ of }: { of: readonly (readonly [name: string, value: ComponentChildren])[] }) {
  return (
    <dl class={c.facts}>
      {of.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** How long ago; the whole time when somebody points at it. */
export function Time({ at }: { at: string | null | undefined }) {
  if (!at) return <>{s.never}</>;
  const ms = Date.parse(at);
  const whole = wholeTime(ms);
  return (
    <time class={c.time} dateTime={at} title={whole}>
      {s.ago(Math.round((now.value - ms) / MS_PER_SECOND))}
    </time>
  );
}

/** An id: never broken by hand, and copied by a button. */
export function Id({ of, href }: { of: string; href?: string }) {
  const isCopied = useSignal(false);
  const copy = async () => {
    await navigator.clipboard.writeText(of);
    isCopied.value = true;
    setTimeout(() => {
      isCopied.value = false;
    }, COPIED_MS);
  };
  return (
    <span class={c.id}>
      <code>{href ? <a href={href}>{of}</a> : of}</code>
      {/* On plain HTTP a page has no clipboard. */}
      {navigator.clipboard && (
        <IconButton
          icon={isCopied.value ? "tick" : "copy"}
          size={14}
          name={isCopied.value ? s.copied : s.copyAs(of)}
          onClick={() => void copy()}
        />
      )}
    </span>
  );
}

/** What somebody wrote or is called: as text, whatever direction it has, and never wider than its place. */
export function Name({ of, href }: { of: string; href?: string }) {
  const text = <bdi class={c.name}>{plainName(of) || "…"}</bdi>;
  return href ? <a href={href}>{text}</a> : text;
}

/** A word for a state. Its colour is not alone: the word says it. */
export function Tag({ look = "plain", children }: { look?: Look; children: ComponentChildren }) {
  return <span class={`${c.tag} ${c[look]}`}>{children}</span>;
}

export type Look = "plain" | "good" | "warn" | "bad" | "accent";

/** Fields in a row, with a button that asks. */
export function Filters({ onSubmit, children }: { onSubmit: () => void; children: ComponentChildren }) {
  return (
    <search>
      <form
        class={c.filters}
        onSubmit={(event) => {
          event.preventDefault();
          onSubmit();
        }}
      >
        {children}
      </form>
    </search>
  );
}

export const row = c.row as string;
export const grid = c.grid as string;
export const card = c.card as string;
export const quiet = c.quiet as string;
export const columns = c.columns as string;
export const pre = c.pre as string;
