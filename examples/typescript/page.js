import { connect, indexedDb, login, register } from "parley-chat";

const DEVICE = "notes-page";
const SESSION = "notes-session";

const signIn = document.querySelector("#sign-in");
const writing = document.querySelector("#write");
const state = document.querySelector("#state");
const list = document.querySelector("#messages");

signIn.addEventListener("submit", async (event) => {
  event.preventDefault();
  const { server, username, password } = Object.fromEntries(new FormData(signIn));
  try {
    if (event.submitter?.name === "new") await register(server, username, password);
    const token = await login(server, username, password, { deviceId: DEVICE });
    // A real product keeps what lasts in an HttpOnly cookie, and gives the SDK a function that fetches tokens.
    localStorage.setItem(SESSION, JSON.stringify({ server, token }));
    await start({ server, token });
  } catch (error) {
    state.textContent = error.message;
  }
});

const known = localStorage.getItem(SESSION);
if (known) start(JSON.parse(known));

async function start({ server, token }) {
  const me = await connect(server, token, { deviceId: DEVICE, store: indexedDb() });
  signIn.hidden = true;
  const showState = () => {
    state.textContent = me.isOnline ? "Online" : "Offline. What you write is sent when you are back.";
    if (me.failure) state.textContent = me.failure.message;
  };
  me.on("connection", showState);
  showState();
  const chat = await notesOf(me);
  const shown = await chat.window();
  const showMessages = () => {
    const stored = shown.messages.map(({ entry }) => [entry.content, "sent"]);
    const waiting = chat.unsent.map((sending) => [sending.message.content, sending.status]);
    list.replaceChildren(...[...stored, ...waiting].map(row));
  };
  shown.onChange(showMessages);
  me.on("receipts", showMessages);
  showMessages();
  writing.hidden = false;
  writing.addEventListener("submit", (event) => {
    event.preventDefault();
    chat.send(writing.elements.text.value);
    writing.reset();
    showMessages();
  });
}

/** The person's own chat with this title. */
async function notesOf(me) {
  const chats = await me.chats();
  const found = chats.find((chat) => chat.title === "notes");
  return found ? me.chat(found.chat_id) : me.createChat([], "notes");
}

function row([text, status]) {
  const item = document.createElement("li");
  item.textContent = text;
  item.dataset.status = status;
  return item;
}
