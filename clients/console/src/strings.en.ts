/** Everything that the console says. A translation is a file like this one. */

import { s as controls } from "parley-ui/strings.en.js";

export const number = (count: number) => count.toLocaleString("en");
const plural = (count: number, one: string, many: string) => `${number(count)} ${count === 1 ? one : many}`;

export const s = {
  ...controls,
  product: "Parley console",
  // The door
  onlyLook: "Only look: nothing can be changed from this tab",
  doorHint: "For operators. It ends after 8 hours, or half an hour without you.",
  needsOperator: "This needs an operator.",
  needsOperatorHint: "An operator makes others: on the page of a person, or with parley user operator NAME.",
  sessionOver: "Your session is over",
  sessionOverHint: "What you see stays as it was. Sign in to go on.",
  otherPerson: "Sign in as somebody else",
  passwordAgain: "Your password again",
  passwordAgainHint: "What cannot be undone asks for it when it was given more than 15 minutes ago.",
  proceed: "Go on",
  wrongPassword: "Wrong username or password.",
  // Frame
  console: "Console",
  menu: "Menu",
  skip: "Skip to the page",
  openChat: "Open the chat",
  signedInAs: (name: string) => `Signed in as ${name}`,
  readOnly: "Read only",
  readOnlyHint: "This console may only look.",
  age: "Age",
  pause: "Pause",
  resume: "Resume",
  ageOf: (seconds: number) => (seconds < 2 ? "Live" : `${span(seconds)} old`),
  pausedAge: (seconds: number) => `Paused, ${span(seconds)} old`,
  staleAge: (seconds: number, at: string) => `No answer for ${span(seconds)}: as of ${at}`,
  noAnswerYet: "No answer yet",
  // Parts
  loading: "Loading…",
  unreachableHint: "It is asked again every five seconds.",
  storeAway: "The store does not answer.",
  storeAwayHint: "The server runs, and cannot read or write. See Overview and the server's log.",
  failed: "This did not work.",
  tryAgain: "Try again",
  more: "Show more",
  reason: "Reason",
  reasonHint: "It is kept in the audit log.",
  typeToConfirm: (what: string) => `Type ${what} to confirm.`,
  copy: "Copy",
  copyAs: (what: string) => `Copy ${what}`,
  copied: "Copied",
  never: "never",
  unknown: "unknown",
  yes: "yes",
  no: "no",
  all: "All",
  apply: "Apply",
  search: "Search",
  hourOf: (what: string) => `${what}, the last hour`,
  ago: (seconds: number) =>
    seconds < 0 ? `in ${span(-seconds)}` : seconds < 1 ? "now" : `${span(seconds)} ago`,
  placeholder: "This page is being built.",
  // Pages
  overview: "Overview",
  messages: "Messages",
  chats: "Chats",
  people: "People",
  deadLetters: "Dead letters",
  reports: "Reports",
  webhooks: "Webhooks",
  push: "Push",
  nodes: "Nodes",
  jobs: "Jobs",
  topics: "Topics",
  programs: "Programs",
  links: "Links",
  audit: "Audit",
  problems: {
    store: "The store does not answer",
    bus: "Kafka takes nothing that this node publishes",
    redis: "Redis does not answer",
    deadLetters: (count: number) => plural(count, "dead letter waits", "dead letters wait"),
    jobsFailing: (count: number) => plural(count, "job fails", "jobs fail"),
    jobsOverdue: (count: number) => plural(count, "job is overdue", "jobs are overdue"),
  },
  noSuchPage: "There is no such page",
} as const;

const UNITS: readonly (readonly [seconds: number, name: string])[] = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
];

/** "3 min", "2 h": the largest unit that fits. */
function span(seconds: number): string {
  const [size, name] = UNITS.find(([least]) => seconds >= least) ?? [1, "s"];
  return `${number(Math.round(seconds / size))} ${name}`;
}

export { plural };
