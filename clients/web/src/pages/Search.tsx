/** Find messages: in one chat, or everywhere. */

import { useSignal } from "@preact/signals";
import { RequestRefused, type SearchHit } from "parley-chat";
import { Alert, Avatar, Button, Switch } from "parley-ui/controls.js";
import controls from "parley-ui/controls.module.css";
import { Dialog, SEARCHBOX } from "parley-ui/Dialog.js";
import { reasonOf } from "parley-ui/pageSession.js";
import { listTime } from "parley-ui/time.js";
import { useEffect } from "preact/hooks";
import { findHere } from "../app/localSearch.js";
import { go, hrefOf } from "../app/route.js";
import { useApp } from "../app/state.js";
import { s } from "../strings.en.js";
import { plainName } from "../text/parse.js";
import c from "./Search.module.css";

const ASK_MS = 250;
const PAGE_HITS = 30;
const SNIPPET_CHARS = 240;

type SearchProps = { chatId: string | null; query?: string; onClose: () => void };

export default function Search({ chatId, query: given = "", onClose }: SearchProps) {
  const { client, chats, live } = useApp();
  live.watch("connection");
  const query = useSignal(given);
  const isHere = useSignal(chatId !== null);
  const hits = useSignal<readonly SearchHit[] | null>(null);
  const next = useSignal<string | number | null>(null);
  const trouble = useSignal("");
  const isBehind = useSignal(false);
  const isLocal = useSignal(false);

  const here = async (text: string, isLeft: () => boolean) => {
    const chatIds = isHere.value && chatId ? [chatId] : [...chats.rows.value.keys()];
    const found = await findHere(client, chatIds, text, isLeft);
    if (isLeft()) return;
    hits.value = found.map((entry) => ({ entry, snippet: entry.content.slice(0, SNIPPET_CHARS) }));
    next.value = null;
    trouble.value = "";
  };

  const ask = async (before: string | number | null, isLeft: () => boolean) => {
    const text = query.value.trim();
    const page = { limit: PAGE_HITS };
    isLocal.value = !client.isOnline;
    if (!client.isOnline) return here(text, isLeft);
    try {
      const found =
        isHere.value && chatId
          ? await client.chat(chatId).search(text, { ...page, ...(typeof before === "number" && { before }) })
          : await client.search(text, { ...page, ...(typeof before === "string" && { before }) });
      if (isLeft()) return;
      hits.value = before === null ? found.hits : [...(hits.value ?? []), ...found.hits];
      next.value = found.next;
      trouble.value = "";
      isBehind.value = false;
    } catch (error) {
      if (isLeft()) return;
      trouble.value = searchTrouble(error);
      isBehind.value = error instanceof RequestRefused && error.temporary;
    }
  };
  useEffect(() => {
    let isLeft = false;
    if (!query.value.trim()) {
      hits.value = null;
      return undefined;
    }
    const timer = setTimeout(() => void ask(null, () => isLeft), ASK_MS);
    return () => {
      isLeft = true;
      clearTimeout(timer);
    };
  }, [query.value, isHere.value, client.isOnline]);

  return (
    <Dialog title={s.searchTitle} onClose={onClose} isWide>
      <input
        {...SEARCHBOX}
        class={controls.input}
        aria-label={s.searchWords}
        placeholder={s.searchWords}
        value={query.value}
        autofocus
        onInput={(event) => {
          query.value = event.currentTarget.value;
        }}
      />
      {chatId && (
        <Switch
          label={s.onlyThisChat}
          isOn={isHere.value}
          onChange={(isOn) => {
            isHere.value = isOn;
          }}
        />
      )}
      {trouble.value && (
        <Alert>
          {trouble.value}{" "}
          {isBehind.value && <Button onClick={() => void ask(null, () => false)}>{s.tryAgain}</Button>}
        </Alert>
      )}
      {isLocal.value && hits.value && <p class={controls.hint}>{s.searchedHere}</p>}
      {hits.value && !trouble.value && (
        <>
          <p role="status" class={controls.hint}>
            {s.hits(hits.value.length, next.value !== null)}
          </p>
          <ul class={c.hits} aria-label={s.results}>
            {hits.value.map((hit) => (
              <Hit key={hit.entry.message_id} hit={hit} hasChat={!isHere.value} onClose={onClose} />
            ))}
          </ul>
          {next.value !== null && (
            <Button onClick={() => void ask(next.value, () => false)}>{s.moreHits}</Button>
          )}
        </>
      )}
    </Dialog>
  );
}

function Hit({ hit, hasChat, onClose }: { hit: SearchHit; hasChat: boolean; onClose: () => void }) {
  const { people, chats } = useApp();
  const { entry } = hit;
  const name = plainName(people.name(entry.sender_id));
  return (
    <li>
      <button
        type="button"
        class={c.hit}
        data-message-id={entry.message_id}
        onClick={() => {
          onClose();
          go(hrefOf.chat(entry.chat_id, entry.sequence));
        }}
      >
        <Avatar id={entry.sender_id} name={name} size={40} />
        <span class={c.text}>
          <span class={c.line}>
            <bdi>{name}</bdi>
            {hasChat && <bdi class={c.chat}>{plainName(chats.titleOf(entry.chat_id))}</bdi>}
            <time class={controls.hint}>{listTime(Date.parse(entry.created_at))}</time>
          </span>
          <span class={c.snippet} dir="auto">
            {marked(hit.snippet || entry.content)}
          </span>
        </span>
      </button>
    </li>
  );
}

const HIT = /\u2068([^\u2069]*)\u2069/;

/** The words that were found stand out. */
function marked(snippet: string) {
  return snippet
    .split(HIT)
    .map((part, at) => (at % 2 === 1 ? <mark key={`${at} ${part}`}>{part}</mark> : part));
}

function searchTrouble(error: unknown): string {
  if (error instanceof RequestRefused && error.code === "search_off") return s.searchOff;
  if (error instanceof RequestRefused && error.code === "search_behind") return s.searchBehind;
  return reasonOf(error);
}
