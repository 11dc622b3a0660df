/** Pages that are lists of people and chats: invitations, contacts, who is blocked. */

import { useSignal } from "@preact/signals";
import type { InvitationInfo, Related } from "parley-chat";
import { Alert, Avatar, Button, Field } from "parley-ui/controls.js";
import controls from "parley-ui/controls.module.css";
import { reasonOf } from "parley-ui/pageSession.js";
import { listTime } from "parley-ui/time.js";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { go, hrefOf, route } from "../app/route.js";
import { useApp } from "../app/state.js";
import { s } from "../strings.en.js";
import { plainName } from "../text/parse.js";
import frame from "./Frame.module.css";
import c from "./Lists.module.css";
import { PageHead } from "./PageHead.js";
import settings from "./Settings.module.css";

export default function Lists() {
  const { client } = useApp();
  switch (route.value.page) {
    case "contacts":
      return (
        <Relations key="contacts" title={s.contacts} list={client.contacts} empty={s.noContacts} isContacts />
      );
    case "blocked":
      return (
        <Relations
          key="blocked"
          title={s.blocked}
          list={client.blocks}
          empty={s.noBlocked}
          isContacts={false}
        />
      );
    default:
      return <Invitations />;
  }
}

function ListPage({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <main class={frame.main}>
      <PageHead title={title} />
      <div class={settings.scroller}>
        <div class={settings.page}>{children}</div>
      </div>
    </main>
  );
}

type RelationsProps = { title: string; list: RelationList; empty: string; isContacts: boolean };
type RelationList = {
  all(): Promise<Related[]>;
  add(userId: string): Promise<Related>;
  remove(userId: string): Promise<void>;
};

function Relations({ title, list, empty, isContacts }: RelationsProps) {
  const { client, people } = useApp();
  const all = useSignal<readonly Related[] | null>(null);
  const username = useSignal("");
  const reason = useSignal("");
  const load = async () => {
    try {
      all.value = await list.all();
    } catch (error) {
      reason.value = reasonOf(error);
    }
  };
  useEffect(() => void load(), []);
  const attempt = async (run: () => Promise<unknown>) => {
    reason.value = "";
    try {
      await run();
      await load();
      if (!isContacts) void people.loadBlocked();
    } catch (error) {
      reason.value = reasonOf(error);
    }
  };
  const add = (event: Event) => {
    event.preventDefault();
    const name = username.value.trim().replace(/^@/, "").toLowerCase();
    void attempt(async () => {
      const found = await client.find(name);
      if (!found) throw new Error(s.noSuchPerson(name));
      await list.add(found.user_id);
      username.value = "";
    });
  };
  return (
    <ListPage title={title}>
      {reason.value && <Alert>{reason.value}</Alert>}
      <form class={c.add} onSubmit={add}>
        <Field label={s.username} value={username} hint={s.personHint} autoComplete="off" required />
        <Button type="submit">{isContacts ? s.add : s.block}</Button>
      </form>
      {all.value?.length === 0 && <p class={controls.hint}>{empty}</p>}
      <ul class={c.list} aria-label={title}>
        {all.value?.map((one) => {
          const name = plainName(one.display_name || one.username);
          return (
            <li key={one.user_id} class={c.item}>
              <Avatar id={one.user_id} name={name} size={40} />
              <span class={c.text}>
                <bdi>{name}</bdi>
                <span class={controls.hint}>@{one.username}</span>
              </span>
              {isContacts && (
                <Button
                  aria-label={s.writeToName(name)}
                  onClick={() =>
                    void attempt(async () => go(hrefOf.chat((await client.directChat(one.user_id)).chatId)))
                  }
                >
                  {s.writeTo}
                </Button>
              )}
              <Button
                aria-label={isContacts ? s.remove(name) : s.unblockName(name)}
                onClick={() => void attempt(() => list.remove(one.user_id))}
              >
                {isContacts ? s.removeShort : s.unblock}
              </Button>
            </li>
          );
        })}
      </ul>
    </ListPage>
  );
}

function Invitations() {
  const { client, live, chats } = useApp();
  live.watch("invitations");
  const all = useSignal<readonly InvitationInfo[] | null>(null);
  const reason = useSignal("");
  const load = () =>
    client.invitations.all().then(
      (found) => {
        all.value = found;
      },
      (error) => {
        reason.value = reasonOf(error);
      },
    );
  useEffect(() => {
    void load();
    return client.on("invitations", () => void load());
  }, []);
  const answer = async (invitation: InvitationInfo, isAccepted: boolean) => {
    try {
      if (isAccepted) {
        await client.invitations.accept(invitation.chat_id);
        chats.reloadSoon(0);
        go(hrefOf.chat(invitation.chat_id));
      } else await client.invitations.decline(invitation.chat_id);
      await load();
    } catch (error) {
      reason.value = reasonOf(error);
    }
  };
  return (
    <ListPage title={s.invitations}>
      {reason.value && <Alert>{reason.value}</Alert>}
      {all.value?.length === 0 && <p class={controls.hint}>{s.noInvitations}</p>}
      <ul class={c.list} aria-label={s.invitations}>
        {all.value?.map((invitation) => {
          const title = plainName(invitation.title ?? s.unnamed);
          const by = plainName(invitation.by_display_name ?? invitation.by_username ?? s.unknownPerson);
          return (
            <li key={invitation.chat_id} class={c.item}>
              <Avatar id={invitation.chat_id} name={title} size={40} isGroup />
              <span class={c.text}>
                <bdi>{title}</bdi>
                <span class={controls.hint}>
                  {s.invitedBy(by, listTime(Date.parse(invitation.invited_at)))}
                </span>
              </span>
              <Button
                look="primary"
                aria-label={s.acceptName(title)}
                onClick={() => void answer(invitation, true)}
              >
                {s.accept}
              </Button>
              <Button aria-label={s.declineName(title)} onClick={() => void answer(invitation, false)}>
                {s.decline}
              </Button>
            </li>
          );
        })}
      </ul>
    </ListPage>
  );
}
