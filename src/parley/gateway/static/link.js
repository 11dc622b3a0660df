"use strict";

const token = decodeURIComponent(location.hash.slice(1));
const isInvite = token.startsWith("inv_");
const isReset = token.startsWith("rst_");
const at = (id) => document.getElementById(id);

function say(text, kind) {
  at("says").textContent = text;
  at("says").className = kind || "";
}

async function refusal(answer) {
  try {
    const problem = await answer.json();
    return problem.reason || problem.code;
  } catch {
    return `the server answered ${answer.status}`;
  }
}

async function send(path, body) {
  const headers = { "Content-Type": "application/json" };
  try {
    const answer = await fetch(path, { method: "POST", headers, body: JSON.stringify(body) });
    return answer.ok ? "" : await refusal(answer);
  } catch {
    return "the server cannot be reached; try again";
  }
}

async function submit(event) {
  event.preventDefault();
  const username = at("username").value.trim();
  const password = at("password").value;
  if (password !== at("again").value) {
    say("The two passwords differ.", "wrong");
    return;
  }
  at("button").disabled = true;
  const wrong = isInvite
    ? await send("v1/accounts", { username, password, invite: token })
    : await send("v1/password-reset", { token, new_password: password });
  at("button").disabled = false;
  if (wrong) {
    say(`That did not work: ${wrong}.`, "wrong");
    return;
  }
  at("form").hidden = true;
  history.replaceState(null, "", location.pathname);
  say(isInvite ? `Welcome, ${username}. You can log in now.` : "Your password is set. Log in with it.", "done");
}

if (isInvite || isReset) {
  at("title").textContent = isInvite ? "You are invited" : "Set a new password";
  document.title = at("title").textContent;
  at("button").textContent = isInvite ? "Register" : "Set the password";
  at("name_row").hidden = !isInvite;
  at("username").required = isInvite;
  at("form").hidden = false;
  at("form").addEventListener("submit", submit);
  at(isInvite ? "username" : "password").focus();
} else {
  say("This address is not complete. Open the link as you got it.", "wrong");
}
