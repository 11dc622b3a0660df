/** The page as a whole: nobody signed in, or one person with a client. */

import { signal } from "@preact/signals";
import { BadToken, type Client, Closed, connect, indexedDb, type Me, memory } from "parley-chat";
import { kept } from "parley-ui/kept.js";
import { Chats } from "./chats.js";
import { Live } from "./live.js";
import { People } from "./people.js";
import { go, hrefOf } from "./route.js";
import {
  forget,
  forgetToken,
  freshToken,
  knownPerson,
  origin,
  type Person,
  signIn,
  signOut,
} from "./session.js";
import { stopUploads } from "./uploads.js";

/** Everything that a signed-in page has. */
export interface App {
  readonly client: Client;
  readonly person: Person;
  readonly live: Live;
  readonly people: People;
  readonly chats: Chats;
}

export interface ServerInfo {
  readonly name: string;
  readonly version: string;
  readonly registration: string;
  readonly passwordLengthMin: number;
  readonly features: Readonly<Record<string, boolean>>;
}

const PASSWORD_LETTERS_MIN = 8;

export const app = signal<App | null>(null);
/** Null until it is known whether somebody is signed in. */
export const isSignedIn = signal<boolean | null>(null);
/** Whether the session ended by itself. */
export const wasSignedOut = signal(false);
/** The server has newer pages than this one. */
export const isOld = signal(false);
export const ownProfile = signal<Me | null>(null);
export const server = signal<ServerInfo>({
  name: location.host,
  version: "",
  registration: "open",
  passwordLengthMin: PASSWORD_LETTERS_MIN,
  features: {},
});

/** Begin with what this device knows. */
export async function start(): Promise<void> {
  void learnServer();
  const person = knownPerson();
  if (!person) {
    isSignedIn.value = false;
    return;
  }
  await open(person);
}

export async function enter(username: string, password: string): Promise<void> {
  const person = await signIn(username, password);
  wasSignedOut.value = false;
  go(hrefOf.chats());
  await open(person);
}

/** Sign out on purpose: nothing of the person stays on this device. */
export async function leave(): Promise<void> {
  const { client } = app.value ?? {};
  await signOut();
  await end(client);
}

async function open(person: Person): Promise<void> {
  const client = await connect(origin(), () => tokenFor(), {
    userId: person.userId,
    deviceId: person.deviceId,
    store: kept("store") === "memory" ? memory() : indexedDb(),
    tabs: true,
    startOffline: true,
  });
  const live = new Live(client);
  const people = new People(client);
  const chats = new Chats(client, people);
  client.on("connection", () => void watchEnd(client));
  app.value = { client, person, live, people, chats };
  isSignedIn.value = true;
  await chats.load();
  void loadProfile();
  void people.loadBlocked();
  void loadShell().then(
    (shell) => {
      if (client.failure) return;
      shell.watchVersion(client);
      stopWatching = shell.watchAttention(client);
      shell.serveShell(client, chats).catch(() => {});
    },
    () => {},
  );
}

/** The page is there without it. */
const loadShell = () => import("./shell.js");

export async function loadProfile(): Promise<void> {
  const opened = app.value;
  if (!opened) return;
  const me = await opened.client.me().catch(() => null);
  if (!me) return;
  opened.people.note(me);
  ownProfile.value = me;
}

/** A session that is over is no trouble of the network: the page goes back to its door. */
async function tokenFor(): Promise<string> {
  try {
    return await freshToken();
  } catch (error) {
    if (error instanceof BadToken) void sessionEnded();
    throw error;
  }
}

async function watchEnd(client: Client): Promise<void> {
  if (client.failure instanceof BadToken) return sessionEnded();
  // Another tab signed out, and deleted what this device kept.
  if (client.failure instanceof Closed && !knownPerson()) return sessionEnded();
  if (!client.isOnline) forgetToken();
}

async function sessionEnded(): Promise<void> {
  if (!app.value) {
    forget();
    isSignedIn.value = false;
    wasSignedOut.value = true;
    return;
  }
  const { client } = app.value;
  wasSignedOut.value = true;
  forget();
  await end(client);
}

let stopWatching = () => {};

async function end(client: Client | undefined): Promise<void> {
  stopWatching();
  app.value?.chats.stop();
  if (client) stopUploads(client);
  app.value = null;
  ownProfile.value = null;
  isSignedIn.value = false;
  go(hrefOf.chats());
  const endShell = async () => (await loadShell()).endShell();
  await Promise.all([client?.wipe().catch(() => {}), endShell().catch(() => {})]);
}

async function learnServer(): Promise<void> {
  try {
    const answer = await fetch("/v1/server");
    if (!answer.ok) return;
    const told = await answer.json();
    server.value = {
      name: told.name ?? location.host,
      version: told.version ?? "",
      registration: told.registration ?? "open",
      passwordLengthMin: told.password_length_min ?? PASSWORD_LETTERS_MIN,
      features: told.features ?? {},
    };
  } catch {
    // The page says so where it matters: when somebody signs in.
  }
}

/** The signed-in page; only components below the frame ask. */
export function useApp(): App {
  const opened = app.value;
  if (!opened) throw new Error("nobody is signed in");
  return opened;
}
