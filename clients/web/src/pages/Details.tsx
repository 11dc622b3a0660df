/** What there is to know of a chat, and to change: its people, its silence, its history. */

import { useSignal } from "@preact/signals";
import type { Member, Notify, ReadReceipts, Role } from "parley-chat";
import { Alert, Avatar, Button, Field, IconButton, Select, Switch } from "parley-ui/controls.js";
import controls from "parley-ui/controls.module.css";
import { Dialog, Question } from "parley-ui/Dialog.js";
import { Icon } from "parley-ui/Icon.js";
import { useLater } from "parley-ui/later.js";
import { Menu, type MenuItem, type Place } from "parley-ui/Menu.js";
import { reasonOf } from "parley-ui/pageSession.js";
import { listTime } from "parley-ui/time.js";
import { useEffect } from "preact/hooks";
import type { Conversation } from "../app/conversation.js";
import { go, hrefOf } from "../app/route.js";
import { useApp } from "../app/state.js";
import { s } from "../strings.en.js";
import { plainName } from "../text/parse.js";
import { Completeness } from "./Completeness.js";
import c from "./Details.module.css";
import { copy } from "./messageActions.js";

const FOR_EVER = "9999-01-01T00:00:00Z";
const HOUR_MS = 3_600_000;
const MEMBERS_SHOWN = 100;

type DetailsProps = { conversation: Conversation; onClose: () => void };

export default function Details({ conversation, onClose }: DetailsProps) {
  const { chats, live } = useApp();
  const { chat } = conversation;
  live.watch("members", chat.chatId);
  live.watch("presence");
  const info = conversation.info.value;
  const row = chats.rows.value.get(chat.chatId);
  const title = plainName(row ? chats.titleOf(chat.chatId) : (info?.title ?? ""));
  const isGroup = (row?.type ?? info?.type) === "group";
  const isAdmin = info?.role === "owner" || info?.role === "admin";
  const peer = row?.peerId ? chat.members.get(row.peerId) : undefined;
  return (
    <aside class={c.details} aria-label={s.details} id="details" tabIndex={-1}>
      <div class={c.head}>
        <strong>{s.details}</strong>
        <IconButton icon="close" name={s.closeDetails} onClick={onClose} />
      </div>
      <div class={c.body}>
        <div class={c.who}>
          <Avatar id={row?.peerId ?? chat.chatId} name={title} size={88} isGroup={isGroup} />
          <bdi class={c.title}>{title}</bdi>
          {peer && <span class={controls.hint}>@{peer.username}</span>}
          {isGroup && info && <span class={controls.hint}>{s.members(info.member_count)}</span>}
        </div>
        <Completeness chat={chat} />
        {isGroup && isAdmin && <Rename conversation={conversation} title={info?.title ?? ""} />}
        <Quiet conversation={conversation} />
        <History conversation={conversation} onClose={onClose} />
        <FilesButton conversation={conversation} onClose={onClose} />
        {info?.open_to_join && (
          <div class={c.inline}>
            <p class={controls.hint}>{s.anyoneJoins}</p>
            <Button onClick={() => void copyLink(conversation)}>
              <Icon name="link" />
              {s.copyChatLink}
            </Button>
          </div>
        )}
        {isGroup && isAdmin && <Rules conversation={conversation} />}
        {isGroup && <Members conversation={conversation} isAdmin={isAdmin} />}
        {row?.peerId && <Peer userId={row.peerId} name={title} />}
        {isGroup && <Leave conversation={conversation} />}
      </div>
    </aside>
  );
}

async function copyLink(conversation: Conversation): Promise<void> {
  await copy(`${location.origin}/${hrefOf.chat(conversation.chat.chatId)}`);
  conversation.say(s.linkCopied);
}

const loadFiles = () => import("./ChatFiles.js");

function FilesButton({ conversation, onClose }: DetailsProps) {
  const isOpen = useSignal(false);
  const ChatFiles = useLater(isOpen.value ? loadFiles : null);
  return (
    <div class={c.inline}>
      <Button
        onClick={() => {
          isOpen.value = true;
        }}
      >
        <Icon name="file" />
        {s.filesOfChat}
      </Button>
      {ChatFiles && (
        <ChatFiles
          conversation={conversation}
          onClose={() => {
            isOpen.value = false;
          }}
          onJump={(sequence) => {
            isOpen.value = false;
            if (matchMedia("(max-width: 1099px)").matches) onClose();
            void conversation.jump(sequence);
          }}
        />
      )}
    </div>
  );
}

function Rename({ conversation, title }: { conversation: Conversation; title: string }) {
  const name = useSignal(title);
  const reason = useSignal("");
  const save = async (event: Event) => {
    event.preventDefault();
    try {
      await conversation.chat.rename(name.value.trim());
      reason.value = "";
      await conversation.loadInfo();
    } catch (error) {
      reason.value = reasonOf(error);
    }
  };
  return (
    <form class={c.inline} onSubmit={save}>
      {reason.value && <Alert>{reason.value}</Alert>}
      <Field label={s.groupName} value={name} maxLength={200} required />
      {name.value.trim() !== title && <Button type="submit">{s.save}</Button>}
    </form>
  );
}

function Quiet({ conversation }: { conversation: Conversation }) {
  const { live } = useApp();
  const { chat, info } = conversation;
  live.watch("settings", chat.chatId);
  const muteFor = useSignal(FOR_EVER);
  const change = async (made: Promise<unknown>) => {
    await made.catch((error) => conversation.say(reasonOf(error)));
    await conversation.loadInfo();
  };
  const until = () =>
    muteFor.value === FOR_EVER ? new Date(FOR_EVER) : new Date(Date.now() + Number(muteFor.value));
  const isMuted = info.value?.muted ?? chat.muted;
  return (
    <div class={c.inline}>
      <Switch
        label={s.mute}
        isOn={isMuted}
        onChange={(isOn) => void change(isOn ? chat.mute(until()) : chat.unmute())}
      />
      {!isMuted && (
        <Select
          label={s.muteFor}
          value={muteFor.value}
          options={[
            [FOR_EVER, s.forEver],
            [String(HOUR_MS), s.oneHour],
            [String(8 * HOUR_MS), s.eightHours],
          ]}
          onChange={(value) => {
            muteFor.value = value;
          }}
        />
      )}
      {info.value && (
        <Select
          label={s.notify}
          value={info.value.notify}
          options={s.notifyChoices}
          onChange={(value) => void change(chat.notify(value as Notify))}
        />
      )}
    </div>
  );
}

/** The whole log as a slider: a position is a place in it. */
function History({ conversation, onClose }: DetailsProps) {
  const { chat } = conversation;
  const isAsking = useSignal(false);
  const head = chat.head ?? conversation.info.value?.head ?? 0;
  const at = useSignal(head);
  useEffect(() => {
    at.value = conversation.window.value?.to ?? head;
  }, [conversation.window.value, head]);
  const jump = (sequence: number) => {
    if (matchMedia("(max-width: 1099px)").matches) onClose();
    void conversation.jump(sequence);
  };
  if (head < 2) return null;
  return (
    <div class={c.history}>
      <label class={controls.label} for="history">
        {s.history}
      </label>
      <input
        id="history"
        type="range"
        aria-label={s.history}
        min={1}
        max={head}
        value={at.value}
        aria-valuetext={s.position(at.value, head)}
        onInput={(event) => {
          at.value = event.currentTarget.valueAsNumber;
        }}
        onChange={(event) => jump(event.currentTarget.valueAsNumber)}
      />
      <span class={controls.hint}>{s.position(at.value, head)}</span>
      <Button
        onClick={() => {
          isAsking.value = true;
        }}
      >
        <Icon name="calendar" />
        {s.goToDate}
      </Button>
      {isAsking.value && (
        <GoToDate
          conversation={conversation}
          onJump={jump}
          onClose={() => {
            isAsking.value = false;
          }}
        />
      )}
    </div>
  );
}

type GoToDateProps = { conversation: Conversation; onJump: (sequence: number) => void; onClose: () => void };

function GoToDate({ conversation, onJump, onClose }: GoToDateProps) {
  const date = useSignal(new Date().toISOString().slice(0, 10));
  const reason = useSignal("");
  const find = async (event: Event) => {
    event.preventDefault();
    const [year = 0, month = 1, day = 1] = date.value.split("-").map(Number);
    try {
      onJump(await conversation.firstSince(new Date(year, month - 1, day).getTime()));
      onClose();
    } catch (error) {
      reason.value = reasonOf(error);
    }
  };
  return (
    <Dialog title={s.goToDate} onClose={onClose}>
      <form class={c.inline} onSubmit={find}>
        {reason.value && <Alert>{reason.value}</Alert>}
        <Field label={s.date} value={date} type="date" required autoFocus />
        <div class={controls.buttons}>
          <Button onClick={onClose}>{s.cancel}</Button>
          <Button type="submit" look="primary">
            {s.go}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

function Rules({ conversation }: { conversation: Conversation }) {
  const { chat, info } = conversation;
  if (!info.value) return null;
  const change = async (made: Promise<unknown>) => {
    await made.catch((error) => conversation.say(reasonOf(error)));
    await conversation.loadInfo();
  };
  return (
    <section class={c.inline} aria-label={s.rules}>
      <Switch
        label={s.announcementOnly}
        isOn={info.value.announcement_only}
        onChange={(isOn) => void change(chat.announceOnly(isOn))}
      />
      <Select
        label={s.readReceiptsMode}
        value={info.value.read_receipts}
        options={s.readReceiptsModes}
        onChange={(value) => void change(chat.setReadReceipts(value as ReadReceipts))}
      />
      <Select
        label={s.slowModeStatus}
        value={String(info.value.slow_mode_seconds)}
        options={including(s.slowModes, info.value.slow_mode_seconds)}
        onChange={(value) => void change(chat.setSlowMode(Number(value)))}
      />
      <Select
        label={s.editWindow}
        value={String(info.value.edit_window_seconds)}
        options={including(s.editWindows, info.value.edit_window_seconds)}
        onChange={(value) => void change(chat.setEditWindow(Number(value)))}
      />
    </section>
  );
}

/** What is set may be none of what is offered. */
function including(options: readonly (readonly [string, string])[], seconds: number) {
  const isThere = options.some(([value]) => value === String(seconds));
  return isThere ? options : [...options, [String(seconds), s.seconds(seconds)] as const];
}

function Members({ conversation, isAdmin }: { conversation: Conversation; isAdmin: boolean }) {
  const isAdding = useSignal(false);
  const all = [...conversation.chat.members.values()];
  return (
    <section class={c.inline} aria-label={s.people}>
      <div class={c.line}>
        <h3>{s.people}</h3>
        {isAdmin && (
          <Button
            onClick={() => {
              isAdding.value = true;
            }}
          >
            <Icon name="addPerson" />
            {s.addPeople}
          </Button>
        )}
      </div>
      <ul aria-label={s.membersList} class={c.members}>
        {all.slice(0, MEMBERS_SHOWN).map((member) => (
          <OneMember key={member.userId} member={member} conversation={conversation} isAdmin={isAdmin} />
        ))}
      </ul>
      {isAdding.value && (
        <AddPeople
          conversation={conversation}
          onClose={() => {
            isAdding.value = false;
          }}
        />
      )}
    </section>
  );
}

type MemberProps = { member: Member; conversation: Conversation; isAdmin: boolean };

function OneMember({ member, conversation, isAdmin }: MemberProps) {
  const { person } = useApp();
  const menu = useSignal<Place | null>(null);
  const name = plainName(member.displayName || member.username);
  const isOwn = member.userId === person.userId;
  const items = itemsOf(member, conversation, isOwn, isAdmin, name);
  const seen =
    member.lastSeen && member.lastSeen !== "unavailable"
      ? s.lastSeen(listTime(Date.parse(member.lastSeen)))
      : "";
  return (
    <li class={c.member} data-user-id={member.userId}>
      <Avatar id={member.userId} name={name} size={40} isOnline={member.status === "online"} />
      <span class={c.memberText}>
        <bdi class={c.memberName}>{isOwn ? `${name} (${s.you})` : name}</bdi>
        <span class={controls.hint}>
          {member.status === "online" ? s.online : seen || `@${member.username}`}
        </span>
      </span>
      {member.role !== "member" && <span class={c.role}>{s.roleNames[member.role]}</span>}
      {items.length > 0 && (
        <IconButton
          icon="more"
          name={s.actionsFor(name)}
          aria-haspopup="menu"
          onClick={(event) => {
            const { left, bottom } = event.currentTarget.getBoundingClientRect();
            menu.value = { x: left, y: bottom };
          }}
        />
      )}
      {menu.value && (
        <Menu
          name={s.actionsFor(name)}
          items={items}
          place={menu.value}
          onClose={() => {
            menu.value = null;
          }}
        />
      )}
    </li>
  );
}

function itemsOf(
  member: Member,
  conversation: Conversation,
  isOwn: boolean,
  isAdmin: boolean,
  name: string,
): MenuItem[] {
  if (isOwn) return [];
  const { chat, app, info } = conversation;
  const attempt = (made: Promise<unknown>) => void made.catch((error) => conversation.say(reasonOf(error)));
  const role = (next: Role) => attempt(chat.setRole(member.userId, next));
  const isOwner = info.value?.role === "owner";
  const items: (MenuItem | false)[] = [
    {
      name: s.writeTo,
      icon: "mail",
      do: () => attempt(app.client.directChat(member.userId).then((made) => go(hrefOf.chat(made.chatId)))),
    },
    isOwner && member.role === "member" && { name: s.makeAdmin, icon: "shield", do: () => role("admin") },
    isOwner && member.role === "admin" && { name: s.makeMember, icon: "person", do: () => role("member") },
    isAdmin &&
      member.role !== "owner" && {
        name: s.remove(name),
        icon: "trash",
        isDanger: true,
        do: () => attempt(chat.removeMember(member.userId)),
      },
  ];
  return items.filter((item) => item !== false);
}

function AddPeople({ conversation, onClose }: { conversation: Conversation; onClose: () => void }) {
  const { client, people } = useApp();
  const username = useSignal("");
  const reason = useSignal("");
  const said = useSignal("");
  const add = async (event: Event) => {
    event.preventDefault();
    const name = username.value.trim().replace(/^@/, "").toLowerCase();
    reason.value = said.value = "";
    try {
      const found = await client.find(name);
      if (!found) {
        reason.value = s.noSuchPerson(name);
        return;
      }
      people.note(found);
      const isAdded = await conversation.chat.addMember(found.user_id);
      said.value = isAdded ? s.wasAdded(found.display_name) : s.wasInvited(found.display_name);
      username.value = "";
    } catch (error) {
      reason.value = reasonOf(error);
    }
  };
  return (
    <Dialog title={s.addPeople} onClose={onClose}>
      <form class={c.inline} onSubmit={add}>
        {reason.value && <Alert>{reason.value}</Alert>}
        <Field
          label={s.username}
          value={username}
          hint={s.personHint}
          required
          autoFocus
          autoComplete="off"
        />
        <p role="status">{said.value}</p>
        <div class={controls.buttons}>
          <Button onClick={onClose}>{s.done}</Button>
          <Button type="submit" look="primary">
            {s.add}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

/** The other person of a direct chat: a contact, or somebody to keep away. */
function Peer({ userId, name }: { userId: string; name: string }) {
  const { client, people } = useApp();
  const isContact = useSignal<boolean | null>(null);
  const isAsking = useSignal(false);
  const reason = useSignal("");
  const isBlocked = people.blocked.value.has(userId);
  useEffect(() => {
    client.contacts.all().then(
      (all) => {
        isContact.value = all.some((one) => one.user_id === userId);
      },
      () => {},
    );
  }, [userId]);
  const attempt = async (run: () => Promise<unknown>) => {
    reason.value = "";
    await run().catch((error) => {
      reason.value = reasonOf(error);
    });
  };
  const contact = () =>
    attempt(async () => {
      await (isContact.value ? client.contacts.remove(userId) : client.contacts.add(userId));
      isContact.value = !isContact.value;
    });
  const block = (isOn: boolean) => {
    isAsking.value = false;
    return attempt(() => people.block(userId, isOn));
  };
  return (
    <div class={c.inline}>
      {reason.value && <Alert>{reason.value}</Alert>}
      {isContact.value !== null && (
        <Button onClick={() => void contact()}>
          <Icon name="person" />
          {isContact.value ? s.removeContact : s.addContact}
        </Button>
      )}
      <Button
        onClick={() => {
          if (isBlocked) void block(false);
          else isAsking.value = true;
        }}
      >
        <Icon name="block" />
        {isBlocked ? s.unblock : s.block}
      </Button>
      {isAsking.value && (
        <Question
          title={s.blockQuestion(name)}
          hint={s.blockHint}
          action={s.block}
          onDo={() => void block(true)}
          onClose={() => {
            isAsking.value = false;
          }}
        />
      )}
    </div>
  );
}

function Leave({ conversation }: { conversation: Conversation }) {
  const { person } = useApp();
  const isAsking = useSignal(false);
  const leave = async () => {
    isAsking.value = false;
    try {
      await conversation.chat.removeMember(person.userId);
      go(hrefOf.chats());
    } catch (error) {
      conversation.say(reasonOf(error));
    }
  };
  return (
    <div class={c.inline}>
      <Button
        onClick={() => {
          isAsking.value = true;
        }}
      >
        <Icon name="leave" />
        {s.leaveChat}
      </Button>
      {isAsking.value && (
        <Question
          title={s.leaveQuestion}
          hint={s.leaveHint}
          action={s.leaveChat}
          onDo={() => void leave()}
          onClose={() => {
            isAsking.value = false;
          }}
        />
      )}
    </div>
  );
}
