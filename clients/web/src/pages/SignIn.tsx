/** The door: sign in, or create an account. */

import { useSignal } from "@preact/signals";
import { RequestRefused, register } from "parley-chat";
import { Alert, Button, Field } from "parley-ui/controls.js";
import { reasonOf } from "parley-ui/pageSession.js";
import { useEffect } from "preact/hooks";
import { hrefOf, route } from "../app/route.js";
import { origin } from "../app/session.js";
import { enter, loadProfile, server, useApp, wasSignedOut } from "../app/state.js";
import { s } from "../strings.en.js";
import c from "./SignIn.module.css";

export function Door() {
  const mayCreate = ["open", "loopback"].includes(server.value.registration);
  const isCreating = route.value.page === "create" && mayCreate;
  return (
    <main class={c.door}>
      <div class={c.card}>
        <img class={c.mark} src="/assets/icon.svg" alt="" width="56" height="56" />
        {isCreating ? <CreateAccount /> : <SignIn mayCreate={mayCreate} />}
      </div>
      <p class={c.tagline}>{s.tagline}</p>
    </main>
  );
}

const SECOND_MS = 1_000;

/** Counts down how long the server wants to be left alone. */
function useWait(): { readonly seconds: number; start(error: unknown): void } {
  const seconds = useSignal(0);
  useEffect(() => {
    if (seconds.value === 0) return undefined;
    const timer = setTimeout(() => {
      seconds.value -= 1;
    }, SECOND_MS);
    return () => clearTimeout(timer);
  }, [seconds.value]);
  return {
    seconds: seconds.value,
    start: (error) => {
      if (!(error instanceof RequestRefused)) return;
      seconds.value = Math.ceil((error.refusal.retryAfterMs ?? 0) / SECOND_MS);
    },
  };
}

function SignIn({ mayCreate }: { mayCreate: boolean }) {
  const username = useSignal("");
  const password = useSignal("");
  const reason = useSignal(wasSignedOut.value ? s.signedOutHere : "");
  const isBusy = useSignal(false);
  const wait = useWait();
  const submit = async (event: Event) => {
    event.preventDefault();
    if (isBusy.value || wait.seconds > 0) return;
    isBusy.value = true;
    reason.value = "";
    try {
      await enter(username.value.trim().toLowerCase(), password.value);
    } catch (error) {
      reason.value = reasonOf(error);
      wait.start(error);
      password.value = "";
    }
    isBusy.value = false;
  };
  return (
    <form class={c.form} onSubmit={submit}>
      <h1>{s.signInTo(server.value.name)}</h1>
      {reason.value && <Alert>{reason.value}</Alert>}
      <Field label={s.username} value={username} autoComplete="username" required autoFocus />
      <Field label={s.password} value={password} type="password" autoComplete="current-password" required />
      <Button type="submit" look="primary" disabled={isBusy.value || wait.seconds > 0}>
        {isBusy.value ? s.signingIn : s.signIn}
      </Button>
      {wait.seconds > 0 && (
        <p class={c.hint} aria-hidden="true">
          {s.tryIn(wait.seconds)}
        </p>
      )}
      {!mayCreate && server.value.registration && <p class={c.hint}>{s.closed}</p>}
      {mayCreate && (
        <p class={c.other}>
          {s.newHere} <a href={hrefOf.page("create")}>{s.createAccount}</a>
        </p>
      )}
      <p class={c.hint}>{s.forgotten}</p>
    </form>
  );
}

function CreateAccount() {
  const username = useSignal("");
  const displayName = useSignal("");
  const password = useSignal("");
  const again = useSignal("");
  const reason = useSignal("");
  const isBusy = useSignal(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    if (isBusy.value) return;
    if (password.value !== again.value) {
      reason.value = s.passwordsDiffer;
      return;
    }
    isBusy.value = true;
    reason.value = "";
    try {
      const name = username.value.trim().toLowerCase();
      await register(origin(), name, password.value);
      await enter(name, password.value);
      if (displayName.value.trim()) {
        await useApp().client.update({ display_name: displayName.value.trim() });
        await loadProfile();
      }
    } catch (error) {
      reason.value = reasonOf(error);
    }
    isBusy.value = false;
  };
  const hint = s.passwordHint(server.value.passwordLengthMin);
  return (
    <form class={c.form} onSubmit={submit}>
      <h1>{s.createAccount}</h1>
      {reason.value && <Alert>{reason.value}</Alert>}
      <Field
        label={s.username}
        value={username}
        hint={s.usernameHint}
        autoComplete="username"
        required
        autoFocus
      />
      <Field label={s.displayName} value={displayName} hint={s.displayNameHint} autoComplete="name" />
      <Field
        label={s.password}
        value={password}
        hint={hint}
        type="password"
        autoComplete="new-password"
        required
      />
      <Field
        label={s.passwordAgain}
        value={again}
        type="password"
        autoComplete="new-password"
        required
        isInvalid={reason.value === s.passwordsDiffer}
      />
      <Button type="submit" look="primary" disabled={isBusy.value}>
        {isBusy.value ? s.creating : s.createAccount}
      </Button>
      <p class={c.other}>
        <a href={hrefOf.chats()}>{s.haveAccount}</a>
      </p>
    </form>
  );
}
