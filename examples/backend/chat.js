// A chat in a page of your product, without an SDK: one WebSocket, four kinds of frames.
//
// The rules that keep it right:
//   - Entries are applied in the order of their numbers. What does not follow the last one is read from the log.
//   - A message keeps its id until it is acknowledged, however often it is sent: the server stores it once.
//   - A token is asked for before each connection, and again before it expires.

const HEARTBEAT_MS = 30_000;
const REFRESH_BEFORE_MS = 60_000;
const RECONNECT_MS_MAX = 30_000;

const byId = (id) => document.getElementById(id);
const show = (text) => (byId("state").textContent = text);

let chat; // {chat_id, me, people}
let socket;
let applied = 0; // every entry up to here is on the page
let failures = 0;
const waiting = new Map(); // by client_message_id: what is not acknowledged yet

async function ask(method, path, body) {
  const headers = { "Content-Type": "application/json" };
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

function send(frame) {
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(frame));
}

async function connect() {
  let token;
  try {
    token = await ask("GET", "/chat-token");
  } catch (error) {
    return reconnect(error.message);
  }
  const mine = new WebSocket(token.url.replace(/^http/, "ws") + "/v1/ws", "parley.v1");
  socket = mine;
  const timers = [setInterval(() => send({ type: "heartbeat" }), HEARTBEAT_MS)];
  timers.push(setInterval(refresh, token.seconds * 1000 - REFRESH_BEFORE_MS));
  mine.onopen = () => send({ type: "hello", token: token.token, device_id: deviceId() });
  mine.onmessage = (event) => receive(JSON.parse(event.data));
  mine.onclose = (event) => {
    timers.forEach(clearInterval);
    if (event.code >= 4200 && event.code < 4300) return show(`The server said: ${event.reason}`);
    reconnect("no connection");
  };
}

function reconnect(why) {
  const pause = Math.min(500 * 2 ** failures++, RECONNECT_MS_MAX) * (0.5 + Math.random() / 2);
  show(`${why}; trying again …`);
  setTimeout(connect, pause);
}

async function refresh() {
  try {
    send({ type: "refresh", token: (await ask("GET", "/chat-token")).token });
  } catch {
    // the socket is closed when the old token ends, and then a new one is asked for
  }
}

function receive(frame) {
  if (frame.type === "welcome") {
    failures = 0;
    show(`connected as ${chat.people[chat.me]}`);
    sync();
    sendWaiting();
  } else if (frame.type === "message_batch" && frame.chat_id === chat.chat_id) {
    if (frame.reset) {
      applied = 0;
      document.querySelectorAll("#log li:not(.waiting)").forEach((item) => item.remove());
    }
    frame.entries.forEach(apply);
    applied = frame.to_sequence;
    if (!frame.complete) sync();
  } else if (frame.type === "messages" && frame.chat_id === chat.chat_id) {
    const numbers = [...frame.entries.map((entry) => entry.sequence), ...(frame.voids ?? [])];
    if (Math.min(...numbers) > applied + 1) return sync();
    frame.entries.forEach(apply);
    applied = Math.max(applied, ...numbers);
  } else if (frame.type === "ack" && frame.client_message_id) {
    waiting.delete(frame.client_message_id);
  } else if (frame.type === "refused") {
    show(frame.reason);
    if (frame.temporary) setTimeout(sendWaiting, frame.retry_after_ms ?? 1000);
  }
}

function sync() {
  send({ type: "sync_request", chat_id: chat.chat_id, last_acked_sequence: applied });
}

function sendWaiting() {
  for (const [id, text] of waiting) sendMessage(id, text);
}

function sendMessage(id, text) {
  send({ type: "send_message", client_message_id: id, chat_id: chat.chat_id, content: text });
}

function apply(entry) {
  if (entry.sequence <= applied || entry.kind !== "message") return;
  byId(entry.client_message_id)?.remove(); // ours, shown while it was on its way
  addItem(entry.client_message_id, entry.sender_id, entry.content, new Date(entry.created_at));
}

function addItem(id, senderId, text, at) {
  const item = document.createElement("li");
  const small = document.createElement("small");
  item.id = id ?? "";
  item.textContent = text;
  small.textContent = `${chat.people[senderId] ?? "somebody"}, ${at ? at.toLocaleTimeString() : "sending …"}`;
  item.append(small);
  item.classList.toggle("mine", senderId === chat.me);
  item.classList.toggle("waiting", !at);
  byId("log").append(item);
  item.scrollIntoView({ block: "nearest" });
}

function deviceId() {
  const id = localStorage.getItem("device_id") ?? crypto.randomUUID();
  localStorage.setItem("device_id", id);
  return id;
}

byId("login").onsubmit = async (event) => {
  event.preventDefault();
  try {
    const login = await ask("POST", "/login", Object.fromEntries(new FormData(event.target)));
    chat = await ask("POST", `/chats/${login.others[0]}`);
  } catch (error) {
    return show(`That did not work (${error.message}).`);
  }
  event.target.hidden = true;
  event.target.style.display = "none";
  document.querySelector("main").hidden = false;
  connect();
};

byId("send").onsubmit = (event) => {
  event.preventDefault();
  const input = event.target.elements.text;
  const id = crypto.randomUUID();
  waiting.set(id, input.value);
  addItem(id, chat.me, input.value, null);
  sendMessage(id, input.value);
  input.value = "";
};
