/** A page: its heading, how old it is, and what it shows. Each page has exactly one. */

import { Button } from "parley-ui/controls.js";
import { Icon } from "parley-ui/Icon.js";
import { plainName } from "parley-ui/names.js";
import { clockTimeSeconds } from "parley-ui/time.js";
import type { ComponentChildren } from "preact";
import { useLayoutEffect } from "preact/hooks";
import { isPaused, isStale, secondsSince, shownSince } from "../app/feed.js";
import { s } from "../strings.en.js";
import c from "./Page.module.css";

type PageProps = {
  title: string;
  /** Where it belongs to: the list that one thing is of. */
  from?: { readonly title: string; readonly href: string };
  /** Beside the heading. */
  actions?: ComponentChildren;
  children: ComponentChildren;
};

export function Page({ title: given, from, actions, children }: PageProps) {
  const title = plainName(given) || "…";
  useLayoutEffect(() => {
    document.title = `${title} – ${s.product}`;
  }, [title]);
  return (
    <>
      <header class={c.head}>
        <div class={c.titles}>
          {from && (
            <a class={c.from} href={from.href}>
              <Icon name="back" size={16} />
              {from.title}
            </a>
          )}
          <h1 class={c.title} dir="auto" tabIndex={-1} id="title">
            {title}
          </h1>
        </div>
        {actions && <div class={c.actions}>{actions}</div>}
        <Age />
      </header>
      {isStale.value && !isPaused.value && <NoAnswer />}
      <div class={`${c.body} ${isStale.value ? c.stale : ""}`}>{children}</div>
    </>
  );
}

function NoAnswer() {
  return (
    <div class={c.noAnswer} role="alert">
      <Icon name="cloudOff" />
      <span>
        <strong>{s.unreachable}</strong> {s.staleHint(clockTimeSeconds(shownSince.value ?? 0))}
      </span>
    </div>
  );
}

/** How old the oldest part of the page is, and Pause. */
function Age() {
  const seconds = secondsSince(shownSince);
  return (
    <div class={c.age}>
      {/* It changes each second: it is there to be read, and not said by itself. */}
      <span
        role="status"
        aria-live="off"
        aria-label={s.age}
        data-stale={String(isStale.value)}
        class={c.ageText}
      >
        {ageText(seconds)}
      </span>
      <Button
        look="quiet"
        onClick={() => {
          isPaused.value = !isPaused.value;
        }}
      >
        {isPaused.value ? s.resume : s.pause}
      </Button>
    </div>
  );
}

function ageText(seconds: number): string {
  if (shownSince.value === null) return s.noAnswerYet;
  if (isPaused.value) return s.pausedAge(seconds);
  if (isStale.value) return s.staleAge(seconds, clockTimeSeconds(shownSince.value));
  return s.ageOf(seconds);
}
