/**
 * A chat with somebody of this site, in a corner of any page: `<parley-widget session="/chat-session">`.
 *
 * It is script and markup of the page itself, no frame. The page's own backend says who its visitor is: `session`
 * answers `{ url, token, user_id, chat_id }`, and is asked again before each token ends. Nothing of the chat is in a
 * cookie, and the token lives in the memory of the page alone.
 */

import { BadToken, connect, indexedDb } from "./parley-chat/index.js";

const DEVICE = "parley-widget.device";
const RETRY_MS = 5_000;
const WORDS = {
  open: "Chat with us",
  close: "Close the chat",
  message: "Message",
  write: "Write a message",
  send: "Send",
  offline: "Offline. What you write is sent when you are back.",
  over: "Log in to chat with us.",
  away: "The chat cannot be reached. It is tried again.",
  deleted: "Message deleted",
  unread: (count) => `${count} unread`,
  statuses: { keeping: "…", queued: "waits to be sent", sending: "sending", failed: "not sent" },
};
const LOOK = `
  :host { position: fixed; inset: auto 16px 16px auto; z-index: 2147483000; font: 15px/1.45 system-ui, sans-serif; }
  * { box-sizing: border-box; }
  button { min-height: 44px; border: 0; border-radius: 22px; padding: 0 20px; background: #3549c9; color: #fff;
    font: inherit; font-weight: 600; cursor: pointer; }
  button:focus-visible, input:focus-visible { outline: 3px solid #8fa0ff; outline-offset: 2px; }
  .launch { float: right; box-shadow: 0 4px 16px #0004; }
  section { display: flex; flex-direction: column; inline-size: min(360px, calc(100vw - 32px));
    block-size: min(480px, calc(100dvh - 96px)); margin-block-end: 12px; border-radius: 16px; overflow: hidden;
    background: #fff; color: #1a1d29; box-shadow: 0 8px 40px #0005; }
  section[hidden] { display: none; }
  h2 { margin: 0; padding: 14px 16px; background: #3549c9; color: #fff; font-size: 17px; }
  [role="status"] { margin: 0; padding-inline: 16px; background: #fff3d6; color: #5c4300; }
  [role="status"]:not(:empty) { padding-block: 8px; }
  ol { flex: 1; margin: 0; padding: 16px; overflow: auto; list-style: none; }
  li { inline-size: fit-content; max-inline-size: 85%; margin-block: 4px; padding: 8px 12px; border-radius: 14px;
    background: #eef0f6; white-space: pre-wrap; overflow-wrap: anywhere; }
  li[data-mine] { margin-inline-start: auto; background: #dfe4ff; }
  li small { display: block; color: #4a4f63; }
  form { display: flex; gap: 8px; padding: 12px; border-block-start: 1px solid #dfe2ec; }
  input { flex: 1; min-inline-size: 0; padding: 0 14px; border: 1px solid #767c92; border-radius: 22px; font: inherit; }
`;
/** A page may forbid styles that stand in it; a sheet that a script makes is none. */
const sheet = new CSSStyleSheet();
sheet.replaceSync(LOOK);

class ParleyWidget extends HTMLElement {
  #isOpen = false;
  #chat = null;
  #me = null;
  #shown = null;
  #userId = "";
  /** What was written before the chat was there. */
  #early = [];

  connectedCallback() {
    if (this.shadowRoot) return;
    const root = this.attachShadow({ mode: "open" });
    root.adoptedStyleSheets = [sheet];
    this.panel = made("section", { ariaLabel: WORDS.open, hidden: true });
    this.state = made("p", { role: "status" });
    this.list = made("ol", { ariaLabel: WORDS.open, tabIndex: 0 });
    this.input = made("input", { ariaLabel: WORDS.message, autocomplete: "off", maxLength: 4_000, placeholder: WORDS.write });
    const form = made("form", {});
    form.append(this.input, made("button", { textContent: WORDS.send }));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    this.panel.append(made("h2", { textContent: WORDS.open }), this.state, this.list, form);
    this.launch = made("button", { className: "launch", type: "button", ariaExpanded: "false" });
    this.launch.addEventListener("click", () => this.#toggle());
    root.append(this.panel, this.launch);
    root.addEventListener("keydown", (event) => event.key === "Escape" && this.#isOpen && this.#toggle());
    document.addEventListener("visibilitychange", () => this.#show());
    this.#show();
    this.#begin();
  }

  #begin() {
    this.#start().catch((error) => {
      const isOver = error instanceof BadToken;
      this.state.textContent = isOver ? WORDS.over : WORDS.away;
      if (!isOver) setTimeout(() => this.#begin(), RETRY_MS);
    });
  }

  async #start() {
    const first = await this.#session();
    let next = first;
    const token = async () => {
      const { token: now } = next ?? (await this.#session());
      next = null;
      return now;
    };
    this.#userId = first.user_id;
    this.#me = await connect(first.url, token, {
      deviceId: deviceId(),
      userId: first.user_id,
      store: indexedDb(),
    });
    this.#chat = this.#me.chat(first.chat_id);
    this.#shown = await this.#chat.window();
    for (const text of this.#early.splice(0)) this.#chat.send(text);
    this.#shown.onChange(() => this.#show());
    for (const what of ["connection", "receipts", "unread"]) this.#me.on(what, () => this.#show());
    this.#show();
  }

  async #session() {
    const answer = await fetch(this.getAttribute("session") ?? "/chat-session", { cache: "no-store" });
    if (answer.status === 401) throw new BadToken(WORDS.over);
    if (!answer.ok) throw new Error(WORDS.away);
    return answer.json();
  }

  #send() {
    const text = this.input.value.trim();
    if (!text) return;
    if (this.#shown) this.#chat.send(text);
    else this.#early.push(text);
    this.input.value = "";
    this.#show();
  }

  #toggle() {
    this.#isOpen = !this.#isOpen;
    this.panel.hidden = !this.#isOpen;
    this.launch.ariaExpanded = String(this.#isOpen);
    this.#show();
    (this.#isOpen ? this.input : this.launch).focus();
  }

  #show() {
    const unread = this.#chat?.unread ?? 0;
    const isLooked = this.#isOpen && document.visibilityState === "visible";
    this.launch.textContent = this.#isOpen ? WORDS.close : WORDS.open;
    if (unread && !this.#isOpen) this.launch.textContent += ` (${WORDS.unread(unread)})`;
    // It is shown before the chat is there: a visitor may open it at once.
    if (!this.#shown) return;
    this.state.textContent = this.#me.failure ? WORDS.over : this.#me.isOnline ? "" : WORDS.offline;
    const stored = this.#shown.messages.map(({ entry, deleted }) =>
      row(deleted ? WORDS.deleted : entry.content, entry.sender_id === this.#userId, "sent"),
    );
    const waiting = this.#chat.unsent.map(({ message, status }) => row(message.content, true, status));
    const isAtEnd = this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < 100;
    this.list.replaceChildren(...stored, ...waiting);
    if (isAtEnd) this.list.scrollTop = this.list.scrollHeight;
    const last = this.#shown.entries.at(-1);
    if (isLooked && last && last.sequence > this.#chat.readUpTo) this.#chat.markRead(last.sequence).catch(() => {});
  }
}

/** What others wrote is text, and never markup. */
function row(text, isMine, status) {
  const item = made("li", { textContent: text });
  item.dataset.status = status;
  if (isMine) item.dataset.mine = "";
  const said = WORDS.statuses[status];
  if (said) item.append(made("small", { textContent: said }));
  return item;
}

function made(name, properties) {
  return Object.assign(document.createElement(name), properties);
}

/** This browser, for the server: the same over reloads. */
function deviceId() {
  let known = localStorage.getItem(DEVICE);
  if (!known) {
    known = `widget-${Array.from(crypto.getRandomValues(new Uint8Array(9)), (byte) => byte.toString(36)).join("")}`;
    localStorage.setItem(DEVICE, known);
  }
  return known;
}

customElements.define("parley-widget", ParleyWidget);
