/** Start a chat: with one person, or with a group. */

import { useSignal } from "@preact/signals";
import { type Profile, RequestRefused } from "parley-chat";
import { Alert, Avatar, Button, Field, IconButton, Switch } from "parley-ui/controls.js";
import controls from "parley-ui/controls.module.css";
import { Dialog } from "parley-ui/Dialog.js";
import { reasonOf } from "parley-ui/pageSession.js";
import { useEffect, useRef } from "preact/hooks";
import { announce } from "../app/conversation.js";
import { go, hrefOf } from "../app/route.js";
import { useApp } from "../app/state.js";
import { s } from "../strings.en.js";
import { plainName } from "../text/parse.js";
import c from "./NewChat.module.css";

export default function NewChat({ onClose }: { onClose: () => void }) {
  const { client, people, person } = useApp();
  const username = useSignal("");
  const title = useSignal("");
  const chosen = useSignal<readonly Person[]>([]);
  const contacts = useSignal<readonly Person[]>([]);
  const isOpen = useSignal(false);
  const reason = useSignal("");
  const isBusy = useSignal(false);
  const field = useRef<HTMLInputElement>(null);

  useEffect(() => {
    client.contacts.all().then(
      (all) => {
        contacts.value = all;
      },
      () => {},
    );
  }, []);
  const choose = (found: Person) => {
    people.note(found);
    chosen.value = [...chosen.value, found];
    username.value = "";
    field.current?.focus();
  };

  /** Whether there is nothing left to add. */
  const add = async (): Promise<boolean> => {
    const name = username.value.trim().replace(/^@/, "").toLowerCase();
    reason.value = "";
    if (!name) return true;
    if (chosen.value.some((one) => one.username === name)) {
      username.value = "";
      return true;
    }
    const found = await client.find(name).catch((error) => {
      reason.value = reasonOf(error);
    });
    if (found === undefined) return false;
    if (found === null) reason.value = s.noSuchPerson(name);
    else if (found.user_id === person.userId) reason.value = s.thatIsYou;
    else {
      choose(found);
      return true;
    }
    return false;
  };

  const start = async (event: Event) => {
    event.preventDefault();
    if (isBusy.value) return;
    isBusy.value = true;
    try {
      if (!(await add())) return;
      const ids = chosen.value.map((one) => one.user_id);
      const name = title.value.trim();
      const [first] = ids;
      if (!name && !isOpen.value && ids.length === 1 && first) open((await client.directChat(first)).chatId);
      else if (name || ids.length > 1) await group(ids, name || namesOf(chosen.value));
      else reason.value = s.personHint;
    } catch (error) {
      reason.value =
        error instanceof RequestRefused && error.code === "blocked" ? error.reason : reasonOf(error);
    } finally {
      isBusy.value = false;
    }
  };

  const group = async (ids: readonly string[], name: string) => {
    const body = { type: "group", member_ids: ids, title: name, open_to_join: isOpen.value } as const;
    const made = await client.http.call("POST /v1/chats", { body });
    const asked = chosen.value.filter((one) => made.invited?.includes(one.user_id));
    if (asked.length > 0) announce(made.chat_id, s.wereInvited(namesOf(asked)));
    open(made.chat_id);
  };
  const open = (chatId: string) => {
    onClose();
    go(hrefOf.chat(chatId));
  };
  const typed = username.value.trim().replace(/^@/, "").toLowerCase();
  const offered = contacts.value
    .filter((one) => !chosen.value.some((other) => other.user_id === one.user_id))
    .filter((one) => `${one.username}\n${one.display_name.toLowerCase()}`.includes(typed))
    .slice(0, CONTACTS_SHOWN);

  return (
    <Dialog title={s.newChat} onClose={onClose}>
      <form class={c.form} onSubmit={start}>
        {reason.value && <Alert>{reason.value}</Alert>}
        <div class={c.adding}>
          <Field
            label={s.username}
            value={username}
            hint={s.personHint}
            autoComplete="off"
            autoFocus
            inputRef={field}
            onKeyDown={(event) => {
              if (event.key !== "Enter" || !username.value.trim()) return;
              event.preventDefault();
              void add();
            }}
          />
          <Button onClick={() => void add()}>{s.add}</Button>
        </div>
        {offered.length > 0 && (
          <ul class={c.offered} aria-label={s.contacts}>
            {offered.map((one) => {
              const name = plainName(one.display_name || one.username);
              return (
                <li key={one.user_id}>
                  <button type="button" class={c.contact} onClick={() => choose(one)}>
                    <Avatar id={one.user_id} name={name} size={32} />
                    <bdi class={c.name}>{name}</bdi>
                  </button>
                </li>
              );
            })}
          </ul>
        )}
        {chosen.value.length > 0 && (
          <ul class={c.chosen} aria-label={s.people}>
            {chosen.value.map((one) => {
              const name = plainName(one.display_name || one.username);
              return (
                <li key={one.user_id} class={c.person}>
                  <Avatar id={one.user_id} name={name} size={32} />
                  <bdi class={c.name}>{name}</bdi>
                  <span class={controls.hint}>@{one.username}</span>
                  <IconButton
                    icon="close"
                    size={16}
                    name={s.remove(name)}
                    onClick={() => {
                      chosen.value = chosen.value.filter((other) => other.user_id !== one.user_id);
                    }}
                  />
                </li>
              );
            })}
          </ul>
        )}
        <Field label={s.groupName} value={title} hint={s.groupNameHint} autoComplete="off" maxLength={200} />
        {(title.value.trim() || chosen.value.length > 1) && (
          <Switch
            label={s.openToJoin}
            isOn={isOpen.value}
            onChange={(isOn) => {
              isOpen.value = isOn;
            }}
          />
        )}
        <div class={controls.buttons}>
          <Button onClick={onClose}>{s.cancel}</Button>
          <Button type="submit" look="primary" disabled={isBusy.value}>
            {s.startChat}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

const TITLE_CHARS_MAX = 200;
const CONTACTS_SHOWN = 8;

type Person = Pick<Profile, "user_id" | "username" | "display_name">;

/** A group without a name is called what its people are. */
function namesOf(people: readonly Person[]): string {
  return people
    .map((one) => one.display_name || one.username)
    .join(", ")
    .slice(0, TITLE_CHARS_MAX);
}
