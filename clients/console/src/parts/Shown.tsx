/** What a feed has: nothing yet, an error, nothing at all, or something, perhaps with an error above it. */

import { CannotConnect } from "parley-chat";
import { Button } from "parley-ui/controls.js";
import { Icon } from "parley-ui/Icon.js";
import type { ComponentChildren } from "preact";
import type { Feed } from "../app/feed.js";
import { said } from "../app/words.js";
import { s } from "../strings.en.js";
import c from "./Shown.module.css";

type ShownProps<Value> = {
  feed: Feed<Value>;
  /** What to say where there is nothing. */
  empty?: { readonly when: (value: Value) => boolean; readonly say: ComponentChildren };
  children: (value: Value) => ComponentChildren;
};

export function Shown<Value>({ feed, empty, children }: ShownProps<Value>) {
  const value = feed.value.value;
  const error = feed.error.value;
  const trouble = error !== null && <Trouble error={error} onRetry={() => void feed.reload()} />;
  if (value === null) return trouble || <Loading />;
  return (
    <>
      {/* That nobody answers is said once, above the page. */}
      {!(error instanceof CannotConnect) && trouble}
      {empty?.when(value) ? <Empty>{empty.say}</Empty> : children(value)}
    </>
  );
}

/** The place of what is asked for the first time. */
export function Loading() {
  return (
    <div class={c.loading} role="status" aria-label={s.loading}>
      <span />
      <span />
      <span />
    </div>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <div class={c.empty}>{children}</div>;
}

/** A request that failed. What was shown before stays below it. */
export function Trouble({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  const { title, hint } = said(error);
  return (
    <div class={c.trouble} role="alert">
      <Icon name="warning" />
      <div class={c.words}>
        <strong>{title}</strong>
        {hint && <p>{hint}</p>}
      </div>
      {onRetry && <Button onClick={onRetry}>{s.tryAgain}</Button>}
    </div>
  );
}
