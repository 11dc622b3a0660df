/**
 * A shop with its own login, and a page with the widget in it: all that its backend has to do.
 *
 *   CHAT_SECRET=… CHAT_TOKEN=… CHAT_URL=http://127.0.0.1:8080 node examples/widget/shop.js
 *
 * Its login is a toy: everybody is who they say. What matters is `chatSession`.
 */

import { createHmac, randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, normalize } from "node:path";

const { CHAT_SECRET, CHAT_TOKEN, CHAT_URL, PORT = "8082" } = process.env;
const ISSUER = "https://shop.example.com";
const AUDIENCE = "parley";
const TOKEN_SECONDS = 300;
const SUPPORT = { id: "support", name: "The shop" };
const HERE = new URL("./", import.meta.url);
const SDK = new URL("../../clients/typescript/dist/", import.meta.url);
const KINDS = { ".html": "text/html; charset=utf-8", ".js": "text/javascript" };
/** Nothing inline, nothing of others, and connections to the shop and the chat server alone. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  `connect-src 'self' ${CHAT_URL} ${CHAT_URL.replace(/^http/, "ws")}`,
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
].join("; ");

const logins = new Map();

const server = createServer(async (request, response) => {
  try {
    await answer(request, response);
  } catch (error) {
    console.error(String(error));
    response.writeHead(500).end();
  }
});

async function answer(request, response) {
  const { pathname } = new URL(request.url, "http://shop");
  if (request.method === "POST" && pathname === "/login") return logIn(request, response);
  if (pathname === "/chat-session") return chatSession(request, response);
  const file = fileOf(pathname);
  const content = file && (await readFile(file).catch(() => null));
  if (!content) return response.writeHead(404).end();
  response.writeHead(200, { "Content-Type": KINDS[extname(file.pathname)], "Content-Security-Policy": POLICY });
  response.end(content);
}

function fileOf(pathname) {
  if (pathname === "/") return new URL("shop.html", HERE);
  if (pathname === "/widget.js") return new URL("widget.js", HERE);
  const part = /^\/parley-chat\/([\w/.-]+\.js)$/.exec(normalize(pathname))?.[1];
  return part ? new URL(part, SDK) : null;
}

async function logIn(request, response) {
  let body = "";
  for await (const part of request) body += part;
  const name = new URLSearchParams(body).get("name") ?? "";
  if (!/^[a-z]{1,20}$/.test(name)) return response.writeHead(400).end();
  const login = randomUUID();
  logins.set(login, name);
  response.writeHead(303, { Location: "/", "Set-Cookie": `shop=${login}; HttpOnly; SameSite=Strict; Path=/` });
  response.end();
}

/** Who is logged in here may chat: a token that says who they are, and the chat with the shop. */
async function chatSession(request, response) {
  const name = logins.get(/\bshop=([\w-]+)/.exec(request.headers.cookie ?? "")?.[1]);
  if (!name) return response.writeHead(401).end();
  const { user_id } = await admin("PUT", `users/${name}`, { display_name: name });
  await admin("PUT", `users/${SUPPORT.id}`, { display_name: SUPPORT.name });
  const members = { type: "direct", member_ids: [`ext:${name}`, `ext:${SUPPORT.id}`] };
  const { chat_id } = await admin("POST", "chats", members);
  const session = { url: CHAT_URL, token: tokenOf(name), user_id, chat_id };
  response.writeHead(200, { "Content-Type": "application/json", "Cache-Control": "no-store" });
  response.end(JSON.stringify(session));
}

async function admin(method, path, body) {
  const headers = { Authorization: `Bearer ${CHAT_TOKEN}`, "Content-Type": "application/json" };
  const told = await fetch(`${CHAT_URL}/v1/admin/${path}`, { method, headers, body: JSON.stringify(body) });
  if (!told.ok) throw new Error(`${method} ${path}: ${told.status} ${await told.text()}`);
  return told.json();
}

/** A JSON Web Token, signed with what the shop and the chat server share. */
function tokenOf(name) {
  const coded = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const exp = Math.floor(Date.now() / 1_000) + TOKEN_SECONDS;
  const claims = { iss: ISSUER, aud: AUDIENCE, sub: name, name, exp };
  const signed = `${coded({ alg: "HS256", typ: "JWT" })}.${coded(claims)}`;
  return `${signed}.${createHmac("sha256", CHAT_SECRET).update(signed).digest("base64url")}`;
}

server.listen(Number(PORT), "127.0.0.1", () => {
  console.log(`shop on http://127.0.0.1:${server.address().port}`);
});
