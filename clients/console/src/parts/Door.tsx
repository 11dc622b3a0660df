/** The door: an operator signs in, also where the same person is signed in to the chat. */

import { useSignal } from "@preact/signals";
import { RequestRefused } from "parley-chat";
import { Alert, Button, Field, Switch } from "parley-ui/controls.js";
import controls from "parley-ui/controls.module.css";
import { Dialog } from "parley-ui/Dialog.js";
import { reasonOf } from "parley-ui/pageSession.js";
import { useEffect } from "preact/hooks";
import type { PasswordWish } from "../app/api.js";
import { operator, signIn, signOut } from "../app/session.js";
import { s } from "../strings.en.js";
import c from "./Door.module.css";

export function Door() {
  useEffect(() => {
    document.title = s.product;
  }, []);
  return (
    <main class={c.door}>
      <div class={c.card}>
        <img class={c.mark} src="/assets/console.svg" alt="" width="56" height="56" />
        <h1>{s.product}</h1>
        <SignIn />
      </div>
      <p class={c.hint}>{s.doorHint}</p>
    </main>
  );
}

/** What is shown stays behind it, and is asked for again once somebody signed in. */
export function SessionOver() {
  const round = useSignal(0);
  return (
    // There is nothing to do behind it: who closes it sees it again.
    <Dialog
      key={round.value}
      title={s.sessionOver}
      onClose={() => {
        round.value += 1;
      }}
    >
      <p>{s.sessionOverHint}</p>
      <SignIn username={operator.value?.username ?? ""} isReadOnly={operator.value?.isReadOnly ?? false} />
      <Button look="quiet" onClick={() => void signOut()}>
        {s.otherPerson}
      </Button>
    </Dialog>
  );
}

function SignIn({ username: known = "", isReadOnly: before = false }) {
  const username = useSignal(known);
  const password = useSignal("");
  const isReadOnly = useSignal(before);
  const reason = useSignal("");
  const isBusy = useSignal(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    if (isBusy.value) return;
    isBusy.value = true;
    reason.value = "";
    try {
      await signIn(username.value.trim().toLowerCase(), password.value, isReadOnly.value);
    } catch (error) {
      const isForbidden = error instanceof RequestRefused && error.code === "forbidden";
      reason.value = isForbidden ? `${s.needsOperator} ${s.needsOperatorHint}` : reasonOf(error);
      password.value = "";
    }
    isBusy.value = false;
  };
  return (
    <form class={controls.form} onSubmit={submit}>
      {reason.value && <Alert>{reason.value}</Alert>}
      <Field label={s.username} value={username} autoComplete="username" required autoFocus={!known} />
      <Field
        label={s.password}
        value={password}
        type="password"
        autoComplete="current-password"
        required
        autoFocus={known !== ""}
      />
      <Switch
        label={s.onlyLook}
        isOn={isReadOnly.value}
        onChange={(isOn) => {
          isReadOnly.value = isOn;
        }}
      />
      <Button type="submit" look="primary" disabled={isBusy.value}>
        {isBusy.value ? s.signingIn : s.signIn}
      </Button>
    </form>
  );
}

/** Something cannot be undone, and asks once more who is here. */
export function PasswordDialog({ wish }: { wish: PasswordWish }) {
  const password = useSignal("");
  const reason = useSignal("");
  const submit = async (event: Event) => {
    event.preventDefault();
    try {
      await wish.prove(password.value);
    } catch (error) {
      reason.value = reasonOf(error);
      password.value = "";
    }
  };
  return (
    <Dialog title={s.passwordAgain} onClose={wish.giveUp}>
      <form class={controls.form} onSubmit={submit}>
        <p>{s.passwordAgainHint}</p>
        {reason.value && <Alert>{reason.value}</Alert>}
        <Field
          label={s.password}
          value={password}
          type="password"
          autoComplete="current-password"
          required
          autoFocus
        />
        <div class={controls.buttons}>
          <Button onClick={wish.giveUp}>{s.cancel}</Button>
          <Button type="submit" look="primary">
            {s.proceed}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
