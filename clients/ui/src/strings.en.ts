/** What the controls say, on the pages of the chat and of the console. A translation is a file like this one. */

const SECONDS = (count: number) => `${count.toLocaleString("en")} ${count === 1 ? "second" : "seconds"}`;

export const s = {
  username: "Username",
  password: "Password",
  showPassword: "Show password",
  hidePassword: "Hide password",
  signIn: "Sign in",
  signingIn: "Signing in…",
  wrongPassword: "Wrong username or password.",
  tooFast: (seconds: number) => `Too many attempts. Try again in ${SECONDS(seconds)}.`,
  disabled: "This account is disabled. Ask an operator of this server.",
  unreachable: "The server does not answer. Check your connection, then try again.",
  taken: "This username is taken. Choose another one.",
  signOut: "Sign out",
  close: "Close",
  cancel: "Cancel",
  today: "Today",
  yesterday: "Yesterday",
  theme: "Theme",
  themes: [
    ["system", "Same as the system"],
    ["light", "Light"],
    ["dark", "Dark"],
  ],
} as const;
